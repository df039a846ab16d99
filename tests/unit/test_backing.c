/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Objects of the backing: what they are, how they are found again, and how many descriptors that
 * takes. Tests that reopen run twice: by handle (as root) and through parents. */
#include "config.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/vfs.h>

#include "backing_scratch.h"

START_TEST(open_errors)
{
	put_file(P("file"), "x");
	ck_assert_int_eq(backing_open(&S.b, P("missing"), NULL), -ENOENT);
	ck_assert_int_eq(backing_open(&S.b, P("file"), NULL), -ENOTDIR);
	ck_assert_int_eq(backing_open(&S.b, P("file/below"), NULL), -ENOTDIR);
	scratch_become_user();
	ck_assert_int_eq(mkdir(P("closed"), 0), 0);
	ck_assert_int_eq(backing_open(&S.b, P("closed"), NULL), -EACCES);
	ck_assert_ptr_null(S.b);
	ck_assert_int_eq(backing_open(&S.b, S.root, NULL), 0);
	ck_assert_str_eq(backing_path(S.b), S.root);
}
END_TEST

START_TEST(lookup_answers)
{
	struct bnode *dir, *file, *link;

	scratch_open(0, _i);
	ck_assert_int_eq(mkdir(P("dir"), 0755), 0);
	put_file(P("dir/file"), "text");
	ck_assert_int_eq(symlink("dir/file", P("link")), 0);
	ck_assert_int_eq(symlink("dir", P("dirlink")), 0);
	dir = look(S.top, "dir");
	file = look(dir, "file");
	link = look(S.top, "link");
	ck_assert_uint_eq(backing_type(dir), S_IFDIR);
	ck_assert_uint_eq(backing_type(link), S_IFLNK);
	ck_assert_int_eq(look_error(S.top, "."), -EINVAL);
	ck_assert_int_eq(look_error(dir, ".."), -EINVAL);
	ck_assert_int_eq(look_error(S.top, ""), -EINVAL);
	ck_assert_int_eq(look_error(S.top, "dir/file"), -EINVAL);
	ck_assert_int_eq(look_error(S.top, "nothing"), -ENOENT);
	ck_assert_int_eq(look_error(file, "below"), -ENOTDIR);
	ck_assert_int_eq(look_error(link, "below"), -ENOTDIR);
	backing_close_idle(S.b);
	expect_text(file, "text");
	put(file);
	put(link);
	put(dir);
}
END_TEST

/* Whatever is answered without waiting is what the disk says; -EAGAIN is always allowed, but on the
 * filesystems named in backing_fs.c not for what was looked up a moment ago. */
START_TEST(cached_lookups_are_true)
{
	struct bnode *n, *again;
	struct statfs sf;
	struct battr a;
	bool local;
	int rc = -EAGAIN;

	scratch_open(0, false);
	ck_assert_int_eq(statfs(S.root, &sf), 0);
	local = sf.f_type == 0xef53 || sf.f_type == 0x01021994;
	put_file(P("f"), "one");
	n = look(S.top, "f");
	/* A rename anywhere on the machine may be in the way, once. */
	for (int i = 0; i < 100; i++) {
		rc = backing_lookup_cached(S.b, S.top, "f", &again, &a);
		if (rc != -EAGAIN)
			break;
	}
	ck_assert_msg(rc == 0 || (!local && rc == -EAGAIN), "%s", strerror(-rc));
	if (rc == 0) {
		ck_assert_ptr_eq(again, n);
		ck_assert_int_eq(a.st.st_size, 3);
		put(again);
	}
	put_file(P("f"), "other");
	rc = backing_getattr_cached(S.b, n, &a);
	ck_assert_msg((rc == 0 && a.st.st_size == 5) || (!local && rc == -EAGAIN), "%d", rc);
	put_file(P("g"), "another object");
	ck_assert_int_eq(rename(P("g"), P("f")), 0);
	rc = backing_lookup_cached(S.b, S.top, "f", &again, &a);
	if (rc == 0) {
		ck_assert_ptr_ne(again, n);
		put(again);
	}
	ck_assert_int_eq(unlink(P("f")), 0);
	rc = backing_lookup_cached(S.b, S.top, "f", &again, &a);
	ck_assert_msg(rc == -ENOENT || rc == -EAGAIN, "%d", rc);
	ck_assert_int_eq(backing_lookup_cached(S.b, n, "f", &again, &a), -EAGAIN);
	put(n);
}
END_TEST

START_TEST(hard_links_are_one_object)
{
	struct bnode *a, *b;
	bool stable;
	struct hash128 ida, idb;

	scratch_open(0, _i);
	put_file(P("a"), "shared");
	ck_assert_int_eq(link(P("a"), P("b")), 0);
	a = look(S.top, "a");
	ida = backing_identity(a, &stable);
	b = look(S.top, "b");
	ck_assert_ptr_eq(a, b);
	put(a);
	put(b);
	/* And over a reopening: the identity does not depend on what was seen first. */
	backing_close(S.b);
	S.b = NULL;
	scratch_open(0, _i);
	b = look(S.top, "b");
	idb = backing_identity(b, &stable);
	ck_assert(ida.lo == idb.lo && ida.hi == idb.hi);
	put(b);
}
END_TEST

START_TEST(renames_keep_the_object)
{
	struct bnode *d1, *d2, *f, *g, *again;

	scratch_open(0, _i);
	ck_assert_int_eq(mkdir(P("d1"), 0755), 0);
	ck_assert_int_eq(mkdir(P("d1/sub"), 0755), 0);
	ck_assert_int_eq(mkdir(P("d2"), 0755), 0);
	put_file(P("d1/sub/f"), "f");
	put_file(P("d2/g"), "g");
	d1 = look(S.top, "d1");
	d2 = look(S.top, "d2");
	g = look(d2, "g");
	again = look(d1, "sub");
	f = look(again, "f");

	/* A directory moves; what is below is found through it. */
	ck_assert_int_eq(backing_rename(S.b, d1, "sub", d2, "moved", 0), 0);
	backing_close_idle(S.b);
	expect_text(f, "f");
	ck_assert_int_eq(backing_rename(S.b, again, "f", S.top, "new", RENAME_NOREPLACE), 0);
	backing_close_idle(S.b);
	expect_text(f, "f");
	ck_assert_int_eq(backing_rename(S.b, d2, "g", S.top, "new", RENAME_NOREPLACE), -EEXIST);
	ck_assert_int_eq(backing_rename(S.b, d2, "g", S.top, "new", RENAME_EXCHANGE), 0);
	backing_close_idle(S.b);
	expect_text(f, "f");
	expect_text(g, "g");
	put(again);
	again = look(S.top, "new");
	ck_assert_ptr_eq(again, g);
	ck_assert_int_eq(backing_rename(S.b, S.top, "new", d2, "x", 1u << 3), -EINVAL);
	ck_assert_int_eq(backing_rename(S.b, S.top, "gone", d2, "x", 0), -ENOENT);
	put(again);
	put(f);
	put(g);
	put(d1);
	put(d2);
}
END_TEST

START_TEST(moves_behind_the_mount)
{
	struct bnode *d, *f, *again;

	scratch_open(0, _i);
	ck_assert_int_eq(mkdir(P("d"), 0755), 0);
	put_file(P("f"), "old");
	d = look(S.top, "d");
	f = look(S.top, "f");
	backing_close_idle(S.b);
	ck_assert_int_eq(rename(P("f"), P("d/f")), 0);
	put_file(P("f"), "other");
	/* By name another object is there: it must not be taken for this one. */
	if (S.top->fs->by_handle)
		expect_text(f, "old");
	else
		ck_assert_int_eq(attr_error(f), -ESTALE);
	again = look(d, "f");
	ck_assert_ptr_eq(again, f);
	backing_close_idle(S.b);
	expect_text(f, "old");
	put(again);
	put(f);
	put(d);
}
END_TEST

/* Moves that the backing did not see can make two directories claim to be in each other. */
START_TEST(hints_never_form_a_ring)
{
	struct bnode *a, *b, *again;

	scratch_open(0, _i);
	ck_assert_int_eq(mkdir(P("a"), 0755), 0);
	ck_assert_int_eq(mkdir(P("a/b"), 0755), 0);
	a = look(S.top, "a");
	b = look(a, "b");
	ck_assert_int_eq(rename(P("a/b"), P("b")), 0);
	ck_assert_int_eq(rename(P("a"), P("b/a")), 0);
	again = look(b, "a");
	ck_assert_ptr_eq(again, a);
	put(again);
	put(a);
	put(b);
	/* With a ring both would still be held; closing says so. */
	ck_assert_uint_eq(S.b->nodes.count, 1);
}
END_TEST

START_TEST(reused_inode_number_is_a_new_object)
{
	struct bnode *old, *fresh = NULL;
	struct hash128 a, b;
	struct stat st;
	uint64_t ino;
	bool stable;
	int tries;

	scratch_open(0, _i);
	put_file(P("f"), "old");
	old = look(S.top, "f");
	a = backing_identity(old, &stable);
	ino = backing_ino(old);
	backing_close_idle(S.b); /* or the inode would stay in use */
	for (tries = 0; tries < 2000; tries++) {
		ck_assert_int_eq(unlink(P("f")), 0);
		put_file(P("f"), "new");
		ck_assert_int_eq(stat(P("f"), &st), 0);
		if (st.st_ino == ino)
			break;
	}
	if (!stable || tries == 2000) {
		fprintf(stderr, "skipped: this filesystem did not reuse an inode number\n");
	} else {
		fresh = look(S.top, "f");
		ck_assert_uint_eq(backing_ino(fresh), ino);
		ck_assert_ptr_ne(fresh, old);
		b = backing_identity(fresh, &stable);
		ck_assert(a.lo != b.lo || a.hi != b.hi);
		backing_close_idle(S.b);
		ck_assert_int_eq(attr_error(old), -ESTALE);
		expect_text(fresh, "new");
		put(fresh);
	}
	put(old);
}
END_TEST

START_TEST(fsid_decides_the_identity)
{
	struct backing_options o = {.fsid = "one"};
	struct hash128 id[3];
	struct bnode *n;
	bool stable;

	put_file(P("f"), "x");
	for (int i = 0; i < 3; i++) {
		o.fsid = i == 1 ? "two" : "one";
		ck_assert_int_eq(backing_open(&S.b, S.root, &o), 0);
		n = look(backing_root(S.b), "f");
		id[i] = backing_identity(n, &stable);
		put(n);
		backing_close(S.b);
		S.b = NULL;
	}
	ck_assert(id[0].lo == id[2].lo && id[0].hi == id[2].hi);
	ck_assert(id[0].lo != id[1].lo);
}
END_TEST

#define MANY 3000

START_TEST(descriptors_stay_bounded)
{
	static struct bnode *nodes[MANY];
	unsigned before = process_fds();
	int many = _i ? MANY / 4 : MANY;
	size_t bytes;
	char name[32];
	struct battr a;

	scratch_open(16, _i);
	for (int i = 0; i < many; i++) {
		snprintf(name, sizeof(name), "picture-%06d.jpeg", i);
		put_file(P(name), name);
	}
	bytes = mallinfo2().uordblks;
	for (int i = 0; i < many; i++) {
		snprintf(name, sizeof(name), "picture-%06d.jpeg", i);
		nodes[i] = look(S.top, name);
	}
	bytes = (mallinfo2().uordblks - bytes) / (unsigned)many;
	ck_assert_uint_le(backing_open_fds(S.b), 16);
	ck_assert_uint_le(process_fds(), before + 16);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	fprintf(stderr, "%zu bytes a known file (%u of them handle)\n", bytes, nodes[0]->len);
	ck_assert_uint_le(bytes, 200);
#endif
	for (int i = 0; i < many; i++) {
		snprintf(name, sizeof(name), "picture-%06d.jpeg", i);
		expect_text(nodes[i], name);
		if (i % 3 == 0)
			ck_assert_int_eq(backing_pwrite(S.b, nodes[i], "P", 1, 0), 1);
	}
	for (int i = many - 1; i >= 0; i--)
		ck_assert_int_eq(backing_getattr(S.b, nodes[i], &a), 0);
	ck_assert_uint_le(backing_open_fds(S.b), 16);
	ck_assert_uint_le(process_fds(), before + 16);
	for (int i = 0; i < many; i++)
		put(nodes[i]);
	ck_assert_uint_eq(backing_open_fds(S.b), 1);
}
END_TEST

START_TEST(emfile_makes_room)
{
	struct rlimit rl;
	struct bnode *nodes[64];
	char name[32];

	for (int i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		put_file(P(name), name);
	}
	scratch_open(500, _i);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &rl), 0);
	rl.rlim_cur = (rlim_t)dup(0) + 8;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &rl), 0);
	for (int i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		nodes[i] = look(S.top, name);
	}
	for (int i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		expect_text(nodes[i], name);
		put(nodes[i]);
	}
}
END_TEST

START_TEST(pins_outlive_the_name)
{
	struct bnode *pinned, *lost;
	struct battr a;
	uint64_t off;

	scratch_open(4, _i);
	put_file(P("pinned"), "kept");
	put_file(P("lost"), "gone");
	put_file(P("other"), "other");
	pinned = look(S.top, "pinned");
	lost = look(S.top, "lost");
	ck_assert_int_eq(backing_pin(S.b, pinned), 0);
	ck_assert_int_eq(backing_unlink(S.b, S.top, "pinned"), 0);
	ck_assert_int_eq(backing_rename(S.b, S.top, "other", S.top, "lost", 0), 0);
	backing_close_idle(S.b);
	ck_assert_int_eq(attr_error(lost), -ESTALE);
	ck_assert_int_eq(backing_getattr(S.b, pinned, &a), 0);
	ck_assert_uint_eq(a.st.st_nlink, 0);
	expect_text(pinned, "kept");
	ck_assert_int_eq(backing_pwrite(S.b, pinned, "K", 1, 0), 1);
	ck_assert_int_eq(backing_append(S.b, pinned, "!", 1, &off), 1);
	ck_assert_uint_eq(off, 4);
	ck_assert_int_eq(backing_fsync(S.b, pinned, false), 0);
	a.st.st_size = 3;
	ck_assert_int_eq(backing_setattr(S.b, pinned, BSET_SIZE, &a.st, &a), 0);
	backing_close_idle(S.b);
	expect_text(pinned, "Kep");
	put(lost);
	put(pinned);
	ck_assert_uint_eq(backing_open_fds(S.b), 1);
}
END_TEST

START_TEST(symlinks_do_not_lead_out)
{
	char outside[PATH_MAX];
	struct bnode *d, *f;

	snprintf(outside, sizeof(outside), "%s/out", S.dir);
	ck_assert_int_eq(mkdir(outside, 0755), 0);
	snprintf(outside, sizeof(outside), "%s/out/secret", S.dir);
	put_file(outside, "secret");
	scratch_open(0, _i);
	ck_assert_int_eq(mkdir(P("d"), 0755), 0);
	put_file(P("d/secret"), "inside");
	d = look(S.top, "d");
	f = look(d, "secret");
	backing_close_idle(S.b);
	ck_assert_int_eq(rename(P("d"), P("d2")), 0);
	ck_assert_int_eq(symlink("../out", P("d")), 0);
	if (S.top->fs->by_handle) {
		expect_text(f, "inside");
		ck_assert_int_eq(look_error(d, "secret"), 0);
	} else {
		ck_assert_int_eq(look_error(d, "secret"), -ESTALE);
		ck_assert_int_eq(attr_error(f), -ESTALE);
		ck_assert_int_eq(backing_unlink(S.b, d, "secret"), -ESTALE);
	}
	put(d);
	d = look(S.top, "d");
	ck_assert_uint_eq(backing_type(d), S_IFLNK);
	ck_assert_int_eq(look_error(d, "secret"), -ENOTDIR);
	ck_assert_int_eq(backing_unlink(S.b, d, "secret"), -ENOTDIR);
	ck_assert_int_eq(access(outside, F_OK), 0);
	put(d);
	put(f);
}
END_TEST

START_TEST(special_files_are_not_opened)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	struct bnode *fifo, *sock;
	char byte;
	int fd;

	scratch_open(0, _i);
	ck_assert_int_eq(mkfifo(P("fifo"), 0600), 0);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%.90s/sock", S.root);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	close(fd);
	fifo = look(S.top, "fifo"); /* would hang here, and at reading, if it were opened */
	sock = look(S.top, "sock");
	backing_close_idle(S.b);
	ck_assert_int_eq(attr_error(fifo), 0);
	ck_assert_int_eq(attr_error(sock), 0);
	ck_assert_int_eq(backing_pread(S.b, fifo, &byte, 1, 0), -EINVAL);
	ck_assert_int_eq(backing_pwrite(S.b, sock, &byte, 1, 0), -EINVAL);
	ck_assert_int_eq(backing_pin(S.b, fifo), 0);
	put(fifo);
	put(sock);
}
END_TEST

START_TEST(odd_names)
{
	char name[300];
	struct bnode *n;
	struct battr a;

	scratch_open(0, _i);
	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	ck_assert_int_eq(backing_create(S.b, S.top, name, 0644, &S.cred, true, &n, &a), 0);
	backing_close_idle(S.b);
	ck_assert_int_eq(attr_error(n), 0);
	put(n);
	name[255] = 'n';
	name[256] = '\0';
	ck_assert_int_eq(look_error(S.top, name), -ENAMETOOLONG);
	ck_assert_int_eq(backing_create(S.b, S.top, name, 0644, &S.cred, true, &n, &a),
			 -ENAMETOOLONG);
	ck_assert_int_eq(backing_mkdir(S.b, S.top, "two\nlines \xff", 0755, &S.cred, &n, &a), 0);
	backing_close_idle(S.b);
	ck_assert_int_eq(look_error(n, "x"), -ENOENT);
	put(n);
	ck_assert_int_eq(backing_rmdir(S.b, S.top, "two\nlines \xff"), 0);
}
END_TEST

/* Deeper than the descriptors, all of whose ancestors must be opened for one file. */
START_TEST(deep_trees_reopen)
{
	struct bnode *at, *next;
	struct battr a;

	scratch_open(4, _i);
	at = S.top;
	backing_hold(at);
	for (int i = 0; i < 300; i++) {
		ck_assert_int_eq(backing_mkdir(S.b, at, "d", 0755, &S.cred, &next, &a), 0);
		put(at);
		at = next;
	}
	backing_close_idle(S.b);
	ck_assert_int_eq(attr_error(at), 0);
	ck_assert_uint_le(backing_open_fds(S.b), 4);
	ck_assert_uint_eq(S.b->nodes.count, 301);
	put(at);
	ck_assert_uint_eq(S.b->nodes.count, 1);
}
END_TEST

START_TEST(handles_find_the_object)
{
	unsigned char handle[256], bad[256];
	struct bnode *n, *again;
	struct battr a;
	size_t len;
	int rc;

	scratch_open(0, false);
	put_file(P("f"), "by handle");
	n = look(S.top, "f");
	len = backing_handle(S.b, n, handle, sizeof(handle));
	if (len == 0 || !S.top->fs->by_handle) {
		fprintf(stderr, "skipped (needs root and a filesystem with handles)\n");
		put(n);
		return;
	}
	ck_assert_uint_eq(backing_handle(S.b, n, handle, len - 1), 0);
	ck_assert_int_eq(backing_from_handle(S.b, handle, len, &again, &a), 0);
	ck_assert_ptr_eq(again, n);
	put(again);
	put(n);
	/* Not known by name: found, read, reopened. */
	ck_assert_int_eq(backing_from_handle(S.b, handle, len, &n, &a), 0);
	backing_close_idle(S.b);
	expect_text(n, "by handle");
	put(n);
	for (size_t i = 0; i < len; i++) {
		ck_assert_int_lt(backing_from_handle(S.b, handle, i, &n, &a), 0);
		memcpy(bad, handle, len);
		bad[i] ^= 0x40;
		rc = backing_from_handle(S.b, bad, len, &n, &a);
		if (rc == 0)
			put(n); /* another object's */
	}
	ck_assert_int_eq(unlink(P("f")), 0);
	ck_assert_int_eq(backing_from_handle(S.b, handle, len, &n, &a), -ESTALE);
	backing_forbid_handles(S.b);
	ck_assert_int_eq(backing_from_handle(S.b, handle, len, &n, &a), -EPERM);
}
END_TEST

START_TEST(filesystems_below_have_their_own)
{
	struct bnode *m, *f, *g, *plain, *again;
	struct hash128 a, b;
	bool stable;

	if (!scratch_need_root("a filesystem mounted below"))
		return;
	ck_assert_int_eq(mkdir(P("mnt"), 0755), 0);
	scratch_open(0, _i);
	plain = look(S.top, "mnt");
	if (mount("none", P("mnt"), "tmpfs", 0, "size=1m") != 0) {
		fprintf(stderr, "skipped (mount: %s)\n", strerror(errno));
		put(plain);
		return;
	}
	put_file(P("mnt/f"), "below");
	put_file(P("mnt/g"), "beside");
	m = look(S.top, "mnt");
	ck_assert_ptr_ne(m, plain);
	ck_assert(!backing_same_fs(m) && backing_same_fs(plain));
	ck_assert_uint_ne(backing_ino(m) >> 48, backing_ino(plain) >> 48);
	f = look(m, "f");
	g = look(m, "g");
	a = backing_identity(f, &stable);
	b = backing_identity(g, &stable);
	ck_assert(a.lo != b.lo || a.hi != b.hi);
	ck_assert_int_eq(backing_pwrite(S.b, f, "B", 1, 0), 1);
	ck_assert(f->fs->wrote);
	if (_i == 0) { /* slow where others write */
		ck_assert_int_eq(backing_syncfs(S.b), 0);
		ck_assert(!f->fs->wrote);
	}
	backing_close_idle(S.b);
	expect_text(f, "Below");
	ck_assert_int_eq(backing_rename(S.b, m, "f", S.top, "f", 0), -EXDEV);
	/* Nothing but what is in use keeps it from being unmounted. */
	backing_close_idle(S.b);
	ck_assert_int_eq(umount(P("mnt")), 0);
	ck_assert_int_eq(attr_error(f), -ESTALE);
	ck_assert_int_eq(attr_error(m), -ESTALE);
	/* Another one there, mostly with the same device and inode numbers, is not taken for it. */
	ck_assert_int_eq(mount("none", P("mnt"), "tmpfs", 0, "size=1m"), 0);
	put_file(P("mnt/f"), "later");
	again = look(S.top, "mnt");
	ck_assert_ptr_ne(again, m);
	a = backing_identity(m, &stable);
	b = backing_identity(again, &stable);
	ck_assert(a.lo != b.lo || a.hi != b.hi);
	backing_close_idle(S.b);
	ck_assert_int_eq(attr_error(f), -ESTALE);
	put(look(again, "f"));
	put(again);
	ck_assert_int_eq(umount(P("mnt")), 0);
	put(f);
	put(g);
	put(m);
	put(plain);
}
END_TEST

#define RACERS 3
#define RACE_ROUNDS 1500

struct race {
	struct bnode *dirs[2], *n;
	int errors, rounds;
};

static void *race_rename(void *arg)
{
	struct race *r = arg;

	for (int i = 0; i < RACE_ROUNDS; i++)
		if (backing_rename(S.b, r->dirs[i % 2], "f", r->dirs[(i + 1) % 2], "f", 0) != 0)
			__atomic_add_fetch(&r->errors, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void *race_use(void *arg)
{
	struct race *r = arg;
	char buf[8];

	for (int i = 0; i < RACE_ROUNDS; i++) {
		int fd;

		if (backing_pread(S.b, r->n, buf, 4, 0) != 4)
			__atomic_add_fetch(&r->errors, 1, __ATOMIC_RELAXED);
		backing_close_idle(S.b);
		/* A number that was closed too early would be this file, and be read from. */
		fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
		close(fd);
		if (memcmp(buf, "race", 4) != 0)
			__atomic_add_fetch(&r->errors, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Finds the file where it is, or not at all; what it learns must not be older than the last move.
 */
static void *race_find(void *arg)
{
	struct race *r = arg;

	for (int i = 0; i < RACE_ROUNDS; i++) {
		struct bnode *n;
		struct battr a;
		int rc = backing_lookup(S.b, r->dirs[i % 2], "f", &n, &a);

		if (rc == 0 && n != r->n)
			__atomic_add_fetch(&r->errors, 1, __ATOMIC_RELAXED);
		if (rc == 0)
			backing_put(S.b, n);
		else if (rc != -ENOENT)
			__atomic_add_fetch(&r->errors, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* A file that is only ever moved through the backing is never lost, whatever is open. */
START_TEST(renames_race_with_reopening)
{
	struct race r = {.errors = 0};
	void *(*run[])(void *) = {race_rename, race_find, race_use, race_use};
	pthread_t threads[4];

	scratch_open(4, _i);
	ck_assert_int_eq(mkdir(P("a"), 0755), 0);
	ck_assert_int_eq(mkdir(P("b"), 0755), 0);
	put_file(P("a/f"), "race");
	r.dirs[0] = look(S.top, "a");
	r.dirs[1] = look(S.top, "b");
	r.n = look(r.dirs[0], "f");
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run[i], &r), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(r.errors, 0);
	backing_close_idle(S.b);
	expect_text(r.n, "race");
	put(r.n);
	put(r.dirs[0]);
	put(r.dirs[1]);
}
END_TEST

static void *race_lookup(void *arg)
{
	struct race *r = arg;
	unsigned seed = (unsigned)(uintptr_t)&seed;

	for (int i = 0; i < RACE_ROUNDS; i++) {
		struct bnode *n;
		struct battr a;
		char name[8];

		snprintf(name, sizeof(name), "%d", rand_r(&seed) % 8);
		if (backing_lookup(S.b, r->dirs[0], name, &n, &a) != 0) {
			__atomic_add_fetch(&r->errors, 1, __ATOMIC_RELAXED);
			continue;
		}
		backing_hold(n);
		backing_put(S.b, n);
		backing_put(S.b, n);
	}
	return NULL;
}

START_TEST(lookups_race_with_puts)
{
	struct race r = {.errors = 0};
	pthread_t threads[RACERS];
	char name[8];

	scratch_open(4, _i);
	for (int i = 0; i < 8; i++) {
		snprintf(name, sizeof(name), "%d", i);
		put_file(P(name), name);
	}
	r.dirs[0] = S.top;
	for (int i = 0; i < RACERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, race_lookup, &r), 0);
	for (int i = 0; i < RACERS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(r.errors, 0);
	ck_assert_uint_eq(S.b->nodes.count, 1);
	ck_assert_uint_eq(backing_open_fds(S.b), 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("backing");
	TCase *tc = tcase_create("objects");

	tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, open_errors);
	tcase_add_test(tc, fsid_decides_the_identity);
	tcase_add_test(tc, handles_find_the_object);
	tcase_add_loop_test(tc, lookup_answers, 0, 2);
	tcase_add_test(tc, cached_lookups_are_true);
	tcase_add_loop_test(tc, hard_links_are_one_object, 0, 2);
	tcase_add_loop_test(tc, renames_keep_the_object, 0, 2);
	tcase_add_loop_test(tc, moves_behind_the_mount, 0, 2);
	tcase_add_loop_test(tc, hints_never_form_a_ring, 0, 2);
	tcase_add_loop_test(tc, reused_inode_number_is_a_new_object, 0, 2);
	tcase_add_loop_test(tc, descriptors_stay_bounded, 0, 2);
	tcase_add_loop_test(tc, emfile_makes_room, 0, 2);
	tcase_add_loop_test(tc, pins_outlive_the_name, 0, 2);
	tcase_add_loop_test(tc, symlinks_do_not_lead_out, 0, 2);
	tcase_add_loop_test(tc, special_files_are_not_opened, 0, 2);
	tcase_add_loop_test(tc, odd_names, 0, 2);
	tcase_add_loop_test(tc, deep_trees_reopen, 0, 2);
	tcase_add_loop_test(tc, filesystems_below_have_their_own, 0, 2);
	tcase_add_loop_test(tc, renames_race_with_reopening, 0, 2);
	tcase_add_loop_test(tc, lookups_race_with_puts, 0, 2);
	suite_add_tcase(s, tc);
	return scratch_run(s);
}
