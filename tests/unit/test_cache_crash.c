/* SPDX-License-Identifier: BSD-2-Clause
 * The power fails. Flash keeps what was flushed and any subset of the rest, the backing keeps all:
 * never is a byte served that the backing does not have, and what was published is still warm. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "cache/cache_file.h"
#include "cache/cache_priv.h"
#include "cache_env.h"

#define FILES 4u
#define SIZE 150000u

static char data[1 << 20];

static const char *file_name(unsigned i)
{
	static const char *const names[FILES] = {"f0", "f1", "f2", "f3"};

	return names[i];
}

static void start(struct env *e)
{
	unsigned i;

	env_make(e, 0);
	env_pattern(data, sizeof(data), 3);
	for (i = 0; i < FILES; i++)
		env_put(e, file_name(i), data + i, SIZE);
	env_age(e, file_name(FILES - 1));
	env_start(e);
}

static void write_to(struct env *e, unsigned i, size_t len, uint64_t off, unsigned shift)
{
	struct cnode *n = env_lookup(e, file_name(i));

	ck_assert_int_eq(cache_write(e->c, n, data + shift, len, &off, false), (ssize_t)len);
	env_forget(e, n);
}

static void warm(struct env *e, unsigned i)
{
	struct cnode *n = env_lookup(e, file_name(i));

	env_age(e, file_name(i));
	env_warm(e, n);
	env_forget(e, n);
}

static void all_same(struct env *e, const char *why)
{
	unsigned i;

	for (i = 0; i < FILES; i++)
		env_same(e, file_name(i), why);
}

/* ---- invariant 4: no trusted record of a file whose bytes moved since ---- */

struct trust {
	struct env *e;
	const bool *dirty;
	unsigned records;
};

static int trust_check(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value, size_t len,
		       uint64_t stamp)
{
	struct trust *t = arg;
	struct cfile_record rec;
	struct stat st;
	unsigned i;

	(void)key;
	(void)stamp;
	ck_assert_ok(cfile_decode(value, len, &rec));
	t->records++;
	for (i = 0; i < FILES; i++) {
		ck_assert_ok(stat(env_path(t->e, file_name(i)), &st));
		if (st.st_ino == rec.version.ino && t->dirty[i])
			ck_assert_msg(rec.state == CFILE_OPEN,
				      "%s is being written, but a trusted record is durable",
				      file_name(i));
	}
	return 0;
}

static void random_step(struct env *e, uint64_t *rng, bool *dirty)
{
	unsigned i = (unsigned)(env_rand(rng) % FILES), k;
	struct cnode *n;
	struct cache_attr a;
	struct stat st = {.st_mode = 0600 + (mode_t)(env_rand(rng) & 077)};
	uint64_t off = env_rand(rng) % SIZE;

	switch (env_rand(rng) % 8) {
	case 0:
	case 1:
	case 2:
		dirty[i] = true;
		write_to(e, i, 1 + env_rand(rng) % 70000, off, (unsigned)(off % 1000));
		break;
	case 3:
		ck_assert_ok(cache_flush(e->c));
		for (k = 0; k < FILES; k++)
			dirty[k] = false;
		break;
	case 4:
		n = env_lookup(e, file_name(i));
		ck_assert_ok(cache_setattr(e->c, n, BSET_MODE, &st, &a));
		env_forget(e, n);
		break;
	case 5:
		dirty[i] = true;
		n = env_lookup(e, file_name(i));
		st.st_size = (off_t)(env_rand(rng) % (2 * SIZE));
		ck_assert_ok(cache_setattr(e->c, n, BSET_SIZE, &st, &a));
		env_forget(e, n);
		break;
	default:
		env_age(e, file_name(i));
		env_same(e, file_name(i), "while running");
		env_drain(e);
	}
}

START_TEST(no_trusted_record_of_a_file_being_written)
{
	uint64_t rng = env_seed(100 + (uint64_t)_i), round;
	struct env e;

	start(&e);
	for (round = 0; round < 12; round++) {
		bool dirty[FILES] = {false};
		struct trust t = {.e = &e, .dirty = dirty};
		unsigned steps = (unsigned)(env_rand(&rng) % 25);

		while (steps--)
			random_step(&e, &rng, dirty);
		env_crash(&e, env_rand(&rng));
		ck_assert_ok(e.flash->ops->ctl_walk(e.flash, FLASH_CTL_FILE, trust_check, &t));
		env_start(&e);
		ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_OPEN), 0);
		all_same(&e, "after the crash");
	}
	env_free(&e);
}
END_TEST

/* Flash dies at its n-th call, the backing is written on, then everything comes back. */
START_TEST(cut_at_every_call)
{
	uint64_t seed = env_seed(7), calls, at, rng;
	uint64_t every = getenv("GILD_LONG") ? 1 : 3;
	struct env e;
	unsigned i;

	for (at = 1, calls = 2; at <= calls; at += every) {

		rng = seed;
		start(&e);
		ram_flash_fail_at(e.ram, ram_flash_calls(e.ram) + at);
		for (i = 0; i < 12; i++) {
			unsigned f = i % FILES;

			if (i % 5 == 4)
				cache_flush(e.c); /* may fail: flash has */
			else if (i % 2)
				write_to(&e, f, 30000, env_rand(&rng) % SIZE, i);
			env_age(&e, file_name(f));
			env_same(&e, file_name(f), "while running");
			env_drain(&e);
		}
		calls = ram_flash_calls(e.ram);
		env_crash(&e, at % 3 ? env_rand(&rng) : at % 2);
		env_start(&e);
		all_same(&e, "after the crash");
		env_drain(&e);
		env_restart(&e);
		all_same(&e, "after a clean remount");
		env_free(&e);
	}
}
END_TEST

START_TEST(what_was_published_is_warm_after_a_crash)
{
	struct env e;
	uint64_t reads;

	start(&e);
	warm(&e, 0);
	warm(&e, 1);
	ck_assert_ok(cache_flush(e.c));
	ck_assert_int_ge(env_stat(&e, file_published), 2);
	write_to(&e, 1, 5000, 10, 9);
	env_crash(&e, (uint64_t)_i);
	reads = env_stat(&e, backing_reads);
	env_start(&e);
	ck_assert_int_eq(env_stat(&e, file_recovered), 1);
	env_same(&e, file_name(0), "published");
	ck_assert_int_eq(env_stat(&e, backing_reads), reads);
	env_same(&e, file_name(1), "was being written");
	ck_assert_int_gt(env_stat(&e, backing_reads), reads);
	env_free(&e);
}
END_TEST

static int forget_open(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value, size_t len,
		       uint64_t stamp)
{
	struct flash *f = arg;

	(void)value;
	(void)len;
	return f->ops->ctl_put(f, FLASH_CTL_OPEN, key, NULL, 0, stamp + 1000000);
}

/* Makes a record's version that of the backing. */
static int pretend_current(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value, size_t len,
			   uint64_t stamp)
{
	struct env *e = arg;
	struct cfile_record rec;
	uint8_t out[FLASH_CTL_VALUE];
	struct battr a = {0};

	ck_assert_ok(cfile_decode(value, len, &rec));
	ck_assert_int_eq(rec.state, CFILE_OPEN);
	ck_assert_ok(stat(env_path(e, file_name(0)), &a.st));
	cversion_of(&a, &rec.version);
	len = cfile_encode(&rec, out);
	return e->flash->ops->ctl_put(e->flash, FLASH_CTL_FILE, key, out, len, stamp + 1000000);
}

START_TEST(an_open_record_is_not_trusted_though_nothing_else_says_so)
{
	struct env e;
	uint64_t reads;

	start(&e);
	warm(&e, 0);
	ck_assert_ok(cache_flush(e.c));
	write_to(&e, 0, 100, 70000, 5);
	env_crash(&e, 0);
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_OPEN), 1);
	ck_assert_ok(e.flash->ops->ctl_walk(e.flash, FLASH_CTL_OPEN, forget_open, e.flash));
	ck_assert_ok(e.flash->ops->ctl_walk(e.flash, FLASH_CTL_FILE, pretend_current, &e));
	reads = env_stat(&e, backing_reads);
	env_start(&e);
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_FILE), 1);
	env_same(&e, file_name(0), "version and identity are as recorded");
	ck_assert_int_gt(env_stat(&e, backing_reads), reads);
	env_free(&e);
}
END_TEST

/* Lines of a file that is too young to be on the backing's disk are for this mount only. */
START_TEST(young_files_leave_no_record_before_they_are_synced)
{
	struct env e;

	start(&e);
	warm(&e, 0);
	ck_assert_int_gt(ram_flash_sectors(e.ram), 0);
	ck_assert_int_eq(env_stat(&e, file_open), 1);
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_FILE), 0);
	write_to(&e, 0, 100, 70000, 5); /* costs no flush either */
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_FILE), 0);
	env_same(&e, file_name(0), "written");
	ck_assert_ok(cache_flush(e.c));
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_FILE), 1);
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_OPEN), 0);
	env_restart(&e);
	env_same(&e, file_name(0), "after a remount");
	ck_assert_int_ge(env_stat(&e, read_hits), 1);
	env_free(&e);
}
END_TEST

/* A change behind the mount gives the file a new number; whatever of that is lost, the bytes of the
 * version in between must not come up as those of a later one. */
START_TEST(versions_in_between_do_not_come_back)
{
	struct env e;
	unsigned i, v;

	for (i = 0; i < 16; i++) {
		start(&e);
		e.o.ttl_ns = 1;
		env_restart(&e);
		warm(&e, 0);
		ck_assert_ok(cache_flush(e.c));
		for (v = 1; v < 4; v++) {
			env_put(&e, "f0", data + 100 * v, SIZE);
			warm(&e, 0);
			if (i % 4 == v)
				write_to(&e, 0, 1000, 70000, v);
		}
		env_crash(&e, i);
		env_put(&e, "f0", data + 5000, SIZE);
		env_start(&e);
		env_same(&e, "f0", "changed again while down");
		warm(&e, 0);
		env_same(&e, "f0", "warm again");
		env_free(&e);
	}
}
END_TEST

/* The record of a file whose lines are gone was deleted, and that was not flushed: the file has no
 * record now, but may have a trusted one after a power cut. A write must not rely on what it sees. */
START_TEST(a_deletion_is_flushed_before_the_file_is_written)
{
	struct env e;
	struct cnode *n;
	bool dirty[FILES] = {true};
	struct trust t = {.e = &e, .dirty = dirty};
	uint64_t number;

	start(&e);
	warm(&e, 0);
	ck_assert_ok(cache_flush(e.c));
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_FILE), 1);
	n = env_lookup(&e, file_name(0));
	cfile_load(e.c, n);
	number = n->number;
	env_forget(&e, n);
	ck_assert_ok(e.flash->ops->trim(e.flash, number, 0, FLASH_TO_END, cache_stamp(e.c)));
	csweep_run(e.c);
	ck_assert_int_eq(ram_flash_records(e.ram, FLASH_CTL_FILE), 0);
	write_to(&e, 0, 100, 70000, 5);
	env_crash(&e, 0);
	ck_assert_ok(e.flash->ops->ctl_walk(e.flash, FLASH_CTL_FILE, trust_check, &t));
	env_start(&e);
	env_same(&e, file_name(0), "after the crash");
	env_free(&e);
}
END_TEST

START_TEST(file_numbers_are_never_reused)
{
	struct env e;
	uint64_t before, after;
	unsigned i;

	start(&e);
	for (i = 0; i < 10; i++) {
		warm(&e, i % FILES);
		before = e.c->number_next;
		if (i % 2)
			env_crash(&e, i);
		else
			env_stop(&e);
		env_start(&e);
		after = e.c->number_next;
		ck_assert_int_ge(after, before);
		if (i % 2 == 0)
			ck_assert_int_eq(after, before); /* a clean stop gives the rest back */
	}
	env_free(&e);
}
END_TEST

START_TEST(records_that_make_no_sense_are_refused)
{
	struct cfile_record rec = {.state = CFILE_PUBLISHED, .number = 5, .epoch = 2, .floor = 1};
	uint8_t good[FLASH_CTL_VALUE], bad[FLASH_CTL_VALUE];
	struct cfile_record out;
	size_t len, i;

	rec.handle_len = 12;
	memcpy(rec.handle, "twelve bytes", 12);
	rec.version = (struct cversion){.ino = 7, .size = 9, .msec = -5, .csec = 1, .cnsec = 3};
	len = cfile_encode(&rec, good);
	ck_assert_ok(cfile_decode(good, len, &out));
	ck_assert(cversion_same(&rec.version, &out.version));
	ck_assert_int_eq(memcmp(&rec, &out, sizeof(rec)), 0);
	for (i = 0; i < len; i++)
		ck_assert_int_eq(cfile_decode(good, i, &out), -EUCLEAN);
	for (i = 0; i < 6; i++) { /* form, state, flags, both lengths */
		memcpy(bad, good, sizeof(bad));
		bad[i] = 255;
		ck_assert(i == 2 || cfile_decode(bad, len, &out) == -EUCLEAN);
	}
	memset(good + 8, 0, 8);
	ck_assert_int_eq(cfile_decode(good, len, &out), -EUCLEAN); /* the volume */
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache_crash");
	TCase *t = tcase_create("crashes");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, no_trusted_record_of_a_file_being_written, 0, 3);
	tcase_add_test(t, cut_at_every_call);
	tcase_add_loop_test(t, what_was_published_is_warm_after_a_crash, 0, 4);
	tcase_add_test(t, an_open_record_is_not_trusted_though_nothing_else_says_so);
	tcase_add_test(t, young_files_leave_no_record_before_they_are_synced);
	tcase_add_test(t, versions_in_between_do_not_come_back);
	tcase_add_test(t, a_deletion_is_flushed_before_the_file_is_written);
	tcase_add_test(t, file_numbers_are_never_reused);
	tcase_add_test(t, records_that_make_no_sense_are_refused);
	suite_add_tcase(s, t);
	return unit_main(s);
}
