/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A full card goes on: trims, mark_cleans and control records have room whatever the data does, and
 * what they leave behind does not grow for ever.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "ftl_rig.h"

static enum flash_verdict keep_all(void *arg, uint64_t file, uint64_t line, uint64_t stamp,
				   uint32_t epoch)
{
	(void)arg;
	(void)file;
	(void)line;
	(void)stamp;
	(void)epoch;
	return FLASH_KEEP_COLD;
}

static unsigned free_ebs(struct rig *r)
{
	struct flash_stats s;

	r->f->ops->stats(r->f, &s);
	return (unsigned)(s.free_bytes / RIG_EB);
}

static int count_one(void *arg, const struct flash_extent *e)
{
	(void)e;
	++*(unsigned *)arg;
	return 0;
}

static unsigned tombstones(struct rig *r)
{
	unsigned n = 0;

	ck_assert_int_eq(r->f->ops->walk(r->f, FLASH_WALK_TRIM, 0, 0, count_one, &n), 0);
	ck_assert_int_eq(r->f->ops->walk(r->f, FLASH_WALK_CLEAN, 0, 0, count_one, &n), 0);
	return n;
}

static int trim(struct rig *r, uint64_t file, uint64_t sector, uint64_t count)
{
	int err = r->f->ops->trim(r->f, file, sector, count, r->stamp++);

	for (int i = 0; i < 8 && err == -ENOSPC && !r->opt.background; i++) {
		ck_assert_int_eq(ftl_step(r->f), 0);
		err = r->f->ops->trim(r->f, file, sector, count, r->stamp++);
	}
	return err;
}

static int put(struct rig *r, uint64_t key, size_t len)
{
	uint8_t k[FLASH_CTL_KEY] = {0}, v[FLASH_CTL_VALUE] = {0};
	int err;

	memcpy(k, &key, sizeof(key));
	err = r->f->ops->ctl_put(r->f, FLASH_CTL_FILE, k, v, len, r->stamp++);
	for (int i = 0; i < 8 && err == -ENOSPC && !r->opt.background; i++) {
		ck_assert_int_eq(ftl_step(r->f), 0);
		err = r->f->ops->ctl_put(r->f, FLASH_CTL_FILE, k, v, len, r->stamp++);
	}
	return err;
}

/* Until there is no space, whatever GC does. */
static uint64_t fill(struct rig *r, bool dirty)
{
	uint64_t line = 0;
	int err = 0;

	while (!err) {
		err = rig_write(r, 1, line * 16, 16, 3, dirty);
		for (int i = 0; i < 8 && err == -ENOSPC; i++) {
			ck_assert_int_eq(ftl_step(r->f), 0);
			err = rig_write(r, 1, line * 16, 16, 3, dirty);
		}
		line += !err;
	}
	ck_assert_int_eq(err, -ENOSPC);
	return line;
}

/* With its own thread, what needs space waits for it. */
static void in_background(struct rig *r)
{
	r->opt.background = true;
	rig_reopen(r);
	r->f->ops->set_reclaim(r->f, keep_all, NULL);
}

/* The audit needs quiet. */
static void done(struct rig *r)
{
	r->opt.background = false;
	rig_reopen(r);
	rig_done(r);
}

/* A stream that is rarely written has an open block for long: what died in it must not keep every
 * tombstone since. */
START_TEST(test_old_open_block)
{
	struct flash_write w = {.file = 1, .count = 1, .len = FLASH_SECTOR, .epoch = 1, .cold = true};
	static uint8_t buf[FLASH_SECTOR];
	struct rig r;

	rig_init(&r, 32, false);
	w.data = buf;
	w.stamp = r.stamp++;
	ck_assert_int_eq(r.f->ops->write(r.f, &w), 0);
	ck_assert_int_eq(rig_write(&r, 1, 0, 1, 3, false), 0);
	for (unsigned i = 0; i < 8000; i++) {
		ck_assert_int_eq(trim(&r, 4, i * 16, 1), 0);
		if (i % 50 == 0)
			ck_assert_int_eq(ftl_step(r.f), 0);
	}
	printf("%u tombstones, %u erase blocks free\n", tombstones(&r), free_ebs(&r));
	ck_assert_uint_lt(tombstones(&r), 2000);
	rig_done(&r);
}
END_TEST

/* Clean data that the cache wants to keep, and no end of trims of what is not there. */
START_TEST(test_trims_on_a_full_card)
{
	struct rig r;
	uint64_t lines;

	rig_init(&r, 32, false);
	r.f->ops->set_reclaim(r.f, keep_all, NULL);
	lines = fill(&r, false);
	if (_i)
		in_background(&r);
	for (unsigned i = 0; i < 12000; i++)
		ck_assert_msg(!trim(&r, 4, i * 16, 1), "trim %u", i);
	for (uint64_t i = 0; i < lines; i++)
		rig_expect(&r, 1, i * 16, 16, 3);
	done(&r);
}
END_TEST

/* The same with control records that come and go under new names. */
START_TEST(test_records_on_a_full_card)
{
	struct rig r;

	rig_init(&r, 32, false);
	r.f->ops->set_reclaim(r.f, keep_all, NULL);
	fill(&r, false);
	if (_i)
		in_background(&r);
	for (unsigned i = 0; i < 8000; i++) {
		ck_assert_msg(!put(&r, i, 100), "record %u", i);
		ck_assert_msg(!put(&r, i, 0), "deletion %u", i);
	}
	done(&r);
}
END_TEST

/* More control records than there is room for: dirty data can still be made clean, trimmed, flushed. */
START_TEST(test_too_many_records)
{
	struct flash_stats s;
	uint64_t lines, n = 0;
	struct rig r;

	rig_init(&r, 32, false);
	r.f->ops->set_reclaim(r.f, keep_all, NULL);
	lines = fill(&r, true);
	while (n < 100000 && !put(&r, n, FLASH_CTL_VALUE))
		n++;
	printf("%u dirty lines, %u records, %u erase blocks free\n", (unsigned)lines, (unsigned)n,
	       free_ebs(&r));
	ck_assert_uint_lt(n, 100000);
	for (uint64_t i = 0; i < lines; i += 2)
		ck_assert_int_eq(r.f->ops->mark_clean(r.f, 1, i * 16, 16, r.stamp++), 0);
	ck_assert_int_eq(r.f->ops->flush(r.f), 0);
	for (uint64_t i = 1; i < lines; i += 2)
		ck_assert_int_eq(trim(&r, 1, i * 16, 16), 0);
	ck_assert_int_eq(r.f->ops->flush(r.f), 0);
	r.f->ops->stats(r.f, &s);
	ck_assert_uint_eq(s.dirty_sectors, 0);
	for (uint64_t i = 0; i < n; i++)
		ck_assert_int_eq(put(&r, i, 0), 0);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(ftl_step(r.f), 0);
	ck_assert_int_eq(rig_write(&r, 7, 0, 16, 3, true), 0);
	rig_done(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ftl reserves");
	TCase *t = tcase_create("reserves");
	SRunner *r = srunner_create(s);
	int failed;

	log_set_level(LOG_LV_ERROR);
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, test_old_open_block);
	tcase_add_loop_test(t, test_trims_on_a_full_card, 0, 2);
	tcase_add_loop_test(t, test_records_on_a_full_card, 0, 2);
	tcase_add_test(t, test_too_many_records);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
