/* SPDX-License-Identifier: BSD-2-Clause
 * Control records on two controllers: power cuts at every media call, failed puts, lost legs. */
#include <config.h>

#include "card_rig.h"

#define KEYS 12
#define STATES 80
#define STEPS 40

/* What a key may be after a cut: its state at the last flush and every one since. */
struct key_model {
	int64_t state[STATES]; /* stamp, 0: deleted */
	unsigned n;
};

static struct rig rig;
static struct key_model model[KEYS];
static unsigned uneven_seen, resurrections_seen;

static void model_reset(void)
{
	unsigned k;

	for (k = 0; k < KEYS; k++)
		model[k] = (struct key_model){.n = 1};
}

static void model_push(unsigned k, int64_t state)
{
	ck_assert_uint_lt(model[k].n, STATES);
	model[k].state[model[k].n++] = state;
}

static void model_flushed(void)
{
	unsigned k;

	for (k = 0; k < KEYS; k++) {
		model[k].state[0] = model[k].state[model[k].n - 1];
		model[k].n = 1;
	}
}

static bool model_allows(unsigned k, int64_t state)
{
	unsigned i;

	for (i = 0; i < model[k].n; i++) {
		if (model[k].state[i] == state)
			return true;
	}
	return false;
}

/* Runs until the power goes or all steps are done. */
static void workload(uint64_t seed)
{
	uint64_t random = seed, stamp = 0;
	int step, r;

	for (step = 0; step < STEPS; step++) {
		uint64_t what = rig_random(&random) % 10;
		unsigned k = (unsigned)(rig_random(&random) % KEYS);

		if (what < 2) {
			r = rig.card->ops->flush(rig.card);
			if (r == 0)
				model_flushed();
		} else {
			stamp++;
			model_push(k, what < 5 ? 0 : (int64_t)stamp);
			r = rig_put(rig.card, k, stamp, what < 5 ? 0 : 20 + stamp % 300);
		}
		if (media_fault_is_cut(rig.fault[0]))
			return;
		ck_assert_int_eq(r, 0);
	}
}

/* The legs of key k as they are, without the card: -1 on controllers that are none of its. */
static void legs_of(struct card *card, unsigned k, int64_t leg[RIG_MAX])
{
	unsigned i;

	for (i = 0; i < rig.n; i++)
		leg[i] = rig_get(card->c[i].flash, k);
}

static void count_uneven(struct rig *r, struct card *card)
{
	int64_t leg[RIG_MAX], most;
	unsigned k, i, have;

	for (k = 0; k < KEYS; k++) {
		legs_of(card, k, leg);
		for (i = have = 0, most = 0; i < r->n; i++) {
			have += leg[i] > 0;
			most = leg[i] > most ? leg[i] : most;
		}
		for (i = 0; i < r->n; i++) {
			if (leg[i] > 0 && leg[i] != most)
				uneven_seen++;
		}
		if (have == 1)
			resurrections_seen++; /* or the second put of a new key was cut */
	}
}

static int walk_count(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value, size_t len,
		      uint64_t stamp)
{
	int64_t *seen = arg;

	(void)value;
	(void)len;
	ck_assert_uint_lt(key[0], KEYS);
	ck_assert_int_eq(seen[key[0]], 0); /* once each */
	seen[key[0]] = (int64_t)stamp;
	return 0;
}

static void check_card(int64_t answer[KEYS])
{
	int64_t leg[RIG_MAX], seen[KEYS] = {0};
	unsigned k, i, have;

	ck_assert_ok(rig.card->ops->ctl_walk(rig.card, FLASH_CTL_FILE, walk_count, seen));
	for (k = 0; k < KEYS; k++) {
		answer[k] = rig_get(rig.card, k);
		ck_assert_msg(model_allows(k, answer[k]), "key %u is %d", k, (int)answer[k]);
		ck_assert_int_eq(seen[k], answer[k]);
		legs_of(card_of(rig.card), k, leg);
		for (i = have = 0; i < rig.n; i++)
			have += leg[i] == answer[k] && leg[i] > 0;
		/* On both legs, so the loss of one changes nothing; or on none at all. */
		ck_assert_uint_eq(have, answer[k] ? (rig.n > 1 ? 2 : 1) : 0);
		for (i = 0; i < rig.n; i++)
			ck_assert(leg[i] == 0 || leg[i] == answer[k]);
	}
}

/* Opens after a cut; the power may go again meanwhile. */
static void reopen(uint64_t *random)
{
	unsigned again = (unsigned)(rig_random(random) % 3);

	while (again--) {
		media_fault_cut_at(rig.fault[0], media_fault_calls(rig.fault[0]) + 1 +
						 rig_random(random) % 12);
		if (rig_open(&rig) == 0) {
			if (media_fault_is_cut(rig.fault[0]))
				rig_close(&rig);
			else
				ck_assert_int_le(rig_close(&rig), 0);
		}
		media_fault_restore(rig.fault[0], (enum media_cut_keep)(rig_random(random) % 4));
	}
	media_fault_cut_at(rig.fault[0], 0);
	ck_assert_ok(rig_open(&rig));
}

/* One life: work, cut at the given call, reopen, check, reopen cleanly, check again. */
static bool one_cut(unsigned n, uint64_t seed, uint64_t call)
{
	int64_t first[KEYS], second[KEYS];
	uint64_t random = seed * 1000 + call;
	bool cut;

	rig_make(&rig, n, true, seed + call);
	rig.opened = count_uneven;
	ck_assert_ok(rig_open(&rig));
	model_reset();
	media_fault_cut_at(rig.fault[0], media_fault_calls(rig.fault[0]) + call);
	workload(seed);
	cut = media_fault_is_cut(rig.fault[0]);
	if (cut) {
		rig_close(&rig);
		media_fault_restore(rig.fault[0], (enum media_cut_keep)(rig_random(&random) % 4));
		reopen(&random);
		check_card(first);
		ck_assert_ok(rig_close(&rig));
		ck_assert_ok(rig_open(&rig));
		check_card(second);
		ck_assert_mem_eq(first, second, sizeof(first));
	} else {
		media_fault_cut_at(rig.fault[0], 0);
	}
	ck_assert_ok(rig_close(&rig));
	rig_destroy(&rig);
	return cut;
}

START_TEST(power_cuts_leave_both_copies_equal)
{
	uint64_t seed = (uint64_t)_i + 1, call = 1;

	printf("seed %d\n", (int)seed);
	uneven_seen = resurrections_seen = 0;
	while (one_cut(3, seed, call))
		call++;
	printf("%d cuts, %u stale and %u single copies met\n", (int)call - 1, uneven_seen,
	       resurrections_seen);
	ck_assert_uint_gt(call, 10);
	ck_assert_uint_gt(uneven_seen + resurrections_seen, 0); /* else the test tests nothing */
}
END_TEST

START_TEST(a_single_controller_has_one_copy)
{
	ck_assert(one_cut(1, 5, 3));
}
END_TEST

static void expect_after_restart(int64_t state)
{
	ck_assert_int_eq(rig_get(rig.card, 1), state);
	ck_assert_ok(rig_close(&rig));
	ck_assert_ok(rig_open(&rig));
	ck_assert_int_eq(rig_get(rig.card, 1), state);
}

/* What lies on the two legs of key 1, written behind the card's back; then a crash. */
static void uneven_start(uint64_t stamp_a, size_t len_a, uint64_t stamp_b, size_t len_b)
{
	int64_t leg[RIG_MAX];
	unsigned i, a = RIG_MAX, b;

	rig_make(&rig, 3, true, 7);
	ck_assert_ok(rig_open(&rig));
	ck_assert_ok(rig_put(rig.card, 1, 10, 30));
	legs_of(card_of(rig.card), 1, leg);
	for (i = 0; i < 3; i++) {
		if (leg[i] == 10 && leg[(i + 1) % 3] == 10)
			a = i;
	}
	ck_assert_uint_lt(a, 3);
	b = (a + 1) % 3;
	if (stamp_a)
		ck_assert_ok(rig_put(rig_controller(&rig, a), 1, stamp_a, len_a));
	if (stamp_b)
		ck_assert_ok(rig_put(rig_controller(&rig, b), 1, stamp_b, len_b));
	ck_assert_ok(rig.card->ops->flush(rig.card));
	media_fault_cut_at(rig.fault[0], media_fault_calls(rig.fault[0]) + 1);
	ck_assert_int_eq(rig_put(rig.card, 2, 1000, 30), 0);
	rig.card->ops->flush(rig.card);
	rig_close(&rig);
	media_fault_restore(rig.fault[0], MEDIA_KEEP_NONE);
	media_fault_cut_at(rig.fault[0], 0);
	ck_assert_ok(rig_open(&rig));
}

START_TEST(the_highest_stamp_wins_be_it_record_or_deletion)
{
	static const struct {
		uint64_t stamp_a, stamp_b;
		size_t len_a, len_b;
		int64_t want;
	} cases[] = {
		{20, 0, 30, 0, 20},  {0, 20, 0, 30, 20},  {20, 0, 0, 0, 0},
		{0, 20, 0, 0, 0},    {20, 21, 0, 30, 21}, {21, 20, 0, 30, 0},
		{20, 21, 30, 0, 0},  {21, 20, 30, 0, 21}, {20, 20, 0, 0, 0},
	};
	int64_t leg[RIG_MAX];
	unsigned i;

	uneven_start(cases[_i].stamp_a, cases[_i].len_a, cases[_i].stamp_b, cases[_i].len_b);
	expect_after_restart(cases[_i].want);
	legs_of(card_of(rig.card), 1, leg);
	for (i = 0; i < 3; i++)
		ck_assert(leg[i] == 0 || leg[i] == cases[_i].want);
	ck_assert_ok(rig_close(&rig));
	rig_destroy(&rig);
}
END_TEST

START_TEST(a_put_that_failed_on_one_leg_is_settled_at_close)
{
	char big[FLASH_CTL_VALUE];
	uint8_t key[FLASH_CTL_KEY];
	uint64_t k;

	rig_make(&rig, 3, false, 3);
	ck_assert_ok(rig_open(&rig));
	ck_assert_ok(rig_put(rig.card, 1, 10, 30));
	/* As after a put whose second leg had no memory. */
	for (k = 0; k < 3; k++) {
		if (rig_get(rig_controller(&rig, (unsigned)k), 1) == 10)
			break;
	}
	ck_assert_ok(rig_put(rig_controller(&rig, (unsigned)k), 1, 11, 30));
	atomic_store(&card_of(rig.card)->uneven, true);
	expect_after_restart(11);
	rig_key(key, 3);
	memset(big, 0, sizeof(big));
	ck_assert_int_eq(rig.card->ops->ctl_put(rig.card, FLASH_CTL_FILE, key, big,
						sizeof(big) + 1, 12), -EINVAL);
	ck_assert_int_eq(rig.card->ops->ctl_put(rig.card, FLASH_CTL_CARD, key, big, 1, 12), -EINVAL);
	ck_assert_int_eq(rig.card->ops->ctl_put(rig.card, (enum flash_ctl)0, key, big, 1, 12),
			 -EINVAL);
	ck_assert_ok(rig.card->ops->ctl_put(rig.card, FLASH_CTL_FILE, key, big, sizeof(big), 13));
	ck_assert_ok(rig_close(&rig));
	rig_destroy(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("card_ctl");
	TCase *t = tcase_create("card_ctl");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, power_cuts_leave_both_copies_equal, 0, 2);
	tcase_add_test(t, a_single_controller_has_one_copy);
	tcase_add_loop_test(t, the_highest_stamp_wins_be_it_record_or_deletion, 0, 9);
	tcase_add_test(t, a_put_that_failed_on_one_leg_is_settled_at_close);
	suite_add_tcase(s, t);
	return unit_main(s);
}
