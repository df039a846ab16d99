/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What GC does with a record of its victim.
 *
 *   data, clean   reclaim() is asked, without the lock. Dropped: silently, or with a tombstone where
 *                 an older version may be in the log (invariant 4 of ftl_priv.h)
 *   data, kept    copied as it is, payload CRC included, with a header of the current masks; where a
 *                 quarter of its sectors is dead, what is left is compressed anew, run by run
 *   data, damaged (not: unreadable, then the EB stays) clean sectors are dropped; of dirty ones a record is kept that says they are lost
 *   tombstones    copied; retired when they hold back nothing (invariant 3)
 *   control       copied; deletions retired likewise
 *
 * Every step looks the map up again under the lock before it changes anything.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "ftl/ftl_gc.h"

static ftl_pos gc_pos(const struct gc *g, const struct ftl_media_index *x)
{
	return FTL_POS(g->eb->seq, x->offset);
}

/* The extent of the record, if it is live. Takes and releases the lock. */
static int gc_find(struct gc *g, const struct ftl_media_index *x, struct ftl_extent *out)
{
	struct ftl_value v;
	int err;

	lock_acquire(&g->f->lock);
	err = ftl_map_read(g->f, x->file, FTL_ADDR_LINE(x->addr), &v);
	lock_release(&g->f->lock);
	for (unsigned i = 0; i < v.n && !err; i++) {
		if (v.x[i].pos == gc_pos(g, x)) {
			*out = v.x[i];
			return 1;
		}
	}
	return err;
}

static bool gc_asks_drop(struct gc *g, const struct ftl_media_index *x, const struct ftl_extent *e)
{
	if (x->file == FLASH_VOLUME || !g->f->reclaim || !(e->valid & ~e->dirty))
		return false;
	return g->f->reclaim(g->f->reclaim_arg, x->file, FTL_ADDR_LINE(x->addr), e->stamp,
			     e->epoch) == FLASH_DROP;
}

/* Sectors set in `mask` from `s` on, in one run. */
static unsigned gc_run(uint16_t mask, unsigned s)
{
	unsigned n = 0;

	while (s + n < FLASH_LINE_SECTORS && (mask >> (s + n) & 1))
		n++;
	return n;
}

/* Would its clean sectors take tombstones that are bigger than what they free? GC counts on not needing
 * more room than its victim's live records take. */
static bool gc_drop_costs(const struct ftl_extent *e, uint64_t min_dead)
{
	uint32_t cost = 0;

	if (!(e->flags & FTL_X_OLDER) || e->stamp < min_dead)
		return false;
	for (unsigned s = 0, n; s < FLASH_LINE_SECTORS; s += n + 1) {
		n = gc_run(e->valid, s);
		cost += n ? FTL_TOMB_COST : 0;
	}
	return e->dirty || cost > ftl_record_bytes(e->stored_len) + sizeof(struct ftl_media_index);
}

uint32_t ftl_gc_would_drop(struct gc *g, const struct ftl_media_index *x)
{
	struct ftl_extent e;

	if (x->type != FTL_REC_DATA || gc_find(g, x, &e) != 1 || e.dirty ||
	    gc_drop_costs(&e, g->min_dead) || !gc_asks_drop(g, x, &e))
		return 0;
	return ftl_record_bytes(e.stored_len);
}

/* Lock held: a tombstone for each run of `mask`. */
static int gc_drop_logged(struct gc *g, const struct ftl_line *l, uint16_t mask, uint64_t stamp)
{
	int err = 0;

	for (unsigned s = 0, n; s < FLASH_LINE_SECTORS && !err; s += n + 1) {
		struct ftl_tombkey k = {.type = FTL_REC_TRIM, .file = l->file};

		n = gc_run(mask, s);
		if (n) {
			k.first = l->line * FLASH_LINE_SECTORS + s;
			k.count = n;
			err = ftl_range_append(g->f, FTL_FOR_GC, &k, stamp, FTL_POS_NONE);
		}
	}
	return err;
}

/* Drops the clean sectors of the record, if it is still what the cache was asked about, and unless that
 * takes more room than it gives, or `whatever` it takes. */
static int gc_drop(struct gc *g, const struct ftl_media_index *x, uint64_t stamp, bool whatever)
{
	struct ftl *f = g->f;
	struct ftl_extent *e;
	struct ftl_line *l;
	uint16_t mask;
	int err;

	lock_acquire(&f->lock);
	ftl_log_throttle(f);
	err = ftl_map_edit(f, x->file, FTL_ADDR_LINE(x->addr), 0, &l);
	e = err ? NULL : ftl_map_at(l, gc_pos(g, x));
	if (!e || e->stamp != stamp)
		goto out;
	if (!whatever && gc_drop_costs(e, ftl_eb_min_dead(f)))
		goto out;
	mask = e->valid & (uint16_t)~e->dirty;
	if (e->flags & FTL_X_OLDER && stamp >= ftl_eb_min_dead(f)) {
		err = gc_drop_logged(g, l, mask, stamp);
	} else {
		err = ftl_gc_note_drop(f, g->eb, x->file, l->line);
		g->eb->drops = true;
	}
	if (err)
		goto out;
	if (mask == e->valid)
		f->c.gc_dropped_bytes += ftl_record_bytes(e->stored_len);
	ftl_map_take(f, l, e, mask);
out:
	lock_release(&f->lock);
	return err;
}

/* Lock held: appends `h` as a relocation of the extent `e` and points the map to it. */
static int gc_append(struct gc *g, struct ftl_line *l, const struct ftl_extent *e,
		     struct ftl_media_record *h, const void *payload)
{
	bool older = e->flags & FTL_X_OLDER && e->stamp >= g->min_dead;
	struct ftl_extent to;
	ftl_pos pos;
	int err;

	h->flags |= FTL_F_RELOCATED;
	h->source = e->pos;
	err = ftl_log_append(g->f, FTL_RELOCATED, FTL_FOR_GC, h, payload, &pos);
	if (err)
		return err;
	ftl_extent_of(h, pos, &to);
	if (older)
		to.flags |= FTL_X_OLDER;
	ftl_map_set(g->f, l, &to);
	return 0;
}

/* The extent under the lock, as it is now; NULL (and the lock released) when it has gone. */
static struct ftl_extent *gc_lock_extent(struct gc *g, const struct ftl_media_index *x,
					 struct ftl_line **l, int *err)
{
	struct ftl_extent *e;

	lock_acquire(&g->f->lock);
	ftl_log_throttle(g->f);
	*err = ftl_map_edit(g->f, x->file, FTL_ADDR_LINE(x->addr), FLASH_LINE_SECTORS, l);
	e = *err ? NULL : ftl_map_at(*l, gc_pos(g, x));
	if (!e)
		lock_release(&g->f->lock);
	return e;
}

static int gc_copy(struct gc *g, const struct ftl_media_index *x, const struct ftl_media_record *was,
		   const void *payload)
{
	struct ftl_media_record h;
	struct ftl_extent *e, old;
	struct ftl_line *l;
	int err;

	e = gc_lock_extent(g, x, &l, &err);
	if (!e)
		return err;
	old = *e;
	ftl_record_of(&old, x->file, l->line, &h);
	h.payload_crc = was->payload_crc;
	h.payload_hash = was->payload_hash;
	err = gc_append(g, l, &old, &h, payload);
	ftl_log_write_ready(g->f);
	lock_release(&g->f->lock);
	return err;
}

/* One run of live sectors, compressed anew from the record's contents in g->s->raw. */
static int gc_copy_run(struct gc *g, const struct ftl_media_index *x, const struct ftl_extent *was,
		       unsigned first, unsigned count)
{
	uint32_t from = (first - was->first) * FLASH_SECTOR, len = count * FLASH_SECTOR;
	struct ftl_media_record h;
	struct ftl_packed z;
	struct ftl_extent *e, old;
	struct ftl_line *l;
	int err;

	if (len > was->raw_len - from)
		len = was->raw_len - from;
	ftl_zip_pack(g->s, g->s->raw + from, len, &z);
	e = gc_lock_extent(g, x, &l, &err);
	if (!e)
		return err;
	old = *e;
	ftl_record_of(&old, x->file, l->line, &h);
	h.flags = z.flags | (old.flags & FTL_F_COLD);
	h.addr = FTL_ADDR(l->line, first, count);
	h.raw_len = z.raw_len;
	h.stored_len = z.len;
	h.payload_crc = z.crc;
	h.payload_hash = z.hash;
	h.valid &= ftl_mask(first, count);
	h.dirty &= h.valid;
	if (h.valid)
		err = gc_append(g, l, &old, &h, z.data);
	ftl_log_write_ready(g->f);
	lock_release(&g->f->lock);
	return err;
}

/* Log bytes of the live runs of the record in g->s->raw, compressed one by one. */
static uint32_t gc_shrunk_bytes(struct gc *g, const struct ftl_extent *e)
{
	uint32_t sum = 0;

	for (unsigned s = e->first, n; s < e->first + (unsigned)e->count; s += n + 1) {
		uint32_t from = (s - e->first) * FLASH_SECTOR, len;
		struct ftl_packed z;

		n = gc_run(e->valid, s);
		if (!n)
			continue;
		len = n * FLASH_SECTOR < e->raw_len - from ? n * FLASH_SECTOR : e->raw_len - from;
		ftl_zip_pack(g->s, g->s->raw + from, len, &z);
		sum += ftl_record_bytes(z.len) + (uint32_t)sizeof(struct ftl_media_index);
	}
	return sum;
}

/* In pieces; or whole, if the pieces would take more (GC counts on not needing more than it frees). */
static int gc_shrink(struct gc *g, const struct ftl_media_index *x, const struct ftl_extent *e,
		     const struct ftl_media_record *h, const void *payload)
{
	int err = 0;

	if (gc_shrunk_bytes(g, e) > ftl_record_bytes(e->stored_len) + sizeof(struct ftl_media_index))
		return gc_copy(g, x, h, payload);
	for (unsigned s = e->first, n; s < e->first + (unsigned)e->count && !err; s += n + 1) {
		n = gc_run(e->valid, s);
		if (n)
			err = gc_copy_run(g, x, e, s, n);
	}
	return err;
}

/* The record cannot be read. */
static int gc_lost(struct gc *g, const struct ftl_media_index *x, const struct ftl_extent *was)
{
	struct ftl_media_record h;
	struct ftl_extent *e, old;
	struct ftl_line *l;
	int err;

	if (!(was->flags & FTL_F_LOST))
		log_error(FTL_MODULE, "controller %u: file %" PRIu64 " line %" PRIu64
			  ": record at %" PRIu64 ":%u is damaged: dropped where clean, else lost",
			  g->f->super.controller, x->file, FTL_ADDR_LINE(x->addr), g->eb->seq,
			  x->offset);
	err = x->file == FLASH_VOLUME ? 0 : gc_drop(g, x, was->stamp, true);
	if (err)
		return err;
	e = gc_lock_extent(g, x, &l, &err);
	if (!e)
		return err;
	old = *e;
	ftl_record_of(&old, x->file, l->line, &h);
	h.flags = FTL_F_LOST;
	h.stored_len = 0;
	h.payload_hash = hash_64("", 0);
	err = gc_append(g, l, &old, &h, "");
	lock_release(&g->f->lock);
	return err;
}

static int gc_keep(struct gc *g, const struct ftl_media_index *x, const struct ftl_extent *e)
{
	struct ftl_media_record h;
	struct ftl_chunk *c;
	const uint8_t *payload;
	int err;

	lock_acquire(&g->f->lock);
	c = ftl_log_chunk(g->eb, x->offset);
	lock_release(&g->f->lock);
	err = ftl_read_record(g->f, g->eb, c, e->pos, e->stored_len, g->s, &h, &payload);
	if (!err && (h.type != FTL_REC_DATA || h.file != x->file || h.stamp != e->stamp ||
		     h.raw_len != e->raw_len ||
		     h.addr != FTL_ADDR(FTL_ADDR_LINE(x->addr), e->first, e->count)))
		err = -EUCLEAN;
	if (!err && ftl_extent_waste(e)) {
		err = ftl_zip_unpack(g->s, h.flags, payload, h.stored_len, g->s->raw, h.raw_len);
		err = err ? gc_lost(g, x, e) : gc_shrink(g, x, e, &h, payload);
	} else if (!err) {
		err = gc_copy(g, x, &h, payload);
	} else if (err == -EUCLEAN) {
		err = gc_lost(g, x, e);
	}
	if (c) {
		lock_acquire(&g->f->lock);
		ftl_log_unref(g->f, c);
		lock_release(&g->f->lock);
	}
	return err;
}

int ftl_gc_data(struct gc *g, const struct ftl_media_index *x)
{
	struct ftl_extent e;
	int err = gc_find(g, x, &e);

	if (err != 1)
		return err;
	if (gc_asks_drop(g, x, &e)) {
		err = gc_drop(g, x, e.stamp, false);
		/* No room for the tombstone: keep it. */
		if (err && err != -ENOSPC)
			return err;
		err = gc_find(g, x, &e);
		if (err != 1)
			return err;
	}
	return e.flags & FTL_F_LOST ? gc_lost(g, x, &e) : gc_keep(g, x, &e);
}

static int gc_tomb(struct gc *g, const struct ftl_media_index *x, const uint8_t *payload)
{
	struct ftl_tombkey k = {.type = x->type, .file = x->file};
	struct ftl_media_range r;
	struct ftl_tomb *t;
	int err = 0;

	if (ftl_media_get_range(payload, &r))
		return 0;
	k.first = r.first;
	k.count = r.count;
	lock_acquire(&g->f->lock);
	ftl_log_throttle(g->f);
	t = ftl_tomb_find(g->f, &k);
	if (t && t->pos == gc_pos(g, x)) {
		if (!ftl_eb_guarded(g->f, t->stamp, t->lsn))
			err = ftl_tomb_remove(g->f, t);
		else
			err = ftl_range_append(g->f, FTL_FOR_GC, &k, t->stamp, t->pos);
	}
	lock_release(&g->f->lock);
	return err;
}

static int gc_ctl(struct gc *g, const struct ftl_media_index *x, const uint8_t *payload)
{
	struct ftl_ctlmeta old, m;
	struct ftl_media_ctl c;
	struct ftl_ctlkey k;
	int err;

	if (ftl_media_get_ctl(payload, x->stored_len, &c))
		return 0;
	k.kind = (uint8_t)c.kind;
	memcpy(k.key, c.key, sizeof(k.key));
	lock_acquire(&g->f->lock);
	ftl_log_throttle(g->f);
	err = ftl_ctl_find(g->f, &k, &old, NULL);
	if (!err && old.pos == gc_pos(g, x)) {
		m = old;
		if (old.deleted && !ftl_eb_guarded(g->f, old.stamp, old.lsn))
			err = ftl_ctl_set(g->f, &k, &old, &m, payload + sizeof(c), true);
		else
			err = ftl_ctl_append(g->f, FTL_FOR_GC, &k, &old, &m, payload + sizeof(c),
					     old.pos);
	}
	lock_release(&g->f->lock);
	return err == -ENOENT ? 0 : err;
}

int ftl_gc_record(struct gc *g, const struct ftl_media_index *x)
{
	struct ftl_media_record h;
	struct ftl_chunk *c;
	const uint8_t *payload;
	int err;

	if (x->type == FTL_REC_DATA)
		return ftl_gc_data(g, x);
	lock_acquire(&g->f->lock);
	c = ftl_log_chunk(g->eb, x->offset);
	lock_release(&g->f->lock);
	err = ftl_read_record(g->f, g->eb, c, gc_pos(g, x), x->stored_len, g->s, &h, &payload);
	if (err == -EUCLEAN || (!err && h.type != x->type))
		err = 0; /* gc_finish finds out whether it was live */
	else if (!err && (x->type == FTL_REC_TRIM || x->type == FTL_REC_CLEAN))
		err = gc_tomb(g, x, payload);
	else if (!err)
		err = gc_ctl(g, x, payload);
	lock_acquire(&g->f->lock);
	if (c)
		ftl_log_unref(g->f, c);
	ftl_log_write_ready(g->f);
	lock_release(&g->f->lock);
	return err;
}
