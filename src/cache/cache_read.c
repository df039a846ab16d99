/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Reading: flash first, the backing for what is missing.
 *
 *   look    attributes fresh (else the backing is asked), the file's record loaded (once); a
 *           snapshot of number, floor, size and generation is taken under the stripe
 *   flash   one call for the whole step; which sectors are there?
 *   hit     all: done. No lock, no allocation, no call to the backing
 *   miss    the span from the first to the last missing sector comes from the backing in one read
 *           (whole lines where the file is small), shared with other readers (cache_flight.c), and
 *           goes on to be filled (cache_fill.c)
 *   direct  no flash, nothing shared: a change of our own is under way, a stream bypasses, or
 *           flash is out of use
 *
 * The snapshot may be overtaken by a change while the read goes on: then the reader and the writer
 * ran at the same time and either's bytes are right. What must not happen is that a reader who
 * begins after the writer returned sees old bytes; writers trim before they return (cache_write.c).
 */
#include <config.h>

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "cache/cache_priv.h"

struct cread {
	struct cache *c;
	struct cnode *n;
	unsigned flags;
	uint64_t begun; /* monotonic */
	char *buf;
	uint64_t off, end; /* what is asked for, up to the end of the file */
	uint64_t room;     /* off + length of buf */
	/* the snapshot */
	uint64_t number, size;
	uint32_t floor, gen;
	uint64_t settles;  /* cversion_settles() */
	uint64_t since;    /* reads of others may be joined if begun at this file time or later */
	bool direct, changed;
	/* what happened */
	bool hit, missed, bypassed, is_short;
	uint64_t from_backing; /* bytes of the answer */
	/* one step: at most CACHE_SPAN_SECTORS */
	uint64_t sector;
	uint32_t count;
	uint32_t missing_lines, corrupt_lines; /* bit i: line of `sector`, + i */
	uint32_t first, last; /* missing sectors: [first, last) of the step */
};

/* ---- look ---- */

static void cread_snapshot(struct cread *r, bool verified)
{
	struct cnode *n = r->n;
	struct cache *c = r->c;
	struct cversion v;

	r->gen = n->gen;
	r->number = n->number;
	r->floor = n->floor;
	r->size = n->size;
	r->changed = n->flags & CN_CHANGED;
	r->direct = !verified || (n->gen & 1) || !cache_flash_usable(c);
	cnode_version(n, &v);
	r->settles = c->o.coherence == CACHE_EXCLUSIVE ?
			     0 :
			     cversion_settles(c, &v, n->flags & CN_OWN);
}

static int cread_look(struct cread *r)
{
	struct cache *c = r->c;
	struct cnode *n = r->n;
	uint64_t start = r->begun;
	bool fresh, loaded;
	int err;

	cnode_lock(c, n);
	fresh = cnode_fresh(c, n, start);
	loaded = n->flags & CN_LOADED;
	if (fresh && (loaded || !c->flash)) {
		cread_snapshot(r, true);
		cnode_unlock(c, n);
		return 0;
	}
	cnode_unlock(c, n);
	if (!fresh) {
		err = cnode_revalidate(c, n, r->flags & CACHE_NOWAIT);
		if (err)
			return err;
	}
	if (!loaded && c->flash)
		cfile_load(c, n);
	cnode_lock(c, n);
	/* If the answer was not taken over because a change of ours is under way, nobody has
	 * compared the lines with the backing lately. */
	cread_snapshot(r, fresh || (n->verified >= start && !(n->flags & CN_UNSURE)));
	cnode_unlock(c, n);
	return 0;
}

/* ---- the backing ---- */

static ssize_t cread_backing(struct cread *r, void *buf, size_t len, uint64_t off)
{
	struct cache *c = r->c;
	size_t done = 0;

	while (done < len) {
		ssize_t n = backing_pread(c->backing, r->n->bnode, (char *)buf + done, len - done,
					  off + done);

		if (n < 0) {
			if (cache_is_transport_error((int)n))
				stats_inc(c->stats, backing_errors);
			return n;
		}
		stats_inc(c->stats, backing_reads);
		stats_add(c->stats, backing_read_bytes, n);
		if (!n)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* Bytes that can still move are about to be read: they may stay in the reader's pages for as long
 * as the attributes are believed, and reads under way may be joined if they are not older than that.
 * Noted before the read, so that an invalidation which the note causes finds the pages locked. */
static void cread_note_young(struct cread *r)
{
	struct cache *c = r->c;
	uint64_t now = clock_file_ns(), believed = now + CACHE_GRANULE_NS - c->o.ttl_ns;

	r->since = r->settles < believed ? r->settles : believed;
	if (r->settles <= now)
		return;
	cnode_lock(c, r->n);
	r->n->flags |= CN_YOUNG;
	cnode_unlock(c, r->n);
}

/* The file ended before its known size: the answer is cut, and the attributes are asked for anew. */
static void cread_cut(struct cread *r, uint64_t end)
{
	r->is_short = true;
	if (end < r->end)
		r->end = end < r->off ? r->off : end;
	cnode_unverify(r->c, r->n);
}

static int cread_direct(struct cread *r, uint64_t lo, uint64_t hi)
{
	ssize_t got;

	lo = lo < r->off ? r->off : lo;
	hi = hi > r->end ? r->end : hi;
	if (lo >= hi)
		return 0;
	got = cread_backing(r, r->buf + (lo - r->off), (size_t)(hi - lo), lo);
	if (got < 0)
		return (int)got;
	r->from_backing += (uint64_t)got;
	if ((uint64_t)got < hi - lo)
		cread_cut(r, lo + (uint64_t)got);
	return 0;
}

static uint32_t cread_flight_lines(const struct cread *r, const struct cflight *f, uint32_t lines)
{
	uint64_t base = r->sector / FLASH_LINE_SECTORS, line = f->off / FLASH_LINE;

	return line < base ? lines << (base - line) : lines >> (line - base);
}

/* One piece of the span, read by us or by somebody else. *pos moves on. */
static int cread_piece(struct cread *r, uint64_t *pos, uint64_t hi, uint32_t lines)
{
	struct cache *c = r->c;
	uint64_t end = hi, lo, upto;
	bool mine;
	struct cflight *f = cflight_get(c, r->n, r->gen, r->since, *pos, &end, &mine);
	ssize_t got;

	if (!f) {
		lo = *pos;
		*pos = hi;
		return cread_direct(r, lo, hi);
	}
	if (mine) {
		cflight_finish(c, f, cread_backing(r, f->buf, f->want, f->off));
	} else {
		cflight_wait(c, f);
		stats_inc(c->stats, fill_shared);
	}
	got = f->got;
	upto = f->off + (uint64_t)(got < 0 ? 0 : got);
	lo = *pos < r->off ? r->off : *pos;
	end = end > upto ? upto : end;
	if (got >= 0) {
		uint64_t stop = end > r->end ? r->end : end;

		if (stop > lo) {
			memcpy(r->buf + (lo - r->off), (char *)f->buf + (lo - f->off), stop - lo);
			r->from_backing += stop - lo;
		}
		if ((size_t)got < f->want && upto < hi)
			cread_cut(r, upto);
	}
	*pos = end;
	if (mine)
		cfill_submit(c, f, cread_flight_lines(r, f, lines));
	else
		cflight_put(c, f);
	return got < 0 ? (int)got : 0;
}

/* ---- one step ---- */

static uint32_t cread_admit(struct cread *r)
{
	struct cache *c = r->c;
	uint64_t base = r->sector / FLASH_LINE_SECTORS;
	unsigned used = atomic_load_explicit(&c->used_percent, memory_order_relaxed), i;
	uint32_t admitted = r->corrupt_lines, left = r->missing_lines & ~r->corrupt_lines;

	for (i = 0; left >> i; i++) {
		if (!(left >> i & 1))
			continue;
		if (policy_admit(c->policy, policy_key(r->number, base + i), used, r->begun))
			admitted |= 1u << i;
		else
			stats_inc(c->stats, fill_rejected);
	}
	return admitted;
}

static void cread_touch(struct cread *r)
{
	struct cache *c = r->c;
	uint64_t line = r->sector / FLASH_LINE_SECTORS;
	uint64_t last = (r->sector + r->count - 1) / FLASH_LINE_SECTORS;

	for (; r->number && line <= last; line++)
		policy_touch(c->policy, policy_key(r->number, line), r->begun);
}

static int cread_miss(struct cread *r)
{
	struct cache *c = r->c;
	uint64_t lo = (r->sector + r->first) * FLASH_SECTOR;
	uint64_t hi = (r->sector + r->last) * FLASH_SECTOR;
	uint32_t lines = 0;
	int err = 0;

	hi = hi > r->size ? r->size : hi;
	cread_note_young(r);
	if (!r->direct && cstream_note(c, r->n, r->size, lo, (size_t)(hi - lo)))
		r->direct = true;
	if (!r->direct && !r->number) {
		r->number = cfile_need_number(c, r->n);
		r->direct = !r->number;
	}
	if (r->direct) {
		r->bypassed = true;
		return cread_direct(r, lo, hi);
	}
	r->missed = true;
	lines = cread_admit(r);
	if (lines && r->size <= CACHE_SMALL_FILE) {
		lo -= lo % FLASH_LINE;
		hi += FLASH_LINE - 1;
		hi -= hi % FLASH_LINE;
		hi = hi > r->size ? r->size : hi;
	}
	while (lo < hi && !err && !r->is_short)
		err = cread_piece(r, &lo, hi, lines);
	return err;
}

static void cread_note_missing(struct cread *r, uint32_t i, bool corrupt)
{
	uint64_t base = r->sector / FLASH_LINE_SECTORS;
	uint32_t bit = 1u << ((r->sector + i) / FLASH_LINE_SECTORS - base);

	if (r->first == r->last)
		r->first = i;
	r->last = i + 1;
	r->missing_lines |= bit;
	if (corrupt)
		r->corrupt_lines |= bit;
}

/* What of the step flash has; its bytes are in `to` (count sectors). */
static void cread_flash(struct cread *r, void *to)
{
	struct cache *c = r->c;
	struct flash_sector state[CACHE_SPAN_SECTORS];
	uint32_t i;
	int err;

	r->first = r->last = 0;
	r->missing_lines = r->corrupt_lines = 0;
	err = c->flash->ops->read(c->flash, r->number, r->sector, r->count, r->floor, to, state);
	if (err)
		cache_flash_failed(c, "read", err);
	for (i = 0; i < r->count; i++) {
		if (err || !(state[i].flags & FLASH_PRESENT))
			cread_note_missing(r, i, false);
		else if (state[i].flags & FLASH_CORRUPT)
			cread_note_missing(r, i, true);
	}
}

static void cread_all_missing(struct cread *r)
{
	uint32_t i;

	r->first = r->last = 0;
	r->missing_lines = r->corrupt_lines = 0;
	for (i = 0; i < r->count; i++)
		cread_note_missing(r, i, false);
}

/* From `pos`; returns where the next step begins, or an error. */
static int64_t cread_step(struct cread *r, uint64_t pos)
{
	struct cache *c = r->c;
	uint64_t end = r->end, start, stop;
	void *bounce = NULL, *to;
	int err = 0;

	r->sector = pos / FLASH_SECTOR;
	if (end > (r->sector + CACHE_SPAN_SECTORS) * FLASH_SECTOR)
		end = (r->sector + CACHE_SPAN_SECTORS) * FLASH_SECTOR;
	r->count = (uint32_t)((end + FLASH_SECTOR - 1) / FLASH_SECTOR - r->sector);
	start = r->sector * FLASH_SECTOR;
	stop = start + (uint64_t)r->count * FLASH_SECTOR;
	to = r->buf + (pos - r->off);
	if (r->number && !r->direct) {
		if (start != pos || stop > r->room) {
			to = bounce = cpool_get(c, (size_t)(stop - start));
			if (!to)
				return -ENOMEM;
		}
		cread_flash(r, to);
		if (bounce)
			memcpy(r->buf + (pos - r->off), (char *)bounce + (pos - start), end - pos);
		cpool_put(c, bounce, (size_t)(stop - start));
		r->hit |= r->last - r->first < r->count;
	} else {
		cread_all_missing(r);
	}
	if (r->first != r->last) {
		if (r->flags & CACHE_NOWAIT)
			return -EAGAIN;
		err = cread_miss(r);
	}
	if (!err && !r->bypassed)
		cread_touch(r);
	return err ? err : (int64_t)end;
}

/* ---- the whole ---- */

static void cread_count(struct cread *r)
{
	struct stats *s = r->c->stats;
	uint64_t took = clock_mono_ns() - r->begun, bytes = r->end - r->off;

	if (r->bypassed && !r->hit && !r->missed) {
		stats_inc(s, read_bypass);
	} else if (r->hit && !r->missed && !r->bypassed) {
		stats_inc(s, read_hits);
		hist_add(&s->latency_hit, took);
	} else if (r->hit) {
		stats_inc(s, read_partial);
		hist_add(&s->latency_partial, took);
	} else {
		stats_inc(s, read_misses);
		hist_add(&s->latency_miss, took);
	}
	stats_add(s, read_backing_bytes, r->from_backing < bytes ? r->from_backing : bytes);
	if (bytes > r->from_backing)
		stats_add(s, read_hit_bytes, bytes - r->from_backing);
}

ssize_t cache_read(struct cache *c, struct cnode *n, void *buf, size_t len, uint64_t off,
		   unsigned flags, bool *changed)
{
	struct cread r = {.c = c, .n = n, .buf = buf, .off = off, .flags = flags};
	uint64_t pos = off;
	int64_t next = 0;
	int err;

	*changed = false;
	r.begun = clock_mono_ns();
	if (!S_ISREG(backing_type(n->bnode)))
		return S_ISDIR(backing_type(n->bnode)) ? -EISDIR : -EINVAL;
	if (off > INT64_MAX || len > SSIZE_MAX / 2)
		return -EINVAL;
	err = cread_look(&r);
	r.room = off + len;
	r.end = r.room > r.size ? r.size : r.room;
	if (r.end < off)
		r.end = off;
	while (!err && pos < r.end) {
		next = cread_step(&r, pos);
		err = next < 0 ? (int)next : 0;
		pos = (uint64_t)next;
	}
	if (err == -EAGAIN && (flags & CACHE_NOWAIT))
		return err;
	if (r.changed) {
		cnode_lock(c, n);
		*changed = cnode_take_changed(n);
		cnode_unlock(c, n);
	}
	if (err) {
		stats_inc(c->stats, read_errors);
		return err;
	}
	if (r.end > r.off || r.from_backing)
		cread_count(&r);
	return (ssize_t)(r.end - r.off);
}
