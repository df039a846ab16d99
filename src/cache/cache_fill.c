/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Fills: what a miss read goes to flash, behind the reader's back.
 *
 * The bytes of a flight were read from the backing at some time after f->before. They are lines of
 * version V (the cnode's) if
 *
 * 1. no change of our own began since the flight did (n->gen, checked in the section, which any
 *    change must enter);
 * 2. the backing, asked after the read, still says V;
 * 3. V was settled before the read began: a later change would have moved ctime out of V. Changes
 *    made behind the mount settle late, because a write stamps the file first and copies after.
 *
 * If not, the fill is dropped; a later read tries again. Whole sectors are written, the last one
 * byte-exact at the end of the file. Flash that is full or failing drops the fill, too: no reader
 * ever hears of it.
 */
#include <config.h>

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "cache/cache_priv.h"

#define CFILL_USAGE_BYTES (1u << 20) /* filled between looks at how full flash is */

struct cfill {
	struct cflight *f;
	struct cversion v;
	uint64_t number, size;
	uint32_t epoch;
	bool record, swept, open, own;
	uint32_t sweep; /* as in n->flags */
};

/* In the section. False: drop the fill. */
static bool cfill_check(struct cfill *x, const struct cversion *now)
{
	struct cflight *f = x->f;
	struct cnode *n = f->n;
	uint64_t end = f->off + (uint64_t)f->got;

	cnode_lock(f->c, n);
	cnode_version(n, &x->v);
	x->number = n->number;
	x->epoch = n->epoch;
	x->size = n->size;
	x->record = n->flags & CN_RECORD;
	x->open = n->flags & CN_OPEN;
	x->sweep = (uint32_t)atomic_load(&f->c->sweeps) << CN_SWEEP_SHIFT;
	if ((n->flags & CN_SWEEP_MASK) != x->sweep)
		x->swept = x->record;
	x->own = n->flags & CN_OWN;
	cnode_unlock(f->c, n);
	if (!x->number || !cversion_same(&x->v, now))
		return false;
	if (end > x->size || (end < x->size && (uint64_t)f->got < f->want))
		return false;
	return cversion_settles(f->c, &x->v, x->own) <= f->before;
}

/* The first lines of this number. While the version is young a power cut may still take it back from
 * the backing's disk, so its record is left to the publisher, who syncs the file first; until then
 * nobody can find the lines after a crash. */
static int cfill_begin(struct cfill *x)
{
	struct cflight *f = x->f;
	struct cnode *n = f->n;
	struct cache *c = f->c;
	bool young = cversion_ns(x->v.csec, x->v.cnsec) + CACHE_DURABLE_NS > clock_file_ns();
	bool watch = !x->record && young, put = x->record ? x->swept && !x->open : !young;
	int err = 0;

	if (watch)
		err = cpublish_watch(c, n);
	else if (put)
		err = cfile_put(c, n, x->number, &x->v, false);
	else
		return 0;
	cnode_lock(c, n);
	if (!err && n->gen == f->gen) {
		n->flags &= ~CN_SWEEP_MASK;
		n->flags |= CN_RECORD | (watch ? CN_OPEN : 0) | x->sweep;
	} else {
		if (watch)
			n->open = NULL;
		err = err ? err : -ESTALE;
	}
	cnode_unlock(c, n);
	return err;
}

static int cfill_write_line(struct cfill *x, uint64_t line)
{
	struct cflight *f = x->f;
	struct cache *c = f->c;
	uint64_t lo = line * FLASH_LINE, hi = lo + FLASH_LINE, end = f->off + (uint64_t)f->got;
	struct flash_write w = {.file = x->number, .epoch = x->epoch};
	int err;

	lo = lo < f->off ? f->off : lo;
	hi = hi > end ? end : hi;
	if (hi < x->size)
		hi -= hi % FLASH_SECTOR;
	if (lo >= hi)
		return 0;
	w.sector = lo / FLASH_SECTOR;
	w.len = (uint32_t)(hi - lo);
	w.count = (w.len + FLASH_SECTOR - 1) / FLASH_SECTOR;
	w.data = (const char *)f->buf + (lo - f->off);
	w.stamp = cache_stamp(c);
	err = c->flash->ops->write(c->flash, &w);
	if (!err) {
		stats_inc(c->stats, fill_done);
		stats_add(c->stats, fill_bytes, w.len);
		policy_wrote(c->policy);
	}
	return err;
}

static void cfill_failed(struct cache *c, int err)
{
	if (err == -ENOSPC) {
		stats_inc(c->stats, fill_nospace);
		policy_no_space(c->policy);
	} else if (err == -ESTALE) {
		stats_inc(c->stats, fill_raced);
	} else if (err) {
		cache_flash_failed(c, "take a line", err);
	} else {
		cache_flash_worked(c);
	}
}

static void cfill_do(struct cflight *f)
{
	struct cfill x = {.f = f};
	struct cache *c = f->c;
	uint64_t start = clock_mono_ns(), line = f->off / FLASH_LINE;
	struct cversion now;
	struct battr a;
	uint32_t lines;
	int err;

	if (backing_getattr(c->backing, f->n->bnode, &a)) {
		stats_inc(c->stats, fill_raced);
		return;
	}
	cversion_of(&a, &now);
	cnode_learn(c, f->n, &a, start);
	if (!cnode_enter_gen(c, f->n, f->gen)) {
		stats_inc(c->stats, fill_raced);
		return;
	}
	err = cfill_check(&x, &now) ? cfill_begin(&x) : -ESTALE;
	for (lines = f->lines; lines && !err; lines >>= 1, line++)
		if (lines & 1)
			err = cfill_write_line(&x, line);
	cnode_leave(c, f->n);
	/* The kernel has these bytes as pages of the mount, too. */
	if (!err)
		backing_drop_pages(c->backing, f->n->bnode, f->off, f->room);
	cfill_failed(c, err);
}

static void cfill_run(struct work *w)
{
	struct cflight *f = container_of(w, struct cflight, work);
	struct cache *c = f->c;

	uint64_t filled;

	cfill_do(f);
	filled = atomic_fetch_add_explicit(&c->filled, f->room, memory_order_relaxed);
	if (filled / CFILL_USAGE_BYTES != (filled + f->room) / CFILL_USAGE_BYTES)
		cache_note_usage(c);
	atomic_fetch_sub_explicit(&c->fill_used, f->room, memory_order_relaxed);
	stats_set(c->stats, fill_queued, workq_depth(c->fills));
	cflight_unlist(c, f);
	cflight_put(c, f);
}

void cfill_submit(struct cache *c, struct cflight *f, uint32_t lines)
{
	uint64_t used;

	f->lines = lines;
	f->work.run = cfill_run;
	if (!lines || f->got <= 0)
		goto drop;
	used = atomic_fetch_add_explicit(&c->fill_used, f->room, memory_order_relaxed);
	if (used + f->room <= c->o.fill_bytes && !workq_submit(c->fills, &f->work)) {
		stats_set(c->stats, fill_queued, workq_depth(c->fills));
		return;
	}
	atomic_fetch_sub_explicit(&c->fill_used, f->room, memory_order_relaxed);
	stats_inc(c->stats, fill_overload);
drop:
	cflight_unlist(c, f);
	cflight_put(c, f);
}
