/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Space: GC, reclaim, reserves, -ENOSPC and the way out of it, tombstones.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ftl_rig.h"

struct cache { /* the upcall's view */
	unsigned asked;
	uint64_t keep_below; /* lines of file 1 below this are kept */
	bool keep_all;
	struct rig *r;
};

static enum flash_verdict cache_reclaim(void *arg, uint64_t file, uint64_t line, uint64_t stamp,
					uint32_t epoch)
{
	struct cache *c = arg;

	c->asked++;
	ck_assert_uint_ne(file, FLASH_VOLUME);
	ck_assert_uint_ne(file, 9); /* the tests' dirty file */
	ck_assert_uint_gt(stamp, 0);
	ck_assert_uint_lt(stamp, c->r->stamp);
	ck_assert_uint_eq(epoch, 1);
	return c->keep_all || (file == 1 && line < c->keep_below) ? FLASH_KEEP_COLD : FLASH_DROP;
}

static struct flash_stats stats(struct rig *r)
{
	struct flash_stats s;

	r->f->ops->stats(r->f, &s);
	return s;
}

/* Writes, giving GC a few rounds when there is no space. */
static int write_gc(struct rig *r, uint64_t file, uint64_t sector, uint32_t count, uint64_t seed,
		    bool dirty)
{
	int err = rig_write(r, file, sector, count, seed, dirty);

	for (int i = 0; i < 20 && err == -ENOSPC; i++) {
		ck_assert_int_eq(ftl_step(r->f), 0);
		err = rig_write(r, file, sector, count, seed, dirty);
	}
	return err;
}

static uint64_t random_seed(uint64_t x) /* incompressible in every sector: see rig_fill */
{
	return x * 4;
}

/* A sector of random bytes whatever its number: multiples of 4, plus 3. */
static int write_random(struct rig *r, uint64_t file, uint64_t sector, uint64_t x, bool dirty)
{
	return write_gc(r, file, sector, 1, random_seed(x) + 3 + 4 * sector - sector, dirty);
}

static void expect_random(struct rig *r, uint64_t file, uint64_t sector, uint64_t x)
{
	rig_expect(r, file, sector, 1, random_seed(x) + 3 + 4 * sector - sector);
}

START_TEST(test_drop)
{
	struct cache c = {.keep_below = 4};
	struct rig r;

	rig_init(&r, 32, false);
	c.r = &r;
	r.f->ops->set_reclaim(r.f, cache_reclaim, &c);
	ck_assert_int_eq(rig_write(&r, 9, 0, 64, 2, true), 0);
	/* Five times what fits. */
	for (uint64_t line = 0; line < 5 * 32 * 4; line++)
		ck_assert_int_eq(write_gc(&r, 1, line * 16, 16, 3, false), 0);
	ck_assert_uint_gt(c.asked, 0);
	ck_assert_uint_gt(stats(&r).gc_dropped_bytes, 0);
	ck_assert_uint_gt(stats(&r).gc_copied_bytes, 0);
	rig_expect(&r, 9, 0, 64, 2);
	rig_expect(&r, 1, 0, 64, 3);
	rig_expect(&r, 1, 639 * 16, 16, 3);
	rig_audit(&r);
	rig_reopen(&r);
	rig_expect(&r, 9, 0, 64, 2);
	rig_expect(&r, 1, 0, 64, 3);
	ck_assert_uint_eq(stats(&r).dirty_sectors, 64);
	rig_done(&r);
}
END_TEST

START_TEST(test_full)
{
	struct media_stats before, after;
	uint8_t key[FLASH_CTL_KEY] = {0};
	uint64_t lines = 0;
	struct rig r;

	rig_init(&r, 32, false);
	while (!write_gc(&r, 1, lines * 16, 16, 3, false))
		lines++;
	ck_assert_uint_gt(lines, 60);
	/* Full and nothing to gain: GC neither spins nor writes. */
	media_get_stats(r.media, &before);
	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(rig_write(&r, 1, lines * 16, 16, 3, false), -ENOSPC);
		ck_assert_int_eq(ftl_step(r.f), 0);
	}
	media_get_stats(r.media, &after);
	ck_assert_uint_eq(after.write_bytes, before.write_bytes);
	/* What is needed to make space has a reserve. */
	for (unsigned i = 0; i < 300; i++) {
		key[0] = (uint8_t)i;
		ck_assert_int_eq(r.f->ops->ctl_put(r.f, 1, key, "value", 5, r.stamp++), 0);
		ck_assert_int_eq(r.f->ops->mark_clean(r.f, 1, i, 1, r.stamp++), 0);
	}
	for (uint64_t line = 0; line < lines; line += 2)
		ck_assert_int_eq(r.f->ops->trim(r.f, 1, line * 16, 16, r.stamp++), 0);
	for (uint64_t line = 0; line < lines; line += 4)
		ck_assert_int_eq(write_gc(&r, 1, line * 16, 16, 7, false), 0);
	for (uint64_t line = 0; line < lines; line++)
		if (line % 4 != 2)
			rig_expect(&r, 1, line * 16, 16, line % 2 ? 3 : 7);
	rig_done(&r);
}
END_TEST

START_TEST(test_dirty)
{
	struct cache c = {.keep_below = 0};
	uint64_t n = 0;
	struct rig r;

	rig_init(&r, 32, false);
	c.r = &r;
	r.f->ops->set_reclaim(r.f, cache_reclaim, &c);
	while (!write_gc(&r, 9, n * 16, 16, 4 /* compressible: counted whole all the same */, true))
		n++;
	ck_assert_uint_le(n * FLASH_LINE, stats(&r).usable_bytes);
	ck_assert_uint_ge((n + 2) * FLASH_LINE, stats(&r).usable_bytes * 95 / 100);
	/* Compressed, the same dirty data leaves room for clean lines. */
	for (uint64_t line = 0; line < 500; line++)
		ck_assert_int_eq(write_gc(&r, 1, line * 16, 16, 3, false), 0);
	/* Random bytes in the place of compressible ones: what was admitted must still fit. */
	for (uint64_t s = 0; s < n * 16; s += 16)
		ck_assert_int_eq(r.f->ops->trim(r.f, 9, s, 16, r.stamp++), 0);
	for (uint64_t s = 0; s < n * 16; s++)
		ck_assert_int_eq(write_random(&r, 9, s, 1, true), 0);
	for (uint64_t s = 0; s < n * 16; s++)
		expect_random(&r, 9, s, 1);
	ck_assert_uint_eq(stats(&r).dirty_sectors, n * 16);
	rig_done(&r);
}
END_TEST

START_TEST(test_volume)
{
	struct ftl_format f = {
		.uuid = "volume", .controllers = 1, .op_percent = 28,
		.geometry = {.erase_block = RIG_EB, .dies = 32, .slice = 8192},
	};
	struct cache c = {.keep_below = 0};
	uint64_t sectors, *want, before;
	struct rig r;

	rig_init(&r, 64, false);
	f.volume_bytes = stats(&r).usable_bytes / FLASH_SECTOR * FLASH_SECTOR;
	rig_done(&r);
	rig_init_format(&r, 64, false, &f);
	c.r = &r;
	r.f->ops->set_reclaim(r.f, cache_reclaim, &c);
	sectors = f.volume_bytes / FLASH_SECTOR;
	want = calloc(sectors, sizeof(*want));
	for (uint64_t s = 0; s < sectors; s++)
		ck_assert_int_eq(write_random(&r, 0, s, 0, false), 0);
	before = stats(&r).flash_write_bytes - stats(&r).meta_bytes;
	for (uint64_t i = 1; i < 3 * sectors; i++) {
		uint64_t s = hash_mix64(i) % sectors;

		ck_assert_int_eq(write_random(&r, 0, s, i, false), 0);
		want[s] = i;
	}
	printf("volume of 28 %% over-provisioning, 64 erase blocks: write amplification %.2f\n",
	       (double)(stats(&r).flash_write_bytes - stats(&r).meta_bytes - before) /
	       (double)(3 * sectors * FLASH_SECTOR));
	for (uint64_t s = 0; s < sectors; s++)
		expect_random(&r, 0, s, want[s]);
	ck_assert_uint_eq(c.asked, 0);
	free(want);
	rig_done(&r);
}
END_TEST

/* A newer version is dropped; the older one, dead but still in the log, must not come back. */
START_TEST(test_drop_and_recover)
{
	struct cache c = {.keep_below = 4};
	struct flash_sector st[64];
	uint8_t *buf = malloc(64 * FLASH_SECTOR);
	unsigned back = 0;
	struct rig r;

	rig_init(&r, 32, false);
	c.r = &r;
	r.f->ops->set_reclaim(r.f, cache_reclaim, &c);
	/* Among the first lines are copies of lines 40.. that are kept alive by lines 0..3. */
	for (uint64_t i = 0; i < 4; i++) {
		ck_assert_int_eq(write_gc(&r, 1, i * 16, 16, 3, false), 0);
		ck_assert_int_eq(write_gc(&r, 1, 640 + i * 16, 16, 1, false), 0);
	}
	for (uint64_t i = 0; i < 4; i++)
		ck_assert_int_eq(write_gc(&r, 1, 640 + i * 16, 16, 2, false), 0);
	c.keep_all = true;
	for (uint64_t line = 100; c.asked < 300 && line < 1000; line++) {
		int err = write_gc(&r, 1, line * 16, 16, 3, false);

		if (err)
			break;
	}
	c.keep_all = false;
	for (uint64_t line = 1000; line < 1400; line++)
		ck_assert_int_eq(write_gc(&r, 1, line * 16, 16, 3, false), 0);
	ck_assert_int_eq(r.f->ops->close(r.f), 0);
	rig_meta_lose(&r);
	ck_assert_int_eq(ftl_recover(r.media, r.meta), 0);
	rig_open(&r);
	ck_assert_int_eq(r.f->ops->read(r.f, 1, 640, 64, 0, buf, st), 0);
	for (unsigned i = 0; i < 64; i++) {
		if (!(st[i].flags & FLASH_PRESENT))
			continue;
		back++;
		rig_expect(&r, 1, 640 + i, 1, 2);
	}
	printf("%u of 64 dropped sectors came back, none of them old\n", back);
	free(buf);
	rig_done(&r);
}
END_TEST

/* A full card, stopped again and again, also in the middle of GC: partly filled blocks are won back. */
START_TEST(test_restarts)
{
	struct cache c = {.keep_below = 0};
	uint64_t line = 0;
	struct rig r;

	rig_init(&r, 20, true);
	c.r = &r;
	r.f->ops->set_reclaim(r.f, cache_reclaim, &c);
	ck_assert_int_eq(rig_write(&r, 9, 0, 150, 3, true), 0);
	for (; line < 120; line++)
		ck_assert_int_eq(write_gc(&r, 1, line * 16, 16, 3, false), 0);
	for (unsigned turn = 0; turn < 60; turn++) {
		if (turn % 2)
			media_fault_cut_at(r.fault, media_fault_calls(r.fault) + 1 + turn % 17);
		for (unsigned i = 0; i < 3 && !media_fault_is_cut(r.fault); i++, line++) {
			int err = rig_write(&r, 1, line * 16, 16, 3, false);

			for (int k = 0; k < 20 && err == -ENOSPC && !ftl_step(r.f); k++)
				err = rig_write(&r, 1, line * 16, 16, 3, false);
			ck_assert(!err || media_fault_is_cut(r.fault));
			if (i == 1)
				r.f->ops->ctl_put(r.f, 1, (const uint8_t *)"a key of a file.", "v", 1,
						  r.stamp++);
			r.f->ops->flush(r.f);
		}
		r.f->ops->close(r.f);
		media_fault_restore(r.fault, MEDIA_KEEP_PREFIX);
		media_fault_cut_at(r.fault, 0);
		rig_open(&r);
		r.f->ops->set_reclaim(r.f, cache_reclaim, &c);
		rig_expect(&r, 9, 0, 150, 3);
	}
	rig_done(&r);
}
END_TEST

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

START_TEST(test_tombstones_retire)
{
	uint8_t key[FLASH_CTL_KEY] = {0};
	struct rig r;

	rig_init(&r, 32, false);
	for (unsigned i = 0; i < 200; i++) {
		key[0] = (uint8_t)i;
		ck_assert_int_eq(write_gc(&r, 2, i * 16, 1, 3, i % 2), 0);
		ck_assert_int_eq(r.f->ops->ctl_put(r.f, 1, key, "v", 1, r.stamp++), 0);
	}
	for (unsigned i = 0; i < 200; i++) {
		key[0] = (uint8_t)i;
		ck_assert_int_eq(r.f->ops->trim(r.f, 2, i * 16, 1, r.stamp++), 0);
		ck_assert_int_eq(r.f->ops->ctl_put(r.f, 1, key, NULL, 0, r.stamp++), 0);
	}
	ck_assert_uint_eq(tombstones(&r), 200);
	rig_reopen(&r);
	ck_assert_uint_eq(tombstones(&r), 200);
	/* One for the whole file does what they did. */
	ck_assert_int_eq(r.f->ops->trim(r.f, 2, 0, FLASH_TO_END, r.stamp++), 0);
	ck_assert_uint_eq(tombstones(&r), 1);
	/* Of any number only some are kept: GC makes them superfluous. */
	for (unsigned i = 0; i < 5000; i++) {
		ck_assert_int_eq(write_gc(&r, 3, i % 7 * 16, 16, 3, false), 0);
		ck_assert_int_eq(r.f->ops->trim(r.f, 4, i * 16, 1, r.stamp++), 0);
		if (i % 50 == 0)
			ck_assert_int_eq(ftl_step(r.f), 0);
	}
	ck_assert_uint_lt(tombstones(&r), 2000);
	rig_expect_absent(&r, 2, 0, 3200);
	rig_audit(&r);
	ck_assert_int_eq(r.f->ops->close(r.f), 0);
	rig_meta_lose(&r);
	ck_assert_int_eq(ftl_recover(r.media, r.meta), 0);
	rig_open(&r);
	rig_expect_absent(&r, 2, 0, 3200);
	ck_assert_uint_eq(stats(&r).ctl_records, 0);
	rig_done(&r);
}
END_TEST

/* Big records of which little is alive are compressed anew. */
START_TEST(test_shrink)
{
	uint64_t live;
	struct cache c = {.keep_below = 0};
	struct rig r;

	rig_init(&r, 32, false);
	c.r = &r;
	r.f->ops->set_reclaim(r.f, cache_reclaim, &c);
	for (uint64_t line = 0; line < 30; line++)
		ck_assert_int_eq(write_gc(&r, 9, line * 16, 16, 3, true), 0);
	for (uint64_t line = 0; line < 30; line++) {
		ck_assert_int_eq(write_gc(&r, 9, line * 16 + 2, 5, 7, true), 0);
		ck_assert_int_eq(r.f->ops->trim(r.f, 9, line * 16 + 8, 8, r.stamp++), 0);
	}
	live = stats(&r).live_bytes;
	for (unsigned i = 0; i < 32 * 4 * 2; i++)
		ck_assert_int_eq(write_gc(&r, 3, i * 16, 16, 3, false), 0);
	ck_assert_int_eq(r.f->ops->trim(r.f, 3, 0, FLASH_TO_END, r.stamp++), 0);
	ck_assert_uint_lt(stats(&r).live_bytes, live * 3 / 4);
	for (uint64_t line = 0; line < 30; line++) {
		rig_expect(&r, 9, line * 16, 2, 3);
		rig_expect(&r, 9, line * 16 + 2, 5, 7);
		rig_expect(&r, 9, line * 16 + 7, 1, 3);
		rig_expect_absent(&r, 9, line * 16 + 8, 8);
	}
	rig_done(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ftl space");
	TCase *t = tcase_create("space");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_drop);
	tcase_add_test(t, test_full);
	tcase_add_test(t, test_dirty);
	tcase_add_test(t, test_volume);
	tcase_add_test(t, test_drop_and_recover);
	tcase_add_test(t, test_restarts);
	tcase_add_test(t, test_tombstones_retire);
	tcase_add_test(t, test_shrink);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
