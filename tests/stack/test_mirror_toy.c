/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Two mirrored cards under power cuts and with one leg away, against a model: shows that stamps,
 * walks, kept deletions and the membership record of flash.h suffice for RAID1.
 *
 * The model holds for every sector and control record its state at the last flush and every one
 * acknowledged since. After a power cut each must be one of them; the one that is seen is then the
 * only one allowed, on both legs, until it is changed. Without a power cut, whatever happens to one
 * leg, the last state is the only one allowed. */
#include <config.h>

#include "stack/toy_mirror.h"

#define FILES 3
#define SECTORS 48
#define KEYS 8
#define CELLS (FILES * SECTORS + KEYS) /* the keys come last */
#define STATES 120
#define ROUNDS 12

struct cell {
	int64_t state[STATES]; /* stamps, 0: nothing there */
	unsigned n;
};

static struct mirror mirror;
static struct cell cells[CELLS];
static uint64_t luck;
static unsigned cuts, losses, refusals;

static uint64_t rnd(uint64_t below)
{
	return rig_random(&luck) % below;
}

static struct cell *cell_of(uint64_t file, uint64_t sector)
{
	return &cells[(file - 1) * SECTORS + sector];
}

static void cell_push(struct cell *c, int64_t state)
{
	ck_assert_uint_lt(c->n, STATES);
	c->state[c->n++] = state;
}

static void cell_settle(struct cell *c, int64_t state)
{
	c->state[0] = state;
	c->n = 1;
}

static int64_t cell_last(const struct cell *c)
{
	return c->state[c->n - 1];
}

static int64_t cell_seen(unsigned i)
{
	if (i >= FILES * SECTORS)
		return mirror_get(&mirror, i - FILES * SECTORS);
	return mirror_read(&mirror, i / SECTORS + 1, i % SECTORS);
}

/* Of one leg, so of both: they go together. */
static bool power_is_gone(void)
{
	return media_fault_is_cut(mirror.rig[0].fault[0]) ||
	       media_fault_is_cut(mirror.rig[1].fault[0]);
}

static int step_write(void)
{
	uint64_t file = 1 + rnd(FILES), sector = rnd(SECTORS), i;
	uint32_t count = 1 + (uint32_t)rnd(20);
	uint64_t stamp = mirror.stamp + 1;

	if (count > SECTORS - sector)
		count = (uint32_t)(SECTORS - sector);
	for (i = 0; i < count; i++)
		cell_push(cell_of(file, sector + i), (int64_t)stamp);
	return mirror_write(&mirror, file, sector, count, rnd(2));
}

static int step_trim(void)
{
	uint64_t file = 1 + rnd(FILES), sector = rnd(SECTORS), count = 1 + rnd(20), i;

	if (rnd(6) == 0)
		count = FLASH_TO_END;
	for (i = sector; i < SECTORS && i - sector < count; i++)
		cell_push(cell_of(file, i), 0);
	return mirror_trim(&mirror, file, sector, count);
}

static int step_put(void)
{
	unsigned k = (unsigned)rnd(KEYS);
	bool del = rnd(3) == 0;

	cell_push(&cells[FILES * SECTORS + k], del ? 0 : (int64_t)mirror.stamp + 1);
	return mirror_put(&mirror, k, del ? 0 : 16 + rnd(200));
}

static int step_flush(void)
{
	unsigned i;
	int r = mirror_flush(&mirror);

	for (i = 0; i < CELLS && r == 0; i++)
		cell_settle(&cells[i], cell_last(&cells[i]));
	return r;
}

static int step_read(void)
{
	unsigned i = (unsigned)rnd(CELLS), k;
	int64_t seen = cell_seen(i);

	for (k = 0; k < 2 && seen == -1; k++) {
		if (mirror.leg[k] && !media_fault_is_cut(mirror.rig[k].fault[0]))
			break;
	}
	if (k == 2)
		return -EIO; /* no leg has power: the background work was first to meet it */
	ck_assert_int_eq(seen, cell_last(&cells[i]));
	return 0;
}

/* Steps until the power of all legs in use is gone; true if it is. */
static bool work(unsigned steps)
{
	int r = 0;

	while (steps-- && r == 0) {
		mirror_step(&mirror);
		switch (rnd(12)) {
		case 0:
		case 1:
		case 2:
		case 3:
			r = step_write();
			break;
		case 4:
		case 5:
			r = step_trim();
			break;
		case 6:
			r = mirror_mark_clean(&mirror, 1 + rnd(FILES), rnd(SECTORS), 1 + rnd(20),
					      mirror.stamp);
			break;
		case 7:
		case 8:
			r = step_put();
			break;
		case 9:
			r = step_flush();
			break;
		default:
			r = step_read();
			break;
		}
		ck_assert(r == 0 || r == -EIO);
	}
	return r == -EIO;
}

/* Both legs have this, if both are in use. */
static void check_legs(unsigned i, int64_t want)
{
	uint64_t file = i / SECTORS + 1, sector = i % SECTORS;
	struct flash_sector s[2];
	char buf[FLASH_SECTOR];
	unsigned k;

	for (k = 0; k < 2; k++) {
		struct flash *leg = mirror.leg[k];

		if (!leg)
			return;
		if (i >= FILES * SECTORS) {
			ck_assert_int_eq(rig_get(leg, i - FILES * SECTORS), want);
		} else {
			ck_assert_int_eq(rig_read(leg, file, sector), want);
			ck_assert_ok(leg->ops->read(leg, file, sector, 1, 0, buf, &s[k]));
		}
	}
	if (i < FILES * SECTORS && want)
		ck_assert(s[0].flags == s[1].flags && s[0].stamp == s[1].stamp);
}

/* After an opening. `exact`: no power was lost by a leg in use. */
static void check_all(bool exact)
{
	unsigned i, k;

	for (i = 0; i < CELLS; i++) {
		int64_t seen = cell_seen(i);
		bool allowed = seen == cell_last(&cells[i]);

		for (k = 0; k < cells[i].n && !exact; k++)
			allowed = allowed || cells[i].state[k] == seen;
		ck_assert_msg(allowed, "cell %u: %lld is none of %u states (last %lld)", i,
			      (long long)seen, cells[i].n, (long long)cell_last(&cells[i]));
		check_legs(i, seen);
		cell_settle(&cells[i], seen);
	}
}

static void arm(unsigned i, uint64_t within)
{
	struct media_fault *f = mirror.rig[i].fault[0];

	media_fault_cut_at(f, media_fault_calls(f) + 1 + rnd(within));
}

static void disarm_and_restore(unsigned i)
{
	struct media_fault *f = mirror.rig[i].fault[0];

	if (media_fault_is_cut(f))
		media_fault_restore(f, (enum media_cut_keep)rnd(4));
	media_fault_cut_at(f, 0);
}

/* The power of both is gone, or goes now; legs come back as the media kept them. */
static void blackout(void)
{
	unsigned i;

	cuts++;
	for (i = 0; i < 2; i++) {
		struct media_fault *f = mirror.rig[i].fault[0];

		if (!media_fault_is_cut(f))
			media_fault_cut_at(f, media_fault_calls(f) + 1);
	}
	mirror_close(&mirror);
	for (i = 0; i < 2; i++) {
		media_fault_event(mirror.rig[i].fault[0]); /* for a leg that was not in use */
		disarm_and_restore(i);
	}
}

/* Opens; the power may go again while the legs are made equal. */
static void come_back(bool exact)
{
	unsigned again = (unsigned)rnd(3);

	mirror.together = true;
	while (again--) {
		arm((unsigned)rnd(2), 25);
		if (mirror_open(&mirror) == 0 && !power_is_gone())
			check_all(exact);
		blackout();
		exact = false;
	}
	ck_assert_ok(mirror_open(&mirror));
	mirror.together = false;
	check_all(exact);
}

/* What was made equal must be so in the logs too, not only in the maps: now everything is durable. */
static void come_back_again(void)
{
	if (rnd(2)) {
		blackout();
		come_back(true);
	}
}

static void round_blackout(void)
{
	unsigned i = (unsigned)rnd(2);

	mirror.together = true;
	arm((unsigned)rnd(2), 60);
	if (!work(40))
		work(1);
	mirror.together = false;
	blackout();
	if (rnd(2)) {
		come_back(false);
		return;
	}
	/* One leg is not to be found, and the user starts the other. The first may hold changes that
	 * the other lost: they were never flushed, and must not come up later. */
	mirror.unplugged[i] = mirror.forced = true;
	ck_assert_ok(mirror_open(&mirror));
	mirror.unplugged[i] = mirror.forced = false;
	check_all(false);
	ck_assert(!work((unsigned)rnd(20)));
	ck_assert_ok(mirror_attach(&mirror, i));
	check_all(true);
}

/* Leg i loses its power alone, the other goes on. */
static void lose(unsigned i)
{
	losses++;
	arm(i, 30);
	ck_assert(!work(15));
	if (mirror.leg[i]) { /* not noticed yet */
		media_fault_cut_at(mirror.rig[i].fault[0],
				   media_fault_calls(mirror.rig[i].fault[0]) + 1);
		ck_assert_ok(step_write());
		ck_assert_ok(step_flush());
	}
	ck_assert_ptr_null(mirror.leg[i]);
	ck_assert(!work(25));
	disarm_and_restore(i);
}

static void round_leg_away(unsigned i)
{
	lose(i);
	if (rnd(2)) {
		mirror.together = true;
		arm(rnd(2) ? i : !i, 40);
	}
	if (mirror_attach(&mirror, i) < 0 || power_is_gone()) {
		mirror.together = false;
		blackout();
		come_back(false);
		return;
	}
	mirror.together = false;
	disarm_and_restore(0);
	disarm_and_restore(1);
	check_all(true);
}

static void round_blackout_while_away(unsigned i)
{
	lose(i);
	arm(!i, 30);
	work(20);
	blackout();
	/* The stale leg alone must not be used: it cannot know. */
	mirror.unplugged[!i] = true;
	ck_assert_int_eq(mirror_open(&mirror), -ESTALE);
	refusals++;
	mirror.unplugged[!i] = false;
	/* The live one alone knows that it may. */
	mirror.unplugged[i] = true;
	ck_assert_ok(mirror_open(&mirror));
	check_all(false);
	ck_assert(!work(20));
	mirror.unplugged[i] = false;
	ck_assert_ok(mirror_attach(&mirror, i));
	check_all(true);
}

static void round_restart_while_away(unsigned i)
{
	lose(i);
	ck_assert_ok(mirror_close(&mirror));
	come_back(true);
	ck_assert_ok(mirror_close(&mirror));
	mirror.unplugged[i] = true; /* both were live: neither may go on alone unasked */
	ck_assert_int_eq(mirror_open(&mirror), -ESTALE);
	refusals++;
	mirror.unplugged[i] = false;
	come_back(false);
}

START_TEST(mirrored_cards_keep_what_was_flushed_and_serve_nothing_stale)
{
	unsigned round, i;

	luck = 1000 + (uint64_t)_i;
	printf("seed %llu\n", (unsigned long long)luck);
	cuts = losses = refusals = 0;
	for (i = 0; i < CELLS; i++)
		cell_settle(&cells[i], 0);
	mirror_make(&mirror, luck);
	ck_assert_ok(mirror_open(&mirror));
	for (round = 0; round < ROUNDS; round++) {
		come_back_again();
		ck_assert(!work(20));
		switch (round % 4) {
		case 0:
			round_blackout();
			break;
		case 1:
			round_leg_away((unsigned)rnd(2));
			break;
		case 2:
			round_blackout_while_away((unsigned)rnd(2));
			break;
		default:
			round_restart_while_away((unsigned)rnd(2));
			break;
		}
	}
	ck_assert_ok(mirror_close(&mirror));
	mirror_destroy(&mirror);
	printf("%u blackouts, %u legs lost, %u refusals, %u copied, %u given a new stamp\n", cuts,
	       losses, refusals, mirror.copied, mirror.restamped);
	ck_assert_uint_gt(mirror.copied, 0);
	ck_assert_uint_gt(mirror.restamped, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mirror_toy");
	TCase *t = tcase_create("mirror_toy");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, mirrored_cards_keep_what_was_flushed_and_serve_nothing_stale, 0, 2);
	suite_add_tcase(s, t);
	return unit_main(s);
}
