/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The whole stack in process: cache over array, card, four controllers, the fault injector, beside
 * a real directory. The power goes at a call of the medium, around an LMDB commit, or around a call
 * to the backing; what was not synced is lost in part, on the card and on the backing, independently
 * (power.h). In some workloads the card fails alone, and the backing later or not at all. Then the
 * mount must be the directory: at once, after cuts during recovery, after gild recover, after changes
 * made behind the mount while it was down, after more work and another cut, when warm, and after a
 * clean stop. What was synced must be there.
 *
 * The seed draws the workload: strict or an hour's ttl (then without changes behind the mount),
 * write-through or write-around, a card with room or full of other files' lines.
 *
 * GILD_SEED=n        the first seed (printed)
 * GILD_CUTS=n        stop after so many cut points
 * GILD_LONG=1        cut at every call of a workload; else at some
 * GILD_STACK_ONE=s:k one round again, as a failure names it
 *
 * mutants.sh lists rules of which it is known that this test, or test_ftl_crash, sees them broken.
 */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#define RIG_REGION (10u << 20)

#include "../unit/cache_env.h"
#include "../unit/card_rig.h"
#include "array/array.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "cache/cache_priv.h"
#include "power.h"
#include "stack_ops.h"

#define STEPS 28u
#define JUNK (1ULL << 40) /* file numbers of what fills a full card */

static struct {
	uint64_t cuts, stale, lost, hits, gc;
} seen;

/* Errors are expected when the power is gone. */
static int whole_open(struct whole *w)
{
	struct backing_options b = {.fsid = "test"};
	int err = rig_open(&w->rig);

	if (err)
		return err;
	err = array_open(&w->env.flash, &w->rig.card, 1, ARRAY_STRIPE);
	if (err) {
		rig_close(&w->rig);
		return err;
	}
	ck_assert_ok(backing_open(&w->env.backing, w->env.dir, &b));
	err = cache_open(&w->env.c, w->env.flash, w->env.backing, w->env.stats, &w->env.o);
	if (!err)
		return 0;
	backing_close(w->env.backing);
	w->env.flash->ops->close(w->env.flash);
	return err;
}

static int whole_close(struct whole *w)
{
	struct flash_stats st;
	int err, e;

	w->env.flash->ops->stats(w->env.flash, &st);
	seen.gc += st.gc_runs;
	err = cache_close(w->env.c);
	w->env.c = NULL;
	backing_close(w->env.backing);
	e = w->env.flash->ops->close(w->env.flash);
	return err ? err : e;
}

static void whole_fill(struct whole *w)
{
	static char junk[FLASH_LINE];
	struct flash_write f = {.file = JUNK, .count = FLASH_LINE_SECTORS, .len = FLASH_LINE,
				.data = junk, .stamp = 1};

	env_pattern(junk, sizeof(junk), w->seed);
	ck_assert_ok(rig_open(&w->rig));
	for (; !w->rig.card->ops->write(w->rig.card, &f); f.file++)
		f.stamp++;
	ck_assert_ok(rig_close(&w->rig));
}

static void whole_make(struct whole *w, uint64_t seed)
{
	uint64_t h = hash_mix64(seed);

	memset(w, 0, sizeof(*w));
	rig_fast_scratch(); /* of the backing, too */
	env_make(&w->env, 0);
	rig_make(&w->rig, 4, true, seed);
	w->rig.opt.checkpoint_bytes = 200 << 10;
	w->both = h % 4;
	w->later = !w->both && h >> 20 & 1;
	w->strict = h >> 4 & 1;
	w->full = (h >> 8) % 4 == 0;
	w->env.o.mode = (h >> 16) % 4 ? CACHE_WRITE_THROUGH : CACHE_WRITE_AROUND;
	if (w->strict)
		w->env.o.ttl_ns = 1;
	if (w->full)
		whole_fill(w);
	ops_init(w, seed);
	power_start(w->env.dir, w->both ? w->rig.fault[0] : NULL);
	ck_assert_ok(whole_open(w));
}

static void whole_free(struct whole *w)
{
	power_stop();
	rig_destroy(&w->rig);
	env_free(&w->env);
}

static void whole_check(struct whole *w, const char *when, bool whole)
{
	unsigned stale = ops_compare(w, &w->compares, whole);

	if (!stale && !w->lost)
		return;
	printf("GILD_STACK_ONE=%" PRIu64 ":%" PRIu64 " %s: %u files stale, %u lost\n", w->seed, w->at,
	       when, stale, w->lost);
	fflush(stdout);
	seen.stale += stale;
	seen.lost += w->lost;
	w->lost = 0;
}

static bool whole_is_cut(struct whole *w)
{
	return media_fault_is_cut(w->rig.fault[0]);
}

static void whole_run(struct whole *w, uint64_t seed, unsigned steps)
{
	uint64_t rng = seed;

	while (steps--) {
		ops_step(w, &rng);
		ops_settle(w);
		rig_step(&w->rig);
		power_note();
		if (w->both && whole_is_cut(w))
			break;
		whole_check(w, "while running", false);
	}
}

static void whole_restore(struct whole *w, uint64_t *rng)
{
	seen.cuts += whole_is_cut(w);
	media_fault_restore(w->rig.fault[0], (enum media_cut_keep)(env_rand(rng) % 4));
	media_fault_cut_at(w->rig.fault[0], 0);
	power_cut(rng);
}

static void whole_cut_soon(struct whole *w, uint64_t *rng, uint64_t within)
{
	media_fault_cut_at(w->rig.fault[0],
			   media_fault_calls(w->rig.fault[0]) + 1 + env_rand(rng) % within);
}

/* What a machine that came back may go through before it works. */
static void whole_trouble(struct whole *w, uint64_t *rng)
{
	unsigned depth;

	if (env_rand(rng) % 3 == 0)
		ops_behind(w, rng);
	if (env_rand(rng) % 4 == 0) {
		whole_cut_soon(w, rng, 60);
		if (rig_recover(&w->rig) || whole_is_cut(w)) {
			whole_restore(w, rng);
			ck_assert_ok(rig_recover(&w->rig));
		}
		media_fault_cut_at(w->rig.fault[0], 0);
	}
	for (depth = env_rand(rng) % 3; depth; depth--) {
		whole_cut_soon(w, rng, 80);
		if (!whole_open(w)) {
			if (!whole_is_cut(w))
				whole_run(w, env_rand(rng), 3);
			whole_close(w);
		}
		whole_restore(w, rng);
	}
}

static void whole_reopen(struct whole *w, const char *when)
{
	int err = whole_open(w);

	ck_assert_msg(!err, "GILD_STACK_ONE=%" PRIu64 ":%" PRIu64 " %s: error %d", w->seed, w->at,
		      when, err);
	whole_check(w, when, true);
}

static void whole_warm(struct whole *w)
{
	unsigned warm = ops_warm(w, !w->full);
	uint64_t hits;

	whole_check(w, "warm", true);
	ck_assert_ok(whole_close(w));
	ck_assert_ok(whole_open(w));
	hits = env_stat(&w->env, read_hits);
	whole_check(w, "after a clean stop", true);
	hits = env_stat(&w->env, read_hits) - hits;
	seen.hits += hits;
	ck_assert_msg(hits >= warm, "GILD_STACK_ONE=%" PRIu64 ":%" PRIu64 ": %u files were warm, %" PRIu64
		      " are", w->seed, w->at, warm, hits);
}

/* Returns the calls of an uncut run. */
static uint64_t one_cut(uint64_t seed, uint64_t at)
{
	uint64_t rng = hash_mix64(seed) + at, calls;
	struct whole w;

	whole_make(&w, seed);
	w.seed = seed;
	w.at = at;
	w.compares = seed; /* the same up to the cut */
	calls = media_fault_calls(w.rig.fault[0]);
	if (at)
		media_fault_cut_at(w.rig.fault[0], calls + at);
	whole_run(&w, seed, STEPS);
	if (at) {
		if (w.later)
			power_off();
		whole_close(&w);
		whole_restore(&w, &rng);
		whole_trouble(&w, &rng);
	} else {
		ck_assert_ok(whole_close(&w));
		calls = media_fault_calls(w.rig.fault[0]) - calls;
	}
	whole_reopen(&w, "after the power came back");
	if (at && env_rand(&rng) % 2) {
		whole_cut_soon(&w, &rng, 200);
		whole_run(&w, seed + at, STEPS / 3);
		whole_close(&w);
		whole_restore(&w, &rng);
		whole_reopen(&w, "after another cut");
	}
	whole_warm(&w);
	ck_assert_ok(whole_close(&w));
	whole_free(&w);
	return calls;
}

START_TEST(power_cuts)
{
	uint64_t seed = env_seed(1), calls, at, every, first = seed;
	uint64_t enough = getenv("GILD_CUTS") ? strtoull(getenv("GILD_CUTS"), NULL, 0) : 120;

	ops_patterns(seed);
	if (getenv("GILD_STACK_ONE")) {
		ck_assert_int_eq(sscanf(getenv("GILD_STACK_ONE"), "%" SCNu64 ":%" SCNu64, &seed, &at),
				 2);
		one_cut(seed, at);
		enough = 0;
	}
	for (; seen.cuts < enough; seed++) {
		calls = one_cut(seed, 0);
		ck_assert_int_gt(calls, 10);
		every = getenv("GILD_LONG") ? 1 : calls / 6 + 1;
		for (at = 1 + seed % every; at <= calls && seen.cuts < enough; at += every)
			one_cut(seed, at);
	}
	printf("cut points %" PRIu64 ", stale %" PRIu64 ", lost %" PRIu64 ", seed %" PRIu64 "\n",
	       seen.cuts, seen.stale, seen.lost, first);
	printf("up to seed %" PRIu64 ", %" PRIu64 " hits, %" PRIu64 " GC rounds\n", seed - 1,
	       seen.hits, seen.gc);
	ck_assert(!seen.stale && !seen.lost);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("stack");
	TCase *t = tcase_create("power");

	log_set_level(getenv("GILD_CRASH_LOG") ? LOG_LV_INFO : LOG_LV_ERROR);
	tcase_set_timeout(t, getenv("GILD_CUTS") ? 0 : 90);
	tcase_add_test(t, power_cuts);
	suite_add_tcase(s, t);
	return unit_main(s);
}
