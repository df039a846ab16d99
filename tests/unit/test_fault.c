/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <errno.h>
#include <stdint.h>

#include <check.h>

#include "base/clock.h"
#include "base/hash.h"
#include "media/media.h"
#include "unit_util.h"

#define BLOCKS 32
#define SIZE (BLOCKS * MEDIA_ALIGN)
#define PIECE 512
#define PIECES (MEDIA_ALIGN / PIECE)

static struct media *m;
static struct media_fault *f;
static char *buf, *got;

static void open_with_seed(uint64_t seed)
{
	struct media *ram;

	media_close(m);
	ck_assert_ok(media_open_ram(&ram, SIZE));
	ck_assert_ok(media_open_fault(&m, &f, ram, seed));
}

static void setup(void)
{
	void *p;

	ck_assert_ok(posix_memalign(&p, MEDIA_ALIGN, 2 * SIZE));
	buf = p;
	got = buf + SIZE;
	m = NULL;
	open_with_seed(1);
}

static void teardown(void)
{
	media_close(m);
	free(buf);
}

static int put(unsigned block, int byte)
{
	memset(buf, byte, MEDIA_ALIGN);
	return media_write(m, buf, MEDIA_ALIGN, (uint64_t)block * MEDIA_ALIGN);
}

static const char *get(unsigned block)
{
	ck_assert_ok(media_read(m, got, MEDIA_ALIGN, (uint64_t)block * MEDIA_ALIGN));
	return got;
}

/* How many of the block's 512-byte pieces are all `byte`. */
static unsigned pieces_of(const char *block, int byte)
{
	unsigned i, n = 0;

	for (i = 0; i < PIECES; i++) {
		memset(buf, byte, PIECE);
		n += memcmp(block + i * PIECE, buf, PIECE) == 0;
	}
	return n;
}

#define ck_assert_block(block, byte) ck_assert_uint_eq(pieces_of(get(block), byte), PIECES)

/* A small workload, each block a new value at each step: writes, sometimes a flush, events. Fills in
 * what is acknowledged durable and what was sent last. Returns how many steps went well. */
#define STEPS 60

struct history {
	unsigned char durable[BLOCKS], sent[BLOCKS];
};

static unsigned run_workload(struct history *h, uint64_t seed)
{
	unsigned step, b;

	memset(h, 0, sizeof(*h));
	for (step = 1; step <= STEPS; step++) {
		uint64_t r = hash_mix64(seed * 1000 + step);

		if (r % 5 == 0) {
			if (media_flush(m))
				break;
			memcpy(h->durable, h->sent, sizeof(h->durable));
		} else if (r % 5 == 1) {
			if (media_fault_event(f))
				break;
		} else {
			b = (unsigned)(r >> 8) % BLOCKS;
			h->sent[b] = (unsigned char)step; /* even when it is cut it may arrive */
			if (put(b, (int)step))
				break;
		}
	}
	return step - 1;
}

/* Every piece of every block must be some value the block had from its durable one on. */
static void check_history(const struct history *h, enum media_cut_keep keep, uint64_t seed,
			  unsigned done)
{
	unsigned b, i;

	for (b = 0; b < BLOCKS; b++) {
		const char *block = get(b);

		for (i = 0; i < PIECES; i++) {
			unsigned char c = (unsigned char)block[i * PIECE];

			memset(buf, c, PIECE);
			ck_assert_msg(memcmp(block + i * PIECE, buf, PIECE) == 0, "mixed piece");
			ck_assert_msg(c >= h->durable[b] && c <= h->sent[b],
				      "keep %d, seed %ju, %u steps: block %u has %u, not %u..%u",
				      (int)keep, (uintmax_t)seed, done, b, c, h->durable[b],
				      h->sent[b]);
			if (keep == MEDIA_KEEP_NONE)
				ck_assert_uint_eq(c, h->durable[b]);
			if (keep == MEDIA_KEEP_ALL)
				ck_assert_uint_eq(c, h->sent[b]);
		}
	}
}

START_TEST(a_cut_at_any_call_keeps_what_was_flushed)
{
	enum media_cut_keep keep = (enum media_cut_keep)_i;
	struct history h;
	uint64_t call, calls;
	unsigned done;

	ck_assert_uint_eq(run_workload(&h, 7), STEPS);
	calls = media_fault_calls(f);
	ck_assert_uint_eq(calls, STEPS);
	for (call = 1; call <= calls; call++) {
		open_with_seed(call);
		media_fault_cut_at(f, call);
		done = run_workload(&h, 7);
		ck_assert_uint_eq(done, call - 1);
		ck_assert(media_fault_is_cut(f));
		ck_assert_int_eq(media_read(m, got, 1, 0), -EIO);
		ck_assert_int_eq(put(0, 1), -EIO);
		ck_assert_int_eq(media_flush(m), -EIO);
		ck_assert_int_eq(media_fault_event(f), -EIO);
		ck_assert_int_eq(media_discard(m, 0, MEDIA_ALIGN), -EIO);
		media_fault_restore(f, keep);
		ck_assert(!media_fault_is_cut(f));
		check_history(&h, keep, call, done);
		ck_assert_ok(put(0, 99));
		ck_assert_ok(media_flush(m));
		media_fault_restore(f, MEDIA_KEEP_NONE);
		ck_assert_block(0, 99);
	}
}
END_TEST

/* Over many seeds: whole, lost and torn writes all happen, in a subset also out of order. */
START_TEST(cuts_tear_lose_and_reorder)
{
	unsigned torn = 0, whole = 0, lost = 0, later_without_earlier = 0, gaps = 0;
	uint64_t seed;
	unsigned b, i, n;

	for (seed = 1; seed <= 60; seed++) {
		bool missed = false;

		open_with_seed(seed);
		for (b = 0; b < 8; b++)
			ck_assert_ok(put(b, 1));
		media_fault_restore(f, _i ? MEDIA_KEEP_SUBSET : MEDIA_KEEP_PREFIX);
		for (b = 0; b < 8; b++) {
			n = pieces_of(get(b), 1);
			ck_assert_uint_eq(pieces_of(got, 0), PIECES - n);
			whole += n == PIECES;
			lost += n == 0;
			torn += n > 0 && n < PIECES;
			later_without_earlier += n && missed;
			missed |= n < PIECES;
			for (i = 1; i < PIECES; i++)
				gaps += got[i * PIECE] && !got[(i - 1) * PIECE];
		}
	}
	ck_assert_uint_gt(torn, 10);
	ck_assert_uint_gt(whole, 10);
	ck_assert_uint_gt(lost, 10);
	if (_i) {
		ck_assert_uint_gt(later_without_earlier, 10);
		ck_assert_uint_gt(gaps, 10);
	} else {
		ck_assert_uint_eq(later_without_earlier, 0);
		ck_assert_uint_eq(gaps, 0);
	}
}
END_TEST

START_TEST(the_same_seed_does_the_same)
{
	char *first = malloc(SIZE);
	struct history h;
	int round;

	ck_assert_ptr_nonnull(first);
	for (round = 0; round < 2; round++) {
		open_with_seed(12345);
		media_fault_cut_at(f, 41);
		run_workload(&h, 3);
		media_fault_restore(f, MEDIA_KEEP_SUBSET);
		ck_assert_ok(media_read(m, got, SIZE, 0));
		if (round == 0)
			memcpy(first, got, SIZE);
	}
	ck_assert_mem_eq(first, got, SIZE);
	free(first);
}
END_TEST

START_TEST(an_event_is_cut_in_its_place)
{
	ck_assert_ok(put(0, 1));
	media_fault_cut_at(f, 3);
	ck_assert_ok(media_flush(m));
	ck_assert_int_eq(media_fault_event(f), -EIO);
	media_fault_restore(f, MEDIA_KEEP_NONE);
	ck_assert_block(0, 1);
	ck_assert_ok(media_fault_event(f));
	ck_assert_uint_eq(media_fault_calls(f), 4);
}
END_TEST

START_TEST(a_misdirected_write_lands_elsewhere_once)
{
	ck_assert_ok(put(4, 1));
	ck_assert_ok(put(6, 2));
	media_fault_misdirect(f, 2, 2 * MEDIA_ALIGN);
	ck_assert_ok(put(5, 3));
	ck_assert_ok(put(4, 4)); /* lands on 6 */
	ck_assert_ok(put(7, 5));
	ck_assert_block(4, 1);
	ck_assert_block(5, 3);
	ck_assert_block(6, 4);
	ck_assert_block(7, 5);
	media_fault_misdirect(f, 1, -8 * (int64_t)MEDIA_ALIGN);
	ck_assert_ok(put(7, 6)); /* off the medium: lost */
	ck_assert_block(7, 5);
}
END_TEST

START_TEST(a_lying_flush_loses_data)
{
	ck_assert_ok(put(0, 1));
	ck_assert_ok(media_flush(m));
	ck_assert_ok(put(0, 2));
	media_fault_lie(f, true);
	ck_assert_ok(media_flush(m));
	ck_assert_block(0, 2);
	media_fault_restore(f, MEDIA_KEEP_NONE);
	ck_assert_block(0, 1);
	ck_assert_ok(put(0, 3));
	media_fault_lie(f, false);
	ck_assert_ok(media_flush(m));
	media_fault_restore(f, MEDIA_KEEP_NONE);
	ck_assert_block(0, 3);
}
END_TEST

START_TEST(armed_errors_come_once_and_in_their_turn)
{
	media_fault_fail(f, MEDIA_OP_READ, 2, -EILSEQ);
	ck_assert_ok(media_read(m, got, 1, 0));
	ck_assert_int_eq(media_read(m, got, 1, 0), -EILSEQ);
	ck_assert_ok(media_read(m, got, 1, 0));
	media_fault_fail(f, MEDIA_OP_EVENT, 1, -ENOSPC);
	ck_assert_int_eq(media_fault_event(f), -ENOSPC);
	ck_assert_ok(media_fault_event(f));
	media_fault_fail(f, MEDIA_OP_DISCARD, 1, -EIO);
	ck_assert_int_eq(media_discard(m, 0, MEDIA_ALIGN), -EIO);
	media_fault_fail(f, MEDIA_OP_WRITE, 1, -EIO);
	media_fault_fail(f, MEDIA_OP_WRITE, 0, -EIO);
	ck_assert_ok(put(0, 1));
}
END_TEST

/* A failed write leaves old and new pieces; a failed flush loses some of the writes for good. */
START_TEST(failures_damage_only_what_they_may)
{
	unsigned mixed = 0, lost = 0, kept = 0;
	uint64_t seed;
	unsigned b, n;

	for (seed = 1; seed <= 20; seed++) {
		open_with_seed(seed);
		ck_assert_ok(put(0, 1));
		ck_assert_ok(media_flush(m));
		media_fault_fail(f, MEDIA_OP_WRITE, 1, -EIO);
		ck_assert_int_eq(put(0, 2), -EIO);
		n = pieces_of(get(0), 2);
		ck_assert_uint_eq(pieces_of(got, 1), PIECES - n);
		mixed += n > 0 && n < PIECES;
		for (b = 1; b < 9; b++)
			ck_assert_ok(put(b, 3));
		media_fault_fail(f, MEDIA_OP_FLUSH, 1, -EIO);
		ck_assert_int_eq(media_flush(m), -EIO);
		ck_assert_ok(media_flush(m));
		media_fault_restore(f, MEDIA_KEEP_NONE);
		for (b = 1; b < 9; b++) {
			n = pieces_of(get(b), 3);
			ck_assert(n == 0 || n == PIECES);
			lost += n == 0;
			kept += n == PIECES;
		}
	}
	ck_assert_uint_gt(mixed, 0);
	ck_assert_uint_gt(lost, 0);
	ck_assert_uint_gt(kept, 0);
}
END_TEST

START_TEST(a_flip_changes_one_bit_of_the_image)
{
	ck_assert_ok(put(3, 0));
	ck_assert_ok(media_flush(m));
	media_fault_flip(f, 3 * MEDIA_ALIGN + 1000, 5);
	ck_assert_int_eq(get(3)[1000], 32);
	got[1000] = 0;
	ck_assert_uint_eq(pieces_of(got, 0), PIECES);
	media_fault_flip(f, 3 * MEDIA_ALIGN + 1000, 5);
	ck_assert_block(3, 0);
}
END_TEST

START_TEST(a_dead_medium_answers_nothing_and_forgets_nothing)
{
	ck_assert_ok(put(0, 1));
	ck_assert_ok(media_flush(m));
	ck_assert_ok(put(1, 2));
	media_fault_kill(f, true);
	ck_assert_int_eq(media_read(m, got, 1, 0), -EIO);
	ck_assert_int_eq(put(0, 9), -EIO);
	ck_assert_int_eq(media_flush(m), -EIO);
	ck_assert_int_eq(media_fault_event(f), -EIO);
	media_fault_kill(f, false);
	ck_assert_block(0, 1);
	ck_assert_block(1, 2);
}
END_TEST

START_TEST(a_discarded_range_holds_anything)
{
	unsigned old = 0, zero = 0, rubbish = 0;
	uint64_t seed;

	for (seed = 1; seed <= 30; seed++) {
		open_with_seed(seed);
		ck_assert_ok(put(1, 1));
		ck_assert_ok(put(2, 7));
		ck_assert_ok(media_discard(m, MEDIA_ALIGN, MEDIA_ALIGN));
		old += pieces_of(get(1), 1) == PIECES;
		zero += pieces_of(got, 0) == PIECES;
		rubbish += pieces_of(got, 0xd5) == PIECES;
		ck_assert_block(2, 7);
		ck_assert_ok(put(1, 8));
		ck_assert_ok(media_flush(m));
		ck_assert_block(1, 8);
	}
	ck_assert_uint_eq(old + zero + rubbish, 30);
	ck_assert(old && zero && rubbish);
}
END_TEST

START_TEST(calls_take_their_time_when_told)
{
	uint64_t start = clock_mono_ns();

	media_fault_delay(f, 3 * NS_PER_MS);
	ck_assert_ok(put(0, 1));
	ck_assert_ok(media_read(m, got, 1, 0));
	ck_assert_uint_ge(clock_mono_ns() - start, 6 * NS_PER_MS);
}
END_TEST

static Suite *fault_suite(void)
{
	Suite *s = suite_create("fault");
	TCase *t = tcase_create("fault");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, a_cut_at_any_call_keeps_what_was_flushed, MEDIA_KEEP_NONE,
			    MEDIA_KEEP_SUBSET + 1);
	tcase_add_loop_test(t, cuts_tear_lose_and_reorder, 0, 2);
	tcase_add_test(t, the_same_seed_does_the_same);
	tcase_add_test(t, an_event_is_cut_in_its_place);
	tcase_add_test(t, a_misdirected_write_lands_elsewhere_once);
	tcase_add_test(t, a_lying_flush_loses_data);
	tcase_add_test(t, armed_errors_come_once_and_in_their_turn);
	tcase_add_test(t, failures_damage_only_what_they_may);
	tcase_add_test(t, a_flip_changes_one_bit_of_the_image);
	tcase_add_test(t, a_dead_medium_answers_nothing_and_forgets_nothing);
	tcase_add_test(t, a_discarded_range_holds_anything);
	tcase_add_test(t, calls_take_their_time_when_told);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return unit_main(fault_suite());
}
