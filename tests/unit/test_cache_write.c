/* SPDX-License-Identifier: BSD-2-Clause
 * Changes through the cache: the mount is the backing at every moment, and what did not change
 * stays cached. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "cache/cache_priv.h"
#include "cache_env.h"

#define SIZE 200000u

static char data[1 << 20], got_data[4 << 20];

static struct cnode *start_warm(struct env *e)
{
	struct cnode *n;

	env_pattern(data, sizeof(data), 7);
	env_put(e, "f", data, SIZE);
	env_age(e, "f");
	env_start(e);
	n = env_lookup(e, "f");
	env_warm(e, n);
	return n;
}

static void write_at(struct env *e, struct cnode *n, const void *buf, size_t len, uint64_t off)
{
	ck_assert_int_eq(cache_write(e->c, n, buf, len, &off, false), (ssize_t)len);
}

/* ---- a random walk through every operation on data ---- */

static void truncate_to(struct env *e, struct cnode *n, uint64_t size)
{
	struct stat st = {.st_size = (off_t)size};
	struct cache_attr a;

	ck_assert_ok(cache_setattr(e->c, n, BSET_SIZE, &st, &a));
	ck_assert_int_eq(a.attr.st.st_size, (off_t)size);
}

static void walk_step(struct env *e, struct cnode *n, uint64_t *rng)
{
	static const size_t lengths[] = {1, 100, 4096, 5000, 8192, 65536, 70000, 140000};
	size_t len = lengths[env_rand(rng) % 8];
	uint64_t off = env_rand(rng) % 300000, at;

	if (env_rand(rng) % 3 == 0)
		off -= off % 4096;
	switch (env_rand(rng) % 10) {
	case 0:
	case 1:
	case 2:
		write_at(e, n, data + env_rand(rng) % 1000, len, off);
		break;
	case 3:
		ck_assert_int_gt(cache_write(e->c, n, data + off % 999, len, &at, true), 0);
		break;
	case 4:
		truncate_to(e, n, env_rand(rng) % 400000);
		break;
	case 5:
		cache_fallocate(e->c, n, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, len);
		break;
	case 6:
		cache_fallocate(e->c, n, FALLOC_FL_ZERO_RANGE, off, len);
		break;
	case 7:
		cache_fallocate(e->c, n, env_rand(rng) & 1 ? FALLOC_FL_COLLAPSE_RANGE
							   : FALLOC_FL_INSERT_RANGE,
				off - off % 4096, 8192);
		break;
	case 8:
		cache_copy_range(e->c, n, off, n, off + 150000, len);
		break;
	default:
		ck_assert_int_ge(env_read(e, n, got_data, len, off), 0);
	}
}

START_TEST(every_operation_leaves_mount_and_backing_equal)
{
	uint64_t rng = env_seed(20 + (uint64_t)_i);
	struct env e;
	struct cnode *n;
	unsigned i;

	env_make(&e, 0);
	e.o.mode = _i % 2 ? CACHE_WRITE_AROUND : CACHE_WRITE_THROUGH;
	n = start_warm(&e);
	for (i = 0; i < 250; i++) {
		walk_step(&e, n, &rng);
		env_same(&e, "f", "at once");
		if (i % 5 == 0) {
			env_age(&e, "f");
			env_same(&e, "f", "settled");
			env_drain(&e);
			env_same(&e, "f", "after fills");
		}
		if (i % 60 == 59) {
			env_forget(&e, n);
			env_restart(&e);
			n = env_lookup(&e, "f");
			env_same(&e, "f", "after a remount");
		}
		if (i % 20 == 0)
			truncate_to(&e, n, 200000);
	}
	ck_assert_int_ge(env_stat(&e, read_hits), 20);
	ck_assert_int_eq(env_stat(&e, file_changed), 0);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

/* ---- fills racing writes ---- */

struct storm {
	struct env *e;
	struct cnode *n;
	_Atomic bool stop;
	_Atomic uint64_t wrong, reads;
	uint64_t seed;
	/* block i holds 4096 times the low byte of its counter: between the two values the
	 * counter had when the read began and when it ended anything is right */
	_Atomic uint64_t begun[32], done[32];
};

static void *storm_write(void *arg)
{
	struct storm *s = arg;
	uint64_t rng = s->seed, off;
	char block[4096];

	while (!atomic_load(&s->stop)) {
		unsigned i = (unsigned)(env_rand(&rng) % 32);
		uint64_t v = atomic_fetch_add(&s->begun[i], 1) + 1;

		memset(block, (int)(v & 255), sizeof(block));
		off = i * 4096ULL;
		if (cache_write(s->e->c, s->n, block, 4096, &off, false) != 4096)
			atomic_fetch_add(&s->wrong, 1);
		atomic_store(&s->done[i], v);
	}
	return NULL;
}

static void storm_check(struct storm *s, unsigned i, const unsigned char *p, uint64_t low)
{
	uint64_t high = atomic_load(&s->begun[i]);

	if ((uint8_t)(p[0] - (uint8_t)low) > (uint8_t)(high - low) && high - low < 255)
		atomic_fetch_add(&s->wrong, 1);
}

static void *storm_read(void *arg)
{
	struct storm *s = arg;
	unsigned char buf[32 * 4096];
	uint64_t low[32];
	unsigned i;
	bool changed;

	while (!atomic_load(&s->stop)) {
		for (i = 0; i < 32; i++)
			low[i] = atomic_load(&s->done[i]);
		if (cache_read(s->e->c, s->n, buf, sizeof(buf), 0, 0, &changed) !=
		    (ssize_t)sizeof(buf))
			atomic_fetch_add(&s->wrong, 1);
		for (i = 0; i < 32; i++)
			storm_check(s, i, buf + i * 4096, low[i]);
		atomic_fetch_add(&s->reads, 1);
	}
	return NULL;
}

START_TEST(readers_never_see_older_bytes_than_were_written)
{
	struct env e;
	struct storm *s = calloc(1, sizeof(*s));
	pthread_t w, r[2];
	struct cnode *n;
	uint64_t until;

	ck_assert_ptr_nonnull(s);
	env_make(&e, 0);
	e.o.fill_threads = 2;
	e.o.publish_after_ns = NS_PER_MS;
	n = start_warm(&e);
	memset(data, 0, 32 * 4096);
	write_at(&e, n, data, 32 * 4096, 0);
	s->e = &e;
	s->n = n;
	s->seed = env_seed(5);
	ck_assert_ok(pthread_create(&w, NULL, storm_write, s));
	ck_assert_ok(pthread_create(&r[0], NULL, storm_read, s));
	ck_assert_ok(pthread_create(&r[1], NULL, storm_read, s));
	until = clock_mono_ns() + 1500 * NS_PER_MS;
	while (clock_mono_ns() < until)
		sched_yield();
	atomic_store(&s->stop, true);
	pthread_join(w, NULL);
	pthread_join(r[0], NULL);
	pthread_join(r[1], NULL);
	ck_assert_int_eq(atomic_load(&s->wrong), 0);
	ck_assert_int_gt(atomic_load(&s->reads), 10);
	ck_assert_int_eq(env_stat(&e, file_changed), 0);
	env_same(&e, "f", "in the end");
	env_forget(&e, n);
	env_free(&e);
	free(s);
}
END_TEST

/* ---- what keeps the cache ---- */

static void expect_hit(struct env *e, const char *name, const char *why)
{
	uint64_t reads = env_stat(e, backing_reads);

	env_same(e, name, why);
	ck_assert_msg(env_stat(e, backing_reads) == reads, "%s: the backing was read", why);
}

START_TEST(metadata_keeps_the_lines)
{
	struct stat st = {.st_mode = 0600};
	struct cache_attr a;
	struct env e;
	struct cnode *n;

	env_make(&e, 0);
	n = start_warm(&e);
	ck_assert_ok(cache_setattr(e.c, n, BSET_MODE, &st, &a));
	ck_assert_int_eq(a.attr.st.st_mode & 07777, 0600);
	expect_hit(&e, "f", "chmod");
	ck_assert_ok(cache_link(e.c, n, cache_root(e.c), "g", &a));
	ck_assert_int_eq(a.attr.st.st_nlink, 2);
	expect_hit(&e, "g", "link");
	ck_assert_ok(cache_rename(e.c, cache_root(e.c), "f", cache_root(e.c), "h", 0));
	expect_hit(&e, "h", "rename");
	ck_assert_ok(cache_unlink(e.c, cache_root(e.c), "g"));
	ck_assert_ok(cache_getattr(e.c, n, &a, 0));
	ck_assert_int_eq(a.attr.st.st_nlink, 1);
	expect_hit(&e, "h", "unlink of the other name");
	st.st_mtim = (struct timespec){1000, 5};
	ck_assert_ok(cache_setattr(e.c, n, BSET_MTIME, &st, &a));
	expect_hit(&e, "h", "utimes");
	if (!cache_setxattr(e.c, n, "user.x", "1", 1, 0))
		expect_hit(&e, "h", "setxattr");
	env_forget(&e, n);
	env_restart(&e);
	expect_hit(&e, "h", "remount");
	ck_assert_int_eq(env_stat(&e, file_changed), 0);
	env_free(&e);
}
END_TEST

START_TEST(a_change_hidden_behind_chmod_is_seen)
{
	struct stat st = {.st_mode = 0600};
	struct cache_attr a;
	struct env e;
	struct cnode *n;

	env_make(&e, 0);
	n = start_warm(&e);
	env_put(&e, "f", data + 1, SIZE); /* behind the mount, and nobody looked since */
	ck_assert_ok(cache_setattr(e.c, n, BSET_MODE, &st, &a));
	ck_assert(a.changed);
	env_same(&e, "f", "after chmod");
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(a_change_hidden_behind_a_write_is_seen)
{
	struct env e;
	struct cnode *n;

	env_make(&e, 0);
	n = start_warm(&e);
	env_put(&e, "f", data + 1, SIZE);
	write_at(&e, n, data, 10, 100000);
	env_same(&e, "f", "after a small write");
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(written_lines_are_hits_when_hot)
{
	struct env e;
	struct cnode *n;

	env_make(&e, 0);
	e.o.mode = _i ? CACHE_WRITE_AROUND : CACHE_WRITE_THROUGH;
	n = start_warm(&e);
	write_at(&e, n, data + 500, 65536, 65536);
	if (_i == 0) {
		expect_hit(&e, "f", "write-through");
	} else {
		uint64_t reads = env_stat(&e, backing_reads);

		env_same(&e, "f", "write-around");
		ck_assert_int_eq(env_stat(&e, backing_reads), reads + 1);
	}
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(new_files_cost_flash_nothing)
{
	struct bcred cred = {.uid = getuid(), .gid = getgid()};
	struct ram_counts before, after;
	struct cache_attr a;
	struct env e;
	struct cnode *n;
	uint64_t off;

	env_make(&e, 0);
	n = start_warm(&e);
	env_forget(&e, n);
	ram_flash_counts(e.ram, &before);
	ck_assert_ok(cache_create(e.c, cache_root(e.c), "new", 0644, &cred, true, &n, &a));
	for (off = 0; off < 100 * 4096; off += 4096)
		write_at(&e, n, data, 4096, off);
	ram_flash_counts(e.ram, &after);
	ck_assert_int_eq(after.flushes, before.flushes);
	ck_assert_int_eq(after.trims, before.trims);
	ck_assert_int_eq(after.puts, before.puts);
	env_same(&e, "new", "new file");
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(one_flush_a_quiet_period)
{
	struct ram_counts before, after;
	struct env e;
	struct cnode *n;
	unsigned i;

	env_make(&e, 0);
	n = start_warm(&e);
	ck_assert_ok(cache_flush(e.c));
	ram_flash_counts(e.ram, &before);
	for (i = 0; i < 50; i++)
		write_at(&e, n, data, 100, i * 100);
	ram_flash_counts(e.ram, &after);
	ck_assert_int_eq(after.flushes, before.flushes + 1);
	ck_assert_int_eq(env_stat(&e, file_open), 1);
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_OPEN), 1);
	ck_assert_ok(cache_flush(e.c));
	ck_assert_int_eq(env_stat(&e, file_open), 0);
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_OPEN), 0);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

/* ---- names ---- */

START_TEST(unlinked_files_live_on_and_leave_nothing)
{
	struct env e;
	struct cnode *n;
	uint64_t off = 5;

	env_make(&e, 0);
	n = start_warm(&e);
	ck_assert_ok(cache_unlink(e.c, cache_root(e.c), "f"));
	ck_assert_int_eq(env_read(&e, n, got_data, SIZE, 0), SIZE);
	ck_assert_int_eq(memcmp(got_data, data, SIZE), 0);
	ck_assert_int_eq(cache_write(e.c, n, "abc", 3, &off, false), 3);
	ck_assert_int_eq(env_read(&e, n, got_data, SIZE, 0), SIZE);
	ck_assert_int_eq(memcmp(got_data + 5, "abc", 3), 0);
	ck_assert_int_eq(memcmp(got_data + 8, data + 8, SIZE - 8), 0);
	env_forget(&e, n);
	ck_assert_ok(cache_flush(e.c));
	ck_assert_int_eq(ram_flash_sectors(e.ram), 0);
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_FILE), 0);
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_OPEN), 0);
	env_free(&e);
}
END_TEST

START_TEST(records_without_lines_are_swept)
{
	struct env e;
	struct cnode *n;
	char name[16];
	unsigned i;

	env_make(&e, 0);
	n = start_warm(&e);
	for (i = 0; i < 50; i++) {
		struct cnode *m;

		snprintf(name, sizeof(name), "s%u", i);
		env_put(&e, name, data, 100);
		env_age(&e, name);
		m = env_lookup(&e, name);
		env_warm(&e, m);
		e.flash->ops->trim(e.flash, m->number, 0, FLASH_TO_END, cache_stamp(e.c));
		if (i == 49)
			env_warm(&e, m); /* again, with the record that is there */
		env_forget(&e, m);
	}
	ck_assert_ok(cache_flush(e.c));
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_FILE), 51);
	csweep_run(e.c);
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_FILE), 2);
	expect_hit(&e, "f", "it has lines");
	/* a file that believes it has a record still */
	e.flash->ops->trim(e.flash, n->number, 0, FLASH_TO_END, cache_stamp(e.c));
	csweep_run(e.c);
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_FILE), 1);
	env_warm(&e, n);
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_FILE), 2);
	env_forget(&e, n);
	env_restart(&e);
	expect_hit(&e, "f", "after a remount");
	env_free(&e);
}
END_TEST

/* ext4 gives the inode number of a removed file to the next one made. */
START_TEST(a_reused_inode_shows_no_old_bytes)
{
	struct bcred cred = {.uid = getuid(), .gid = getgid()};
	struct cache_attr a;
	struct env e;
	struct cnode *n;
	unsigned i;

	env_make(&e, 0);
	n = start_warm(&e);
	for (i = 0; i < 20; i++) {
		ck_assert_ok(cache_unlink(e.c, cache_root(e.c), "f"));
		if (i % 2)
			env_forget(&e, n);
		else
			cache_hold(n);
		ck_assert_ok(cache_create(e.c, cache_root(e.c), "f", 0644, &cred, true, &n, &a));
		write_at(&e, n, data + i, SIZE, 0);
		env_same(&e, "f", "made anew");
		env_drain(&e);
		env_same(&e, "f", "made anew, filled");
		if (i == 10) {
			env_forget(&e, n);
			env_restart(&e);
			n = env_lookup(&e, "f");
			env_same(&e, "f", "remounted");
		}
	}
	env_free(&e);
}
END_TEST

START_TEST(replacing_and_exchanging)
{
	struct cache_attr a;
	struct env e;
	struct cnode *n, *m, *again;

	env_make(&e, 0);
	n = start_warm(&e);
	env_put(&e, "g", data + 100, SIZE);
	env_age(&e, "g");
	m = env_lookup(&e, "g");
	env_warm(&e, m);
	ck_assert_ok(cache_rename(e.c, cache_root(e.c), "f", cache_root(e.c), "g", 2));
	expect_hit(&e, "f", "exchanged");
	expect_hit(&e, "g", "exchanged");
	again = env_lookup(&e, "f");
	ck_assert_ptr_eq(again, m);
	env_forget(&e, again);
	ck_assert_ok(cache_rename(e.c, cache_root(e.c), "f", cache_root(e.c), "g", 0));
	expect_hit(&e, "g", "replaced");
	ck_assert_int_eq(env_read(&e, n, got_data, SIZE, 0), SIZE); /* its last name is gone */
	ck_assert_int_eq(memcmp(got_data, data, SIZE), 0);
	ck_assert_ok(cache_getattr(e.c, n, &a, 0));
	ck_assert_int_eq(a.attr.st.st_nlink, 0);
	env_forget(&e, n);
	env_forget(&e, m);
	env_free(&e);
}
END_TEST

/* Somebody else writes while a writer waits for flash to note that the file is open. */
static struct env *flush_env;
static int (*flush_real)(struct flash *f);

static int flush_while_another_writes(struct flash *f)
{
	int fd = open(env_path(flush_env, "f"), O_WRONLY);

	ck_assert_int_eq(pwrite(fd, "behind", 6, 100), 6);
	close(fd);
	return flush_real(f);
}

START_TEST(a_change_behind_while_flash_flushes)
{
	struct flash_ops ops;
	struct env e;
	struct cnode *n;

	env_make(&e, 0);
	n = start_warm(&e);
	ck_assert_ok(cache_flush(e.c)); /* published: the next write opens the record */
	ops = *e.flash->ops;
	flush_env = &e;
	flush_real = ops.flush;
	ops.flush = flush_while_another_writes;
	e.flash->ops = &ops;
	write_at(&e, n, "own", 3, 150000);
	ops.flush = flush_real;
	env_same(&e, "f", "after both writes");
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

START_TEST(read_only_refuses)
{
	struct bcred cred = {0};
	struct cache_attr a;
	struct env e;
	struct cnode *n, *m;
	uint64_t off = 0;

	env_make(&e, 0);
	e.o.mode = CACHE_READ_ONLY;
	n = start_warm(&e);
	ck_assert_int_eq(cache_write(e.c, n, data, 1, &off, false), -EROFS);
	ck_assert_int_eq(cache_unlink(e.c, cache_root(e.c), "f"), -EROFS);
	ck_assert_int_eq(cache_create(e.c, cache_root(e.c), "x", 0644, &cred, true, &m, &a), -EROFS);
	env_forget(&e, n);
	env_free(&e);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache_write");
	TCase *t = tcase_create("writes");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, every_operation_leaves_mount_and_backing_equal, 0, 4);
	tcase_add_test(t, readers_never_see_older_bytes_than_were_written);
	tcase_add_test(t, metadata_keeps_the_lines);
	tcase_add_test(t, a_change_hidden_behind_chmod_is_seen);
	tcase_add_test(t, a_change_hidden_behind_a_write_is_seen);
	tcase_add_loop_test(t, written_lines_are_hits_when_hot, 0, 2);
	tcase_add_test(t, new_files_cost_flash_nothing);
	tcase_add_test(t, one_flush_a_quiet_period);
	tcase_add_test(t, unlinked_files_live_on_and_leave_nothing);
	tcase_add_test(t, records_without_lines_are_swept);
	tcase_add_test(t, a_reused_inode_shows_no_old_bytes);
	tcase_add_test(t, replacing_and_exchanging);
	tcase_add_test(t, a_change_behind_while_flash_flushes);
	tcase_add_test(t, read_only_refuses);
	suite_add_tcase(s, t);
	return unit_main(s);
}
