/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One controller over RAM: the operations of the flash contract. Every test ends with an audit.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ftl_rig.h"

static void flush(struct rig *r)
{
	ck_assert_int_eq(r->f->ops->flush(r->f), 0);
}

static struct flash_stats stats(struct rig *r)
{
	struct flash_stats s;

	r->f->ops->stats(r->f, &s);
	return s;
}

START_TEST(test_write_read)
{
	struct rig r;

	rig_init(&r, 32, false);
	for (uint64_t seed = 0; seed < 4; seed++) {
		ck_assert_int_eq(rig_write(&r, 7, 100 * seed + 3, 40, seed, false), 0);
		rig_expect(&r, 7, 100 * seed + 3, 40, seed);
	}
	rig_expect_absent(&r, 7, 43, 60);
	rig_expect_absent(&r, 8, 3, 40);
	flush(&r);
	for (uint64_t seed = 0; seed < 4; seed++)
		rig_expect(&r, 7, 100 * seed + 3, 40, seed);
	rig_reopen(&r);
	for (uint64_t seed = 0; seed < 4; seed++)
		rig_expect(&r, 7, 100 * seed + 3, 40, seed);
	rig_expect_absent(&r, 7, 43, 60);
	ck_assert(!stats(&r).unclean);
	rig_done(&r);
}
END_TEST

START_TEST(test_arguments)
{
	uint8_t buf[2 * FLASH_SECTOR] = {0};
	struct flash_write w = {.file = 1, .count = 1, .len = 4096, .data = buf, .stamp = 1};
	struct flash_sector st[2];
	struct rig r;

	rig_init(&r, 32, false);
	w.len = 4097;
	ck_assert_int_eq(r.f->ops->write(r.f, &w), -EINVAL);
	w.len = 0;
	ck_assert_int_eq(r.f->ops->write(r.f, &w), -EINVAL);
	w.count = 0;
	ck_assert_int_eq(r.f->ops->write(r.f, &w), -EINVAL);
	w.count = 2;
	w.len = 4096;
	ck_assert_int_eq(r.f->ops->write(r.f, &w), -EINVAL);
	w.len = 8192;
	w.sector = FLASH_SECTOR_MAX;
	ck_assert_int_eq(r.f->ops->write(r.f, &w), -EINVAL);
	w.sector = 0;
	w.file = FLASH_VOLUME; /* there is none */
	ck_assert_int_eq(r.f->ops->write(r.f, &w), -EINVAL);
	ck_assert_int_eq(r.f->ops->read(r.f, 1, 0, 0, 0, buf, st), -EINVAL);
	ck_assert_int_eq(r.f->ops->trim(r.f, 1, 0, 0, 5), -EINVAL);
	ck_assert_int_eq(r.f->ops->trim(r.f, 1, FLASH_SECTOR_MAX + 1, 1, 5), -EINVAL);
	ck_assert_int_eq(r.f->ops->ctl_put(r.f, 0, buf, buf, 4, 5), -EINVAL);
	ck_assert_int_eq(r.f->ops->ctl_put(r.f, 1, buf, buf, FLASH_CTL_VALUE + 1, 5), -EINVAL);
	w.file = 1;
	w.sector = FLASH_SECTOR_MAX - 1;
	ck_assert_int_eq(r.f->ops->write(r.f, &w), 0);
	ck_assert_int_eq(r.f->ops->read(r.f, 1, FLASH_SECTOR_MAX, 1, 0, buf, st), 0);
	ck_assert(st[0].flags & FLASH_PRESENT);
	rig_done(&r);
}
END_TEST

/* A tail shorter than a sector reads as zeros, and the bytes around the buffer stay. */
START_TEST(test_short_tail)
{
	uint8_t data[3 * FLASH_SECTOR], *buf = malloc(5 * FLASH_SECTOR);
	struct flash_write w = {.file = 1, .sector = 14, .count = 3, .data = data, .epoch = 3};
	struct flash_sector st[3];
	struct rig r;

	rig_init(&r, 32, false);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)hash_mix64(i);
	for (uint32_t tail = 1; tail <= FLASH_SECTOR; tail += 819) {
		w.len = 2 * FLASH_SECTOR + tail;
		w.stamp = r.stamp++;
		ck_assert_int_eq(r.f->ops->write(r.f, &w), 0);
		memset(buf, 0x55, 5 * FLASH_SECTOR);
		ck_assert_int_eq(r.f->ops->read(r.f, 1, 14, 3, 0, buf + FLASH_SECTOR, st), 0);
		ck_assert_mem_eq(buf + FLASH_SECTOR, data, w.len);
		for (uint32_t i = w.len; i < 3 * FLASH_SECTOR; i++)
			ck_assert_uint_eq(buf[FLASH_SECTOR + i], 0);
		ck_assert_uint_eq(buf[FLASH_SECTOR - 1], 0x55);
		ck_assert_uint_eq(buf[4 * FLASH_SECTOR], 0x55);
		ck_assert_uint_eq(st[2].stamp, w.stamp);
		ck_assert_uint_eq(st[2].epoch, 3);
	}
	free(buf);
	rig_done(&r);
}
END_TEST

START_TEST(test_epochs)
{
	uint8_t buf[FLASH_SECTOR * 2] = {1};
	struct flash_write w = {.file = 1, .count = 1, .len = 4096, .data = buf, .epoch = 5};
	struct flash_sector st[2];
	struct rig r;

	rig_init(&r, 32, false);
	w.stamp = r.stamp++;
	ck_assert_int_eq(r.f->ops->write(r.f, &w), 0);
	w.stamp = r.stamp++;
	w.sector = 1;
	w.epoch = 6;
	ck_assert_int_eq(r.f->ops->write(r.f, &w), 0);
	ck_assert_int_eq(r.f->ops->read(r.f, 1, 0, 2, 6, buf, st), 0);
	ck_assert_uint_eq(st[0].flags, 0);
	ck_assert_uint_eq(st[1].flags, FLASH_PRESENT);
	ck_assert_uint_eq(st[1].epoch, 6);
	rig_done(&r);
}
END_TEST

/* Random overlapping writes, trims and cleans against an array; old stamps change nothing. */
START_TEST(test_overlaps)
{
	enum { SECTORS = 90 };
	struct { uint64_t stamp, seed; bool dirty; } want[SECTORS] = {{0}};
	uint64_t rng = 42, tomb[SECTORS] = {0}, clean[SECTORS] = {0};
	struct rig r;

	rig_init(&r, 32, false);
	for (unsigned op = 0; op < 600; op++) {
		uint64_t what = hash_mix64(rng++), sector = hash_mix64(rng++) % SECTORS;
		uint32_t count = 1 + (uint32_t)(hash_mix64(rng++) % 24);
		uint64_t stamp = 100 + op, seed = op * 1000;
		bool dirty = what >> 20 & 1;

		if (count > SECTORS - sector)
			count = (uint32_t)(SECTORS - sector);
		if (what % 10 == 0 && op > 50)
			stamp -= 45; /* late */
		r.stamp = stamp;
		if (what % 5 < 3) {
			ck_assert_int_eq(rig_write(&r, 1, sector, count, seed, dirty), 0);
		} else if (what % 5 == 3) {
			ck_assert_int_eq(r.f->ops->trim(r.f, 1, sector, count, stamp), 0);
		} else {
			ck_assert_int_eq(r.f->ops->mark_clean(r.f, 1, sector, count, stamp), 0);
		}
		for (uint64_t s = sector; s < sector + count; s++) {
			if (what % 5 < 3 && stamp >= want[s].stamp && stamp > tomb[s]) {
				want[s].stamp = stamp;
				want[s].seed = seed;
				want[s].dirty = dirty && stamp > clean[s];
			} else if (what % 5 == 3) {
				if (stamp >= want[s].stamp)
					want[s].stamp = 0;
				if (stamp > tomb[s])
					tomb[s] = stamp;
			} else if (what % 5 == 4) {
				if (stamp >= want[s].stamp)
					want[s].dirty = false;
				if (stamp > clean[s])
					clean[s] = stamp;
			}
		}
		ck_assert_int_eq(ftl_step(r.f), 0);
		if (op % 97 == 0)
			rig_reopen(&r);
		if (op % 31 == 0)
			ck_assert_int_eq(ftl_checkpoint(r.f), 0);
	}
	for (uint64_t s = 0; s < SECTORS; s++) {
		uint8_t buf[FLASH_SECTOR];
		struct flash_sector st;

		ck_assert_int_eq(r.f->ops->read(r.f, 1, s, 1, 0, buf, &st), 0);
		ck_assert_uint_eq(st.stamp, want[s].stamp);
		if (!want[s].stamp)
			continue;
		ck_assert_int_eq(!!(st.flags & FLASH_DIRTY), want[s].dirty);
		rig_expect(&r, 1, s, 1, want[s].seed);
	}
	rig_done(&r);
}
END_TEST

START_TEST(test_trim_file)
{
	struct rig r;

	rig_init(&r, 32, false);
	for (unsigned i = 0; i < 40; i++)
		ck_assert_int_eq(rig_write(&r, 1, i * 100, 5, 4, false), 0);
	ck_assert_int_eq(ftl_checkpoint(r.f), 0);
	for (unsigned i = 40; i < 60; i++)
		ck_assert_int_eq(rig_write(&r, 1, i * 100, 5, 4, false), 0);
	ck_assert_int_eq(rig_write(&r, 2, 0, 5, 4, false), 0);
	ck_assert_int_eq(r.f->ops->trim(r.f, 1, 101, FLASH_TO_END, r.stamp++), 0);
	rig_expect(&r, 1, 0, 5, 4);
	rig_expect(&r, 1, 100, 1, 4);
	for (unsigned i = 2; i < 60; i++)
		rig_expect_absent(&r, 1, i * 100, 5);
	rig_expect_absent(&r, 1, 101, 4);
	rig_expect(&r, 2, 0, 5, 4);
	ck_assert_uint_eq(stats(&r).live_sectors, 11);
	rig_reopen(&r);
	rig_expect_absent(&r, 1, 101, 4);
	rig_expect(&r, 2, 0, 5, 4);
	rig_done(&r);
}
END_TEST

static int count_extent(void *arg, const struct flash_extent *e)
{
	uint64_t *n = arg;

	n[0]++;
	n[1] += e->count;
	n[2] += e->dirty ? e->count : 0;
	n[3] = e->stamp;
	return 0;
}

static int stop_at_once(void *arg, const struct flash_extent *e)
{
	(void)arg;
	(void)e;
	return 17;
}

START_TEST(test_walk)
{
	uint64_t n[4] = {0};
	struct rig r;

	rig_init(&r, 32, false);
	for (unsigned i = 0; i < 20; i++)
		ck_assert_int_eq(rig_write(&r, 5 - i % 3, i * 16, 8, i, i % 2), 0);
	ck_assert_int_eq(r.f->ops->trim(r.f, 4, 20, 2, 1000), 0);
	ck_assert_int_eq(r.f->ops->mark_clean(r.f, 5, 0, 1, 1001), 0);
	ck_assert_int_eq(r.f->ops->walk(r.f, FLASH_WALK_DATA, 0, 0, count_extent, n), 0);
	ck_assert_uint_eq(n[1], 20 * 8 - 2);
	ck_assert_uint_eq(n[1], stats(&r).live_sectors);
	ck_assert_uint_eq(n[2], stats(&r).dirty_sectors);
	memset(n, 0, sizeof(n));
	ck_assert_int_eq(r.f->ops->walk(r.f, FLASH_WALK_DATA, 5, 0, count_extent, n), 0);
	ck_assert_uint_eq(n[1], 7 * 8);
	memset(n, 0, sizeof(n));
	ck_assert_int_eq(r.f->ops->walk(r.f, FLASH_WALK_TRIM, 0, 0, count_extent, n), 0);
	ck_assert_uint_eq(n[0], 1);
	ck_assert_uint_eq(n[3], 1000);
	ck_assert_int_eq(r.f->ops->walk(r.f, FLASH_WALK_CLEAN, 5, 1, count_extent, n), 0);
	ck_assert_uint_eq(n[0], 1);
	ck_assert_int_eq(r.f->ops->walk(r.f, FLASH_WALK_DATA, 0, 0, stop_at_once, NULL), 17);
	rig_done(&r);
}
END_TEST

struct ctl_walk {
	struct rig *r;
	unsigned n;
};

static int ctl_walk_delete(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value,
			   size_t len, uint64_t stamp)
{
	struct ctl_walk *w = arg;

	ck_assert_uint_eq(len, 1 + key[0]);
	ck_assert_uint_eq(((const uint8_t *)value)[0], key[0]);
	ck_assert_uint_gt(stamp, 0);
	w->n++;
	if (key[0] % 2 == 0)
		return w->r->f->ops->ctl_put(w->r->f, FLASH_CTL_FILE, key, NULL, 0, w->r->stamp++);
	return 0;
}

START_TEST(test_ctl)
{
	uint8_t key[FLASH_CTL_KEY] = {0}, value[FLASH_CTL_VALUE];
	struct ctl_walk w = {.r = NULL};
	uint64_t stamp;
	struct rig r;
	size_t len;

	rig_init(&r, 32, false);
	for (unsigned i = 0; i < 100; i++) {
		key[0] = (uint8_t)i;
		memset(value, (int)i, sizeof(value));
		ck_assert_int_eq(r.f->ops->ctl_put(r.f, FLASH_CTL_FILE, key, value, 1 + i, r.stamp++),
				 0);
		if (i == 50)
			ck_assert_int_eq(ftl_checkpoint(r.f), 0);
	}
	ck_assert_int_eq(r.f->ops->ctl_put(r.f, FLASH_CTL_OPEN, key, value, 9, r.stamp++), 0);
	w.r = &r;
	ck_assert_int_eq(r.f->ops->ctl_walk(r.f, FLASH_CTL_FILE, ctl_walk_delete, &w), 0);
	ck_assert_uint_eq(w.n, 100);
	ck_assert_uint_eq(stats(&r).ctl_records, 51);
	rig_reopen(&r);
	ck_assert_uint_eq(stats(&r).ctl_records, 51);
	key[0] = 4;
	len = sizeof(value);
	ck_assert_int_eq(r.f->ops->ctl_get(r.f, FLASH_CTL_FILE, key, value, &len, &stamp), -ENOENT);
	ck_assert_uint_gt(stamp, 100); /* the deletion's */
	key[0] = 5;
	len = 3;
	ck_assert_int_eq(r.f->ops->ctl_get(r.f, FLASH_CTL_FILE, key, value, &len, &stamp), -EOVERFLOW);
	ck_assert_uint_eq(len, 6);
	ck_assert_int_eq(r.f->ops->ctl_get(r.f, FLASH_CTL_FILE, key, value, &len, &stamp), 0);
	/* An old stamp changes nothing. */
	ck_assert_int_eq(r.f->ops->ctl_put(r.f, FLASH_CTL_FILE, key, "x", 1, stamp - 1), 0);
	ck_assert_int_eq(r.f->ops->ctl_get(r.f, FLASH_CTL_FILE, key, value, &len, &stamp), 0);
	ck_assert_uint_eq(len, 6);
	key[0] = 4;
	ck_assert_int_eq(r.f->ops->ctl_put(r.f, FLASH_CTL_FILE, key, "x", 1, 2), 0);
	len = sizeof(value);
	ck_assert_int_eq(r.f->ops->ctl_get(r.f, FLASH_CTL_FILE, key, value, &len, &stamp), -ENOENT);
	rig_done(&r);
}
END_TEST

/* What the counters say went to the medium did. */
START_TEST(test_conservation)
{
	struct media_stats before, after;
	struct flash_stats s, was;
	struct rig r;

	rig_init(&r, 32, false);
	was = stats(&r);
	media_get_stats(r.media, &before);
	for (unsigned i = 0; i < 1200; i++) {
		int err = rig_write(&r, 1, hash_mix64(i) % 1000, 1 + i % 20, i * 1000, false);

		ck_assert(!err || err == -ENOSPC);
		if (i % 13 == 0)
			flush(&r);
		ck_assert_int_eq(ftl_step(r.f), 0);
	}
	ck_assert_int_eq(ftl_checkpoint(r.f), 0);
	s = stats(&r);
	media_get_stats(r.media, &after);
	ck_assert_uint_gt(s.gc_copied_bytes, 0);
	ck_assert_uint_gt(s.erases, 0);
	ck_assert_uint_eq(s.flash_write_bytes, s.stored_bytes + s.gc_copied_bytes + s.pad_bytes +
			  s.footer_bytes + s.meta_bytes);
	/* LMDB's writes are estimated, the medium's counted: superblocks are the difference. */
	ck_assert_uint_eq(after.write_bytes - before.write_bytes + s.meta_bytes - was.meta_bytes,
			  s.flash_write_bytes - was.flash_write_bytes +
			  (s.checkpoints - was.checkpoints) * 4096);
	rig_reopen(&r);
	ck_assert_uint_ge(stats(&r).stored_bytes, s.stored_bytes);
	ck_assert_uint_eq(stats(&r).host_writes, s.host_writes);
	rig_done(&r);
}
END_TEST

START_TEST(test_readonly)
{
	uint8_t buf[FLASH_SECTOR] = {0};
	struct media_stats before, after;
	struct flash_write w = {.file = 1, .count = 1, .len = 4096, .data = buf, .stamp = 99};
	struct rig r;

	rig_init(&r, 32, false);
	ck_assert_int_eq(rig_write(&r, 1, 0, 30, 3, false), 0);
	ck_assert_int_eq(r.f->ops->close(r.f), 0);
	r.opt.readonly = true;
	media_get_stats(r.media, &before);
	rig_open(&r);
	rig_expect(&r, 1, 0, 30, 3);
	ck_assert_int_eq(r.f->ops->write(r.f, &w), -EROFS);
	ck_assert_int_eq(r.f->ops->trim(r.f, 1, 0, 1, 99), -EROFS);
	ck_assert_int_eq(ftl_step(r.f), 0);
	rig_done(&r);
	(void)after;
	(void)before;
}
END_TEST

START_TEST(test_format_twice)
{
	struct ftl_format f = {.uuid = "unit test card", .controllers = 1, .op_percent = 28};
	struct ftl_identity id;
	struct rig r;

	rig_init(&r, 32, false);
	ck_assert_int_eq(rig_write(&r, 1, 0, 30, 3, false), 0);
	ck_assert_int_eq(r.f->ops->close(r.f), 0);
	ck_assert_int_eq(ftl_identify(r.media, &id), 0);
	ck_assert(id.clean);
	ck_assert_uint_eq(id.format.op_percent, 28);
	f.geometry.parity = true;
	ck_assert_int_eq(ftl_format(r.media, r.meta, &f), -ENOTSUP);
	f.geometry.parity = false;
	f.volume_bytes = 1 << 30;
	ck_assert_int_eq(ftl_format(r.media, r.meta, &f), -ENOSPC);
	rig_open(&r);
	rig_expect(&r, 1, 0, 30, 3);
	ck_assert_int_eq(r.f->ops->close(r.f), 0);
	/* The same uuid, the same medium: nothing of the former life comes back, even by a scan. */
	f.volume_bytes = 0;
	ck_assert_int_eq(ftl_format(r.media, r.meta, &f), 0);
	rig_meta_lose(&r);
	ck_assert_int_eq(ftl_open(&r.f, r.media, r.meta, &r.opt), -ESTALE);
	ck_assert_int_eq(ftl_recover(r.media, r.meta), 0);
	rig_open(&r);
	rig_expect_absent(&r, 1, 0, 30);
	rig_done(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ftl");
	TCase *t = tcase_create("operations");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_write_read);
	tcase_add_test(t, test_arguments);
	tcase_add_test(t, test_short_tail);
	tcase_add_test(t, test_epochs);
	tcase_add_test(t, test_overlaps);
	tcase_add_test(t, test_trim_file);
	tcase_add_test(t, test_walk);
	tcase_add_test(t, test_ctl);
	tcase_add_test(t, test_conservation);
	tcase_add_test(t, test_readonly);
	tcase_add_test(t, test_format_twice);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
