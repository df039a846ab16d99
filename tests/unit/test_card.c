/* SPDX-License-Identifier: BSD-2-Clause
 * The card over real controllers: routing, ranges, walks, flushes, failing controllers. */
#include <config.h>

#include <endian.h>

#include "card_rig.h"

#include "base/hash.h"

static struct rig rig;

static void open_card(unsigned n, bool shared)
{
	rig_make(&rig, n, shared, 1);
	ck_assert_ok(rig_open(&rig));
}

static void close_card(void)
{
	ck_assert_ok(rig_close(&rig));
	rig_destroy(&rig);
}

START_TEST(routing_is_even_and_fixed)
{
	unsigned hits[RIG_MAX], i, least, most;
	struct card *card;
	uint64_t file, line;

	ck_assert_ok(card_alloc(&card, 4));
	/* Any run of lines that starts at a multiple of N is on N controllers. */
	for (file = 0; file < 50; file++) {
		memset(hits, 0, sizeof(hits));
		for (line = 0; line < 64; line++)
			hits[card_route(card, file, line)]++;
		for (i = 0; i < 4; i++)
			ck_assert_uint_eq(hits[i], 16);
	}
	/* Small files and strides spread too. */
	memset(hits, 0, sizeof(hits));
	for (file = 1; file <= 4000; file++)
		hits[card_route(card, file, 0)]++;
	for (line = 0; line < 16000; line += 4)
		hits[card_route(card, 77, line)]++;
	least = most = hits[0];
	for (i = 1; i < 4; i++) {
		least = hits[i] < least ? hits[i] : least;
		most = hits[i] > most ? hits[i] : most;
	}
	ck_assert_msg(least > 1850 && most < 2150, "8000 lines: between %u and %u", least, most);
	/* Part of the format: must never change. */
	ck_assert_uint_eq(card_route(card, 0, 5), 1);
	ck_assert_uint_eq(card_route(card, 1, 0), 3);
	ck_assert_uint_eq(card_route(card, 12345, 67), 2);
	ck_assert_uint_eq(card_route(card, 1ULL << 63, 1ULL << 40), 3);
	card->flash.ops->close(&card->flash);
}
END_TEST

START_TEST(calls_over_several_lines)
{
	struct flash_sector state[60];
	char *buf = malloc(60 * FLASH_SECTOR), *data = malloc(60 * FLASH_SECTOR);
	struct flash_write w = {.file = 9, .sector = 13, .count = 50, .data = data, .stamp = 5,
				.epoch = 3, .len = 49 * FLASH_SECTOR + 100};
	struct flash *f;
	unsigned i;

	open_card(4, true);
	f = rig.card;
	for (i = 0; i < 60; i++)
		rig_fill(data + i * FLASH_SECTOR, 9, 13 + i, 5);
	ck_assert_ok(f->ops->write(f, &w));
	memset(data + w.len, 0, 50 * FLASH_SECTOR - w.len);
	ck_assert_ok(f->ops->read(f, 9, 8, 60, 0, buf, state));
	for (i = 0; i < 60; i++) {
		bool in = i >= 5 && i < 55;

		ck_assert_int_eq(state[i].flags, in ? FLASH_PRESENT : 0);
		if (in) {
			ck_assert_mem_eq(buf + i * FLASH_SECTOR, data + (i - 5) * FLASH_SECTOR,
					 FLASH_SECTOR);
			ck_assert_uint_eq(state[i].stamp, 5);
			ck_assert_uint_eq(state[i].epoch, 3);
		}
	}
	ck_assert_ok(f->ops->read(f, 9, 8, 60, 4, buf, state)); /* an older epoch counts as absent */
	for (i = 0; i < 60; i++)
		ck_assert_int_eq(state[i].flags, 0);
	w.len = 50 * FLASH_SECTOR + 1;
	ck_assert_int_eq(f->ops->write(f, &w), -EINVAL);
	w.len = 49 * FLASH_SECTOR;
	ck_assert_int_eq(f->ops->write(f, &w), -EINVAL);
	free(buf);
	free(data);
	close_card();
}
END_TEST

START_TEST(ranges_reach_every_owner_and_no_newer_sector)
{
	struct flash_sector state;
	char buf[FLASH_SECTOR];
	struct flash *f;
	uint64_t s;

	open_card(4, true);
	f = rig.card;
	ck_assert_ok(rig_write(f, 3, 0, 200, 10, true));
	ck_assert_ok(rig_write(f, 3, 100, 1, 30, true));
	ck_assert_ok(f->ops->mark_clean(f, 3, 0, 200, 20));
	for (s = 0; s < 200; s++) {
		ck_assert_ok(f->ops->read(f, 3, s, 1, 0, buf, &state));
		ck_assert_int_eq(state.flags, FLASH_PRESENT | (s == 100 ? FLASH_DIRTY : 0));
	}
	ck_assert_ok(f->ops->trim(f, 3, 20, 3, 40));
	for (s = 0; s < 200; s++)
		ck_assert_int_eq(rig_read(f, 3, s), s >= 20 && s < 23 ? 0 : s == 100 ? 30 : 10);
	ck_assert_ok(f->ops->trim(f, 3, 50, FLASH_TO_END, 25));
	for (s = 50; s < 200; s++)
		ck_assert_int_eq(rig_read(f, 3, s), s == 100 ? 30 : 0);
	ck_assert_ok(f->ops->trim(f, 3, 0, FLASH_TO_END, 50));
	for (s = 0; s < 200; s++)
		ck_assert_int_eq(rig_read(f, 3, s), 0);
	ck_assert_int_eq(f->ops->trim(f, 3, FLASH_SECTOR_MAX + 1, 1, 60), -EINVAL);
	close_card();
}
END_TEST

struct walked {
	uint64_t file, sector, sectors, extents, stop_after;
	bool disordered;
};

static int walk_fn(void *arg, const struct flash_extent *e)
{
	struct walked *w = arg;

	if (w->extents && (e->file < w->file || (e->file == w->file && e->sector < w->sector)))
		w->disordered = true;
	w->file = e->file;
	w->sector = e->sector;
	w->sectors += e->count;
	return ++w->extents == w->stop_after ? 42 : 0;
}

START_TEST(walks_are_merged_in_address_order)
{
	struct walked w = {0};
	struct flash *f;
	uint64_t file, s;

	open_card(4, true);
	f = rig.card;
	for (file = 1; file <= 6; file++) {
		for (s = 0; s < 300; s += 2) /* more than one batch a controller */
			ck_assert_ok(rig_write(f, file, s, 1, file * 1000 + s, false));
	}
	ck_assert_ok(f->ops->walk(f, FLASH_WALK_DATA, 0, 0, walk_fn, &w));
	ck_assert_uint_eq(w.sectors, 6 * 150);
	ck_assert(!w.disordered);
	w = (struct walked){0};
	ck_assert_ok(f->ops->walk(f, FLASH_WALK_DATA, 5, 101, walk_fn, &w));
	ck_assert_uint_eq(w.sectors, 99 + 150);
	w = (struct walked){.stop_after = 7};
	ck_assert_int_eq(f->ops->walk(f, FLASH_WALK_DATA, 0, 0, walk_fn, &w), 42);
	ck_assert_uint_eq(w.extents, 7);
	/* One tombstone on four controllers is one tombstone. */
	ck_assert_ok(f->ops->trim(f, 2, 0, FLASH_TO_END, 90000));
	ck_assert_ok(f->ops->trim(f, 2, 5, 1, 90001));
	w = (struct walked){0};
	ck_assert_ok(f->ops->walk(f, FLASH_WALK_TRIM, 2, 0, walk_fn, &w));
	ck_assert_uint_eq(w.extents, 2);
	close_card();
}
END_TEST

static uint64_t media_flushes(void)
{
	struct media_stats s;

	media_get_stats(rig.medium[0], &s);
	return s.flushes;
}

START_TEST(a_flush_of_the_card_is_one_media_flush)
{
	uint64_t before;
	struct flash *f;
	unsigned k;

	open_card(4, true);
	f = rig.card;
	ck_assert_ok(f->ops->flush(f));
	before = media_flushes();
	ck_assert_ok(f->ops->flush(f));
	ck_assert_uint_eq(media_flushes(), before); /* nothing to do is free */
	ck_assert_ok(rig_write(f, 1, 0, 1, 1, false));
	ck_assert_ok(f->ops->flush(f));
	ck_assert_uint_eq(media_flushes(), before + 1);
	for (k = 0; k < 8; k++)
		ck_assert_ok(rig_put(f, k, 100 + k, 40));
	ck_assert_ok(rig_write(f, 1, 0, 64, 200, true)); /* something on every controller */
	ck_assert_ok(f->ops->flush(f));
	ck_assert_uint_eq(media_flushes(), before + 2);
	ck_assert_ok(f->ops->flush(f));
	ck_assert_uint_eq(media_flushes(), before + 2);
	close_card();
}
END_TEST

START_TEST(statistics_are_sums)
{
	struct flash_stats all, one;
	uint64_t written = 0, live = 0;
	struct flash_health h;
	unsigned i;

	open_card(3, true);
	ck_assert_ok(rig_write(rig.card, 4, 0, 100, 77, true));
	rig.card->ops->stats(rig.card, &all);
	for (i = 0; i < 3; i++) {
		ck_assert_ok(card_controller_stats(rig.card, i, &one));
		written += one.host_write_bytes;
		live += one.live_sectors;
		ck_assert_uint_gt(one.host_write_bytes, 0);
	}
	ck_assert_uint_eq(written, 100 * FLASH_SECTOR);
	ck_assert_uint_eq(all.host_write_bytes, written);
	ck_assert_uint_eq(all.live_sectors, live);
	ck_assert_uint_eq(all.dirty_sectors, 100);
	ck_assert_uint_eq(all.max_stamp, 77);
	ck_assert(!all.unclean);
	ck_assert_int_eq(card_controller_stats(rig.card, 3, &one), -EINVAL);
	rig.card->ops->health(rig.card, &h);
	ck_assert_int_eq(h.state, FLASH_OK);
	close_card();
}
END_TEST

/* A line of file `file` that controller i owns. */
static uint64_t line_of(unsigned i, uint64_t file)
{
	uint64_t line = 0;

	while (card_route(card_of(rig.card), file, line) != i)
		line++;
	return line;
}

/* Kills controller 1 and lets the card find out by a failing flush. */
static void lose_controller_1(bool dirty, int flush_result)
{
	struct flash *f = rig.card;

	ck_assert_ok(rig_write(f, 8, line_of(1, 8) * 16, 1, 500, dirty));
	media_fault_kill(rig.fault[1], true);
	ck_assert_int_eq(f->ops->flush(f), flush_result);
}

START_TEST(the_card_goes_on_without_a_controller)
{
	struct flash_health h;
	struct flash *f;
	uint64_t k, s;

	open_card(4, false);
	f = rig.card;
	for (k = 0; k < 40; k++)
		ck_assert_ok(rig_put(f, k, 100 + k, 30));
	ck_assert_ok(rig_write(f, 7, 0, 256, 200, false));
	ck_assert_ok(f->ops->flush(f));
	lose_controller_1(false, 0); /* a clean line is no loss */
	f->ops->health(f, &h);
	ck_assert_int_eq(h.state, FLASH_DEGRADED);
	for (s = 0; s < 256; s++) {
		bool lost = card_route(card_of(f), 7, s / 16) == 1;

		ck_assert_int_eq(rig_read(f, 7, s), lost ? -1 : 200);
	}
	ck_assert_ok(f->ops->trim(f, 7, 0, 128, 300)); /* also of lines that are out */
	ck_assert_int_eq(rig_write(f, 7, line_of(1, 7) * 16, 1, 301, false), -EIO);
	ck_assert_ok(rig_write(f, 7, line_of(2, 7) * 16, 1, 302, false));
	for (k = 0; k < 40; k += 2)
		ck_assert_ok(rig_put(f, k, 400 + k, k % 4 ? 30 : 0));
	ck_assert_ok(f->ops->flush(f));
	for (k = 0; k < 40; k++)
		ck_assert_int_eq(rig_get(f, k), k % 2 ? 100 + k : k % 4 ? 400 + k : 0);
	/* It works again after a restart, but holds records and sectors that were replaced. */
	media_fault_kill(rig.fault[1], false);
	rig_close(&rig);
	ck_assert_ok(rig_open(&rig));
	f = rig.card;
	for (k = 0; k < 40; k++)
		ck_assert_int_eq(rig_get(f, k), k % 2 ? 100 + k : k % 4 ? 400 + k : 0);
	for (s = 0; s < 128; s++)
		ck_assert_int_ne(rig_read(f, 7, s), 200);
	f->ops->health(f, &h);
	ck_assert_int_eq(h.state, FLASH_DEGRADED);
	rig_close(&rig);
	rig_destroy(&rig);
}
END_TEST

START_TEST(that_a_controller_is_out_is_durable_before_the_answer)
{
	struct flash_health h;
	struct flash *one;
	unsigned i;

	open_card(4, false);
	ck_assert_ok(rig_write(rig.card, 7, 0, 256, 200, false));
	ck_assert_ok(rig.card->ops->flush(rig.card));
	/* It fails out of the card's sight; the card meets that in a trim, which needs no flush. */
	one = rig_controller(&rig, 1);
	ck_assert_ok(rig_write(one, 8, line_of(1, 8) * 16, 1, 500, false));
	media_fault_kill(rig.fault[1], true);
	ck_assert_int_eq(one->ops->flush(one), -EIO);
	ck_assert_ok(rig.card->ops->trim(rig.card, 7, line_of(1, 7) * 16, 1, 501));
	for (i = 0; i < 4; i++)
		media_fault_cut_at(rig.fault[i], media_fault_calls(rig.fault[i]) + 1);
	rig_close(&rig);
	media_fault_kill(rig.fault[1], false);
	for (i = 0; i < 4; i++) {
		media_fault_event(rig.fault[i]);
		media_fault_restore(rig.fault[i], MEDIA_KEEP_NONE);
		media_fault_cut_at(rig.fault[i], 0);
	}
	ck_assert_ok(rig_open(&rig));
	rig.card->ops->health(rig.card, &h);
	ck_assert_int_eq(h.state, FLASH_DEGRADED);
	ck_assert_int_eq(rig_read(rig.card, 7, line_of(1, 7) * 16), -1);
	ck_assert_int_eq(rig_read(rig.card, 7, line_of(2, 7) * 16), 200);
	ck_assert_ok(rig_close(&rig));
	rig_destroy(&rig);
}
END_TEST

/* A rotten entry of a map concerns its line. Were the controller taken out, recover would empty it, the
 * dirty data in its sound log included. */
START_TEST(a_rotten_map_entry_takes_no_controller_out)
{
	uint64_t line, key[2], sector;
	struct flash_health h;
	struct meta_txn *t;
	struct meta *meta;

	open_card(4, false);
	ck_assert_ok(rig_write(rig.card, 7, 0, 256, 200, true));
	ck_assert_ok(rig_close(&rig));
	ck_assert_ok(rig_open(&rig));
	line = line_of(1, 7);
	key[0] = htobe64(7);
	key[1] = htobe64(line);
	meta = card_of(rig.card)->c[1].meta;
	ck_assert_ok(meta_begin_write(meta, &t));
	ck_assert_ok(meta_put(t, 0, key, sizeof(key), "nonsense", 8));
	ck_assert_ok(meta_commit(t));
	ck_assert_int_eq(rig_write(rig.card, 7, line * 16, 1, 300, true), -EUCLEAN);
	ck_assert_int_eq(rig_read(rig.card, 7, line * 16), -1);
	ck_assert_int_eq(rig.card->ops->trim(rig.card, 7, 0, 240, 301), -EUCLEAN);
	rig.card->ops->health(rig.card, &h);
	ck_assert_int_eq(h.state, FLASH_OK);
	for (sector = 0; sector < 256; sector++)
		if (sector / 16 != line)
			ck_assert_int_eq(rig_read(rig.card, 7, sector), sector < 240 ? 0 : 200);
	ck_assert_ok(rig_close(&rig));
	rig_destroy(&rig);
}
END_TEST

START_TEST(a_flush_waits_for_a_mark_under_way)
{
	struct flash_health h;
	unsigned i;

	open_card(4, false);
	ck_assert_ok(rig_write(rig.card, 7, 0, 256, 200, false));
	ck_assert_ok(rig.card->ops->flush(rig.card));
	/* As for a thread that flushes while another one, whose trim failed, has not marked it yet. */
	atomic_store(&card_of(rig.card)->c[1].out, true);
	ck_assert_ok(rig.card->ops->flush(rig.card));
	for (i = 0; i < 4; i++)
		media_fault_cut_at(rig.fault[i], media_fault_calls(rig.fault[i]) + 1);
	rig_close(&rig);
	for (i = 0; i < 4; i++) {
		media_fault_event(rig.fault[i]);
		media_fault_restore(rig.fault[i], MEDIA_KEEP_NONE);
		media_fault_cut_at(rig.fault[i], 0);
	}
	ck_assert_ok(rig_open(&rig));
	rig.card->ops->health(rig.card, &h);
	ck_assert_int_eq(h.state, FLASH_DEGRADED);
	ck_assert_int_eq(rig_read(rig.card, 7, line_of(1, 7) * 16), -1);
	ck_assert_ok(rig_close(&rig));
	rig_destroy(&rig);
}
END_TEST

START_TEST(a_controller_that_fails_at_the_close_is_out)
{
	struct flash_health h;

	open_card(4, false);
	ck_assert_ok(rig_write(rig.card, 7, 0, 256, 200, false));
	ck_assert_ok(rig.card->ops->flush(rig.card));
	ck_assert_ok(rig.card->ops->trim(rig.card, 7, line_of(1, 7) * 16, 1, 501));
	media_fault_kill(rig.fault[1], true);
	rig_close(&rig);
	media_fault_kill(rig.fault[1], false);
	media_fault_restore(rig.fault[1], MEDIA_KEEP_NONE);
	ck_assert_ok(rig_open(&rig));
	rig.card->ops->health(rig.card, &h);
	ck_assert_int_eq(h.state, FLASH_DEGRADED);
	ck_assert_int_eq(rig_read(rig.card, 7, line_of(1, 7) * 16), -1);
	ck_assert_ok(rig_close(&rig));
	rig_destroy(&rig);
}
END_TEST

START_TEST(lost_dirty_sectors_fail_every_later_flush)
{
	struct flash *f;

	open_card(4, false);
	f = rig.card;
	lose_controller_1(true, -EIO);
	ck_assert_ok(rig_write(f, 8, line_of(2, 8) * 16, 1, 600, true));
	ck_assert_int_eq(f->ops->flush(f), -EIO);
	ck_assert_int_eq(rig_close(&rig), -EIO);
	rig_destroy(&rig);
}
END_TEST

START_TEST(with_both_copies_gone_a_record_is_not_absent)
{
	uint8_t key[FLASH_CTL_KEY], value[FLASH_CTL_VALUE];
	size_t len = sizeof(value);
	uint64_t stamp, k, gone = 0;
	struct flash *f;

	open_card(4, false);
	f = rig.card;
	for (k = 0; k < 40; k++)
		ck_assert_ok(rig_put(f, k, 100 + k, 30));
	ck_assert_ok(f->ops->flush(f));
	lose_controller_1(false, 0);
	media_fault_kill(rig.fault[2], true);
	ck_assert_ok(rig_write(f, 8, line_of(2, 8) * 16, 1, 501, false));
	ck_assert_ok(f->ops->flush(f));
	for (k = 0; k < 40; k++) {
		rig_key(key, k);
		len = sizeof(value);
		switch (f->ops->ctl_get(f, FLASH_CTL_FILE, key, value, &len, &stamp)) {
		case 0:
			break;
		case -EIO:
			gone++;
			ck_assert_int_eq(rig_put(f, k, 700, 30), -EIO);
			break;
		default:
			ck_abort_msg("key %d is said to be absent", (int)k);
		}
	}
	ck_assert_uint_gt(gone, 0);
	ck_assert_uint_lt(gone, 40);
	ck_assert_int_eq(f->ops->ctl_walk(f, FLASH_CTL_FILE, NULL, NULL), -EIO);
	rig_close(&rig);
	rig_destroy(&rig);
}
END_TEST

START_TEST(nobody_left_means_every_update_fails)
{
	struct flash_health h;
	struct flash *f;

	open_card(1, false);
	f = rig.card;
	ck_assert_ok(rig_write(f, 1, 0, 4, 10, false));
	ck_assert_ok(f->ops->flush(f));
	media_fault_kill(rig.fault[0], true);
	ck_assert_ok(rig_write(f, 1, 0, 1, 11, false)); /* buffered */
	ck_assert_int_eq(f->ops->flush(f), -EIO);
	ck_assert_int_eq(f->ops->trim(f, 1, 0, 4, 12), -EIO);
	ck_assert_int_eq(rig_put(f, 1, 13, 50), -EIO);
	ck_assert_int_eq(rig_read(f, 1, 0), -1);
	f->ops->health(f, &h);
	ck_assert_int_eq(h.state, FLASH_FAILED);
	rig_close(&rig);
	rig_destroy(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("card");
	TCase *t = tcase_create("card");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, routing_is_even_and_fixed);
	tcase_add_test(t, calls_over_several_lines);
	tcase_add_test(t, ranges_reach_every_owner_and_no_newer_sector);
	tcase_add_test(t, walks_are_merged_in_address_order);
	tcase_add_test(t, a_flush_of_the_card_is_one_media_flush);
	tcase_add_test(t, statistics_are_sums);
	tcase_add_test(t, the_card_goes_on_without_a_controller);
	tcase_add_test(t, that_a_controller_is_out_is_durable_before_the_answer);
	tcase_add_test(t, a_rotten_map_entry_takes_no_controller_out);
	tcase_add_test(t, a_flush_waits_for_a_mark_under_way);
	tcase_add_test(t, a_controller_that_fails_at_the_close_is_out);
	tcase_add_test(t, lost_dirty_sectors_fail_every_later_flush);
	tcase_add_test(t, with_both_copies_gone_a_record_is_not_absent);
	tcase_add_test(t, nobody_left_means_every_update_fails);
	suite_add_tcase(s, t);
	return unit_main(s);
}
