/* SPDX-License-Identifier: BSD-2-Clause
 * The backing in trouble. Its functions are wrapped by the linker (--wrap), so that each can be made
 * to fail, to be short, or to wait. */
#include <config.h>

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache/cache_priv.h"
#include "cache_env.h"

#define SIZE 200000u

static char data[1 << 20], got_data[1 << 20];

static struct { /* what the backing does */
	_Atomic int lookup, getattr, pread, pwrite, fsync, syncfs; /* errors */
	_Atomic size_t short_write; /* at most this much is written */
	_Atomic bool write_then_fail;
	_Atomic bool hold; /* reads wait for the gate */
	sem_t waiting, gate;
	void (*during_lookup)(void); /* after it was asked for, before it looks */
} trouble;

int __real_backing_lookup(struct backing *b, struct bnode *parent, const char *name,
			  struct bnode **out, struct battr *attr);
int __wrap_backing_lookup(struct backing *b, struct bnode *parent, const char *name,
			  struct bnode **out, struct battr *attr);
int __real_backing_getattr(struct backing *b, struct bnode *n, struct battr *out);
ssize_t __real_backing_pread(struct backing *b, struct bnode *n, void *buf, size_t len, uint64_t off);
ssize_t __real_backing_pwrite(struct backing *b, struct bnode *n, const void *buf, size_t len,
			      uint64_t off);
int __real_backing_fsync(struct backing *b, struct bnode *n, bool datasync);
int __real_backing_syncfs(struct backing *b);
int __wrap_backing_getattr(struct backing *b, struct bnode *n, struct battr *out);
ssize_t __wrap_backing_pread(struct backing *b, struct bnode *n, void *buf, size_t len, uint64_t off);
ssize_t __wrap_backing_pwrite(struct backing *b, struct bnode *n, const void *buf, size_t len,
			      uint64_t off);
int __wrap_backing_fsync(struct backing *b, struct bnode *n, bool datasync);
int __wrap_backing_syncfs(struct backing *b);

int __wrap_backing_lookup(struct backing *b, struct bnode *parent, const char *name,
			  struct bnode **out, struct battr *attr)
{
	int err = atomic_load(&trouble.lookup);

	if (trouble.during_lookup)
		trouble.during_lookup();
	return err ? err : __real_backing_lookup(b, parent, name, out, attr);
}

int __wrap_backing_getattr(struct backing *b, struct bnode *n, struct battr *out)
{
	int err = atomic_load(&trouble.getattr);

	return err ? err : __real_backing_getattr(b, n, out);
}

ssize_t __wrap_backing_pread(struct backing *b, struct bnode *n, void *buf, size_t len, uint64_t off)
{
	int err = atomic_load(&trouble.pread);
	ssize_t got;

	if (err)
		return err;
	got = __real_backing_pread(b, n, buf, len, off);
	if (atomic_load(&trouble.hold)) {
		sem_post(&trouble.waiting);
		sem_wait(&trouble.gate);
	}
	return got;
}

ssize_t __wrap_backing_pwrite(struct backing *b, struct bnode *n, const void *buf, size_t len,
			      uint64_t off)
{
	int err = atomic_load(&trouble.pwrite);
	size_t most = atomic_load(&trouble.short_write);

	if (atomic_load(&trouble.write_then_fail))
		__real_backing_pwrite(b, n, buf, len / 2, off);
	if (err)
		return err;
	return __real_backing_pwrite(b, n, buf, most && len > most ? most : len, off);
}

int __wrap_backing_fsync(struct backing *b, struct bnode *n, bool datasync)
{
	int err = atomic_load(&trouble.fsync);

	return err ? err : __real_backing_fsync(b, n, datasync);
}

int __wrap_backing_syncfs(struct backing *b)
{
	int err = atomic_load(&trouble.syncfs);

	return err ? err : __real_backing_syncfs(b);
}

static struct cnode *start_warm(struct env *e)
{
	struct cnode *n;

	env_pattern(data, sizeof(data), 11);
	env_put(e, "f", data, SIZE);
	env_age(e, "f");
	env_start(e);
	n = env_lookup(e, "f");
	env_warm(e, n);
	return n;
}

START_TEST(ttl_serves_what_it_verified_last)
{
	static const int errors[] = {-EIO, -ETIMEDOUT, -ENOTCONN, -EHOSTUNREACH};
	struct cache_attr a;
	struct env e;
	struct cnode *n;

	env_make(&e, 0);
	e.o.ttl_ns = 1;
	n = start_warm(&e);
	atomic_store(&trouble.getattr, errors[_i]);
	atomic_store(&trouble.pread, errors[_i]);
	ck_assert_int_eq(env_read(&e, n, got_data, SIZE, 0), SIZE);
	ck_assert_int_eq(memcmp(got_data, data, SIZE), 0);
	ck_assert_ok(cache_getattr(e.c, n, &a, 0));
	ck_assert_int_eq(a.attr.st.st_size, SIZE);
	ck_assert_int_ge(env_stat(&e, backing_errors), 2);
	atomic_store(&trouble.getattr, 0);
	atomic_store(&trouble.pread, 0);
	env_put(&e, "f", data + 1, SIZE);
	env_same(&e, "f", "it is back");
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

static int look_in_trouble(struct env *e, const char *name, struct cnode *want)
{
	struct cache_attr a;
	struct cnode *n;
	int err;

	atomic_store(&trouble.lookup, -ETIMEDOUT);
	err = cache_lookup(e->c, cache_root(e->c), name, &n, &a, 0);
	atomic_store(&trouble.lookup, 0);
	if (err)
		return err;
	ck_assert_ptr_eq(n, want);
	ck_assert_int_eq(a.attr.st.st_size, SIZE);
	ck_assert_uint_gt(a.valid_ns, 0);
	cache_forget(e->c, n, 1);
	return 0;
}

static struct cnode *look_known(struct env *e, const char *name)
{
	env_put(e, name, data, SIZE);
	return env_lookup(e, name);
}

/* The last answer of the backing to a name, or a change of it here, decides. */
START_TEST(known_names_are_served)
{
	struct cnode *n[5], *root, *none;
	struct cache_attr a;
	struct env e;

	env_make(&e, 0);
	e.o.coherence = _i ? CACHE_STRICT : CACHE_TTL;
	env_start(&e);
	root = cache_root(e.c);
	n[0] = look_known(&e, "here");
	n[1] = look_known(&e, "removed");
	n[2] = look_known(&e, "moved");
	n[3] = look_known(&e, "over");
	n[4] = look_known(&e, "behind");
	ck_assert_ok(cache_unlink(e.c, root, "removed"));
	ck_assert_ok(cache_rename(e.c, root, "moved", root, "over", 0));
	ck_assert_int_eq(unlink(env_path(&e, "behind")), 0);
	ck_assert_int_eq(cache_lookup(e.c, root, "behind", &none, &a, 0), -ENOENT);
	ck_assert_int_eq(look_in_trouble(&e, "here", n[0]), _i ? -ETIMEDOUT : 0);
	ck_assert_int_eq(look_in_trouble(&e, "never", NULL), -ETIMEDOUT);
	ck_assert_int_eq(look_in_trouble(&e, "removed", NULL), -ETIMEDOUT);
	ck_assert_int_eq(look_in_trouble(&e, "moved", NULL), -ETIMEDOUT);
	ck_assert_int_eq(look_in_trouble(&e, "over", NULL), -ETIMEDOUT);
	ck_assert_int_eq(look_in_trouble(&e, "behind", NULL), -ETIMEDOUT);
	for (int i = 0; i < 5; i++)
		env_forget(&e, n[i]);
	ck_assert_int_eq(look_in_trouble(&e, "here", NULL), -ETIMEDOUT); /* nobody holds it */
	env_free(&e);
}
END_TEST

static struct env *race_env;
static struct cnode *race_node;

static void somebody_asks_and_then_it_grows(void)
{
	struct cache_attr a;

	trouble.during_lookup = NULL;
	ck_assert_ok(cache_getattr(race_env->c, race_node, &a, 0));
	ck_assert_int_eq(a.attr.st.st_size, 0);
	env_put(race_env, "new", data, SIZE);
	ck_assert_int_eq(rename(env_path(race_env, "new"), env_path(race_env, "f")), 0);
}

/* A new file is written and put in the place of an old one. By the old one's name nobody may see it
 * empty, even if somebody asked for its attributes, by its first name, after the lookup began. */
START_TEST(a_name_brings_attributes_as_young_as_itself)
{
	struct cache_attr a;
	struct cnode *n;
	struct env e;

	env_make(&e, 0);
	e.o.ttl_ns = 1;
	env_put(&e, "f", "old", 3);
	env_put(&e, "new", "", 0);
	env_start(&e);
	race_env = &e;
	race_node = env_lookup(&e, "new");
	trouble.during_lookup = somebody_asks_and_then_it_grows;
	ck_assert_ok(cache_lookup(e.c, cache_root(e.c), "f", &n, &a, 0));
	ck_assert_ptr_eq(n, race_node);
	ck_assert_int_eq(a.attr.st.st_size, SIZE);
	env_forget(&e, n);
	env_forget(&e, race_node);
	env_free(&e);
}
END_TEST

START_TEST(strict_says_what_the_backing_says)
{
	struct cache_attr a;
	struct env e;
	struct cnode *n;

	env_make(&e, 0);
	e.o.coherence = CACHE_STRICT;
	n = start_warm(&e);
	ck_assert_ok(cache_getattr(e.c, n, &a, 0));
	ck_assert_int_eq(a.valid_ns, 0);
	env_put(&e, "f", data + 1, SIZE);
	env_same(&e, "f", "changed behind the mount, strict");
	atomic_store(&trouble.getattr, -ETIMEDOUT);
	ck_assert_int_eq(env_read(&e, n, got_data, SIZE, 0), -ETIMEDOUT);
	ck_assert_int_eq(cache_getattr(e.c, n, &a, 0), -ETIMEDOUT);
	atomic_store(&trouble.getattr, 0);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(gone_is_an_answer)
{
	struct env e;
	struct cnode *n;

	env_make(&e, 0);
	e.o.ttl_ns = 1;
	n = start_warm(&e);
	atomic_store(&trouble.getattr, _i ? -ESTALE : -ENOENT);
	ck_assert_int_eq(env_read(&e, n, got_data, SIZE, 0), _i ? -ESTALE : -ENOENT);
	atomic_store(&trouble.getattr, 0);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(misses_get_the_error_and_cache_nothing)
{
	struct env e;
	struct cnode *n;

	env_make(&e, 0);
	env_pattern(data, sizeof(data), 11);
	env_put(&e, "f", data, SIZE);
	env_age(&e, "f");
	env_start(&e);
	n = env_lookup(&e, "f");
	atomic_store(&trouble.pread, -EIO);
	ck_assert_int_eq(env_read(&e, n, got_data, SIZE, 0), -EIO);
	atomic_store(&trouble.pread, 0);
	ck_assert_int_eq(env_stat(&e, read_errors), 1);
	env_drain(&e);
	ck_assert_int_eq(ram_flash_sectors(e.ram), 0);
	env_same(&e, "f", "well again");
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

/* ---- writes that go wrong ---- */

START_TEST(short_and_failed_writes_leave_no_old_bytes)
{
	uint64_t off = 70000;
	struct env e;
	struct cnode *n;

	env_make(&e, 0);
	n = start_warm(&e);
	switch (_i) {
	case 0:
		atomic_store(&trouble.short_write, 5000);
		ck_assert_int_eq(cache_write(e.c, n, data + 9, 50000, &off, false), 5000);
		break;
	case 1:
		atomic_store(&trouble.pwrite, -ENOSPC);
		ck_assert_int_eq(cache_write(e.c, n, data + 9, 50000, &off, false), -ENOSPC);
		break;
	case 2: /* half of it went through before the error */
		atomic_store(&trouble.pwrite, -EIO);
		atomic_store(&trouble.write_then_fail, true);
		ck_assert_int_eq(cache_write(e.c, n, data + 9, 50000, &off, false), -EIO);
		break;
	default: /* and then nobody could say what the file is now */
		atomic_store(&trouble.pwrite, -EIO);
		atomic_store(&trouble.write_then_fail, true);
		atomic_store(&trouble.getattr, -EIO);
		ck_assert_int_eq(cache_write(e.c, n, data + 9, 50000, &off, false), -EIO);
	}
	atomic_store(&trouble.getattr, 0);
	atomic_store(&trouble.pwrite, 0);
	atomic_store(&trouble.short_write, 0);
	atomic_store(&trouble.write_then_fail, false);
	env_same(&e, "f", "after a bad write");
	env_forget(&e, n);
	env_restart(&e);
	env_same(&e, "f", "after a remount");
	env_free(&e);
}
END_TEST

START_TEST(what_was_not_synced_is_not_published)
{
	uint64_t off = 0, reads;
	struct env e;
	struct cnode *n;

	env_make(&e, 0);
	n = start_warm(&e);
	ck_assert_ok(cache_flush(e.c));
	ck_assert_int_eq(cache_write(e.c, n, data + 1, 100, &off, false), 100);
	atomic_store(&trouble.fsync, -EIO);
	atomic_store(&trouble.syncfs, -EIO);
	ck_assert_int_eq(cache_flush(e.c), -EIO);
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_OPEN), 1);
	env_forget(&e, n);
	ck_assert_int_eq(cache_close(e.c), -EIO);
	e.c = NULL;
	ram_flash_closed_cleanly(e.ram);
	backing_close(e.backing);
	atomic_store(&trouble.fsync, 0);
	atomic_store(&trouble.syncfs, 0);
	env_start(&e);
	ck_assert_int_eq(env_stat(&e, file_recovered), 1); /* also after a clean stop */
	reads = env_stat(&e, backing_reads);
	env_same(&e, "f", "starts cold");
	ck_assert_int_gt(env_stat(&e, backing_reads), reads);
	env_free(&e);
}
END_TEST

/* ---- waiting ---- */

struct waiter {
	struct env *e;
	struct cnode *n;
	ssize_t got;
};

static void *waiter_run(void *arg)
{
	struct waiter *w = arg;
	char *buf = malloc(SIZE);

	w->got = env_read(w->e, w->n, buf, SIZE, 0);
	free(buf);
	return NULL;
}

START_TEST(a_slow_read_holds_up_nobody_else)
{
	struct cache_attr a;
	uint64_t off = 0;
	struct waiter w;
	struct env e;
	struct cnode *n, *slow;
	pthread_t t;
	bool changed;

	env_make(&e, 0);
	env_put(&e, "slow", data, SIZE);
	n = start_warm(&e);
	env_age(&e, "slow");
	slow = env_lookup(&e, "slow");
	sem_init(&trouble.waiting, 0, 0);
	sem_init(&trouble.gate, 0, 0);
	atomic_store(&trouble.hold, true);
	w = (struct waiter){.e = &e, .n = slow};
	ck_assert_ok(pthread_create(&t, NULL, waiter_run, &w));
	sem_wait(&trouble.waiting);
	atomic_store(&trouble.hold, false);
	/* hits of others, attributes and even writes of the same file go on */
	ck_assert_int_eq(env_read(&e, n, got_data, SIZE, 0), SIZE);
	ck_assert_ok(cache_getattr(e.c, slow, &a, CACHE_NOWAIT));
	ck_assert_int_eq(cache_read(e.c, slow, got_data, SIZE, 0, CACHE_NOWAIT, &changed), -EAGAIN);
	ck_assert_int_eq(cache_write(e.c, slow, "new", 3, &off, false), 3);
	env_same(&e, "slow", "written meanwhile"); /* not from the read under way: it is older */
	sem_post(&trouble.gate);
	pthread_join(t, NULL);
	ck_assert_int_eq(w.got, SIZE);
	env_drain(&e);
	env_same(&e, "slow", "and not from its fill");
	env_forget(&e, slow);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache_errors");
	TCase *t = tcase_create("errors");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, ttl_serves_what_it_verified_last, 0, 4);
	tcase_add_test(t, a_name_brings_attributes_as_young_as_itself);
	tcase_add_loop_test(t, known_names_are_served, 0, 2);
	tcase_add_test(t, strict_says_what_the_backing_says);
	tcase_add_loop_test(t, gone_is_an_answer, 0, 2);
	tcase_add_test(t, misses_get_the_error_and_cache_nothing);
	tcase_add_loop_test(t, short_and_failed_writes_leave_no_old_bytes, 0, 4);
	tcase_add_test(t, what_was_not_synced_is_not_published);
	tcase_add_test(t, a_slow_read_holds_up_nobody_else);
	suite_add_tcase(s, t);
	return unit_main(s);
}
