/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A scratch directory with a backing over it. Check runs every test in a process of its own, so a
 * test may also give up root for good (scratch_become_user). */
#ifndef GILD_TEST_BACKING_SCRATCH_H
#define GILD_TEST_BACKING_SCRATCH_H

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "backing/backing_priv.h"

#define SCRATCH_USER 65534

struct scratch {
	char dir[PATH_MAX - 1024]; /* dir/root is the backing, dir/out is beside it */
	char root[PATH_MAX - 512];
	struct backing *b;
	struct bnode *top;
	struct bcred cred;
	int path_calls;
	char path[8][PATH_MAX];
};

static struct scratch S;
static char scratch_base[PATH_MAX - 2048];

/* The path of a name in the backing, for changes behind it. Eight at a time. */
static inline const char *P(const char *name)
{
	char *path = S.path[S.path_calls++ % 8];

	snprintf(path, PATH_MAX, "%s/%s", S.root, name);
	return path;
}

static inline void scratch_setup(void)
{
	memset(&S, 0, sizeof(S));
	snprintf(S.dir, sizeof(S.dir), "%s/XXXXXX", scratch_base);
	ck_assert_ptr_nonnull(mkdtemp(S.dir));
	snprintf(S.root, sizeof(S.root), "%s/root", S.dir);
	ck_assert_int_eq(mkdir(S.root, 0755), 0);
	S.cred.uid = geteuid();
	S.cred.gid = getegid();
}

static inline void scratch_teardown(void)
{
	backing_close(S.b);
}

/* `chain`: reopen through parents, as without root. */
static inline void scratch_open(unsigned max_fds, bool chain)
{
	struct backing_options o = {.max_fds = max_fds};

	ck_assert_int_eq(backing_open(&S.b, S.root, &o), 0);
	S.top = backing_root(S.b);
	if (chain)
		backing_forbid_handles(S.b);
}

static inline bool scratch_need_root(const char *what)
{
	if (geteuid() == 0)
		return true;
	fprintf(stderr, "skipped (needs root): %s\n", what);
	return false;
}

static inline void scratch_become_user(void)
{
	if (geteuid() != 0)
		return;
	ck_assert_int_eq(chown(S.dir, SCRATCH_USER, SCRATCH_USER), 0);
	ck_assert_int_eq(chown(S.root, SCRATCH_USER, SCRATCH_USER), 0);
	ck_assert_int_eq(setgroups(0, NULL), 0);
	ck_assert_int_eq(setresgid(SCRATCH_USER, SCRATCH_USER, SCRATCH_USER), 0);
	ck_assert_int_eq(setresuid(SCRATCH_USER, SCRATCH_USER, SCRATCH_USER), 0);
	S.cred.uid = geteuid();
	S.cred.gid = getegid();
}

static inline void put_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
	ck_assert_msg(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "writing %s: %s",
		      path, strerror(errno));
	close(fd);
}

static inline struct bnode *look(struct bnode *dir, const char *name)
{
	struct bnode *n = NULL;
	struct battr a;
	int rc = backing_lookup(S.b, dir, name, &n, &a);

	ck_assert_msg(rc == 0, "%s: %s", name, strerror(-rc));
	ck_assert_uint_eq(backing_type(n), a.st.st_mode & S_IFMT);
	return n;
}

static inline int look_error(struct bnode *dir, const char *name)
{
	struct bnode *n = NULL;
	struct battr a;
	int rc = backing_lookup(S.b, dir, name, &n, &a);

	if (rc == 0)
		backing_put(S.b, n);
	return rc;
}

static inline void put(struct bnode *n)
{
	backing_put(S.b, n);
}

static inline int attr_error(struct bnode *n)
{
	struct battr a;

	return backing_getattr(S.b, n, &a);
}

static inline void expect_text(struct bnode *n, const char *text)
{
	char buf[256];
	ssize_t got = backing_pread(S.b, n, buf, sizeof(buf) - 1, 0);

	ck_assert_msg(got >= 0, "reading: %s", strerror((int)-got));
	buf[got] = '\0';
	ck_assert_str_eq(buf, text);
}

static inline unsigned process_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static inline int scratch_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	if (remove(path) != 0 && errno == EBUSY && umount2(path, MNT_DETACH) == 0)
		rmdir(path); /* a test failed before it got to unmount */
	return 0;
}

/* The directories are removed here and not by the tests, which may fail or have given up root. */
static inline int scratch_run(Suite *s)
{
	const char *tmp = getenv("TMPDIR");
	SRunner *sr = srunner_create(s);
	int failed = -1;

	snprintf(scratch_base, sizeof(scratch_base), "%s/gild-backing-XXXXXX",
		 tmp && *tmp ? tmp : "/tmp");
	if (mkdtemp(scratch_base) && chmod(scratch_base, 0755) == 0) {
		srunner_run_all(sr, CK_NORMAL);
		failed = srunner_ntests_failed(sr);
		nftw(scratch_base, scratch_remove, 16, FTW_DEPTH | FTW_PHYS);
	}
	srunner_free(sr);
	return failed ? 1 : 0;
}

#endif
