/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Each FUSE operation as the kernel sends it: bytes, errors, references.
 */
#include "config.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire.h"

#define ALL (UINT32_MAX & ~FUSE_INIT_EXT)

static const struct fs_options plain = { .readers = 2, .pool_threads = 4 };
/* A single reader never runs by itself what may block. */
static const struct fs_options single = { .readers = 1, .pool_threads = 2 };

static void stop_clean(struct wire *w)
{
	ck_assert(wire_stop(w));
}

START_TEST(init_flags)
{
	static const struct fs_options with_acl = { .readers = 1, .acl = true };
	const uint32_t wanted = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_DONT_MASK |
				FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO | FUSE_ASYNC_DIO |
				FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES | FUSE_CACHE_SYMLINKS;
	const uint32_t unwanted = FUSE_ATOMIC_O_TRUNC | FUSE_HANDLE_KILLPRIV |
				  FUSE_WRITEBACK_CACHE | FUSE_EXPORT_SUPPORT | FUSE_POSIX_LOCKS |
				  FUSE_FLOCK_LOCKS | FUSE_SPLICE_READ | FUSE_SPLICE_WRITE |
				  FUSE_SPLICE_MOVE | FUSE_EXPLICIT_INVAL_DATA |
				  FUSE_NO_OPENDIR_SUPPORT;
	struct fuse_init_out out;
	struct wire *w = wire_start(CACHE_TTL, &plain, false);

	ck_assert_int_eq(wire_init(w, &out, ALL), 0);
	ck_assert_uint_eq(out.major, 7);
	ck_assert_uint_eq(out.flags & wanted, wanted);
	ck_assert_uint_eq(out.flags & unwanted, 0);
	ck_assert_uint_ne(out.flags & FUSE_AUTO_INVAL_DATA, 0);
	ck_assert_uint_eq(out.flags & FUSE_POSIX_ACL, 0);
	ck_assert_uint_eq(out.max_write, 1 << 20);
	ck_assert_uint_eq(out.max_readahead, 1 << 20);
	ck_assert_uint_eq(out.max_pages, (1 << 20) / (uint32_t)sysconf(_SC_PAGESIZE));
	ck_assert_uint_eq(out.max_background, 64);
	ck_assert_uint_eq(out.congestion_threshold, 48);
	ck_assert_uint_eq(out.time_gran, 1);
	stop_clean(w);

	w = wire_start(CACHE_EXCLUSIVE, &with_acl, false);
	ck_assert_int_eq(wire_init(w, &out, ALL), 0);
	ck_assert_uint_eq(out.flags & FUSE_AUTO_INVAL_DATA, 0);
	ck_assert_uint_ne(out.flags & FUSE_POSIX_ACL, 0);
	stop_clean(w);
}
END_TEST

START_TEST(ready_once_after_init)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, false);
	struct fuse_init_out out;
	struct fuse_attr_out a;

	ck_assert_uint_eq(atomic_load(&w->ready), 0);
	ck_assert_int_eq(wire_init(w, &out, ALL), 0);
	while (!atomic_load(&w->ready))
		ck_assert_int_eq(wire_getattr(w, FUSE_ROOT_ID, &a), 0);
	ck_assert_int_eq(wire_init(w, &out, ALL), -EIO); /* a second one is refused */
	ck_assert_uint_eq(atomic_load(&w->ready), 1);
	stop_clean(w);
}
END_TEST

START_TEST(refused_for_good)
{
	static const uint32_t refused[] = { FUSE_OPEN, FUSE_FLUSH, FUSE_TMPFILE,
					    FUSE_POLL, FUSE_GETLK, FUSE_SETLK, FUSE_ACCESS,
					    FUSE_SYNCFS, FUSE_BMAP, 99, 4000 };
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	char zeroes[128] = { 0 };

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		wire_begin(w);
		wire_put(w, zeroes, sizeof(zeroes));
		ck_assert_int_eq(wire_call(w, refused[i], FUSE_ROOT_ID), -ENOSYS);
	}
	wire_begin(w);
	wire_put(w, &(struct fuse_interrupt_in){ .unique = 77 }, sizeof(struct fuse_interrupt_in));
	ck_assert_int_eq(wire_call(w, FUSE_INTERRUPT, 0), -ENOSYS);
	stop_clean(w);
}
END_TEST

START_TEST(open_without_zero_message_support)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, false);
	struct fuse_init_out out;
	struct fuse_open_in in = { .flags = O_RDONLY };
	struct fuse_open_out o;

	ck_assert_int_eq(wire_init(w, &out, ALL & ~FUSE_NO_OPEN_SUPPORT), 0);
	wire_begin(w);
	wire_put(w, &in, sizeof(in));
	ck_assert_int_eq(wire_call(w, FUSE_OPEN, FUSE_ROOT_ID), 0);
	memcpy(&o, w->out, sizeof(o));
	ck_assert_uint_ne(o.open_flags & FOPEN_KEEP_CACHE, 0);
	stop_clean(w);
}
END_TEST

START_TEST(lookup_getattr)
{
	struct wire *w = wire_start(CACHE_TTL, _i ? &single : &plain, true);
	struct cnode *n = ram_file(w->cache, w->root, "a", "hello", 5);
	struct fuse_entry_out e;
	struct fuse_attr_out a;

	atomic_store(&ram_switches(w->cache)->cold, _i == 1);
	ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "a", &e), 0);
	ck_assert_uint_eq(e.nodeid, (uintptr_t)n);
	ck_assert_uint_eq(e.generation, 0);
	ck_assert_uint_eq(e.entry_valid, 1);
	ck_assert_uint_eq(e.attr_valid, 1);
	ck_assert_uint_eq(e.attr.ino, backing_ino(cache_bnode(n)));
	ck_assert_uint_eq(e.attr.size, 5);
	ck_assert_uint_eq(e.attr.mode, S_IFREG | 0644);
	ck_assert_uint_eq(ram_references(w->cache), 1);
	ck_assert_int_eq(wire_getattr(w, e.nodeid, &a), 0);
	ck_assert_mem_eq(&a.attr, &e.attr, sizeof(a.attr));
	ck_assert_int_eq(wire_getattr(w, FUSE_ROOT_ID, &a), 0);
	ck_assert_uint_eq(a.attr.ino, 1);
	ck_assert_uint_eq(a.attr.mode, S_IFDIR | 0755);
	/* a name that is not there may be remembered */
	ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "b", &e), 0);
	ck_assert_uint_eq(e.nodeid, 0);
	ck_assert_uint_eq(e.entry_valid, 1);
	ck_assert_uint_eq(stats_get(w->stats, fuse_pooled) > 0, _i == 1);
	ck_assert_uint_eq(stats_get(w->stats, fuse_lookups), 2);
	wire_forget(w, (uintptr_t)n, 1);
	stop_clean(w);
}
END_TEST

START_TEST(strict_lookup)
{
	struct wire *w = wire_start(CACHE_STRICT, &plain, true);
	struct fuse_entry_out e;

	ram_file(w->cache, w->root, "a", "hello", 5);
	ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "a", &e), 0);
	ck_assert_uint_eq(e.entry_valid + e.attr_valid + e.entry_valid_nsec + e.attr_valid_nsec, 0);
	wire_forget(w, e.nodeid, 1);
	ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "b", &e), -ENOENT);
	stop_clean(w);
}
END_TEST

START_TEST(setattr_maps)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	struct cnode *n = ram_file(w->cache, w->root, "a", "hello", 5);
	struct fuse_setattr_in in = { .valid = FATTR_MODE | FATTR_UID | FATTR_GID, .mode = 0600,
				      .uid = 3, .gid = 4 };
	struct fuse_attr_out a;
	struct fuse_entry_out e;

	ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "a", &e), 0);
	wire_begin(w);
	wire_put(w, &in, sizeof(in));
	ck_assert_int_eq(wire_call(w, FUSE_SETATTR, (uintptr_t)n), 0);
	memcpy(&a, w->out, sizeof(a));
	ck_assert_uint_eq(a.attr.mode, S_IFREG | 0600);
	ck_assert_uint_eq(a.attr.uid, 3);
	ck_assert_uint_eq(a.attr.gid, 4);
	in = (struct fuse_setattr_in){ .valid = FATTR_MTIME | FATTR_ATIME | FATTR_CTIME,
				       .mtime = 1000, .mtimensec = 5, .atime = 2000 };
	wire_begin(w);
	wire_put(w, &in, sizeof(in));
	ck_assert_int_eq(wire_call(w, FUSE_SETATTR, (uintptr_t)n), 0);
	memcpy(&a, w->out, sizeof(a));
	ck_assert_uint_eq(a.attr.mtime, 1000);
	ck_assert_uint_eq(a.attr.mtimensec, 5);
	ck_assert_uint_eq(a.attr.atime, 2000);
	/* O_TRUNC comes like this; "now" means now */
	in = (struct fuse_setattr_in){ .valid = FATTR_SIZE | FATTR_MTIME | FATTR_MTIME_NOW,
				       .size = 0, .mtime = 7 };
	wire_begin(w);
	wire_put(w, &in, sizeof(in));
	ck_assert_int_eq(wire_call(w, FUSE_SETATTR, (uintptr_t)n), 0);
	memcpy(&a, w->out, sizeof(a));
	ck_assert_uint_eq(a.attr.size, 0);
	ck_assert_uint_gt(a.attr.mtime, 1000000);
	wire_forget(w, e.nodeid, 1);
	stop_clean(w);
}
END_TEST

START_TEST(statfs)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	struct fuse_statfs_out s;

	wire_begin(w);
	ck_assert_int_eq(wire_call(w, FUSE_STATFS, FUSE_ROOT_ID), 0);
	ck_assert_uint_eq(w->out_len, sizeof(s));
	memcpy(&s, w->out, sizeof(s));
	ck_assert_uint_eq(s.st.blocks, 1000);
	ck_assert_uint_eq(s.st.bavail, 500);
	ck_assert_uint_eq(s.st.namelen, 255);
	stop_clean(w);
}
END_TEST

START_TEST(create_and_race)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	struct fuse_entry_out e, again;

	ck_assert_int_eq(wire_create(w, FUSE_ROOT_ID, "f", O_WRONLY | O_CREAT | O_EXCL, 0666, &e),
			 0);
	ck_assert_uint_eq(e.attr.mode, S_IFREG | 0644); /* the umask came along */
	ck_assert_int_eq(wire_write(w, e.nodeid, 0, "data", 4, 0, 0), 4);
	/* the name appeared behind the kernel's back */
	ck_assert_int_eq(
		wire_create(w, FUSE_ROOT_ID, "f", O_WRONLY | O_CREAT | O_EXCL, 0666, &again),
		-EEXIST);
	ck_assert_int_eq(wire_create(w, FUSE_ROOT_ID, "f", O_WRONLY | O_CREAT, 0666, &again), 0);
	ck_assert_uint_eq(again.nodeid, e.nodeid);
	ck_assert_uint_eq(again.attr.size, 4);
	ck_assert_int_eq(
		wire_create(w, FUSE_ROOT_ID, "f", O_WRONLY | O_CREAT | O_TRUNC, 0666, &again), 0);
	ck_assert_uint_eq(again.attr.size, 0);
	ck_assert_uint_eq(ram_references(w->cache), 3);
	wire_begin(w);
	wire_put(w, &(struct fuse_release_in){ 0 }, sizeof(struct fuse_release_in));
	ck_assert_int_eq(wire_call(w, FUSE_RELEASE, e.nodeid), 0);
	wire_forget(w, e.nodeid, 3);
	stop_clean(w);
}
END_TEST

static int name_call(struct wire *w, uint32_t opcode, const void *in, size_t len, const char *name,
		     const char *second)
{
	wire_begin(w);
	wire_put(w, in, len);
	wire_string(w, name);
	if (second)
		wire_string(w, second);
	return wire_call(w, opcode, FUSE_ROOT_ID);
}

START_TEST(names)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	struct fuse_mknod_in fifo = { .mode = S_IFIFO | 0644 };
	struct fuse_mkdir_in dir = { .mode = 0777, .umask = 022 };
	struct fuse_rename2_in rename = { .newdir = FUSE_ROOT_ID };
	struct fuse_link_in link;
	struct fuse_entry_out e[4];

	ck_assert_int_eq(name_call(w, FUSE_MKNOD, &fifo, sizeof(fifo), "fifo", NULL), 0);
	memcpy(&e[0], w->out, sizeof(e[0]));
	ck_assert_uint_eq(e[0].attr.mode, S_IFIFO | 0644);
	ck_assert_int_eq(name_call(w, FUSE_MKDIR, &dir, sizeof(dir), "dir", NULL), 0);
	memcpy(&e[1], w->out, sizeof(e[1]));
	ck_assert_uint_eq(e[1].attr.mode, S_IFDIR | 0755);
	ck_assert_int_eq(name_call(w, FUSE_MKDIR, &dir, sizeof(dir), "dir", NULL), -EEXIST);
	ck_assert_int_eq(name_call(w, FUSE_SYMLINK, NULL, 0, "sym", "else/where"), 0);
	memcpy(&e[2], w->out, sizeof(e[2]));
	wire_begin(w);
	ck_assert_int_eq(wire_call(w, FUSE_READLINK, e[2].nodeid), 0);
	ck_assert_uint_eq(w->out_len, 10);
	ck_assert_mem_eq(w->out, "else/where", 10);
	link.oldnodeid = e[0].nodeid;
	ck_assert_int_eq(name_call(w, FUSE_LINK, &link, sizeof(link), "fifo2", NULL), 0);
	memcpy(&e[3], w->out, sizeof(e[3]));
	ck_assert_uint_eq(e[3].nodeid, e[0].nodeid);
	ck_assert_uint_eq(e[3].attr.nlink, 2);
	ck_assert_uint_eq(ram_references(w->cache), 4);
	ck_assert_int_eq(name_call(w, FUSE_RENAME2, &rename, sizeof(rename), "sym", "sym2"), 0);
	rename.flags = 1; /* RENAME_NOREPLACE */
	ck_assert_int_eq(name_call(w, FUSE_RENAME2, &rename, sizeof(rename), "sym2", "dir"),
			 -EEXIST);
	ck_assert_int_eq(name_call(w, FUSE_UNLINK, NULL, 0, "dir", NULL), -EISDIR);
	ck_assert_int_eq(name_call(w, FUSE_RMDIR, NULL, 0, "dir", NULL), 0);
	ck_assert_int_eq(name_call(w, FUSE_UNLINK, NULL, 0, "fifo", NULL), 0);
	ck_assert_int_eq(name_call(w, FUSE_UNLINK, NULL, 0, "fifo", NULL), -ENOENT);
	for (int i = 0; i < 4; i++)
		wire_forget(w, e[i].nodeid, 1);
	stop_clean(w);
}
END_TEST

START_TEST(forget_counts)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	struct {
		struct fuse_batch_forget_in in;
		struct fuse_forget_one one[2];
	} batch = { .in.count = 2 };
	struct fuse_entry_out e, f;

	ram_file(w->cache, w->root, "e", "", 0);
	ram_file(w->cache, w->root, "f", "", 0);
	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "e", &e), 0);
		ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "f", &f), 0);
	}
	ck_assert_uint_eq(ram_references(w->cache), 10);
	wire_forget(w, e.nodeid, 2);
	batch.one[0] = (struct fuse_forget_one){ .nodeid = e.nodeid, .nlookup = 3 };
	batch.one[1] = (struct fuse_forget_one){ .nodeid = f.nodeid, .nlookup = 5 };
	wire_begin(w);
	wire_put(w, &batch, sizeof(batch));
	wire_send(w, FUSE_BATCH_FORGET, 0);
	wire_forget(w, FUSE_ROOT_ID, 1); /* the root is never forgotten */
	stop_clean(w);
}
END_TEST

START_TEST(reading)
{
	struct wire *w = wire_start(CACHE_TTL, _i ? &single : &plain, true);
	struct fuse_entry_out e;
	char text[3000];

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (char)(i * 7);
	ram_file(w->cache, w->root, "a", text, sizeof(text));
	atomic_store(&ram_switches(w->cache)->cold, _i == 1);
	ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "a", &e), 0);
	ck_assert_int_eq(wire_read(w, e.nodeid, 100, 1000), 0);
	ck_assert_uint_eq(w->out_len, 1000);
	ck_assert_mem_eq(w->out, text + 100, 1000);
	ck_assert_int_eq(wire_read(w, e.nodeid, 2000, 4096), 0);
	ck_assert_uint_eq(w->out_len, 1000);
	ck_assert_mem_eq(w->out, text + 2000, 1000);
	ck_assert_int_eq(wire_read(w, e.nodeid, 3000, 4096), 0);
	ck_assert_uint_eq(w->out_len, 0);
	ck_assert_int_eq(wire_read(w, e.nodeid, 1ULL << 40, 4096), 0);
	ck_assert_uint_eq(w->out_len, 0);
	ck_assert_int_eq(wire_read(w, e.nodeid, 0, (1 << 20) + 1), -EINVAL);
	wire_forget(w, e.nodeid, 1);
	stop_clean(w);
}
END_TEST

START_TEST(writing)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	uint32_t len = 100000; /* large enough to be handed on without copying */
	char *big = malloc(len);
	struct fuse_entry_out e;

	for (uint32_t i = 0; i < len; i++)
		big[i] = (char)(i * 13 + i / 4096);
	ck_assert_int_eq(wire_create(w, FUSE_ROOT_ID, "f", O_RDWR | O_CREAT, 0600, &e), 0);
	for (uint32_t i = 0; i < 20; i++)
		ck_assert_int_eq(wire_write(w, e.nodeid, (uint64_t)i * len, big, len, 0, 0),
				 (int)len);
	ck_assert_int_eq(wire_write(w, e.nodeid, 5, "xyz", 3, 0, 0), 3);
	ck_assert_uint_eq(w->notices, 0);
	for (uint32_t i = 0; i < 20; i++) {
		ck_assert_int_eq(wire_read(w, e.nodeid, (uint64_t)i * len, len), 0);
		ck_assert_uint_eq(w->out_len, len);
		if (i == 0)
			memcpy(big + 5, "xyz", 3);
		ck_assert_mem_eq(w->out, big, len);
		if (i == 0)
			for (uint32_t k = 5; k < 8; k++)
				big[k] = (char)(k * 13);
	}
	wire_begin(w);
	wire_put(w, &(struct fuse_fsync_in){ 0 }, sizeof(struct fuse_fsync_in));
	ck_assert_int_eq(wire_call(w, FUSE_FSYNC, e.nodeid), 0);
	wire_forget(w, e.nodeid, 1);
	free(big);
	stop_clean(w);
}
END_TEST

START_TEST(appending)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	struct cnode *n = ram_file(w->cache, w->root, "f", "0123456789", 10);
	struct fuse_entry_out e;

	ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "f", &e), 0);
	ck_assert_int_eq(wire_write(w, e.nodeid, 10, "abc", 3, O_APPEND, 0), 3);
	ck_assert_uint_eq(w->notices, 0);
	/* the file grew behind the mount: the kernel's end of file is old */
	ram_append(w->cache, n, "behind", 6);
	ck_assert_int_eq(wire_write(w, e.nodeid, 13, "def", 3, O_APPEND, 0), 3);
	ck_assert(!w->notice_first); /* a WRITE may hold a page: answered first */
	wire_wait_notice(w);
	ck_assert_uint_eq(w->notice.ino, e.nodeid);
	ck_assert_int_eq(w->notice.off, 13);
	ck_assert_int_eq(w->notice.len, 0);
	ck_assert_int_eq(wire_read(w, e.nodeid, 0, 100), 0);
	ck_assert_uint_eq(w->out_len, 22);
	ck_assert_mem_eq(w->out, "0123456789abcbehinddef", 22);
	/* a mapping's page goes to its place whatever the descriptor says */
	ck_assert_int_eq(wire_write(w, e.nodeid, 2, "XX", 2, O_APPEND, FUSE_WRITE_CACHE), 2);
	ck_assert_int_eq(wire_read(w, e.nodeid, 0, 6), 0);
	ck_assert_mem_eq(w->out, "01XX45", 6);
	wire_forget(w, e.nodeid, 1);
	stop_clean(w);
}
END_TEST

START_TEST(direct)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	struct fuse_entry_out e;
	char buf[3 * 4096] = { 0 };

	ck_assert_int_eq(wire_create(w, FUSE_ROOT_ID, "f", O_RDWR | O_CREAT, 0600, &e), 0);
	/* the kernel does not look for pages that were read meanwhile */
	ck_assert_int_eq(wire_write(w, e.nodeid, 4096, buf, 8192, O_DIRECT, 0), 8192);
	ck_assert(w->notice_first);
	ck_assert_uint_eq(w->notice.ino, e.nodeid);
	ck_assert_int_eq(w->notice.off, 4096);
	ck_assert_int_eq(w->notice.len, 8192);
	/* but it may hold those that are covered in part */
	ck_assert_int_eq(wire_write(w, e.nodeid, 5000, buf, 8192, O_DIRECT, 0), 8192);
	ck_assert(w->notice_first);
	ck_assert_int_eq(w->notice.off, 8192);
	ck_assert_int_eq(w->notice.len, 4096);
	w->notices = 0;
	wire_wait_notice(w);
	ck_assert_int_eq(w->notice.off, 5000);
	ck_assert_int_eq(w->notice.len, 8192);
	ck_assert_int_eq(wire_write(w, e.nodeid, 6000, buf, 100, O_DIRECT, 0), 100);
	ck_assert(!w->notice_first);
	wire_wait_notice(w);
	ck_assert_int_eq(w->notice.off, 6000);
	ck_assert_int_eq(w->notice.len, 100);
	ck_assert_int_eq(wire_write(w, e.nodeid, 0, buf, 4096, O_DIRECT, FUSE_WRITE_CACHE), 4096);
	ck_assert_uint_eq(w->notices, 0);
	wire_forget(w, e.nodeid, 1);
	stop_clean(w);
}
END_TEST

START_TEST(ranges)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	struct fuse_fallocate_in punch = { .offset = 2, .length = 3, .mode = 3 };
	struct fuse_lseek_in seek = { .offset = 1, .whence = SEEK_HOLE };
	struct fuse_copy_file_range_in copy = { .off_in = 0, .off_out = 1, .len = 4 };
	struct fuse_entry_out e, f;

	ram_file(w->cache, w->root, "e", "abcdefgh", 8);
	ram_file(w->cache, w->root, "f", "", 0);
	ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "e", &e), 0);
	ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "f", &f), 0);
	wire_begin(w);
	wire_put(w, &punch, sizeof(punch));
	ck_assert_int_eq(wire_call(w, FUSE_FALLOCATE, e.nodeid), 0);
	punch.length = 0;
	wire_begin(w);
	wire_put(w, &punch, sizeof(punch));
	ck_assert_int_eq(wire_call(w, FUSE_FALLOCATE, e.nodeid), -EINVAL);
	wire_begin(w);
	wire_put(w, &seek, sizeof(seek));
	ck_assert_int_eq(wire_call(w, FUSE_LSEEK, e.nodeid), 0);
	ck_assert_uint_eq(((struct fuse_lseek_out *)w->out)->offset, 8);
	copy.nodeid_out = f.nodeid;
	wire_begin(w);
	wire_put(w, &copy, sizeof(copy));
	ck_assert_int_eq(wire_call(w, FUSE_COPY_FILE_RANGE, e.nodeid), 0);
	ck_assert_uint_eq(((struct fuse_write_out *)w->out)->size, 4);
	ck_assert_int_eq(wire_read(w, f.nodeid, 0, 100), 0);
	ck_assert_uint_eq(w->out_len, 5);
	ck_assert_mem_eq(w->out, "\0ab\0\0", 5);
	wire_forget(w, e.nodeid, 1);
	wire_forget(w, f.nodeid, 1);
	stop_clean(w);
}
END_TEST

static int flags_call(struct wire *w, uint64_t node, unsigned cmd, int value, uint32_t in, uint32_t out)
{
	struct fuse_ioctl_in arg = { .cmd = cmd, .in_size = in, .out_size = out };

	wire_begin(w);
	wire_put(w, &arg, sizeof(arg));
	wire_put(w, &value, sizeof(value));
	return wire_call(w, FUSE_IOCTL, node);
}

/* Kernels before 5.14 do not check by themselves who may change flags. */
START_TEST(flags)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	struct fuse_entry_out e;
	int got;

	ram_file(w->cache, w->root, "f", "", 0);
	ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "f", &e), 0);
	ck_assert_int_eq(flags_call(w, e.nodeid, FS_IOC_SETFLAGS, FS_IMMUTABLE_FL, 4, 0), 0);
	ck_assert_int_eq(flags_call(w, e.nodeid, FS_IOC_GETFLAGS, 0, 0, 4), 0);
	ck_assert_uint_eq(w->out_len, sizeof(struct fuse_ioctl_out) + 4);
	memcpy(&got, w->out + sizeof(struct fuse_ioctl_out), 4);
	ck_assert_int_eq(got, FS_IMMUTABLE_FL);
	ck_assert_int_eq(flags_call(w, e.nodeid, FS_IOC_GETFLAGS, 0, 0, 2), -ENOTTY);
	ck_assert_int_eq(flags_call(w, e.nodeid, FS_IOC_SETFLAGS, 0, 2, 0), -ENOTTY);
	ck_assert_int_eq(flags_call(w, e.nodeid, FS_IOC_GETVERSION, 0, 0, 4), -ENOTTY);
	w->uid = 1000;
	ck_assert_int_eq(flags_call(w, e.nodeid, FS_IOC_SETFLAGS, 0, 4, 0), -EPERM);
	w->uid = 0;
	ck_assert_int_eq(flags_call(w, e.nodeid, FS_IOC_SETFLAGS, 0, 4, 0), 0);
	w->uid = 1000;
	ck_assert_int_eq(flags_call(w, e.nodeid, FS_IOC_SETFLAGS, FS_NODUMP_FL, 4, 0), -EPERM);
	w->uid = 0;
	wire_forget(w, e.nodeid, 1);
	stop_clean(w);
}
END_TEST

static Suite *wire_suite(void)
{
	Suite *s = suite_create("wire");
	TCase *tc = tcase_create("operations");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, init_flags);
	tcase_add_test(tc, ready_once_after_init);
	tcase_add_test(tc, refused_for_good);
	tcase_add_test(tc, open_without_zero_message_support);
	tcase_add_loop_test(tc, lookup_getattr, 0, 2);
	tcase_add_test(tc, strict_lookup);
	tcase_add_test(tc, setattr_maps);
	tcase_add_test(tc, statfs);
	tcase_add_test(tc, create_and_race);
	tcase_add_test(tc, names);
	tcase_add_test(tc, forget_counts);
	tcase_add_loop_test(tc, reading, 0, 2);
	tcase_add_test(tc, writing);
	tcase_add_test(tc, appending);
	tcase_add_test(tc, direct);
	tcase_add_test(tc, ranges);
	tcase_add_test(tc, flags);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *r = srunner_create(wire_suite());
	int failed;

	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
