/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Attributes, data, directories and the making of objects in the backing. */
#include "config.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "backing_scratch.h"

static mode_t mode_of(const char *name)
{
	struct stat st;

	ck_assert_int_eq(lstat(P(name), &st), 0);
	return st.st_mode & 07777;
}

static struct bnode *make(const char *name, mode_t mode)
{
	struct bnode *n = NULL;
	struct battr a;
	int rc = backing_create(S.b, S.top, name, mode, &S.cred, true, &n, &a);

	ck_assert_msg(rc == 0, "%s: %s", name, strerror(-rc));
	return n;
}

START_TEST(create_follows_the_callers_umask)
{
	struct bnode *n;
	struct battr a;

	scratch_open(0, false);
	umask(077); /* the process' own must not count */
	S.cred.umask = 022;
	n = make("file", 0666);
	ck_assert_uint_eq(mode_of("file"), 0644);
	put(n);
	n = make("suid", 06777);
	ck_assert_uint_eq(mode_of("suid"), 06755);
	put(n);
	ck_assert_int_eq(backing_mkdir(S.b, S.top, "dir", 01777, &S.cred, &n, &a), 0);
	ck_assert_uint_eq(mode_of("dir"), 01755);
	put(n);
	ck_assert_int_eq(backing_mknod(S.b, S.top, "fifo", S_IFIFO | 0666, 0, &S.cred, &n, &a), 0);
	ck_assert_uint_eq(mode_of("fifo"), 0644);
	ck_assert(S_ISFIFO(a.st.st_mode));
	put(n);
	ck_assert_int_eq(backing_mknod(S.b, S.top, "plain", 0600, 0, &S.cred, &n, &a), 0);
	ck_assert(S_ISREG(a.st.st_mode));
	put(n);
	ck_assert_int_eq(backing_mknod(S.b, S.top, "no", S_IFDIR | 0600, 0, &S.cred, &n, &a),
			 -EINVAL);
}
END_TEST

START_TEST(create_opens_what_is_there)
{
	struct bnode *first, *again;
	struct battr a;

	scratch_open(0, false);
	first = make("file", 0644);
	ck_assert_int_eq(backing_pwrite(S.b, first, "text", 4, 0), 4);
	ck_assert_int_eq(backing_create(S.b, S.top, "file", 0600, &S.cred, true, &again, &a),
			 -EEXIST);
	ck_assert_int_eq(backing_create(S.b, S.top, "file", 0600, &S.cred, false, &again, &a), 0);
	ck_assert_ptr_eq(again, first);
	ck_assert_uint_eq(a.st.st_mode & 07777, 0644);
	expect_text(again, "text");
	put(again);
	put(first);
	ck_assert_int_eq(mkdir(P("dir"), 0755), 0);
	ck_assert_int_eq(symlink("nowhere", P("link")), 0);
	ck_assert_int_eq(backing_create(S.b, S.top, "dir", 0600, &S.cred, false, &again, &a),
			 -EISDIR);
	ck_assert_int_eq(backing_create(S.b, S.top, "link", 0600, &S.cred, false, &again, &a),
			 -EEXIST);
	ck_assert_int_eq(access(P("nowhere"), F_OK), -1);
	ck_assert_int_eq(backing_mkdir(S.b, S.top, "dir", 0700, &S.cred, &again, &a), -EEXIST);
	ck_assert_int_eq(backing_symlink(S.b, S.top, "dir", "x", &S.cred, &again, &a), -EEXIST);
	ck_assert_int_eq(backing_create(S.b, S.top, "..", 0600, &S.cred, false, &again, &a),
			 -EINVAL);
	ck_assert_int_eq(backing_mkdir(S.b, S.top, "a/b", 0700, &S.cred, &again, &a), -EINVAL);
	ck_assert_int_eq(backing_unlink(S.b, S.top, "dir"), -EISDIR);
	ck_assert_int_eq(backing_rmdir(S.b, S.top, "file"), -ENOTDIR);
	ck_assert_int_eq(backing_rmdir(S.b, S.top, "dir"), 0);
}
END_TEST

START_TEST(created_objects_belong_to_the_caller)
{
	struct bcred cred = {.uid = 12345, .gid = 54321, .umask = 022};
	struct bnode *n, *dir;
	struct battr a;

	if (!scratch_need_root("owners of created objects"))
		return;
	scratch_open(0, false);
	ck_assert_int_eq(backing_create(S.b, S.top, "f", 06755, &cred, true, &n, &a), 0);
	ck_assert(a.st.st_uid == 12345 && a.st.st_gid == 54321);
	ck_assert_uint_eq(mode_of("f"), 06755); /* chown alone would have cleared it */
	put(n);
	ck_assert_int_eq(backing_symlink(S.b, S.top, "l", "f", &cred, &n, &a), 0);
	ck_assert(a.st.st_uid == 12345 && a.st.st_gid == 54321 && S_ISLNK(a.st.st_mode));
	put(n);
	ck_assert_int_eq(
		backing_mknod(S.b, S.top, "null", S_IFCHR | 0666, makedev(1, 3), &cred, &n, &a), 0);
	ck_assert(a.st.st_uid == 12345 && a.st.st_rdev == makedev(1, 3));
	put(n);

	/* A setgid directory gives its group, and to directories its bit. */
	ck_assert_int_eq(mkdir(P("shared"), 0755), 0);
	ck_assert_int_eq(chown(P("shared"), 0, 777), 0);
	ck_assert_int_eq(chmod(P("shared"), 02775), 0);
	dir = look(S.top, "shared");
	ck_assert_int_eq(backing_create(S.b, dir, "f", 0666, &cred, true, &n, &a), 0);
	ck_assert(a.st.st_uid == 12345 && a.st.st_gid == 777 && (a.st.st_mode & 07777) == 0644);
	put(n);
	ck_assert_int_eq(backing_mkdir(S.b, dir, "d", 0777, &cred, &n, &a), 0);
	ck_assert(a.st.st_uid == 12345 && a.st.st_gid == 777 && (a.st.st_mode & 07777) == 02755);
	put(n);
	put(dir);
	/* Also where the group is root's own. */
	ck_assert_int_eq(chown(P("shared"), 0, 0), 0);
	ck_assert_int_eq(chmod(P("shared"), 02775), 0);
	dir = look(S.top, "shared");
	ck_assert_int_eq(backing_create(S.b, dir, "g", 0666, &cred, true, &n, &a), 0);
	ck_assert(a.st.st_uid == 12345 && a.st.st_gid == 0);
	put(n);
	put(dir);
}
END_TEST

int __real_mkdirat(int dir, const char *name, mode_t mode);
int __wrap_mkdirat(int dir, const char *name, mode_t mode);
int __real_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);

static const char *swap_in; /* takes the place of the next directory made; the clock runs ahead */

int __wrap_mkdirat(int dir, const char *name, mode_t mode)
{
	int rc = __real_mkdirat(dir, name, mode);

	if (rc == 0 && swap_in) {
		ck_assert_int_eq(unlinkat(dir, name, AT_REMOVEDIR), 0);
		ck_assert_int_eq(renameat(dir, swap_in, dir, name), 0);
	}
	return rc;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
	int rc = __real_clock_gettime(clock, ts);

	if (clock == CLOCK_REALTIME_COARSE && swap_in)
		ts->tv_sec += 5;
	return rc;
}

START_TEST(root_gives_away_only_what_it_made)
{
	struct bcred cred = {.uid = 12345, .gid = 54321, .umask = 022};
	struct bnode *n;
	struct battr a;
	struct stat st;

	if (!scratch_need_root("owners of created objects"))
		return;
	scratch_open(0, false);
	ck_assert_int_eq(mkdir(P("roots"), 0700), 0);
	put_file(P("roots/secret"), "secret");
	swap_in = "roots";
	ck_assert_int_eq(backing_mkdir(S.b, S.top, "d", 0755, &cred, &n, &a), -ESTALE);
	swap_in = NULL;
	ck_assert_int_eq(stat(P("d"), &st), 0);
	ck_assert(st.st_uid == 0 && (st.st_mode & 07777) == 0700);
	ck_assert_int_eq(backing_mkdir(S.b, S.top, "e", 0755, &cred, &n, &a), 0);
	ck_assert_uint_eq(a.st.st_uid, 12345);
	put(n);
}
END_TEST

/* What backing.h says of objects that leave the tree. */
START_TEST(what_is_moved_out_is_held_but_not_found)
{
	unsigned char handle[256];
	struct bnode *d, *f, *again;
	char out[PATH_MAX];
	struct battr a;
	size_t len;

	scratch_open(0, _i);
	snprintf(out, sizeof(out), "%s/moved", S.dir);
	ck_assert_int_eq(mkdir(P("d"), 0755), 0);
	put_file(P("d/f"), "text");
	d = look(S.top, "d");
	f = look(d, "f");
	len = backing_handle(S.b, f, handle, sizeof(handle));
	ck_assert_int_eq(rename(P("d"), out), 0);
	ck_assert_int_eq(look_error(S.top, "d"), -ENOENT);
	ck_assert_int_eq(look_error(d, ".."), -EINVAL);
	expect_text(f, "text");
	backing_close_idle(S.b);
	if (S.top->fs->by_handle) {
		expect_text(f, "text");
		ck_assert_int_eq(backing_from_handle(S.b, handle, len, &again, &a), 0);
		ck_assert_ptr_eq(again, f);
		put(again);
	} else {
		ck_assert_int_eq(attr_error(f), -ESTALE);
	}
	put(f);
	put(d);
}
END_TEST

/* user::rwx group::rwx mask::rwx other::---, as the kernel stores it. */
static bool give_default_acl(const char *dir)
{
	static const unsigned char acl[] = {
		2, 0, 0,    0,    1,    0,    7,    0, 0xff, 0xff, 0xff, 0xff, 4,    0,
		7, 0, 0xff, 0xff, 0xff, 0xff, 0x20, 0, 0,    0,    0xff, 0xff, 0xff, 0xff,
	};

	if (setxattr(dir, "system.posix_acl_default", acl, sizeof(acl), 0) == 0)
		return true;
	fprintf(stderr, "skipped (no ACLs here: %s)\n", strerror(errno));
	return false;
}

START_TEST(default_acl_replaces_the_umask)
{
	struct bnode *dir, *n;
	struct battr a;

	scratch_open(0, false);
	ck_assert_int_eq(mkdir(P("acl"), 0755), 0);
	if (!give_default_acl(P("acl")))
		return;
	dir = look(S.top, "acl");
	S.cred.umask = 077;
	ck_assert_int_eq(backing_create(S.b, dir, "f", 0664, &S.cred, true, &n, &a), 0);
	ck_assert_uint_eq(mode_of("acl/f"), 0660);
	put(n);
	ck_assert_int_eq(backing_mkdir(S.b, dir, "d", 01777, &S.cred, &n, &a), 0);
	ck_assert_uint_eq(mode_of("acl/d"), 01770);
	ck_assert_int_gt(getxattr(P("acl/d"), "system.posix_acl_default", NULL, 0), 0);
	put(n);
	put(dir);
}
END_TEST

START_TEST(failed_creation_leaves_nothing)
{
	struct rlimit rl, full;
	struct bnode *n;
	struct battr a;
	int spare;

	scratch_open(0, false);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &rl), 0);
	spare = dup(0);
	close(spare);
	/* The directory can be made, but not opened to give it to its owner. */
	full = rl;
	full.rlim_cur = (rlim_t)spare;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &full), 0);
	ck_assert_int_eq(backing_mkdir(S.b, S.top, "dir", 0755, &S.cred, &n, &a), -EMFILE);
	ck_assert_int_eq(backing_symlink(S.b, S.top, "link", "x", &S.cred, &n, &a), -EMFILE);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &rl), 0);
	ck_assert_int_eq(look_error(S.top, "dir"), -ENOENT);
	ck_assert_int_eq(look_error(S.top, "link"), -ENOENT);
}
END_TEST

START_TEST(links_share_the_object)
{
	struct bnode *n, *l, *again;
	struct battr a;
	char target[32];

	scratch_open(0, _i);
	n = make("a", 0644);
	ck_assert_int_eq(backing_pwrite(S.b, n, "linked", 6, 0), 6);
	ck_assert_int_eq(backing_link(S.b, n, S.top, "b", &a), 0);
	ck_assert_uint_eq(a.st.st_nlink, 2);
	ck_assert_int_eq(backing_link(S.b, n, S.top, "b", &a), -EEXIST);
	again = look(S.top, "b");
	ck_assert_ptr_eq(again, n);
	put(again);
	/* Moved by link and unlink: found under the new name. */
	ck_assert_int_eq(backing_link(S.b, n, S.top, "c", &a), 0);
	ck_assert_int_eq(backing_unlink(S.b, S.top, "a"), 0);
	ck_assert_int_eq(backing_unlink(S.b, S.top, "b"), 0);
	backing_close_idle(S.b);
	expect_text(n, "linked");
	put(n);
	/* A symlink itself can be linked. */
	ck_assert_int_eq(backing_symlink(S.b, S.top, "l", "some/where", &S.cred, &l, &a), 0);
	ck_assert_int_eq(backing_link(S.b, l, S.top, "l2", &a), 0);
	ck_assert(S_ISLNK(a.st.st_mode) && a.st.st_nlink == 2);
	backing_close_idle(S.b);
	ck_assert_int_eq(backing_readlink(S.b, l, target, sizeof(target)), 10);
	ck_assert_int_eq(memcmp(target, "some/where", 10), 0);
	ck_assert_int_eq(backing_readlink(S.b, S.top, target, sizeof(target)), -EINVAL);
	put(l);
}
END_TEST

START_TEST(a_file_without_a_name)
{
	struct bnode *n, *again;
	struct battr a;
	int rc;

	scratch_open(0, _i);
	rc = backing_tmpfile(S.b, S.top, 0666, &S.cred, &n, &a);
	if (rc == -EOPNOTSUPP) /* overlayfs of old, some network filesystems */
		return;
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_eq(a.st.st_nlink, 0);
	ck_assert_uint_eq(a.st.st_mode & 07777, 0666 & ~S.cred.umask);
	ck_assert_int_eq(backing_pwrite(S.b, n, "hidden", 6, 0), 6);
	backing_close_idle(S.b); /* it is kept: nothing else leads to it */
	expect_text(n, "hidden");
	ck_assert_int_eq(backing_link(S.b, n, S.top, "named", &a), 0);
	ck_assert_uint_eq(a.st.st_nlink, 1);
	again = look(S.top, "named");
	ck_assert_ptr_eq(again, n);
	put(again);
	backing_close_idle(S.b); /* and is no longer kept */
	ck_assert_uint_eq(backing_open_fds(S.b), 1);
	expect_text(n, "hidden");
	put(n);
}
END_TEST

START_TEST(setattr_on_everything)
{
	const char *names[] = {"file", "dir", "fifo", "link"};
	struct battr a;
	struct stat st = {.st_size = 3, .st_mode = 0640};

	scratch_open(0, _i);
	put_file(P("file"), "content");
	ck_assert_int_eq(mkdir(P("dir"), 0755), 0);
	ck_assert_int_eq(mkfifo(P("fifo"), 0644), 0);
	ck_assert_int_eq(symlink("file", P("link")), 0);
	st.st_atim.tv_sec = 1000;
	st.st_mtim.tv_sec = 2000;
	st.st_mtim.tv_nsec = 123456789;
	for (int i = 0; i < 4; i++) {
		struct bnode *n = look(S.top, names[i]);

		backing_close_idle(S.b);
		ck_assert_int_eq(backing_setattr(S.b, n, BSET_ATIME | BSET_MTIME, &st, &a), 0);
		ck_assert_int_eq(a.st.st_atim.tv_sec, 1000);
		ck_assert_int_eq(a.st.st_mtim.tv_sec, 2000);
		ck_assert_int_eq(a.st.st_mtim.tv_nsec, 123456789);
		ck_assert_int_eq(backing_setattr(S.b, n, BSET_MTIME_NOW, &st, &a), 0);
		ck_assert_int_eq(a.st.st_atim.tv_sec, 1000);
		ck_assert_int_gt(a.st.st_mtim.tv_sec, 1000000);
		if (i < 3) {
			ck_assert_int_eq(backing_setattr(S.b, n, BSET_MODE, &st, &a), 0);
			ck_assert_uint_eq(a.st.st_mode & 07777, 0640);
		}
		ck_assert_int_eq(backing_setattr(S.b, n, BSET_SIZE, &st, &a), i == 0   ? 0
									      : i == 1 ? -EISDIR
										       : -EINVAL);
		put(n);
	}
	ck_assert_uint_eq(mode_of("file"), 0640);
	struct bnode *n = look(S.top, "file");

	expect_text(n, "con");
	/* All at once: the times given win over those of the truncation. */
	st.st_mode = 0400;
	st.st_size = 1;
	ck_assert_int_eq(backing_setattr(S.b, n, BSET_MODE | BSET_SIZE | BSET_MTIME, &st, &a), 0);
	ck_assert(a.st.st_size == 1 && a.st.st_mtim.tv_sec == 2000 &&
		  (a.st.st_mode & 07777) == 0400);
	put(n);
}
END_TEST

START_TEST(setattr_changes_owners)
{
	struct battr a;
	struct stat st = {.st_uid = 111, .st_gid = 222, .st_mode = 04755};
	struct bnode *n;

	if (!scratch_need_root("change of owner"))
		return;
	scratch_open(0, _i);
	n = make("f", 0755);
	ck_assert_int_eq(backing_setattr(S.b, n, BSET_UID | BSET_GID | BSET_MODE, &st, &a), 0);
	ck_assert(a.st.st_uid == 111 && a.st.st_gid == 222 && (a.st.st_mode & 07777) == 04755);
	st.st_uid = 333;
	ck_assert_int_eq(backing_setattr(S.b, n, BSET_UID, &st, &a), 0);
	ck_assert(a.st.st_uid == 333 && a.st.st_gid == 222);
	put(n);
	ck_assert_int_eq(symlink("nowhere", P("l")), 0);
	n = look(S.top, "l");
	ck_assert_int_eq(backing_setattr(S.b, n, BSET_GID, &st, &a), 0);
	ck_assert(a.st.st_gid == 222 && S_ISLNK(a.st.st_mode));
	put(n);
}
END_TEST

START_TEST(extended_attributes)
{
	char buf[64];
	struct bnode *n;

	scratch_open(0, _i);
	n = make("f", 0644);
	if (setxattr(P("f"), "user.probe", "x", 1, 0) != 0) {
		fprintf(stderr, "skipped (no user attributes here: %s)\n", strerror(errno));
		put(n);
		return;
	}
	removexattr(P("f"), "user.probe");
	for (int i = 0; i < 2; i++) {
		backing_close_idle(S.b);
		ck_assert_int_eq(backing_getxattr(S.b, n, "user.a", buf, sizeof(buf)), -ENODATA);
		ck_assert_int_eq(backing_setxattr(S.b, n, "user.a", "value", 5, XATTR_CREATE), 0);
		ck_assert_int_eq(backing_setxattr(S.b, n, "user.a", "v", 1, XATTR_CREATE), -EEXIST);
		ck_assert_int_eq(backing_getxattr(S.b, n, "user.a", NULL, 0), 5);
		ck_assert_int_eq(backing_getxattr(S.b, n, "user.a", buf, 2), -ERANGE);
		ck_assert_int_eq(backing_getxattr(S.b, n, "user.a", buf, sizeof(buf)), 5);
		ck_assert_int_eq(memcmp(buf, "value", 5), 0);
		ck_assert_int_ge(backing_listxattr(S.b, n, buf, sizeof(buf)), 7);
		ck_assert_int_eq(backing_removexattr(S.b, n, "user.a"), 0);
		put(n);
		if (i == 0) {
			ck_assert_int_eq(mkdir(P("d"), 0755), 0);
			n = look(S.top, "d");
		}
	}
	ck_assert_int_eq(symlink("f", P("l")), 0);
	n = look(S.top, "l");
	/* Of the link itself, which may have none: not of the file behind it. */
	ck_assert_int_lt(backing_setxattr(S.b, n, "user.a", "v", 1, 0), 0);
	ck_assert_int_lt(getxattr(P("f"), "user.a", NULL, 0), 0);
	put(n);
}
END_TEST

START_TEST(data_goes_and_comes)
{
	struct bnode *n, *m;
	struct battr a;
	char buf[64];
	uint64_t off;

	scratch_open(0, _i);
	n = make("f", 0644);
	ck_assert_int_eq(backing_pwrite(S.b, n, "hello", 5, 100000), 5);
	backing_close_idle(S.b);
	ck_assert_int_eq(backing_pread(S.b, n, buf, sizeof(buf), 99998), 7);
	ck_assert_int_eq(memcmp(buf, "\0\0hello", 7), 0);
	ck_assert_int_eq(backing_pread(S.b, n, buf, sizeof(buf), 100005), 0);
	ck_assert_int_eq(backing_append(S.b, n, "!", 1, &off), 1);
	ck_assert_uint_eq(off, 100005);
	ck_assert_int_eq(backing_lseek(S.b, n, 0, SEEK_HOLE) >= 0, 1);
	ck_assert_int_le(backing_lseek(S.b, n, 0, SEEK_DATA), 100000);
	ck_assert_int_eq(backing_lseek(S.b, n, 0, SEEK_SET), -EINVAL);
	ck_assert_int_eq(backing_lseek(S.b, n, 200000, SEEK_DATA), -ENXIO);
	ck_assert_int_eq(backing_fallocate(S.b, n, 0, 0, 300000), 0);
	ck_assert_int_eq(backing_getattr(S.b, n, &a), 0);
	ck_assert_int_eq(a.st.st_size, 300000);
	m = make("copy", 0644);
	ck_assert_int_eq(backing_copy_range(S.b, n, 100000, m, 3, 6), 6);
	backing_close_idle(S.b);
	ck_assert_int_eq(backing_pread(S.b, m, buf, sizeof(buf), 0), 9);
	ck_assert_int_eq(memcmp(buf, "\0\0\0hello!", 9), 0);
	ck_assert_int_eq(backing_fsync(S.b, m, false), 0);
	ck_assert_int_eq(backing_fsync(S.b, m, true), 0);
	ck_assert_int_eq(backing_fsync(S.b, S.top, false), 0);
	ck_assert_int_eq(backing_pread(S.b, S.top, buf, 1, 0), -EISDIR);
	ck_assert_int_eq(backing_pwrite(S.b, S.top, buf, 1, 0), -EISDIR);
	put(m);
	put(n);
}
END_TEST

START_TEST(reading_leaves_atime)
{
	struct timespec old[2] = {{1000, 0}, {2000, 0}};
	struct bnode *n;
	struct battr a;

	scratch_become_user(); /* as owner; nobody else may ask for it */
	scratch_open(0, _i);
	put_file(P("f"), "x");
	ck_assert_int_eq(utimensat(AT_FDCWD, P("f"), old, 0), 0);
	n = look(S.top, "f");
	expect_text(n, "x");
	ck_assert_int_eq(backing_getattr(S.b, n, &a), 0);
	ck_assert_int_eq(a.st.st_atim.tv_sec, 1000);
	put(n);
}
END_TEST

#define APPENDERS 4
#define APPENDS 500

struct appender {
	struct bnode *n;
	int id, errors;
	int fd; /* -1: through the backing, else behind it */
};

static void *append_records(void *arg)
{
	struct appender *w = arg;
	char rec[9], got[9] = "";

	for (int i = 0; i < APPENDS; i++) {
		uint64_t off = 0;

		snprintf(rec, sizeof(rec), "a%02d%04d\n", w->id, i);
		if (w->fd >= 0) {
			if (write(w->fd, rec, 8) != 8)
				w->errors++;
			continue;
		}
		if (backing_append(S.b, w->n, rec, 8, &off) != 8 ||
		    backing_pread(S.b, w->n, got, 8, off) != 8 || memcmp(rec, got, 8) != 0)
			w->errors++;
		/* SEEK_DATA moves the same file position that tells an append its offset. */
		if (i % 16 == 0 && backing_lseek(S.b, w->n, 0, SEEK_DATA) < 0)
			w->errors++;
		if (i % 50 == 0)
			backing_close_idle(S.b);
	}
	return NULL;
}

START_TEST(appends_lose_nothing)
{
	struct appender w[APPENDERS + 1];
	pthread_t threads[APPENDERS + 1];
	static char all[(APPENDERS + 1) * APPENDS * 8 + 1];
	int next[APPENDERS + 1] = {0};
	struct bnode *n;

	scratch_open(4, _i);
	n = make("log", 0644);
	for (int i = 0; i <= APPENDERS; i++) {
		w[i] = (struct appender){n, i, 0, -1};
		if (i == APPENDERS)
			w[i].fd = open(P("log"), O_WRONLY | O_APPEND);
		ck_assert_int_eq(pthread_create(&threads[i], NULL, append_records, &w[i]), 0);
	}
	for (int i = 0; i <= APPENDERS; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_int_eq(w[i].errors, 0);
	}
	close(w[APPENDERS].fd);
	ck_assert_int_eq(backing_pread(S.b, n, all, sizeof(all), 0), (ssize_t)sizeof(all) - 1);
	for (size_t at = 0; at < sizeof(all) - 1; at += 8) {
		int id = atoi((char[]){all[at + 1], all[at + 2], 0});
		char number[5] = "";

		memcpy(number, all + at + 3, 4);
		ck_assert_int_le(id, APPENDERS);
		ck_assert_int_eq(atoi(number), next[id]++);
	}
	put(n);
}
END_TEST

#define ENTRIES 5000

struct listing {
	unsigned seen, stop, total;
	off_t next[ENTRIES + 2];
	char name[ENTRIES + 2][8];
};

static int list_entry(void *arg, const char *name, uint64_t ino, mode_t type, off_t next)
{
	struct listing *l = arg;

	if (l->seen == l->stop)
		return 1;
	ck_assert_uint_ne(ino, 0);
	ck_assert(type == 0 || type == (name[0] == '.' ? S_IFDIR : S_IFREG));
	ck_assert_uint_lt(l->total, ENTRIES + 2);
	snprintf(l->name[l->total], 8, "%s", name);
	l->next[l->total++] = next;
	l->seen++;
	return 0;
}

static int list_first(void *arg, const char *name, uint64_t ino, mode_t type, off_t next)
{
	(void)ino;
	(void)type;
	(void)next;
	snprintf(arg, 8, "%s", name);
	return 1;
}

START_TEST(directories_list_in_pieces)
{
	static struct listing l;
	static bool seen[ENTRIES];
	struct bnode *file;
	struct bdir *d;
	char name[16], first[8];
	unsigned dots = 0;
	off_t at = 0;

	scratch_open(0, false);
	for (int i = 0; i < ENTRIES; i++) {
		snprintf(name, sizeof(name), "%d", i);
		ck_assert_int_eq(mknod(P(name), S_IFREG | 0644, 0), 0);
	}
	ck_assert_int_eq(backing_opendir(S.b, S.top, &d), 0);
	do {
		l.seen = 0;
		l.stop = 1 + l.total % 97;
		ck_assert_int_eq(backing_readdir(d, at, list_entry, &l), 0);
		if (l.seen)
			at = l.next[l.total - 1];
	} while (l.seen == l.stop);
	ck_assert_uint_eq(l.total, ENTRIES + 2);
	for (unsigned i = 0; i < l.total; i++) {
		if (l.name[i][0] == '.') {
			dots++;
			continue;
		}
		ck_assert(!seen[atoi(l.name[i])]);
		seen[atoi(l.name[i])] = true;
	}
	ck_assert_uint_eq(dots, 2);
	/* Any earlier position, in any order, also on another opening. */
	for (int round = 0; round < 2; round++) {
		for (unsigned i = 1; i < l.total; i += 211) {
			unsigned k = (i * 7919) % (l.total - 1);

			ck_assert_int_eq(backing_readdir(d, l.next[k], list_first, first), 0);
			ck_assert_str_eq(first, l.name[k + 1]);
		}
		ck_assert_int_eq(backing_readdir(d, 0, list_first, first), 0);
		ck_assert_str_eq(first, l.name[0]);
		backing_closedir(d);
		ck_assert_int_eq(backing_opendir(S.b, S.top, &d), 0);
	}
	backing_closedir(d);
	file = look(S.top, "1");
	ck_assert_int_eq(backing_opendir(S.b, file, &d), -ENOTDIR);
	put(file);
}
END_TEST

START_TEST(readonly_changes_nothing)
{
	struct backing_options o = {.readonly = true};
	struct bnode *n, *m;
	struct battr a = {.st = {.st_mode = 0600}};
	uint64_t off;

	put_file(P("f"), "text");
	ck_assert_int_eq(backing_open(&S.b, S.root, &o), 0);
	S.top = backing_root(S.b);
	n = look(S.top, "f");
	expect_text(n, "text");
	ck_assert_int_eq(backing_pwrite(S.b, n, "x", 1, 0), -EROFS);
	ck_assert_int_eq(backing_append(S.b, n, "x", 1, &off), -EROFS);
	ck_assert_int_eq(backing_fallocate(S.b, n, 0, 0, 10), -EROFS);
	ck_assert_int_eq(backing_copy_range(S.b, n, 0, n, 8, 2), -EROFS);
	ck_assert_int_eq(backing_setattr(S.b, n, BSET_MODE, &a.st, &a), -EROFS);
	ck_assert_int_eq(backing_setxattr(S.b, n, "user.a", "v", 1, 0), -EROFS);
	ck_assert_int_eq(backing_removexattr(S.b, n, "user.a"), -EROFS);
	ck_assert_int_eq(backing_create(S.b, S.top, "g", 0644, &S.cred, false, &m, &a), -EROFS);
	ck_assert_int_eq(backing_mknod(S.b, S.top, "g", 0644, 0, &S.cred, &m, &a), -EROFS);
	ck_assert_int_eq(backing_mkdir(S.b, S.top, "g", 0755, &S.cred, &m, &a), -EROFS);
	ck_assert_int_eq(backing_symlink(S.b, S.top, "g", "f", &S.cred, &m, &a), -EROFS);
	ck_assert_int_eq(backing_link(S.b, n, S.top, "g", &a), -EROFS);
	ck_assert_int_eq(backing_unlink(S.b, S.top, "f"), -EROFS);
	ck_assert_int_eq(backing_rmdir(S.b, S.top, "f"), -EROFS);
	ck_assert_int_eq(backing_rename(S.b, S.top, "f", S.top, "g", 0), -EROFS);
	expect_text(n, "text");
	ck_assert_int_eq(backing_pin(S.b, n), 0);
	put(n);
}
END_TEST

/* Without root a file's mode stands in the way, of reopening but not of what is open. */
START_TEST(users_keep_what_they_could_open)
{
	struct bnode *n;
	char byte;

	scratch_become_user();
	scratch_open(0, true);
	n = make("readonly", 0444);
	ck_assert_int_eq(backing_pin(S.b, n), 0);
	backing_close_idle(S.b);
	ck_assert_int_eq(backing_pwrite(S.b, n, "x", 1, 0), 1);
	expect_text(n, "x");
	put(n);
	n = look(S.top, "readonly");
	ck_assert_int_eq(backing_pwrite(S.b, n, "y", 1, 0), -EACCES);
	expect_text(n, "x");
	put(n);

	n = make("writeonly", 0200);
	backing_close_idle(S.b);
	ck_assert_int_eq(backing_pwrite(S.b, n, "x", 1, 0), 1);
	ck_assert_int_eq(backing_fsync(S.b, n, false), 0);
	ck_assert_int_eq(backing_pread(S.b, n, &byte, 1, 0), -EACCES);
	ck_assert_int_eq(backing_pwrite(S.b, n, "y", 1, 0), 1);
	put(n);
	/* Written first, then only readable: both go on. */
	n = make("both", 0200);
	backing_close_idle(S.b);
	ck_assert_int_eq(backing_pwrite(S.b, n, "z", 1, 0), 1);
	ck_assert_int_eq(chmod(P("both"), 0400), 0);
	expect_text(n, "z");
	ck_assert_int_eq(backing_pwrite(S.b, n, "Z", 1, 0), 1);
	expect_text(n, "Z");
	put(n);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("backing_ops");
	TCase *tc = tcase_create("operations");

	tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, create_follows_the_callers_umask);
	tcase_add_test(tc, create_opens_what_is_there);
	tcase_add_test(tc, created_objects_belong_to_the_caller);
	tcase_add_test(tc, root_gives_away_only_what_it_made);
	tcase_add_loop_test(tc, what_is_moved_out_is_held_but_not_found, 0, 2);
	tcase_add_test(tc, default_acl_replaces_the_umask);
	tcase_add_test(tc, failed_creation_leaves_nothing);
	tcase_add_loop_test(tc, links_share_the_object, 0, 2);
	tcase_add_loop_test(tc, a_file_without_a_name, 0, 2);
	tcase_add_loop_test(tc, setattr_on_everything, 0, 2);
	tcase_add_loop_test(tc, setattr_changes_owners, 0, 2);
	tcase_add_loop_test(tc, extended_attributes, 0, 2);
	tcase_add_loop_test(tc, data_goes_and_comes, 0, 2);
	tcase_add_loop_test(tc, reading_leaves_atime, 0, 2);
	tcase_add_loop_test(tc, appends_lose_nothing, 0, 2);
	tcase_add_test(tc, directories_list_in_pieces);
	tcase_add_test(tc, readonly_changes_nothing);
	tcase_add_test(tc, users_keep_what_they_could_open);
	suite_add_tcase(s, tc);
	return scratch_run(s);
}
