/* SPDX-License-Identifier: BSD-2-Clause
 * Reading through the cache: hits, misses, changes behind the mount, sharing, faults of flash. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "cache/cache_priv.h"
#include "cache_env.h"

#define SIZE 200000u /* three lines and a bit, not whole sectors */

static char old_data[1 << 20], new_data[1 << 20], got_data[4 << 20];

static void start(struct env *e, uint64_t capacity)
{
	env_make(e, capacity);
	env_pattern(old_data, sizeof(old_data), 1);
	env_pattern(new_data, sizeof(new_data), 2);
	env_put(e, "f", old_data, SIZE);
	env_age(e, "f");
}

START_TEST(hits_after_a_miss)
{
	struct env e;
	struct cnode *n;

	start(&e, 0);
	env_start(&e);
	n = env_lookup(&e, "f");
	ck_assert_int_eq(env_read(&e, n, got_data, sizeof(got_data), 0), SIZE);
	ck_assert_int_eq(memcmp(got_data, old_data, SIZE), 0);
	ck_assert_int_eq(env_stat(&e, read_misses), 1);
	ck_assert_int_eq(env_stat(&e, backing_reads), 1);
	env_drain(&e);
	ck_assert_int_eq(env_stat(&e, fill_done), 4);
	memset(got_data, 0, SIZE);
	ck_assert_int_eq(env_read(&e, n, got_data, 131072, 0), 131072);
	ck_assert_int_eq(memcmp(got_data, old_data, 131072), 0);
	ck_assert_int_eq(env_read(&e, n, got_data, 131072, 131072), SIZE - 131072);
	ck_assert_int_eq(memcmp(got_data, old_data + 131072, SIZE - 131072), 0);
	ck_assert_int_eq(env_read(&e, n, got_data, 777, 70001), 777);
	ck_assert_int_eq(memcmp(got_data, old_data + 70001, 777), 0);
	ck_assert_int_eq(env_read(&e, n, got_data, 5000, SIZE - 100), 100);
	ck_assert_int_eq(memcmp(got_data, old_data + SIZE - 100, 100), 0);
	ck_assert_int_eq(env_read(&e, n, got_data, 5000, SIZE), 0);
	ck_assert_int_eq(env_stat(&e, read_hits), 4);
	ck_assert_int_eq(env_stat(&e, backing_reads), 1);
	ck_assert_int_eq(env_stat(&e, read_hit_bytes), SIZE + 777 + 100);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(nowait_says_so_and_does_nothing)
{
	struct env e;
	struct cnode *n;
	struct cache_attr a;
	bool changed;
	ssize_t err;

	start(&e, 0);
	env_start(&e);
	err = cache_lookup(e.c, cache_root(e.c), "f", &n, &a, CACHE_NOWAIT);
	ck_assert(!err || err == -EAGAIN);
	if (!err)
		env_forget(&e, n);
	n = env_lookup(&e, "f");
	ck_assert_int_eq(cache_read(e.c, n, got_data, SIZE, 0, CACHE_NOWAIT, &changed), -EAGAIN);
	ck_assert_int_eq(env_stat(&e, backing_reads), 0);
	ck_assert_int_eq(env_stat(&e, read_misses), 0);
	ck_assert_ok(cache_getattr(e.c, n, &a, CACHE_NOWAIT));
	ck_assert_int_eq(a.attr.st.st_size, SIZE);
	env_warm(&e, n);
	ck_assert_int_eq(cache_read(e.c, n, got_data, SIZE, 0, CACHE_NOWAIT, &changed), SIZE);
	ck_assert_int_eq(memcmp(got_data, old_data, SIZE), 0);
	cache_invalidate(e.c, n);
	/* A check that need not wait is made: what changed is not served. */
	env_put(&e, "f", new_data, SIZE / 2);
	err = cache_read(e.c, n, got_data, SIZE, 0, CACHE_NOWAIT, &changed);
	ck_assert_int_eq(err, -EAGAIN);
	err = cache_getattr(e.c, n, &a, CACHE_NOWAIT);
	ck_assert(err == -EAGAIN || (!err && a.attr.st.st_size == SIZE / 2));
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(partial_hits_are_counted)
{
	struct env e;
	struct cnode *n;

	start(&e, 0);
	env_put(&e, "big", old_data, sizeof(old_data));
	ck_assert_ok(truncate(env_path(&e, "big"), 8 << 20)); /* not a small file: no widening */
	env_age(&e, "big");
	env_start(&e);
	n = env_lookup(&e, "big");
	ck_assert_int_eq(env_read(&e, n, got_data, 65536, 65536), 65536);
	env_drain(&e);
	ck_assert_int_eq(env_read(&e, n, got_data, 131072, 65536), 131072);
	ck_assert_int_eq(memcmp(got_data, old_data + 65536, 131072), 0);
	ck_assert_int_eq(env_stat(&e, read_partial), 1);
	ck_assert_int_eq(env_stat(&e, read_hit_bytes), 65536);
	ck_assert_int_eq(env_stat(&e, read_backing_bytes), 131072);
	env_drain(&e);
	ck_assert_int_eq(env_read(&e, n, got_data, 131072, 65536), 131072);
	ck_assert_int_eq(env_stat(&e, read_hits), 1);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

/* Each way to change a file behind the mount that leaves a trace. */
static void change_size(struct env *e)
{
	env_put(e, "f", new_data, SIZE + 5000);
}

static void change_bytes(struct env *e)
{
	env_put(e, "f", new_data, SIZE);
}

static void change_keeping_mtime(struct env *e)
{
	struct stat st;
	struct timespec t[2];

	ck_assert_ok(stat(env_path(e, "f"), &st));
	env_put(e, "f", new_data, SIZE);
	t[0] = st.st_atim;
	t[1] = st.st_mtim;
	ck_assert_ok(utimensat(AT_FDCWD, env_path(e, "f"), t, 0));
}

static void change_by_rename(struct env *e)
{
	env_put(e, "g", new_data, SIZE);
	ck_assert_ok(rename(env_path(e, "g"), env_path(e, "f")));
}

static void change_shrinking(struct env *e)
{
	ck_assert_ok(truncate(env_path(e, "f"), 10));
}

static void (*const changes[])(struct env *) = {change_size, change_bytes, change_keeping_mtime,
						change_by_rename, change_shrinking};

START_TEST(a_change_behind_the_mount_is_seen)
{
	struct cache_attr a;
	struct env e;
	struct cnode *n;
	bool changed;

	start(&e, 0);
	e.o.ttl_ns = 1; /* every use is checked */
	env_start(&e);
	n = env_lookup(&e, "f");
	env_warm(&e, n);
	changes[_i](&e);
	env_same(&e, "f", "first look");
	env_age(&e, "f");
	env_same(&e, "f", "second look");
	env_drain(&e);
	env_same(&e, "f", "third look");
	if (_i != 3) {
		ck_assert_int_ge(env_stat(&e, file_changed), 1);
		/* told to whoever looks, until the kernel has dropped its pages; once where it sees by
		 * itself (told to the look-ups above) */
		ck_assert_ok(cache_getattr(e.c, n, &a, 0));
		ck_assert(a.changed == a.unseen);
		cache_told(e.c, n, a.told);
		ck_assert_ok(cache_getattr(e.c, n, &a, 0));
		ck_assert(!a.changed);
		changes[_i == 0](&e); /* again, another way */
		cache_read(e.c, n, got_data, SIZE, 0, 0, &changed);
		ck_assert(changed);
	}
	env_forget(&e, n);
	env_restart(&e);
	env_same(&e, "f", "after a remount");
	env_free(&e);
}
END_TEST

START_TEST(a_change_while_unmounted_is_seen)
{
	struct env e;
	struct cnode *n;

	start(&e, 0);
	env_start(&e);
	n = env_lookup(&e, "f");
	env_warm(&e, n);
	env_forget(&e, n);
	env_stop(&e);
	changes[_i](&e);
	env_start(&e);
	env_same(&e, "f", "after the remount");
	env_age(&e, "f");
	env_same(&e, "f", "again");
	env_drain(&e);
	env_same(&e, "f", "from flash");
	ck_assert_int_ge(env_stat(&e, read_hits), 2);
	env_free(&e);
}
END_TEST

START_TEST(within_the_ttl_nothing_is_asked)
{
	struct env e;
	struct cnode *n;
	uint64_t checks;

	start(&e, 0);
	env_start(&e);
	n = env_lookup(&e, "f");
	env_warm(&e, n);
	checks = env_stat(&e, file_checks);
	change_bytes(&e);
	ck_assert_int_eq(env_read(&e, n, got_data, SIZE, 0), SIZE);
	ck_assert_int_eq(memcmp(got_data, old_data, SIZE), 0); /* as promised: up to a ttl old */
	ck_assert_int_eq(env_stat(&e, file_checks), checks);
	cache_invalidate(e.c, n);
	ck_assert_int_eq(env_read(&e, n, got_data, SIZE, 0), SIZE);
	ck_assert_int_eq(memcmp(got_data, new_data, SIZE), 0);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(warm_after_a_remount)
{
	struct env e;
	struct cnode *n;
	uint64_t reads;

	start(&e, 0);
	env_start(&e);
	n = env_lookup(&e, "f");
	env_warm(&e, n);
	env_forget(&e, n);
	env_restart(&e);
	reads = env_stat(&e, backing_reads);
	env_same(&e, "f", "after the remount");
	ck_assert_int_eq(env_stat(&e, backing_reads), reads);
	env_free(&e);
}
END_TEST

START_TEST(a_young_file_is_not_filled)
{
	struct env e;
	struct cnode *n;

	start(&e, 0);
	e.o.settle_ns = ENV_HOUR;
	env_start(&e);
	n = env_lookup(&e, "f");
	ck_assert_int_eq(env_read(&e, n, got_data, SIZE, 0), SIZE);
	env_drain(&e);
	ck_assert_int_eq(env_stat(&e, fill_done), 0);
	ck_assert_int_eq(env_stat(&e, fill_raced), 1);
	ck_assert_int_eq(ram_flash_sectors(e.ram), 0);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

/* ---- sharing ---- */

struct gate { /* holds up the only fill thread, so that what was read stays where it is shared */
	struct work work;
	sem_t in, out;
};

static void gate_run(struct work *w)
{
	struct gate *g = container_of(w, struct gate, work);

	sem_post(&g->in);
	sem_wait(&g->out);
}

static void gate_close(struct gate *g, struct env *e)
{
	sem_init(&g->in, 0, 0);
	sem_init(&g->out, 0, 0);
	g->work.run = gate_run;
	ck_assert_ok(workq_submit(e->c->fills, &g->work));
	sem_wait(&g->in);
}

struct reader {
	struct env *e;
	struct cnode *n;
	bool same;
};

static void *reader_run(void *arg)
{
	struct reader *r = arg;
	char *buf = malloc(SIZE);
	bool changed;

	r->same = cache_read(r->e->c, r->n, buf, SIZE, 0, 0, &changed) == (ssize_t)SIZE &&
		  !memcmp(buf, old_data, SIZE);
	free(buf);
	return NULL;
}

/* A write behind the mount stamps the file first and copies its bytes after: what is read in between
 * has the new version and old bytes, and no attribute will ever tell. */
START_TEST(pages_of_a_young_version_are_dropped)
{
	struct env e;
	struct cnode *n;
	struct cache_attr a;
	bool changed;

	start(&e, 0);
	e.o.settle_ns = _i ? 1 : ENV_HOUR;
	env_start(&e);
	n = env_lookup(&e, "f");
	ck_assert_int_eq(cache_read(e.c, n, got_data, SIZE, 0, 0, &changed), SIZE);
	cache_invalidate(e.c, n);
	ck_assert_int_eq(cache_read(e.c, n, got_data, SIZE, 0, 0, &changed), SIZE);
	ck_assert(!changed); /* each READ would undo the one before */
	ck_assert_ok(cache_getattr(e.c, n, &a, 0));
	ck_assert(a.changed == !_i && a.unseen == !_i);
	ck_assert_ok(cache_getattr(e.c, n, &a, 0)); /* the pages are not gone yet */
	ck_assert(a.changed == !_i && a.unseen == !_i);
	cache_told(e.c, n, a.told - 2); /* of an earlier change */
	ck_assert_ok(cache_getattr(e.c, n, &a, 0));
	ck_assert(a.changed == !_i);
	cache_told(e.c, n, a.told);
	ck_assert_ok(cache_getattr(e.c, n, &a, 0));
	ck_assert(!a.changed);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

/* A READ has told, and the kernel's pages will be dropped in a while: who asks for attributes in the
 * meantime must not be answered before they are. */
START_TEST(a_read_that_tells_does_not_tell_for_all)
{
	struct env e;
	struct cnode *n;
	struct cache_attr a;
	struct stat st;
	bool changed;

	start(&e, 0);
	env_start(&e);
	n = env_lookup(&e, "f");
	ck_assert_int_eq(stat(env_path(&e, "f"), &st), 0);
	env_put(&e, "f", new_data, SIZE);
	ck_assert_int_eq(utimensat(AT_FDCWD, env_path(&e, "f"),
				   (struct timespec[]){st.st_atim, st.st_mtim}, 0), 0);
	cache_invalidate(e.c, n);
	ck_assert_int_eq(cache_read(e.c, n, got_data, SIZE, 0, 0, &changed), SIZE);
	ck_assert(changed);
	ck_assert_int_eq(cache_read(e.c, n, got_data, SIZE, 0, 0, &changed), SIZE);
	ck_assert(!changed);
	ck_assert_ok(cache_getattr(e.c, n, &a, 0));
	ck_assert(a.changed && a.unseen);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(fifty_readers_one_backing_read)
{
	struct env e;
	struct gate g;
	struct reader r[50];
	pthread_t t[50];
	struct cnode *n;
	unsigned i;

	start(&e, 0);
	env_start(&e);
	n = env_lookup(&e, "f");
	gate_close(&g, &e);
	for (i = 0; i < 50; i++) {
		r[i] = (struct reader){.e = &e, .n = n};
		ck_assert_ok(pthread_create(&t[i], NULL, reader_run, &r[i]));
	}
	for (i = 0; i < 50; i++) {
		pthread_join(t[i], NULL);
		ck_assert(r[i].same);
	}
	ck_assert_int_eq(env_stat(&e, backing_reads), 1);
	ck_assert_int_eq(env_stat(&e, fill_shared), 49);
	sem_post(&g.out);
	env_drain(&e);
	ck_assert_int_eq(env_stat(&e, fill_done), 4);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(what_was_read_before_a_write_is_not_shared_after_it)
{
	struct env e;
	struct gate g;
	struct cnode *n;
	uint64_t off = 0;

	start(&e, 0);
	env_start(&e);
	n = env_lookup(&e, "f");
	gate_close(&g, &e);
	ck_assert_int_eq(env_read(&e, n, got_data, SIZE, 0), SIZE);
	ck_assert_int_eq(cache_write(e.c, n, new_data, 10, &off, false), 10);
	env_same(&e, "f", "after the write");
	sem_post(&g.out);
	env_drain(&e);
	env_same(&e, "f", "after the fills");
	ck_assert_int_ge(env_stat(&e, fill_raced), 1);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(what_was_read_before_a_change_behind_the_mount_is_not_filled)
{
	struct env e;
	struct gate g;
	struct cnode *n;

	start(&e, 0);
	env_start(&e);
	n = env_lookup(&e, "f");
	gate_close(&g, &e);
	ck_assert_int_eq(env_read(&e, n, got_data, SIZE, 0), SIZE);
	change_bytes(&e);
	sem_post(&g.out);
	env_drain(&e);
	ck_assert_int_eq(env_stat(&e, fill_raced), 1);
	ck_assert_int_eq(env_stat(&e, fill_done), 0);
	env_same(&e, "f", "the fill has noticed the change");
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(overload_drops_fills_not_reads)
{
	struct env e;
	struct gate g;
	struct cnode *n;
	char name[16];
	unsigned i;

	start(&e, 0);
	e.o.fill_bytes = 300000;
	for (i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "o%u", i);
		env_put(&e, name, old_data, SIZE);
	}
	env_start(&e);
	gate_close(&g, &e);
	for (i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "o%u", i);
		env_same(&e, name, "under overload");
	}
	ck_assert_int_eq(env_stat(&e, fill_overload), 3);
	sem_post(&g.out);
	n = env_lookup(&e, "f");
	env_warm(&e, n);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

/* ---- flash in trouble ---- */

START_TEST(corrupt_lines_come_from_the_backing_again)
{
	struct env e;
	struct cnode *n;
	uint64_t reads;

	start(&e, 0);
	env_start(&e);
	n = env_lookup(&e, "f");
	env_warm(&e, n);
	ram_flash_corrupt(e.ram);
	reads = env_stat(&e, backing_reads);
	env_same(&e, "f", "corrupt");
	ck_assert_int_gt(env_stat(&e, backing_reads), reads);
	env_drain(&e);
	reads = env_stat(&e, backing_reads);
	env_same(&e, "f", "healed");
	ck_assert_int_eq(env_stat(&e, backing_reads), reads);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(full_or_failing_flash_is_nobodys_error)
{
	struct env e;
	struct cnode *n;
	uint64_t off = 100;

	start(&e, 0);
	env_start(&e);
	n = env_lookup(&e, "f");
	ram_flash_full(e.ram, true);
	env_same(&e, "f", "full");
	env_drain(&e);
	ck_assert_int_ge(env_stat(&e, fill_nospace), 1);
	ram_flash_full(e.ram, false);
	env_warm(&e, n);
	ram_flash_fail_at(e.ram, 1);
	ck_assert_int_eq(cache_write(e.c, n, new_data, 5000, &off, false), 5000);
	env_same(&e, "f", "written while flash fails");
	env_drain(&e);
	env_same(&e, "f", "again");
	ram_flash_fail_at(e.ram, 0);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(a_file_larger_than_flash)
{
	struct env e;
	unsigned i;

	start(&e, 64);
	e.o.policy = (enum cache_policy)_i;
	env_put(&e, "f", old_data, sizeof(old_data));
	env_age(&e, "f");
	env_start(&e);
	/* a policy may want to keep what it has at first; pressure must overcome that */
	for (i = 0; i < 8 || (i < 5000 && !env_stat(&e, evict_dropped)); i++) {
		env_same(&e, "f", "larger than flash");
		env_drain(&e);
	}
	ck_assert_int_le(ram_flash_sectors(e.ram), 64);
	ck_assert_int_ge(env_stat(&e, evict_dropped), 1);
	env_free(&e);
}
END_TEST

START_TEST(streams_bypass)
{
	struct env e;
	struct cnode *n;
	uint64_t off;

	start(&e, 0);
	e.o.seq_cutoff = 256 << 10;
	ck_assert_ok(truncate(env_path(&e, "f"), 4 << 20));
	env_age(&e, "f");
	env_start(&e);
	n = env_lookup(&e, "f");
	for (off = 0; off < 4 << 20; off += 128 << 10)
		ck_assert_int_eq(env_read(&e, n, got_data, 128 << 10, off), 128 << 10);
	env_drain(&e);
	ck_assert_int_eq(env_stat(&e, read_misses), 2);
	ck_assert_int_eq(env_stat(&e, read_bypass), 30);
	ck_assert_int_eq(env_stat(&e, fill_bytes), 256 << 10);
	env_same(&e, "f", "after a stream");
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(without_flash_all_passes_through)
{
	struct env e;
	struct cnode *n;
	uint64_t off = 0;

	start(&e, 0);
	e.flash = NULL;
	env_start(&e);
	n = env_lookup(&e, "f");
	env_same(&e, "f", "no flash");
	ck_assert_int_eq(cache_write(e.c, n, new_data, 10, &off, false), 10);
	env_same(&e, "f", "no flash, written");
	ck_assert_int_eq(env_stat(&e, read_bypass), 2);
	ck_assert_ok(cache_flush(e.c));
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(files_that_are_gone_answer)
{
	struct cache_attr a;
	struct env e;
	struct cnode *n;

	start(&e, 0);
	e.o.ttl_ns = 1;
	env_start(&e);
	ck_assert_int_eq(cache_lookup(e.c, cache_root(e.c), "none", &n, &a, 0), -ENOENT);
	ck_assert_int_eq(a.valid_ns, 1);
	n = env_lookup(&e, "f");
	env_warm(&e, n);
	ck_assert_ok(unlink(env_path(&e, "f")));
	ck_assert_int_eq(cache_lookup(e.c, cache_root(e.c), "f", &n, &a, 0), -ENOENT);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache_read");
	TCase *t = tcase_create("reads");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, hits_after_a_miss);
	tcase_add_test(t, nowait_says_so_and_does_nothing);
	tcase_add_test(t, partial_hits_are_counted);
	tcase_add_loop_test(t, a_change_behind_the_mount_is_seen, 0, 5);
	tcase_add_loop_test(t, a_change_while_unmounted_is_seen, 0, 5);
	tcase_add_test(t, within_the_ttl_nothing_is_asked);
	tcase_add_test(t, warm_after_a_remount);
	tcase_add_test(t, a_young_file_is_not_filled);
	tcase_add_loop_test(t, pages_of_a_young_version_are_dropped, 0, 2);
	tcase_add_test(t, a_read_that_tells_does_not_tell_for_all);
	tcase_add_test(t, fifty_readers_one_backing_read);
	tcase_add_test(t, what_was_read_before_a_write_is_not_shared_after_it);
	tcase_add_test(t, what_was_read_before_a_change_behind_the_mount_is_not_filled);
	tcase_add_test(t, overload_drops_fills_not_reads);
	tcase_add_test(t, corrupt_lines_come_from_the_backing_again);
	tcase_add_test(t, full_or_failing_flash_is_nobodys_error);
	tcase_add_loop_test(t, a_file_larger_than_flash, 0, 3);
	tcase_add_test(t, streams_bypass);
	tcase_add_test(t, without_flash_all_passes_through);
	tcase_add_test(t, files_that_are_gone_answer);
	suite_add_tcase(s, t);
	return unit_main(s);
}
