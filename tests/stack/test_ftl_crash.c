/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Power cuts: a short random workload over a medium with a volatile write cache, cut at call k of
 * media and LMDB, with any subset of unflushed writes surviving; reopened, or recovered without
 * LMDB; compared with the model; audited; then once more from there.
 *
 * GILD_CRASH_SEED=n      the first seed (printed)
 * GILD_CRASH_ROUNDS=n    cuts to try, at random places
 * GILD_CRASH_ONE=s:k:m   instead: one round again, as a failure names it
 * GILD_CRASH_FULL=n      instead: n workloads, cut at every call, in every mode
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "ftl/ftl_priv.h"
#include "ftl_model.h"

#define OPS 80    /* among which the power goes */
#define WARM 200  /* before, in two of three workloads: GC is at work then */
#define EBS 16

struct crash { /* which round */
	uint64_t seed, call;
	enum media_cut_keep keep;
};

/* That the workloads reach what they are to test. */
static struct {
	uint64_t gc_runs, gc_copied, gc_dropped, erases, checkpoints, cuts, old;
} crash_seen;

static bool crash_gc; /* GC runs inside of checkpoints */

static uint64_t test_env(const char *name, uint64_t fallback)
{
	const char *s = getenv(name);

	return s ? strtoull(s, NULL, 0) : fallback;
}

static uint64_t draw(uint64_t *rng, uint64_t below)
{
	*rng = hash_mix64(*rng + 0x9e3779b97f4a7c15ULL);
	return (*rng >> 16) % below;
}

static void crash_power_on(struct rig *r, enum media_cut_keep keep)
{
	crash_seen.cuts += media_fault_is_cut(r->fault);
	media_fault_restore(r->fault, keep);
	media_fault_cut_at(r->fault, 0);
}

static void *hook_gc(void *arg)
{
	ftl_gc_round(arg); /* fails when the power is gone */
	return NULL;
}

/* Sometimes GC empties an erase block while a checkpoint, which does not know of it, is committed:
 * in a thread of its own, but always at this point. */
static int hook_event(void *arg)
{
	struct rig *r = arg;
	pthread_t t;

	if (crash_gc && r->f && media_fault_calls(r->fault) % 2) {
		ck_assert_int_eq(pthread_create(&t, NULL, hook_gc, ftl_of(r->f)), 0);
		pthread_join(t, NULL);
	}
	return media_fault_event(r->fault);
}

static void crash_hook(struct rig *r)
{
	struct meta_hook h = {.before = hook_event, .after = hook_event, .arg = r};

	meta_set_hook(r->meta, &h);
}

static enum flash_verdict reclaim_some(void *arg, uint64_t file, uint64_t line, uint64_t stamp,
				       uint32_t epoch)
{
	(void)arg;
	(void)epoch;
	return hash_mix64(file * 64 + line + stamp / 16) % 2 ? FLASH_DROP : FLASH_KEEP_COLD;
}

/* The stamp of the next operation. Some are left out and drawn later, when newer ones may be there
 * (as by who makes the legs of a mirror equal); not where GC may drop the newer. */
static uint64_t crash_stamp(struct rig *r, struct model *m, uint64_t *rng)
{
	uint64_t *left_out = &m->left_out[draw(rng, 8)], old = *left_out;

	*left_out = 0;
	if (!m->drops && old && draw(rng, 2)) {
		crash_seen.old++;
		return old;
	}
	if (draw(rng, 4) == 0)
		*left_out = r->stamp++;
	return r->stamp++;
}

/* Space must come back: data fits many times over. */
static int crash_write(struct rig *r, struct flash_write *w)
{
	int err = -ENOSPC;

	for (int i = 0; i < 40 && err == -ENOSPC; i++) {
		err = r->f->ops->write(r->f, w);
		if (err == -ENOSPC && ftl_step(r->f))
			return -EIO;
	}
	return err;
}

static int op_write(struct rig *r, struct model *m, uint64_t *rng, bool volume)
{
	static uint8_t buf[40 * FLASH_SECTOR];
	unsigned file = volume ? 0 : 1 + (unsigned)draw(rng, 3);
	unsigned limit = volume ? MODEL_SECTORS / 2 : MODEL_SECTORS;
	unsigned count = 1 + (unsigned)draw(rng, draw(rng, 2) ? 8 : 40);
	unsigned sector = (unsigned)draw(rng, limit);
	struct flash_write w = {.file = file, .epoch = 1, .stamp = crash_stamp(r, m, rng),
				.data = buf};
	struct flash_stats s;

	if (count > limit - sector)
		count = limit - sector;
	w.sector = sector;
	w.count = count;
	w.len = count * FLASH_SECTOR;
	r->f->ops->stats(r->f, &s);
	/* Less than admission takes: see write_admit(). */
	w.dirty = !volume && draw(rng, 2) && s.dirty_sectors + count < 180;
	w.cold = draw(rng, 3) == 0;
	if (!model_allows(m, file * MODEL_SECTORS + sector, count, w.stamp, w.dirty))
		w.stamp = r->stamp++;
	for (unsigned i = 0; i < count; i++)
		rig_fill(buf + i * FLASH_SECTOR, model_seed(w.stamp) + sector + i);
	model_write(m, file, sector, count, w.stamp, w.dirty);
	return crash_write(r, &w);
}

static int op_range(struct rig *r, struct model *m, uint64_t *rng, bool trim)
{
	unsigned file = 1 + (unsigned)draw(rng, 3), sector = (unsigned)draw(rng, MODEL_SECTORS);
	unsigned count = 1 + (unsigned)draw(rng, 40);
	bool end = trim && draw(rng, 6) == 0;
	uint64_t stamp = crash_stamp(r, m, rng);

	if (!trim) {
		model_clean(m, file, sector, count, stamp);
		return r->f->ops->mark_clean(r->f, file, sector, count, stamp);
	}
	model_trim(m, file, sector, end ? MODEL_SECTORS : count, stamp);
	return r->f->ops->trim(r->f, file, sector, end ? FLASH_TO_END : count, stamp);
}

static int op_ctl(struct rig *r, struct model *m, uint64_t *rng)
{
	unsigned key = (unsigned)draw(rng, MODEL_CTL);
	uint8_t k[FLASH_CTL_KEY] = {(uint8_t)key}, v[FLASH_CTL_VALUE];
	uint64_t stamp = crash_stamp(r, m, rng);
	size_t len = 0;

	if (!model_allows(m, MODEL_FILES * MODEL_SECTORS + key, 1, stamp, false))
		stamp = r->stamp++;
	if (draw(rng, 3))
		model_ctl_value(stamp, v, &len);
	model_ctl(m, key, stamp, !len);
	return r->f->ops->ctl_put(r->f, FLASH_CTL_FILE, k, v, len, stamp);
}

static int op_any(struct rig *r, struct model *m, uint64_t *rng)
{
	unsigned what = (unsigned)draw(rng, 100);
	int err;

	if (what < 52)
		return op_write(r, m, rng, what < 8);
	if (what < 62)
		return op_range(r, m, rng, true);
	if (what < 70)
		return op_range(r, m, rng, false);
	if (what < 78)
		return op_ctl(r, m, rng);
	if (what < 88) {
		err = r->f->ops->flush(r->f);
		if (!err)
			model_flushed(m);
		return err;
	}
	if (what < 90)
		return ftl_checkpoint(r->f);
	return ftl_step(r->f);
}

/* Until the power goes, or the end. */
static void crash_workload(struct rig *r, struct model *m, const struct crash *c, uint64_t seed,
			   unsigned ops)
{
	uint64_t rng = seed;

	if (m->drops)
		r->f->ops->set_reclaim(r->f, reclaim_some, NULL);
	crash_gc = c->seed % 5 < 2;
	for (unsigned i = 0; i < ops && !media_fault_is_cut(r->fault); i++) {
		int err = op_any(r, m, &rng);

		ck_assert_msg(!err || media_fault_is_cut(r->fault),
			      "GILD_CRASH_ONE=%lu:%lu:%d op %u: error %d", (unsigned long)c->seed,
			      (unsigned long)c->call, c->keep, i, err);
	}
	crash_gc = false;
}

static void crash_init(struct rig *r, uint64_t seed)
{
	struct ftl_format f = {
		.uuid = "crash test card", .controllers = 1, .op_percent = 28,
		.geometry = {.erase_block = RIG_EB, .dies = 32, .slice = 8192},
		.volume_bytes = MODEL_SECTORS / 2 * FLASH_SECTOR,
	};

	(void)seed;
	rig_init_format(r, EBS, true, &f);
	r->f->ops->close(r->f);
	r->opt.checkpoint_bytes = 300 << 10;
	rig_open(r);
	crash_hook(r);
}

/* A cut while opening: more of what was lost is lost, nothing else. */
static void crash_nested(struct rig *r, uint64_t *rng)
{
	for (unsigned depth = 0; depth < 2; depth++) {
		media_fault_cut_at(r->fault, media_fault_calls(r->fault) + 1 + draw(rng, 12));
		if (!ftl_open(&r->f, r->media, r->meta, &r->opt))
			r->f->ops->close(r->f);
		crash_power_on(r, (enum media_cut_keep)draw(rng, 4));
	}
}

static void crash_verify(struct rig *r, struct model *m, const struct crash *c, const char *when)
{
	bool same = model_check(m, r), sound = !ftl_audit(r->f);

	ck_assert_msg(same && sound, "GILD_CRASH_ONE=%lu:%lu:%d %s %s", (unsigned long)c->seed,
		      (unsigned long)c->call, c->keep, same ? "audit" : "contents", when);
}

static void crash_restore(struct rig *r, enum media_cut_keep keep)
{
	r->f->ops->close(r->f);
	r->f = NULL;
	crash_power_on(r, keep);
}

/* Without its map; sometimes the power goes during the recovery, too. */
static void crash_recover(struct rig *r, uint64_t *rng)
{
	rig_meta_lose(r);
	crash_hook(r);
	if (draw(rng, 2)) {
		media_fault_cut_at(r->fault, media_fault_calls(r->fault) + 1 + draw(rng, 12));
		ftl_recover(r->media, r->meta);
		crash_power_on(r, (enum media_cut_keep)draw(rng, 4));
	}
	ck_assert_int_eq(ftl_recover(r->media, r->meta), 0);
}

static void crash_count(struct rig *r)
{
	struct flash_stats s;

	r->f->ops->stats(r->f, &s);
	crash_seen.gc_runs += s.gc_runs;
	crash_seen.gc_copied += s.gc_copied_bytes;
	crash_seen.gc_dropped += s.gc_dropped_bytes;
	crash_seen.erases += s.erases;
	crash_seen.checkpoints += s.checkpoints;
}

/* One cut at call k (0: none) of the workload; returns the calls it made. */
static uint64_t crash_round(uint64_t seed, uint64_t k, enum media_cut_keep keep)
{
	uint64_t rng = seed * 31 + k * 4 + keep, calls, base;
	struct crash c = {seed, k, keep};
	struct model m;
	struct rig r;

	crash_init(&r, seed);
	model_init(&m, seed % 2);
	if (seed % 3)
		crash_workload(&r, &m, &c, ~seed, WARM);
	base = media_fault_calls(r.fault);
	if (k)
		media_fault_cut_at(r.fault, base + k);
	crash_workload(&r, &m, &c, seed, OPS);
	calls = media_fault_calls(r.fault) - base;
	crash_count(&r);
	crash_restore(&r, keep);
	if (draw(&rng, 3) == 0)
		crash_recover(&r, &rng);
	else if (draw(&rng, 3) == 0)
		crash_nested(&r, &rng);
	rig_open(&r);
	crash_verify(&r, &m, &c, "after the first cut");
	if (k) {
		media_fault_cut_at(r.fault, media_fault_calls(r.fault) + 1 + draw(&rng, 150));
		crash_workload(&r, &m, &c, seed + k, OPS / 2);
		crash_restore(&r, (enum media_cut_keep)draw(&rng, 4));
		rig_open(&r);
		crash_verify(&r, &m, &c, "after the second cut");
	}
	ck_assert_int_eq(r.f->ops->close(r.f), 0);
	crash_recover(&r, &rng);
	rig_open(&r);
	crash_verify(&r, &m, &c, "after recovery without the map");
	rig_done(&r);
	model_free(&m);
	return calls;
}

START_TEST(test_power_cuts)
{
	uint64_t seed = test_env("GILD_CRASH_SEED", 1), full = test_env("GILD_CRASH_FULL", 0);
	uint64_t rounds = test_env("GILD_CRASH_ROUNDS", 60), rng = seed, first = seed, call;
	int keep;

	if (getenv("GILD_CRASH_ONE")) {
		ck_assert_int_eq(sscanf(getenv("GILD_CRASH_ONE"), "%lu:%lu:%d", &seed, &call, &keep), 3);
		crash_round(seed, call, (enum media_cut_keep)keep);
		return;
	}
	printf("GILD_CRASH_SEED=%lu\n", (unsigned long)seed);
	for (uint64_t i = 0; i < full; i++) {
		uint64_t calls = crash_round(seed + i, 0, MEDIA_KEEP_ALL);

		printf("seed %lu: %lu calls\n", (unsigned long)(seed + i), (unsigned long)calls);
		fflush(stdout);
		for (uint64_t k = 1; k <= calls; k++)
			for (keep = 0; keep < 4; keep++)
				crash_round(seed + i, k, (enum media_cut_keep)keep);
	}
	for (uint64_t done = 0; !full && done < rounds; seed++) {
		uint64_t calls = crash_round(seed, 0, MEDIA_KEEP_ALL);

		for (int i = 0; i < 12 && done < rounds; i++, done++)
			crash_round(seed, 1 + draw(&rng, calls), (enum media_cut_keep)draw(&rng, 4));
	}
	printf("cut points %lu, stale 0, lost 0, seed %lu\n", (unsigned long)crash_seen.cuts,
	       (unsigned long)first);
	printf("before the cuts: %lu GC rounds, %lu KiB copied, %lu KiB dropped, %lu erases, %lu"
	       " checkpoints, %lu old stamps\n", (unsigned long)crash_seen.gc_runs,
	       (unsigned long)crash_seen.gc_copied >> 10, (unsigned long)crash_seen.gc_dropped >> 10,
	       (unsigned long)crash_seen.erases, (unsigned long)crash_seen.checkpoints,
	       (unsigned long)crash_seen.old);
	ck_assert(crash_seen.gc_copied && crash_seen.gc_dropped && crash_seen.erases);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ftl power cuts");
	TCase *t = tcase_create("cuts");
	SRunner *r = srunner_create(s);
	int failed;

	log_set_level(getenv("GILD_CRASH_LOG") ? LOG_LV_INFO : LOG_LV_ERROR);
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 0);
	tcase_add_test(t, test_power_cuts);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
