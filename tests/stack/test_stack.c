/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The whole stack in process: cache over array, card, four controllers, the fault injector, beside
 * a real directory. The power of the card fails at a call of the medium (or around an LMDB commit);
 * the backing goes on, as after a kill it would have. Then it comes back with some of what was not
 * flushed, and the mount must be the directory: at once, when warm, and after another clean stop.
 *
 * A run is short, and make check tries a share of its calls; GILD_LONG=1 tries them all,
 * GILD_SEED=n other operations.
 */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "../unit/cache_env.h"
#include "../unit/card_rig.h"
#include "array/array.h"

#define FILES 3u
#define STEPS 24u
#define SIZE 90000u

static char data[1 << 20];

struct whole {
	struct rig rig;
	struct env env;
};

static const char *file_name(unsigned i)
{
	static const char *const names[FILES] = {"a", "b", "c"};

	return names[i];
}

static int whole_open(struct whole *w)
{
	int err = rig_open(&w->rig);

	if (err)
		return err;
	err = array_open(&w->env.flash, &w->rig.card, 1, ARRAY_STRIPE);
	if (err) {
		rig_close(&w->rig);
		return err;
	}
	env_start(&w->env);
	return 0;
}

/* Errors are expected when the power is gone. */
static int whole_close(struct whole *w)
{
	int err = cache_close(w->env.c), e;

	w->env.c = NULL;
	backing_close(w->env.backing);
	e = w->env.flash->ops->close(w->env.flash);
	return err ? err : e;
}

static void whole_make(struct whole *w, uint64_t seed)
{
	unsigned i;

	env_make(&w->env, 0);
	rig_make(&w->rig, 4, true, seed);
	for (i = 0; i < FILES; i++)
		env_put(&w->env, file_name(i), data + i * 1000, SIZE + i * 10000);
	env_age(&w->env, file_name(FILES - 1));
	ck_assert_ok(whole_open(w));
}

static void whole_free(struct whole *w)
{
	rig_destroy(&w->rig);
	env_free(&w->env);
}

static void all_same(struct whole *w, const char *why)
{
	unsigned i;

	for (i = 0; i < FILES; i++)
		env_same(&w->env, file_name(i), why);
}

static void step(struct whole *w, uint64_t *rng)
{
	unsigned i = (unsigned)(env_rand(rng) % FILES);
	struct env *e = &w->env;
	struct cnode *n = env_lookup(e, file_name(i));
	uint64_t off = env_rand(rng) % SIZE;
	size_t len = 1 + env_rand(rng) % 40000;
	struct stat st = {.st_mode = 0644, .st_size = (off_t)(env_rand(rng) % (2 * SIZE))};
	struct cache_attr a;

	switch (env_rand(rng) % 8) {
	case 0:
	case 1:
		ck_assert_int_eq(cache_write(e->c, n, data + off, len, &off, false), (ssize_t)len);
		break;
	case 2:
		ck_assert_ok(cache_setattr(e->c, n, BSET_SIZE, &st, &a));
		break;
	case 3:
		ck_assert_ok(cache_rename(e->c, cache_root(e->c), file_name(i), cache_root(e->c),
					  file_name((i + 1) % FILES), 2));
		break;
	case 4:
		cache_flush(e->c); /* says so when the power is gone */
		break;
	default:
		env_age(e, file_name(i));
		env_same(e, file_name(i), "while running");
		env_drain(e);
	}
	env_forget(e, n);
}

static void run(struct whole *w, uint64_t seed)
{
	uint64_t rng = seed;
	unsigned i;

	for (i = 0; i < STEPS; i++) {
		step(w, &rng);
		all_same(w, "after a step");
	}
}

/* Returns the calls of an uncut run. */
static uint64_t one_cut(uint64_t seed, uint64_t at)
{
	struct whole w;
	uint64_t calls, hits;
	unsigned i;

	whole_make(&w, seed + at);
	if (at)
		media_fault_cut_at(w.rig.fault[0], media_fault_calls(w.rig.fault[0]) + at);
	calls = media_fault_calls(w.rig.fault[0]);
	run(&w, seed);
	if (at) {
		whole_close(&w);
		media_fault_restore(w.rig.fault[0], (enum media_cut_keep)(at % 4));
		media_fault_cut_at(w.rig.fault[0], 0);
	} else {
		ck_assert_ok(whole_close(&w));
		calls = media_fault_calls(w.rig.fault[0]) - calls;
	}
	ck_assert_ok(whole_open(&w));
	all_same(&w, "after the power came back");
	for (i = 0; i < FILES; i++) {
		struct cnode *n = env_lookup(&w.env, file_name(i));

		env_age(&w.env, file_name(i));
		env_warm(&w.env, n);
		env_forget(&w.env, n);
	}
	all_same(&w, "warm");
	ck_assert_ok(whole_close(&w));
	ck_assert_ok(whole_open(&w));
	hits = env_stat(&w.env, read_hits);
	all_same(&w, "after a clean stop");
	ck_assert_int_eq(env_stat(&w.env, read_hits), hits + FILES);
	ck_assert_ok(whole_close(&w));
	whole_free(&w);
	return calls;
}

START_TEST(power_cuts)
{
	uint64_t seed = env_seed(1), calls, at, every;
	unsigned cuts = 0;

	env_pattern(data, sizeof(data), seed);
	calls = one_cut(seed, 0);
	ck_assert_int_gt(calls, 10);
	every = getenv("GILD_LONG") ? 1 : calls / 14 + 1;
	for (at = 1 + seed % every; at <= calls; at += every, cuts++)
		one_cut(seed, at);
	printf("%u cuts in a run of %" PRIu64 " calls\n", cuts, calls);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("stack");
	TCase *t = tcase_create("power");

	tcase_set_timeout(t, getenv("GILD_LONG") ? 3600 : 90);
	tcase_add_test(t, power_cuts);
	suite_add_tcase(s, t);
	return unit_main(s);
}
