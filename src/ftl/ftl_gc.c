/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Garbage collection: which erase block, and when to give up. What happens to its records is in
 * ftl_gc_move.c.
 *
 * GC begins when FREE and PENDING EBs together are fewer than the low water mark, and ends at the
 * high one, so that several victims share a checkpoint. A round takes one
 * CLOSED victim, by cost and benefit: age * (1 - u) / 2u, u = live / size. It must fit: all its live
 * bytes into the relocation stream's open EB and the FREE ones (GC may use the last), so a round that
 * begins also ends. When every record is moved, dropped or retired the EB is PENDING; a checkpoint
 * frees it.
 *
 * Progress: a victim with less than 1/16 to gain is only taken if the cache gives up enough of its
 * clean lines (gc_probe asks first: nothing is copied for nothing). When all EBs were asked in vain,
 * or many rounds gained no EB, GC is stuck: until something dies, is cleaned, or (at most once a
 * second) a write meets -ENOSPC.
 *
 * Too many tombstones: they retire when nothing older than they is dead in any EB opened before them,
 * so then the EB with the oldest dead record is taken, until there is none (what is copied meanwhile
 * goes to younger EBs, so that comes).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "ftl/ftl_gc.h"

#define GC_LEAST(f) ((f)->geom.logical / 16) /* worth a round */
#define GC_RETRY_NS NS_PER_S
#define GC_RETRY_ROUNDS 8
#define GC_TOMBS_TURN 4 /* with too many tombstones, every so many rounds are for them */
#define GC_WAIT_NS (10 * NS_PER_S) /* for control records */
#define GC_SLACK (8 * FTL_BLOCK) /* padding at flushes and ends of chunks */

struct gc_drop { /* in ftl.dropped */
	struct htab_node node;
	uint64_t file, line, seq;
};

bool ftl_gc_short(struct ftl *f)
{
	uint32_t have = f->nfree + f->npending;

	f->gc_filling = have < (f->gc_filling ? f->space.high_water : f->space.low_water);
	return f->gc_filling;
}

bool ftl_gc_wanted(struct ftl *f)
{
	return !f->failed && !f->opt.readonly &&
	       (f->gc_tombs || (!f->gc_stuck && ftl_gc_short(f)));
}

void ftl_gc_spent(struct ftl *f)
{
	f->gc_best = f->nfree + f->npending;
	f->gc_futile = 0;
}

bool ftl_gc_wait(struct ftl *f)
{
	uint64_t until = clock_mono_ns() + GC_WAIT_NS, erases = f->c.erases;

	/* Unlike data, what frees space is worth waiting for, if anybody is at work; but while
	 * checkpoints fail (a full filesystem) nothing is erased, and writers would wait in vain. */
	while (f->running && !f->failed && !f->ckpt_retry && f->c.erases == erases &&
	       (!f->gc_stuck || f->gc_tombs || f->tombs_due)) {
		ftl_kick(f);
		if (!lock_cond_wait_until(&f->cond, &f->lock, until))
			return false;
	}
	return f->c.erases != erases;
}

void ftl_gc_unstick(struct ftl *f)
{
	if (!f->gc_stuck)
		return;
	f->gc_stuck = false;
	f->gc_futile = 0;
	f->gc_epoch++;
}

void ftl_gc_retry(struct ftl *f, bool now)
{
	if (!f->gc_stuck || (!now && clock_mono_ns() < f->gc_stuck_since + GC_RETRY_NS))
		return;
	/* The cache may think otherwise by now. A few rounds have to show it. */
	f->gc_stuck = false;
	if (f->gc_futile > 2 * f->geom.ebs - GC_RETRY_ROUNDS)
		f->gc_futile = 2 * f->geom.ebs - GC_RETRY_ROUNDS;
	f->gc_epoch++;
}

/* Bytes of log, index included, that a victim's live records take at most. */
static uint64_t gc_need(const struct ftl_eb *eb)
{
	return eb->live ? eb->live + eb->records * sizeof(struct ftl_media_index) : 0;
}

/* Lock held: how much of that GC can write. At each change of EB less than a record is lost. */
static uint64_t gc_room(struct ftl *f)
{
	const struct ftl_head *h = &f->heads[FTL_RELOCATED];
	uint64_t room = f->nfree * (uint64_t)(f->geom.logical - 3 * FTL_BLOCK);
	uint64_t lost = GC_SLACK + (f->nfree ? f->nfree - 1 : 0) * FTL_RECORD_MAX;

	if (h->eb && ftl_eb_limit(f, h->eb->records) > h->off) {
		room += ftl_eb_limit(f, h->eb->records) - h->off;
		lost += f->nfree ? FTL_RECORD_MAX : 0;
	}
	return room > lost ? room - lost : 0;
}

/* What erasing the EB gains over writing its live records elsewhere: dead records, and room at the
 * end where more than a record is missing (less is lost in every EB). */
static uint64_t gc_garbage(struct ftl *f, const struct ftl_eb *eb)
{
	uint64_t kept = FTL_BLOCK + eb->live + eb->pad_bytes;
	uint32_t limit = ftl_eb_limit(f, eb->records);
	uint64_t dead = eb->used > kept ? eb->used - kept : 0;
	uint64_t tail = limit > eb->used ? limit - eb->used : 0;

	return dead + eb->waste + (tail > FTL_RECORD_MAX + FTL_BLOCK ? tail : 0);
}

/* Lock held: the best CLOSED EB that was not found barren since the last change, or NULL. */
static struct ftl_eb *gc_pick(struct ftl *f, bool *starved)
{
	uint64_t room = gc_room(f);
	struct ftl_eb *best = NULL;
	double score = -1;

	*starved = false;
	for (uint32_t i = 0; i < f->geom.ebs; i++) {
		struct ftl_eb *eb = &f->ebs[i];
		double s, u;

		if (eb->state != EB_CLOSED || (eb->barren >= f->gc_epoch && eb->live))
			continue;
		if (gc_need(eb) > room) {
			*starved = true;
			continue;
		}
		u = (double)(eb->live - (eb->waste < eb->live ? eb->waste : 0)) / f->geom.logical;
		s = (double)(f->clock - eb->age + f->geom.logical) * (1 - u) / (2 * u + 1e-6);
		if (s > score) {
			score = s;
			best = eb;
		}
	}
	return best;
}

/* Has it what the tombstones there were at gc_tombs_lsn may hold back? */
static bool gc_is_old(const struct ftl *f, const struct ftl_eb *eb)
{
	return eb->first_lsn < f->gc_tombs_lsn && eb->min_dead <= f->max_tomb_stamp;
}

/* Lock held: the EB with the oldest dead record that a tombstone may guard against. Open ones come
 * last: a stream that is rarely written has its EB for long. Without any the turn is over: after the
 * next checkpoint those tombstones may go. */
static struct ftl_eb *gc_pick_oldest(struct ftl *f)
{
	uint64_t room = gc_room(f);
	struct ftl_eb *best = NULL;

	for (uint32_t i = 0; i < f->geom.ebs; i++) {
		struct ftl_eb *eb = &f->ebs[i];

		if (eb->state == EB_CLOSED && gc_is_old(f, eb) && gc_need(eb) <= room &&
		    (!best || eb->min_dead < best->min_dead))
			best = eb;
	}
	for (int s = 0; s < FTL_STREAMS && !best; s++) {
		struct ftl_eb *eb = f->heads[s].eb;

		if (!eb || !gc_is_old(f, eb))
			continue;
		ftl_log_close_head(f, s);
		if (gc_need(eb) <= gc_room(f))
			best = eb;
	}
	if (!best) {
		f->gc_tombs = false;
		f->tombs_due = true;
	}
	return best;
}

static void gc_sweep_line(struct ftl *f, struct gc *g, const struct ftl_linekey *k)
{
	struct ftl_value v;
	int err;

	lock_acquire(&f->lock);
	err = ftl_map_read(f, k->file, k->line, &v);
	lock_release(&f->lock);
	for (unsigned i = 0; i < v.n && !err; i++) {
		struct ftl_media_index x = {
			.type = FTL_REC_DATA, .file = k->file, .stamp = v.x[i].stamp,
			.addr = FTL_ADDR(k->line, v.x[i].first, v.x[i].count),
			.offset = FTL_POS_OFF(v.x[i].pos), .stored_len = v.x[i].stored_len,
			.epoch = v.x[i].epoch,
		};

		if (FTL_POS_SEQ(v.x[i].pos) == g->eb->seq)
			err = ftl_gc_data(g, &x);
	}
	g->err = err;
}

/* The map refers to records that the EB's index does not name: their headers have rotted. Found by
 * the map, data is moved as what it is: lost. Control records and tombstones are logged again. */
static int gc_sweep(struct ftl *f, struct gc *g)
{
	struct ftl_linekey from = {0, 0}, to = {UINT64_MAX, UINT64_MAX}, *keys;
	size_t n;
	int err = ftl_map_keys(f, from, to, &keys, &n);

	log_error(FTL_MODULE, "controller %u: erase block %u has damaged record headers",
		  f->super.controller, g->eb->index);
	if (err)
		return err;
	for (size_t i = 0; i < n && !g->err; i++)
		gc_sweep_line(f, g, &keys[i]);
	free(keys);
	err = g->err;
	if (!err)
		err = ftl_ctl_rescue(f, g->eb->seq);
	if (!err)
		err = ftl_tomb_rescue(f, g->eb->seq);
	return err;
}

/* All live records of the victim have gone: to be erased after the next checkpoint. */
static int gc_finish(struct ftl *f, struct gc *g)
{
	bool live;
	int err = 0;

	lock_acquire(&f->lock);
	live = g->eb->live;
	lock_release(&f->lock);
	if (live)
		err = gc_sweep(f, g);
	lock_acquire(&f->lock);
	if (!err && g->eb->live) {
		log_error(FTL_MODULE, "controller %u: erase block %u keeps %llu bytes that cannot be"
			  " found: run recover", f->super.controller, g->eb->index,
			  (unsigned long long)g->eb->live);
		g->eb->barren = UINT64_MAX;
		err = -EUCLEAN;
	}
	if (!err) {
		ftl_eb_set_state(f, g->eb, EB_PENDING);
		g->eb->pending_ckpt = 0;
		f->c.gc_runs++;
	}
	lock_release(&f->lock);
	return err;
}

/* Is there enough to gain? Asks the cache about clean lines, changes nothing. */
static bool gc_probe(struct ftl *f, struct gc *g)
{
	uint64_t gain;

	lock_acquire(&f->lock);
	gain = gc_garbage(f, g->eb);
	lock_release(&f->lock);
	for (uint32_t i = 0; i < g->eb->records && gain < GC_LEAST(f); i++)
		gain += ftl_gc_would_drop(g, &g->eb->idx[i]);
	return gain >= GC_LEAST(f);
}

static bool gc_has_live(struct ftl *f, const struct gc *g)
{
	bool live;

	lock_acquire(&f->lock);
	live = g->eb->live;
	lock_release(&f->lock);
	return live;
}

static int gc_victim(struct ftl *f, struct gc *g)
{
	/* An empty one need not even be readable. */
	int err = gc_has_live(f, g) ? ftl_scan_index(f, g->eb) : 0;

	if (err)
		return err;
	if (!g->tombs && gc_has_live(f, g) && !gc_probe(f, g))
		return 0;
	for (uint32_t i = 0; i < g->eb->records && gc_has_live(f, g) && !err; i++)
		err = ftl_gc_record(g, &g->eb->idx[i]);
	if (!err)
		err = gc_finish(f, g);
	return err ? err : 1;
}

/* Lock held: a victim for space, or NULL. */
static struct ftl_eb *gc_choose_space(struct ftl *f)
{
	struct ftl_eb *eb;
	bool starved;

	if (f->gc_stuck || !ftl_gc_short(f))
		return NULL;
	eb = gc_pick(f, &starved);
	if (eb && f->gc_futile <= 2 * f->geom.ebs)
		return eb;
	/* Starved: all that are worth it are too full for the room there is; the checkpoint that is
	 * due makes more. */
	if (eb || !(starved && f->npending)) {
		f->gc_stuck = true;
		f->gc_stuck_since = clock_mono_ns();
		/* Tombstones that could go may be what takes the space. */
		f->tombs_due |= ftl_tomb_bytes(f) >= f->geom.logical / 4;
		lock_cond_broadcast(&f->cond);
	}
	return NULL;
}

/* Lock held. NULL: nothing to do for now. */
static struct ftl_eb *gc_choose(struct ftl *f, struct gc *g)
{
	struct ftl_eb *eb = NULL;

	if (f->failed)
		return NULL;
	g->min_dead = ftl_eb_min_dead(f);
	g->tombs = f->gc_tombs && f->c.gc_runs % GC_TOMBS_TURN == 0;
	if (g->tombs)
		eb = gc_pick_oldest(f);
	if (eb)
		return eb;
	g->tombs = false;
	eb = gc_choose_space(f);
	if (eb || !f->gc_tombs)
		return eb;
	g->tombs = true;
	return gc_pick_oldest(f);
}

/* Lock held: one victim is done with. `err` 0: too little to gain. */
static void gc_account(struct ftl *f, struct gc *g, int err)
{
	if (err <= 0)
		g->eb->barren = g->eb->barren > f->gc_epoch ? g->eb->barren : f->gc_epoch;
	if (err <= 0 && g->tombs)
		f->gc_tombs = false;
	f->gc_futile += err > 0;
	if (f->nfree + f->npending > f->gc_best) {
		f->gc_best = f->nfree + f->npending;
		f->gc_futile = 0;
	}
}

static int gc_round_locked(struct ftl *f)
{
	struct gc g = {.f = f};
	uint64_t seq;
	int err = 0;

	g.s = ftl_scratch_get(f);
	if (!g.s)
		return -ENOMEM;
	while (!err) {
		lock_acquire(&f->lock);
		g.eb = gc_choose(f, &g);
		seq = g.eb ? g.eb->seq : 0;
		lock_release(&f->lock);
		if (!g.eb)
			break;
		err = gc_victim(f, &g);
		lock_acquire(&f->lock);
		gc_account(f, &g, err);
		/* Somebody's checkpoint may have erased it, and it may be in use again. */
		if (g.eb->footer && g.eb->seq == seq)
			ftl_eb_free_index(g.eb);
		ftl_log_write_ready(f);
		lock_release(&f->lock);
		/* Unreadable for now, or by a map that is damaged there: the next. */
		if ((err == -EIO || err == -EUCLEAN) && !f->failed)
			err = 0;
	}
	ftl_scratch_put(f, g.s);
	return err;
}

int ftl_gc_round(struct ftl *f)
{
	int err;

	lock_acquire(&f->gc_lock);
	err = gc_round_locked(f);
	lock_release(&f->gc_lock);
	return err;
}

int ftl_gc_note_drop(struct ftl *f, const struct ftl_eb *eb, uint64_t file, uint64_t line)
{
	struct gc_drop *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->file = file;
	d->line = line;
	d->seq = eb->seq;
	htab_insert(&f->dropped, &d->node, ftl_hash2(file, line));
	return 0;
}

struct gc_forget {
	struct ftl *f;
	uint64_t seq;
};

static void gc_forget_one(struct htab_node *n, void *arg)
{
	struct gc_drop *d = container_of(n, struct gc_drop, node);
	struct gc_forget *g = arg;

	if (g->seq && d->seq != g->seq)
		return;
	htab_remove(&g->f->dropped, n);
	free(d);
}

void ftl_gc_forget(struct ftl *f, struct ftl_eb *eb)
{
	struct gc_forget g = {.f = f, .seq = eb->seq};

	if (eb->drops && f->dropped.count)
		htab_each(&f->dropped, gc_forget_one, &g);
	if (!eb->drops_old)
		return;
	eb->drops_old = false;
	f->drops_unknown = false;
	for (uint32_t i = 0; i < f->geom.ebs; i++)
		f->drops_unknown |= f->ebs[i].drops_old;
}

bool ftl_gc_was_dropped(struct ftl *f, uint64_t file, uint64_t line)
{
	struct htab_node *n;

	for (n = htab_find(&f->dropped, ftl_hash2(file, line)); n; n = htab_next(n)) {
		struct gc_drop *d = container_of(n, struct gc_drop, node);

		if (d->file == file && d->line == line)
			return true;
	}
	return false;
}

void ftl_gc_destroy(struct ftl *f)
{
	struct gc_forget g = {.f = f};

	if (f->dropped.buckets)
		htab_each(&f->dropped, gc_forget_one, &g);
	htab_destroy(&f->dropped);
}
