/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Power cuts under threads: several users and the background thread at work on one controller, the
 * power goes at some call; reopened, and recovered without LMDB.
 *
 * Each thread has a file of its own. The log is applied as a prefix, and a thread's changes are in it
 * in their order, so its file must be as after some number of them: at least those before its last good
 * flush, at most those begun. Clean sectors may be absent: GC drops some.
 *
 * GILD_CRASH_SEED, GILD_CRASH_ROUNDS: as in test_ftl_crash.c. A failure depends on timing, too.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/ftl_rig.h"
#include "base/hash.h"
#include "base/log.h"

#define USERS 3
#define SECTORS 96u
#define OPS 250

struct event { /* the cell is like this once unit `unit` is done */
	unsigned unit, next; /* the cell's previous event + 1 */
	uint64_t stamp;      /* 0: absent */
	bool dirty;
};

struct user {
	struct rig *r;
	unsigned n; /* file number */
	uint64_t rng;
	pthread_t t;
	unsigned units, flushed, events;
	struct event *e;
	unsigned last[SECTORS]; /* event + 1, 0: none */
	int err;
};

static _Atomic uint64_t next_stamp;
static uint64_t cuts;

static uint64_t draw(uint64_t *rng, uint64_t below)
{
	*rng = hash_mix64(*rng + 0x9e3779b97f4a7c15ULL);
	return (*rng >> 16) % below;
}

static enum flash_verdict reclaim_some(void *arg, uint64_t file, uint64_t line, uint64_t stamp,
				       uint32_t epoch)
{
	(void)arg;
	(void)epoch;
	return hash_mix64(file * 64 + line + stamp / 16) % 3 ? FLASH_KEEP_COLD : FLASH_DROP;
}

static void note(struct user *u, unsigned sector, uint64_t stamp, bool dirty)
{
	u->e = realloc(u->e, (u->events + 1) * sizeof(*u->e));
	u->e[u->events] = (struct event){u->units, u->last[sector], stamp, dirty};
	u->last[sector] = ++u->events;
}

static int user_write(struct user *u, unsigned sector, unsigned count)
{
	uint8_t *buf = malloc(count * FLASH_SECTOR);
	struct flash_write w = {
		.file = u->n, .sector = sector, .count = count, .len = count * FLASH_SECTOR,
		.data = buf, .epoch = 1, .stamp = ++next_stamp, .dirty = draw(&u->rng, 3) == 0,
		.cold = draw(&u->rng, 3) == 0,
	};
	int err = -ENOSPC;

	for (unsigned i = 0; i < count; i++) {
		rig_fill(buf + i * FLASH_SECTOR, w.stamp * 8 + 3 + sector + i);
		if (i && (sector + i) % FLASH_LINE_SECTORS == 0)
			u->units++;
		note(u, sector + i, w.stamp, w.dirty);
	}
	u->units++;
	while (err == -ENOSPC && !media_fault_is_cut(u->r->fault)) {
		err = u->r->f->ops->write(u->r->f, &w);
		if (err == -ENOSPC)
			sched_yield();
	}
	free(buf);
	return err;
}

static int user_range(struct user *u, unsigned sector, unsigned count, bool trim)
{
	struct flash *f = u->r->f;

	for (unsigned i = sector; i < sector + count; i++) {
		const struct event *e = u->last[i] ? &u->e[u->last[i] - 1] : NULL;

		if (trim)
			note(u, i, 0, false);
		else if (e && e->dirty)
			note(u, i, e->stamp, false);
	}
	u->units++;
	return trim ? f->ops->trim(f, u->n, sector, count, ++next_stamp) :
		      f->ops->mark_clean(f, u->n, sector, count, ++next_stamp);
}

static int user_op(struct user *u)
{
	unsigned sector = (unsigned)draw(&u->rng, SECTORS), what = (unsigned)draw(&u->rng, 100);
	unsigned count = 1 + (unsigned)draw(&u->rng, what % 2 ? 6 : 40), units;
	int err;

	if (count > SECTORS - sector)
		count = SECTORS - sector;
	if (what < 60)
		return user_write(u, sector, count);
	if (what < 80)
		return user_range(u, sector, count, what < 72);
	if (what < 84)
		return ftl_checkpoint(u->r->f);
	units = u->units;
	err = u->r->f->ops->flush(u->r->f);
	if (!err)
		u->flushed = units;
	return err;
}

static void *user_main(void *arg)
{
	struct user *u = arg;

	for (unsigned i = 0; i < OPS && !u->err; i++)
		u->err = user_op(u);
	return NULL;
}

static struct event state_after(const struct user *u, unsigned sector, unsigned units)
{
	unsigned k = u->last[sector];

	while (k && u->e[k - 1].unit >= units)
		k = u->e[k - 1].next;
	return k ? u->e[k - 1] : (struct event){.stamp = 0};
}

static bool is_after(const struct user *u, const struct flash_sector *got, unsigned units,
		     unsigned *where)
{
	for (unsigned i = 0; i < SECTORS; i++) {
		struct event want = state_after(u, i, units);

		*where = i;
		if (!got[i].flags && (!want.stamp || !want.dirty))
			continue;
		if (!got[i].flags || got[i].stamp != want.stamp ||
		    !!(got[i].flags & FLASH_DIRTY) != want.dirty)
			return false;
	}
	return true;
}

static bool user_check(struct user *u, const char *when)
{
	uint8_t *buf = malloc(SECTORS * FLASH_SECTOR), want[FLASH_SECTOR];
	struct flash_sector got[SECTORS];
	unsigned p, where = 0;
	bool good = !u->r->f->ops->read(u->r->f, u->n, 0, SECTORS, 0, buf, got);

	for (unsigned i = 0; i < SECTORS && good; i++) {
		rig_fill(want, got[i].stamp * 8 + 3 + i);
		good = !got[i].flags || (!(got[i].flags & FLASH_CORRUPT) &&
					 !memcmp(want, buf + i * FLASH_SECTOR, FLASH_SECTOR));
	}
	for (p = u->flushed; good && p <= u->units; p++)
		if (is_after(u, got, p, &where))
			break;
	if (!good || p > u->units) {
		printf("%s: file %u, sector %u: found stamp %lu flags %x; flushed %u of %u units\n", when,
		       u->n, where, (unsigned long)got[where].stamp, got[where].flags, u->flushed,
		       u->units);
		good = false;
	}
	free(buf);
	return good;
}

static int hook_event(void *arg)
{
	return media_fault_event(((struct rig *)arg)->fault);
}

static void check_all(struct rig *r, struct user *u, uint64_t seed, const char *when)
{
	bool good = true;

	for (unsigned i = 0; i < USERS; i++)
		good &= user_check(&u[i], when);
	ck_assert_msg(good, "GILD_CRASH_SEED=%lu %s", (unsigned long)seed, when);
	ck_assert_msg(!ftl_audit(r->f), "GILD_CRASH_SEED=%lu %s: audit", (unsigned long)seed, when);
}

static void crash_round(uint64_t seed)
{
	struct user u[USERS] = {{.n = 0}};
	uint64_t rng = seed * 77;
	struct rig r;

	rig_init(&r, 24, true);
	r.f->ops->close(r.f);
	r.opt.background = true;
	r.opt.checkpoint_bytes = 300 << 10;
	rig_open(&r);
	r.f->ops->set_reclaim(r.f, reclaim_some, NULL);
	meta_set_hook(r.meta, &(struct meta_hook){hook_event, hook_event, &r});
	media_fault_cut_at(r.fault, media_fault_calls(r.fault) + 1 + draw(&rng, 600));
	for (unsigned i = 0; i < USERS; i++) {
		u[i] = (struct user){.r = &r, .n = i + 1, .rng = seed * USERS + i};
		ck_assert_int_eq(pthread_create(&u[i].t, NULL, user_main, &u[i]), 0);
	}
	for (unsigned i = 0; i < USERS; i++) {
		pthread_join(u[i].t, NULL);
		ck_assert_msg(!u[i].err || media_fault_is_cut(r.fault), "GILD_CRASH_SEED=%lu: %d",
			      (unsigned long)seed, u[i].err);
	}
	r.f->ops->close(r.f);
	cuts += media_fault_is_cut(r.fault);
	media_fault_restore(r.fault, (enum media_cut_keep)draw(&rng, 4));
	r.opt.background = false;
	if (draw(&rng, 3)) {
		rig_open(&r);
		check_all(&r, u, seed, "after the cut");
		ck_assert_int_eq(r.f->ops->close(r.f), 0);
	}
	rig_meta_lose(&r);
	ck_assert_int_eq(ftl_recover(r.media, r.meta), 0);
	rig_open(&r);
	check_all(&r, u, seed, "without the map");
	rig_done(&r);
	for (unsigned i = 0; i < USERS; i++)
		free(u[i].e);
}

START_TEST(test_power_cuts)
{
	const char *s = getenv("GILD_CRASH_SEED"), *n = getenv("GILD_CRASH_ROUNDS");
	uint64_t seed = s ? strtoull(s, NULL, 0) : 1, rounds = n ? strtoull(n, NULL, 0) : 12;

	printf("GILD_CRASH_SEED=%lu\n", (unsigned long)seed);
	for (uint64_t i = 0; i < rounds; i++)
		crash_round(seed + i);
	printf("cut points %lu, stale 0, lost 0, seed %lu\n", (unsigned long)cuts, (unsigned long)seed);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ftl power cuts under threads");
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
