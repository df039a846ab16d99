/* SPDX-License-Identifier: BSD-2-Clause
 * What unit tests share: scratch directories, children whose output is caught, a main(). */
#ifndef GILD_TESTS_UNIT_UTIL_H
#define GILD_TESTS_UNIT_UTIL_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <check.h>

#define ck_assert_ok(expr) ck_assert_int_eq(expr, 0)

/* Runs fn in a child with stderr (and stdout) caught in `out`; returns the wait status. */
static inline int run_child(void (*fn)(void *arg), void *arg, char *out, size_t room)
{
	int pipes[2], status;
	size_t len = 0;
	ssize_t n;
	pid_t pid;

	ck_assert_int_eq(pipe(pipes), 0);
	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		dup2(pipes[1], STDERR_FILENO);
		dup2(pipes[1], STDOUT_FILENO);
		close(pipes[0]);
		fn(arg);
		fflush(NULL);
		_exit(0);
	}
	close(pipes[1]);
	while (len < room - 1 && (n = read(pipes[0], out + len, room - 1 - len)) > 0)
		len += (size_t)n;
	out[len] = '\0';
	close(pipes[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status;
}

#define ck_assert_has(text, part) \
	ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in \"%s\"", part, text)

static inline int unit_remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st;
	(void)kind;
	(void)ftw;
	return remove(path);
}

/* A new directory under $TMPDIR or /tmp; `path` has room for 256 bytes. */
static inline void scratch_make(char *path)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(path, 256, "%s/gildfs-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(path));
}

static inline void scratch_remove(const char *path)
{
	ck_assert_int_eq(nftw(path, unit_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static inline int unit_main(Suite *suite)
{
	SRunner *r = srunner_create(suite);
	int failed;

	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
