/* SPDX-License-Identifier: BSD-2-Clause
 * The sketch, the policies and what they must all do under pressure. */
#include <config.h>

#include "base/clock.h"
#include "base/hash.h"
#include "cache/cache_policy.h"
#include "cache/cache_sketch.h"
#include "unit_util.h"

START_TEST(sketch_counts_and_ages)
{
	struct sketch s;
	uint64_t hot = policy_key(1, 1), i, over = 0;
	unsigned n;

	ck_assert_ok(sketch_init(&s, 4096));
	ck_assert_int_eq(sketch_count(&s, hot), 0);
	for (n = 1; n <= 5; n++) {
		sketch_touch(&s, hot);
		ck_assert_int_eq(sketch_count(&s, hot), n);
	}
	for (i = 0; i < 2048; i++)
		sketch_touch(&s, policy_key(2, i));
	ck_assert_int_ge(sketch_count(&s, hot), 2); /* the hand has passed it once at most */
	for (i = 0; i < 10000; i++)
		over += sketch_count(&s, policy_key(3, i)) > 0;
	ck_assert_int_lt(over, 1000);
	for (n = 0; n < 100; n++)
		sketch_touch(&s, hot);
	ck_assert_int_eq(sketch_count(&s, hot), SKETCH_MAX);
	for (i = 0; i < s.blocks * 128 * 3; i++)
		sketch_touch(&s, policy_key(4, i % 8));
	ck_assert_int_le(sketch_count(&s, hot), 3); /* halved three times */
	sketch_destroy(&s);
}
END_TEST

static void be_under_pressure(struct policy *p)
{
	unsigned level;

	while ((level = atomic_load(&p->pressure)) < POLICY_PRESSURE_MAX)
		policy_no_space(p);
}

START_TEST(every_policy_gives_way_in_the_end)
{
	struct policy *p;
	uint64_t key = policy_key(9, 9);
	unsigned i;

	ck_assert_ok(policy_create(&p, (enum cache_policy)_i, 1 << 30));
	for (i = 0; i < 40; i++)
		p->ops->touch(p, key);
	if (p->ops != &policy_always)
		ck_assert_int_eq(policy_reclaim(p, key, 1), FLASH_KEEP_HOT);
	be_under_pressure(p);
	ck_assert_int_eq(policy_reclaim(p, key, 1), FLASH_DROP);
	for (i = 0; i < 100000; i++)
		policy_wrote(p);
	ck_assert_int_eq(atomic_load(&p->pressure), 0);
	if (p->ops != &policy_always)
		ck_assert_int_ne(policy_reclaim(p, key, 1), FLASH_DROP);
	policy_destroy(p);
}
END_TEST

START_TEST(freq_lets_a_scan_pass)
{
	struct policy *p;
	uint64_t i;
	unsigned admitted = 0;

	ck_assert_ok(policy_create(&p, CACHE_POLICY_FREQ, 1 << 30));
	for (i = 0; i < 1000; i++) {
		admitted += p->ops->admit(p, policy_key(1, i), 99, 0);
		p->ops->touch(p, policy_key(1, i));
	}
	ck_assert_int_gt(admitted, 80); /* one in eight, by luck */
	ck_assert_int_lt(admitted, 190);
	ck_assert(p->ops->admit(p, policy_key(1, 5), 99, 0)); /* asked for before */
	for (i = 0, admitted = 0; i < 100; i++) /* a lump that GC gave back */
		admitted += p->ops->admit(p, policy_key(2, i), 70, 0);
	ck_assert_int_lt(admitted, 40);
	ck_assert(p->ops->admit(p, policy_key(2, 5), 10, 0)); /* room is left */
	for (i = 0; i < 100; i++)
		ck_assert(p->ops->admit(p, policy_key(2, i), 70, 0));
	ck_assert_int_ne(policy_reclaim(p, policy_key(2, 7), 1), FLASH_DROP); /* young */
	for (i = 0; i < 70000; i++)
		p->ops->touch(p, policy_key(3, 5));
	ck_assert_int_eq(policy_reclaim(p, policy_key(2, 7), 1), FLASH_DROP);
	p->ops->touch(p, policy_key(1, 5));
	p->ops->touch(p, policy_key(1, 5));
	ck_assert_int_ne(policy_reclaim(p, policy_key(1, 5), 1), FLASH_DROP);
	policy_destroy(p);
}
END_TEST

START_TEST(requests_close_together_are_one_use)
{
	uint64_t key = policy_key(5, 8), now = 1000 * NS_PER_S, i;
	struct policy *p;

	ck_assert_ok(policy_create(&p, CACHE_POLICY_FREQ, 1 << 30));
	for (i = 0; i < 20; i++) { /* a line read page by page */
		ck_assert(!policy_admit(p, key, 99, now));
		policy_touch(p, key, now);
		now += 10 * NS_PER_MS;
	}
	now += POLICY_VISIT_NS + 20 * NS_PER_MS;
	for (i = 0; i < 5; i++) { /* the next time */
		ck_assert(policy_admit(p, key, 99, now));
		policy_touch(p, key, now);
	}
	policy_destroy(p);
}
END_TEST

START_TEST(lru_drops_what_was_long_not_used)
{
	struct policy *p;
	uint64_t i;
	unsigned kept = 0;

	ck_assert_ok(policy_create(&p, CACHE_POLICY_LRU, 16384 * 1000));
	for (i = 0; i < 20000; i++)
		p->ops->touch(p, policy_key(1, i));
	ck_assert_int_eq(policy_reclaim(p, policy_key(1, 19999), 1), FLASH_KEEP_HOT);
	for (i = 0; i < 1000; i++)
		kept += policy_reclaim(p, policy_key(1, i), 1) != FLASH_DROP;
	ck_assert_int_lt(kept, 800); /* those that share a slot with a newer one */
	policy_destroy(p);
}
END_TEST

/* A little simulation, the same for all policies: more lines than fit, GC goes round and asks. */
enum load { LOAD_ZIPF, LOAD_LOOP, LOAD_SCANS, LOAD_SHIFT };
enum { LINES = 20000, ROOM = 1000, REQUESTS = 200000 };

static uint32_t load_next(enum load load, unsigned r, uint64_t *rng)
{
	double u;
	uint32_t hot;

	*rng = hash_mix64(*rng + r);
	u = (double)(*rng >> 11) / (double)(1ULL << 53);
	hot = (uint32_t)(u * u * u * LINES); /* steep: low lines are hot */
	switch (load) {
	case LOAD_LOOP:
		return r % (ROOM * 3);
	case LOAD_SCANS: /* half of the requests belong to a backup */
		return r % 2 ? hot / 4 : LINES / 4 + r / 2 % (LINES * 3 / 4);
	case LOAD_SHIFT: /* what is hot moves on */
		return (hot + r / 50000 * 5000) % LINES;
	default:
		return hot;
	}
}

static double hit_ratio(enum cache_policy which, enum load load)
{
	static uint32_t line_of[ROOM];
	static bool here[LINES];
	struct policy *p;
	unsigned hand = 0, hits = 0, r, looked;
	uint64_t rng = 12345;

	memset(here, 0, sizeof(here));
	memset(line_of, 0, sizeof(line_of));
	ck_assert_ok(policy_create(&p, which, 16384ULL * ROOM));
	for (r = 0; r < REQUESTS; r++) {
		uint32_t line = load_next(load, r, &rng);
		uint64_t key = policy_key(1, line);

		if (here[line]) {
			hits++;
		} else if (p->ops->admit(p, key, r > ROOM * 2 ? 99 : 0, 0)) {
			for (looked = 0; looked < 64; looked++, hand = (hand + 1) % ROOM) {
				uint64_t old = policy_key(1, line_of[hand]);

				if (!here[line_of[hand]] || policy_reclaim(p, old, r) == FLASH_DROP)
					break;
			}
			here[line_of[hand]] = false;
			line_of[hand] = line;
			here[line] = true;
			hand = (hand + 1) % ROOM;
		}
		p->ops->touch(p, key);
	}
	policy_destroy(p);
	return (double)hits / REQUESTS;
}

START_TEST(frequency_beats_fifo)
{
	static const char *const names[] = {"zipf", "loop", "scans", "shift"};
	double fifo = hit_ratio(CACHE_POLICY_ALWAYS, (enum load)_i);
	double lru = hit_ratio(CACHE_POLICY_LRU, (enum load)_i);
	double freq = hit_ratio(CACHE_POLICY_FREQ, (enum load)_i);

	printf("hit ratio, %s: always %.3f lru %.3f freq %.3f\n", names[_i], fifo, lru, freq);
	ck_assert_double_ge(lru, fifo - 0.01);
	ck_assert_double_gt(freq, fifo + 0.02);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache_policy");
	TCase *t = tcase_create("policies");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, sketch_counts_and_ages);
	tcase_add_loop_test(t, every_policy_gives_way_in_the_end, 0, 3);
	tcase_add_test(t, freq_lets_a_scan_pass);
	tcase_add_test(t, requests_close_together_are_one_use);
	tcase_add_test(t, lru_drops_what_was_long_not_used);
	tcase_add_loop_test(t, frequency_beats_fifo, 0, 4);
	suite_add_tcase(s, t);
	return unit_main(s);
}
