/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Recovery without the map where the log has gaps, rightly (erased blocks) or not (rot).
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ftl/ftl_media.h"
#include "ftl_rig.h"

static uint64_t free_ebs(struct rig *r)
{
	struct flash_stats s;

	r->f->ops->stats(r->f, &s);
	return s.free_bytes / RIG_EB;
}

/* A line of one repeated byte: a record of 88 bytes. */
static void write_cold(struct rig *r, uint64_t file, uint64_t line, int byte, bool dirty, bool cold)
{
	static uint8_t buf[FLASH_LINE];
	struct flash_write w = {
		.file = file, .sector = line * 16, .count = 16, .len = FLASH_LINE, .data = buf,
		.stamp = r->stamp++, .epoch = 1, .dirty = dirty, .cold = cold,
	};

	memset(buf, byte, sizeof(buf));
	ck_assert_int_eq(r->f->ops->write(r->f, &w), 0);
}

static void write_const(struct rig *r, uint64_t file, uint64_t line, int byte, bool dirty)
{
	write_cold(r, file, line, byte, dirty, false);
}

/* -1: absent, -2: corrupt. */
static int read_byte(struct rig *r, uint64_t file, uint64_t line)
{
	uint8_t buf[FLASH_SECTOR];
	struct flash_sector st;

	ck_assert_int_eq(r->f->ops->read(r->f, file, line * 16, 1, 0, buf, &st), 0);
	if (!(st.flags & FLASH_PRESENT))
		return -1;
	return st.flags & FLASH_CORRUPT ? -2 : buf[0];
}

static void power_cut(struct rig *r)
{
	media_fault_cut_at(r->fault, media_fault_calls(r->fault) + 1);
	media_fault_event(r->fault);
	r->f->ops->close(r->f);
	r->f = NULL;
	media_fault_restore(r->fault, MEDIA_KEEP_NONE);
	media_fault_cut_at(r->fault, 0);
}

static void recover(struct rig *r)
{
	rig_meta_lose(r);
	ck_assert_int_eq(ftl_recover(r->media, r->meta), 0);
	rig_open(r);
}

/* The last flush is not named by any record, and what it covered begins in an erase block that has
 * gone: the rest must not be taken for writes after a gap. */
START_TEST(test_gap_of_an_erased_block)
{
	uint64_t n = 0, line = 0;
	struct rig r;

	rig_init(&r, 16, true);
	while (free_ebs(&r) > 16 - 9)
		ck_assert_int_eq(rig_write(&r, 2, 16 * line++, 16, 3, false), 0);
	ck_assert_int_eq(r.f->ops->flush(r.f), 0);
	while (free_ebs(&r) > 16 - 11)
		ck_assert_int_eq(rig_write(&r, 1, 16 * n++, 16, 3, false), 0);
	for (uint64_t i = 0; i < n; i++)
		write_const(&r, 1, i, 7, true);
	ck_assert_uint_eq(free_ebs(&r), 5);
	ck_assert_int_eq(r.f->ops->flush(r.f), 0);
	ck_assert_int_eq(ftl_step(r.f), 0);
	ck_assert_uint_gt(free_ebs(&r), 5);
	power_cut(&r);
	recover(&r);
	for (uint64_t i = 0; i < n; i++)
		ck_assert_int_eq(read_byte(&r, 1, i), 7);
	rig_done(&r);
}
END_TEST

/* Old and new versions of clean and dirty lines in two erase blocks; the newer block's header, or the
 * record of a trim, rots beyond repair. Nothing old may come back as clean. */
static void rotten(struct rig *r, unsigned eb, uint32_t off)
{
	for (unsigned i = 0; i < 6; i++)
		media_fault_flip(r->fault, 8192 + (uint64_t)eb * RIG_EB + off + i, i);
}

START_TEST(test_lost_header)
{
	uint64_t line = 0;
	struct rig r;

	rig_init(&r, 16, true);
	for (uint64_t i = 0; i < 8; i++)
		write_const(&r, 1, i, 1, i % 2);
	while (free_ebs(&r) > 14)
		ck_assert_int_eq(rig_write(&r, 2, 16 * line++, 16, 3, false), 0);
	for (uint64_t i = 0; i < 8; i++)
		write_const(&r, 1, i, 2, i % 2);
	ck_assert_int_eq(r.f->ops->flush(r.f), 0);
	power_cut(&r);
	rotten(&r, 1, 0);
	if (_i)
		recover(&r);
	else
		rig_open(&r);
	for (uint64_t i = 0; i < 8; i += 2)
		ck_assert_int_eq(read_byte(&r, 1, i), -1);
	/* The block is used again, so that nothing tells of the damage when the map is lost. */
	write_const(&r, 5, 0, 9, false);
	ck_assert_int_eq(r.f->ops->close(r.f), 0);
	recover(&r);
	for (uint64_t i = 0; i < 8; i += 2)
		ck_assert_int_eq(read_byte(&r, 1, i), -1);
	ck_assert_int_eq(read_byte(&r, 5, 0), 9);
	rig_done(&r);
}
END_TEST

START_TEST(test_lost_trim)
{
	struct rig r;

	rig_init(&r, 16, true);
	for (uint64_t i = 0; i < 4; i++)
		write_const(&r, 1, i, 1, false);
	ck_assert_int_eq(r.f->ops->trim(r.f, 1, 0, 16, r.stamp++), 0);
	write_const(&r, 1, 5, 1, false);
	ck_assert_int_eq(r.f->ops->flush(r.f), 0);
	write_const(&r, 1, 6, 1, false);
	ck_assert_int_eq(r.f->ops->flush(r.f), 0);
	power_cut(&r);
	/* Its payload, or its header: no footer names it. */
	rotten(&r, 0, FTL_BLOCK + 4 * 88 + (_i & 1 ? 0 : FTL_RECORD_HEADER));
	if (_i & 2)
		recover(&r);
	else
		rig_open(&r);
	ck_assert_int_eq(read_byte(&r, 1, 0), -1);
	r.f->ops->close(r.f);
	r.f = NULL;
	rig_done(&r);
}
END_TEST

/* The headers of live records have rotted, and the footer that would name them: GC finds them by the
 * map. Data is lost and says so, everything else is logged anew. */
START_TEST(test_lost_index)
{
	uint8_t key[FLASH_CTL_KEY] = {5}, value[FLASH_CTL_VALUE];
	struct flash_stats s;
	size_t len = sizeof(value);
	uint64_t line = 0, stamp;
	struct rig r;

	rig_init(&r, 16, true);
	write_const(&r, 1, 0, 1, true);
	write_const(&r, 1, 1, 1, true);
	write_const(&r, 3, 0, 1, false);
	ck_assert_int_eq(r.f->ops->trim(r.f, 3, 0, 16, r.stamp++), 0);
	ck_assert_int_eq(r.f->ops->ctl_put(r.f, FLASH_CTL_FILE, key, "five", 5, r.stamp++), 0);
	while (free_ebs(&r) > 14)
		ck_assert_int_eq(rig_write(&r, 2, 16 * line++, 16, 3, false), 0);
	ck_assert_int_eq(ftl_checkpoint(r.f), 0);
	/* All that is in the first block's first 4 KiB, and its footer. */
	for (unsigned i = 0; i < 5; i++)
		rotten(&r, 0, FTL_BLOCK + i * 88);
	rotten(&r, 0, RIG_EB - FTL_BLOCK);
	ck_assert_int_eq(r.f->ops->trim(r.f, 2, 0, FLASH_TO_END, r.stamp++), 0);
	for (line = 0; free_ebs(&r) > 5; line++)
		ck_assert_int_eq(rig_write(&r, 4, 16 * line, 16, 3, false), 0);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(ftl_step(r.f), 0);
	r.f->ops->stats(r.f, &s);
	ck_assert_uint_gt(s.erases, 0);
	for (int turn = 0; turn < 2; turn++) {
		ck_assert_int_eq(read_byte(&r, 1, 0), -2);
		ck_assert_int_eq(read_byte(&r, 1, 1), -2);
		ck_assert_int_eq(read_byte(&r, 3, 0), -1);
		len = sizeof(value);
		ck_assert_int_eq(r.f->ops->ctl_get(r.f, FLASH_CTL_FILE, key, value, &len, &stamp), 0);
		ck_assert_str_eq((char *)value, "five");
		rig_expect(&r, 4, 0, (uint32_t)line * 16, 3);
		ck_assert_int_eq(r.f->ops->close(r.f), 0);
		r.f = NULL;
		if (turn == 0)
			recover(&r);
	}
	rig_done(&r);
}
END_TEST

static int walk_one(void *arg, const struct flash_extent *e)
{
	uint64_t *next = arg;

	ck_assert_uint_eq(e->sector, *next * 16);
	++*next;
	return 0;
}

/* More lines than recovery keeps in memory, and than a walk does. */
START_TEST(test_many_lines)
{
	enum { LINES = 70000 };
	static uint8_t buf[FLASH_SECTOR];
	struct flash_write w = {.file = 1, .count = 1, .len = FLASH_SECTOR, .data = buf, .epoch = 1};
	struct flash_stats s;
	uint64_t n = 0;
	struct rig r;

	rig_init(&r, 64, false);
	for (unsigned version = 1; version <= 2; version++) {
		memset(buf, (int)version, sizeof(buf));
		for (uint64_t i = 0; i < (version == 1 ? LINES : 100); i++) {
			w.sector = (i * 7919 % LINES) * 16;
			w.stamp = r.stamp++;
			w.dirty = i % 100 == 0;
			ck_assert_int_eq(r.f->ops->write(r.f, &w), 0);
		}
	}
	ck_assert_int_eq(r.f->ops->close(r.f), 0);
	recover(&r);
	r.f->ops->stats(r.f, &s);
	ck_assert_uint_eq(s.live_sectors, LINES);
	ck_assert_uint_eq(s.dirty_sectors, LINES / 100);
	ck_assert_int_eq(r.f->ops->walk(r.f, FLASH_WALK_DATA, 0, 0, walk_one, &n), 0);
	ck_assert_uint_eq(n, LINES);
	n = 60001;
	ck_assert_int_eq(r.f->ops->walk(r.f, FLASH_WALK_DATA, 1, n * 16, walk_one, &n), 0);
	ck_assert_uint_eq(n, LINES);
	for (uint64_t i = 0; i < LINES; i += 10)
		ck_assert_int_eq(read_byte(&r, 1, i * 7919 % LINES), i < 100 ? 2 : 1);
	rig_done(&r);
}
END_TEST

/* Of what was closed before the checkpoint, opening needs nothing. */
START_TEST(test_unreadable_header)
{
	uint64_t line = 0;
	struct rig r;

	rig_init(&r, 16, true);
	while (free_ebs(&r) > 14)
		ck_assert_int_eq(rig_write(&r, 2, 16 * line++, 16, 3, true), 0);
	ck_assert_int_eq(ftl_checkpoint(r.f), 0);
	ck_assert_int_eq(rig_write(&r, 2, 16 * line++, 16, 3, true), 0);
	ck_assert_int_eq(r.f->ops->flush(r.f), 0);
	power_cut(&r);
	media_fault_fail(r.fault, MEDIA_OP_READ, 3, -EIO); /* after both superblocks */
	rig_open(&r);
	rig_expect(&r, 2, 0, (uint32_t)line * 16, 3);
	rig_done(&r);
}
END_TEST

/* A controller that is emptied keeps its card's uuid, and what it held stays on the medium. */
START_TEST(test_former_life)
{
	struct ftl_format f = {
		.uuid = "unit test card", .controllers = 1, .op_percent = 28,
		.geometry = {.erase_block = RIG_EB, .dies = 32, .slice = 8192},
	};
	struct rig r;

	rig_init(&r, 16, true);
	r.stamp = 5000;
	for (uint64_t i = 0; i < 1000; i++)
		write_const(&r, 1, i, 1, false);
	ck_assert_int_eq(r.f->ops->close(r.f), 0);
	ck_assert_int_eq(ftl_format(r.media, r.meta, &f), 0);
	rig_open(&r);
	r.stamp = 1;
	write_const(&r, 2, 0, 2, false);
	for (uint64_t i = 0; i < 1100; i++)
		write_cold(&r, 3, i, 3, false, true);
	ck_assert_int_eq(r.f->ops->flush(r.f), 0);
	power_cut(&r);
	for (int turn = 0; turn < 2; turn++) {
		if (turn)
			recover(&r);
		else
			rig_open(&r);
		for (uint64_t i = 0; i < 1000; i++)
			ck_assert_int_eq(read_byte(&r, 1, i), -1);
		ck_assert_int_eq(read_byte(&r, 2, 0), 2);
		ck_assert_int_eq(read_byte(&r, 3, 1099), 3);
		ck_assert_int_eq(r.f->ops->close(r.f), 0);
		r.f = NULL;
	}
	rig_done(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ftl recovery");
	TCase *t = tcase_create("gaps");
	SRunner *r = srunner_create(s);
	int failed;

	log_set_level(LOG_LV_ERROR);
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, test_gap_of_an_erased_block);
	tcase_add_loop_test(t, test_lost_header, 0, 2);
	tcase_add_loop_test(t, test_lost_trim, 0, 4);
	tcase_add_test(t, test_unreadable_header);
	tcase_add_test(t, test_former_life);
	tcase_add_test(t, test_lost_index);
	tcase_add_test(t, test_many_lines);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
