/* SPDX-License-Identifier: BSD-2-Clause
 *
 * After an unclean stop: the last checkpoint plus the log after its position. Also applies the whole
 * log for ftl_recover().
 *
 * The tail is: of the EBs that were open at the checkpoint, what follows the recorded fill; and all
 * EBs opened since, which is what header sequences >= next_seq say. Its records are applied in the
 * order of their lsn, under these rules:
 *
 *   DATA       per sector, unless the map has a higher stamp or a trim with a stamp >= its own covers
 *              it; not dirty where a mark_clean with a stamp >= its own covers it
 *   relocated  tail: only where the map points to its source: if the source is not what the map has,
 *              something newer won, or the map keeps an older copy that is still there.
 *              Whole log: like other data; of equal stamps the higher lsn wins
 *   TRIM, CLEAN, CTL  by stamp
 *
 * The cut. Unflushed writes may have survived in any combination. What is applied is a prefix of the
 * log all the same: lsns are contiguous, a flush covers all below some lsn, so nothing after the
 * first missing lsn was ever acknowledged as durable, and it is left out (else a mark_clean could
 * survive the data it speaks of, and declare an older version clean). Records say how far the log
 * was durable when they were appended; an lsn missing below the highest such hint was flushed and
 * vanished: rot, or a medium whose flush lies. Then nobody knows what is stale: all clean data is
 * dropped, dirty data is kept, and the controller is degraded.
 *
 * Footers are written for the tail's EBs (without what was cut), so that it stays cut. Sequences and
 * lsns then skip ahead, past all that lost writes may have used.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ftl/ftl_priv.h"

#define REPLAY_LSN_GAP (1ULL << 32)
#define REPLAY_FULL 256 /* times as far */

static int replay_cmp(const void *a, const void *b)
{
	const struct ftl_found *x = a, *y = b;

	return x->x.lsn < y->x.lsn ? -1 : x->x.lsn > y->x.lsn;
}

/* Sectors of the record that become the map's. */
static uint16_t replay_mask(struct ftl *f, struct ftl_line *l, const struct ftl_media_index *x,
			    bool full)
{
	uint16_t newer = ftl_map_newer(l, x->stamp, false);
	struct ftl_extent *src = ftl_map_at(l, x->source);
	uint16_t mask = x->valid & (uint16_t)~newer;

	if (x->flags & FTL_F_RELOCATED && !full)
		mask = src && src->stamp == x->stamp ? x->valid & src->valid : 0;
	return mask & (uint16_t)~ftl_tomb_cover(f, FTL_REC_TRIM, l->file, l->line, mask, x->stamp);
}

/* What is newer in the map now has an older version in the log. */
static void replay_flag_newer(struct ftl_line *l, const struct ftl_media_index *x)
{
	for (unsigned i = 0; i < l->n; i++)
		if (l->x[i].stamp > x->stamp && l->x[i].valid & x->valid)
			l->x[i].flags |= FTL_X_OLDER;
}

static int replay_data(struct ftl *f, const struct ftl_found *r, bool full)
{
	const struct ftl_media_index *x = &r->x;
	ftl_pos pos = FTL_POS(r->eb->seq, x->offset);
	uint64_t line = FTL_ADDR_LINE(x->addr);
	struct ftl_media_record h = {
		.flags = x->flags, .stamp = x->stamp, .addr = x->addr, .raw_len = x->raw_len,
		.stored_len = x->stored_len, .epoch = x->epoch,
	};
	struct ftl_extent e, *src;
	struct ftl_line *l;
	int err = ftl_map_edit(f, x->file, line, 1, &l);

	if (err)
		return err;
	h.valid = replay_mask(f, l, x, full);
	h.dirty = x->dirty & h.valid;
	h.dirty &= (uint16_t)~ftl_tomb_cover(f, FTL_REC_CLEAN, x->file, line, h.dirty, x->stamp);
	if (full && x->lsn < f->super.void_lsn) {
		ftl_map_cut(f, l, h.valid & (uint16_t)~h.dirty, x->stamp);
		h.valid = h.dirty;
	}
	replay_flag_newer(l, x);
	if (h.valid != x->valid || h.dirty != x->dirty)
		ftl_eb_sub(f, pos, 0, x->stamp);
	if (!h.valid)
		return 0;
	ftl_extent_of(&h, pos, &e);
	src = ftl_map_at(l, x->source);
	if (x->flags & FTL_F_RELOCATED && !full)
		e.flags |= src->flags & FTL_X_OLDER;
	else if (ftl_write_older(f, l, h.valid))
		e.flags |= FTL_X_OLDER;
	ftl_map_set(f, l, &e);
	return 0;
}

static int replay_ctl(struct ftl *f, const struct ftl_found *r, const uint8_t *payload)
{
	struct ftl_ctlmeta old, m = {
		.pos = FTL_POS(r->eb->seq, r->x.offset), .stamp = r->x.stamp,
		.lsn = f->next_lsn,
		.deleted = r->x.type == FTL_REC_CTL_DEL,
	};
	struct ftl_media_ctl c;
	struct ftl_ctlkey k;
	int err = ftl_media_get_ctl(payload, r->x.stored_len, &c);

	if (err)
		return 0;
	k.kind = (uint8_t)c.kind;
	memcpy(k.key, c.key, sizeof(k.key));
	m.len = c.len;
	err = ftl_ctl_find(f, &k, &old, NULL);
	if (err && err != -ENOENT)
		return err;
	if (!err && old.stamp > m.stamp) {
		if (!m.deleted)
			ftl_eb_sub(f, m.pos, 0, m.stamp);
		return 0;
	}
	return ftl_ctl_set(f, &k, err ? NULL : &old, &m, payload + sizeof(c), false);
}

static int replay_range(struct ftl *f, const struct ftl_found *r, const uint8_t *payload)
{
	struct ftl_tombkey k = {.type = r->x.type, .file = r->x.file};
	struct ftl_media_range range;
	int err = ftl_media_get_range(payload, &range);

	if (err)
		return 0;
	k.first = range.first;
	k.count = range.count;
	lock_acquire(&f->lock);
	err = ftl_tomb_add(f, &k, r->x.stamp, FTL_POS(r->eb->seq, r->x.offset));
	lock_release(&f->lock);
	if (err)
		return err;
	return ftl_range_apply(f, k.type, k.file, k.first, k.count, r->x.stamp);
}

/* TRIM, CLEAN, CTL, CTL_DEL: what they say is in the payload. */
static int replay_control(struct ftl *f, const struct ftl_found *r, struct ftl_scratch *s)
{
	struct ftl_media_record h;
	const uint8_t *payload;
	int err = ftl_read_record(f, r->eb, NULL, FTL_POS(r->eb->seq, r->x.offset), r->x.stored_len,
				  s, &h, &payload);

	if (err || h.type != r->x.type || h.stamp != r->x.stamp || h.file != r->x.file) {
		log_error(FTL_MODULE, "controller %u: erase block %u + %u: a flushed control record"
			  " is lost", f->super.controller, r->eb->index, r->x.offset);
		f->c.media_errors++;
		/* What it trimmed, or whose file's epoch it raised, nobody knows. */
		if (r->x.type != FTL_REC_CLEAN)
			f->health = FLASH_DEGRADED;
		return 0;
	}
	if (r->x.type == FTL_REC_TRIM || r->x.type == FTL_REC_CLEAN)
		return replay_range(f, r, payload);
	lock_acquire(&f->lock);
	err = replay_ctl(f, r, payload);
	lock_release(&f->lock);
	return err;
}

int ftl_replay_apply(struct ftl *f, struct ftl_foundlist *l, bool full)
{
	struct ftl_scratch *s = ftl_scratch_get(f);
	int err = s ? 0 : -ENOMEM;

	for (size_t i = 0; i < l->n && !err; i++) {
		const struct ftl_found *r = &l->v[i];

		if (r->x.stamp > f->max_stamp)
			f->max_stamp = r->x.stamp;
		if (r->x.lsn >= f->next_lsn)
			f->next_lsn = r->x.lsn + 1;
		if (r->x.type == FTL_REC_DATA) {
			lock_acquire(&f->lock);
			err = replay_data(f, r, full);
			lock_release(&f->lock);
		} else {
			err = replay_control(f, r, s);
		}
		if (!err && full && f->cur->lines.count + f->cur->ctl.count >= REPLAY_SPILL)
			err = ftl_ckpt_spill(f);
	}
	ftl_scratch_put(f, s);
	return err;
}

/* An EB whose medium header says it was opened after the checkpoint. */
static int replay_adopt(struct ftl *f, struct ftl_eb *eb, const struct ftl_media_eb *h)
{
	if (eb->state == EB_CLOSED || eb->state == EB_OPEN || h->stream >= FTL_STREAMS) {
		log_error(FTL_MODULE, "controller %u: erase block %u is of sequence %" PRIu64
			  ", its map says %" PRIu64 ": run recover", f->super.controller, eb->index,
			  h->seq, eb->seq);
		return -EUCLEAN;
	}
	ftl_eb_clear_seq(f, eb);
	ftl_eb_set_seq(f, eb, h->seq);
	ftl_eb_set_state(f, eb, EB_OPEN);
	eb->pending_ckpt = 0;
	eb->live = eb->waste = 0;
	eb->min_dead = UINT64_MAX;
	eb->erase_count = h->erase_count;
	eb->stream = h->stream;
	eb->first_lsn = h->first_lsn;
	eb->used = FTL_BLOCK;
	eb->drops = false;
	return 0;
}

/* Finds the tail's EBs: OPEN from here on, read, not settled. */
static int replay_gather(struct ftl *f, uint32_t *from)
{
	uint64_t first = f->next_seq;

	for (uint32_t i = 0; i < f->geom.ebs; i++) {
		struct ftl_eb *eb = &f->ebs[i];
		struct ftl_media_eb h;
		int err = 0;

		if (eb->state != EB_OPEN) {
			err = ftl_scan_header(f, i, &h);
			if (err == -ENOMEM || (err == -EIO && eb->state != EB_CLOSED))
				return err;
			/* Every EB has had a header since it was formatted, so one has been lost, and
			 * with it maybe the newest versions. The map knows what CLOSED ones hold. */
			if (err && eb->state != EB_CLOSED) {
				log_error(FTL_MODULE, "controller %u: the header of erase block %u is lost:"
					  " all clean data is dropped", f->super.controller, i);
				f->c.media_errors++;
				f->health = FLASH_DEGRADED;
			}
			if (err || h.state != FTL_EB_OPEN || h.seq < first)
				continue;
			err = replay_adopt(f, eb, &h);
			if (!err && h.seq >= f->next_seq)
				f->next_seq = h.seq + 1;
		}
		from[i] = eb->used;
		if (!err)
			err = ftl_scan_read(f, eb);
		if (err)
			return err;
	}
	return 0;
}

/* Lsns below were flushed, as far as the tail knows. */
static uint64_t replay_durable(struct ftl *f)
{
	uint64_t durable = f->durable_lsn;

	for (uint32_t i = 0; i < f->geom.ebs; i++) {
		struct ftl_eb *eb = &f->ebs[i];

		if (eb->state != EB_OPEN)
			continue;
		if (!eb->footer && eb->scan_durable > durable)
			durable = eb->scan_durable;
		for (uint32_t k = 0; eb->footer && k < eb->records; k++)
			if (eb->idx[k].lsn >= durable)
				durable = eb->idx[k].lsn + 1;
	}
	return durable;
}

/* The first missing lsn from `durable` on; *lost: how many are missing from `first` to there. */
static uint64_t replay_first_gap(const struct ftl_foundlist *l, uint64_t first, uint64_t durable,
				 uint64_t *lost)
{
	uint64_t next = first, cut = durable;

	*lost = 0;
	for (size_t i = 0; i < l->n; i++) {
		uint64_t lsn = l->v[i].x.lsn;

		if (lsn < first)
			continue;
		if (lsn < durable)
			*lost += lsn - next;
		else if (lsn == cut)
			cut++;
		if (lsn < durable)
			next = lsn + 1;
	}
	if (next < durable)
		*lost += durable - next;
	return cut;
}

int ftl_replay_cut(struct ftl *f, const uint32_t *from, bool full, struct ftl_foundlist *out)
{
	uint64_t first = f->durable_lsn, durable = replay_durable(f), cut, lost;
	size_t n = 0;
	int err = 0;

	for (uint32_t i = 0; i < f->geom.ebs && !err; i++) {
		struct ftl_eb *eb = &f->ebs[i];

		if (eb->state != EB_OPEN)
			continue;
		if (!eb->footer)
			ftl_scan_settle(f, eb, full ? eb->scan_durable : durable, UINT64_MAX);
		err = ftl_scan_found(eb, from ? from[i] : FTL_BLOCK, out);
	}
	if (err)
		return err;
	if (out->n)
		qsort(out->v, out->n, sizeof(*out->v), replay_cmp);
	cut = replay_first_gap(out, full ? durable : first, durable, &lost);
	for (uint32_t i = 0; i < f->geom.ebs; i++) {
		struct ftl_eb *eb = &f->ebs[i];

		if (eb->state == EB_OPEN && !eb->footer)
			ftl_scan_settle(f, eb, durable, cut);
		eb->scan_durable = 0;
	}
	while (n < out->n && out->v[n].x.lsn < cut)
		n++;
	if (n < out->n)
		log_info(FTL_MODULE, "controller %u: %zu records after a gap in the log are left out",
			 f->super.controller, out->n - n);
	/* Nobody may use their numbers again. */
	if (out->n && out->v[out->n - 1].x.lsn >= f->next_lsn)
		f->next_lsn = out->v[out->n - 1].x.lsn + 1;
	out->n = n;
	if (lost) {
		log_error(FTL_MODULE, "controller %u: %" PRIu64 " flushed records have vanished from"
			  " the medium: all clean data is dropped", f->super.controller, lost);
		f->c.media_errors += lost;
		f->health = FLASH_DEGRADED;
	}
	return 0;
}

int ftl_replay_drop_clean(struct ftl *f)
{
	struct ftl_linekey from = {1, 0}, to = {UINT64_MAX, UINT64_MAX}, *keys;
	size_t n;
	int err = ftl_map_keys(f, from, to, &keys, &n);

	if (err)
		return err;
	lock_acquire(&f->lock);
	for (size_t i = 0; i < n && !err; i++) {
		struct ftl_line *l;

		err = ftl_map_edit(f, keys[i].file, keys[i].line, 0, &l);
		for (unsigned k = err ? 0 : l->n; k-- > 0;)
			ftl_map_take(f, l, &l->x[k], (uint16_t)~l->x[k].dirty);
	}
	for (uint32_t i = 0; i < f->geom.ebs; i++)
		f->ebs[i].drops = f->ebs[i].drops_old = f->ebs[i].state != EB_FREE;
	f->drops_unknown = true;
	f->super.void_lsn = f->next_lsn; /* should the map be lost, too */
	lock_release(&f->lock);
	free(keys);
	return err;
}

void ftl_replay_close(struct ftl *f, bool full)
{
	lock_acquire(&f->lock);
	for (uint32_t i = 0; i < f->geom.ebs; i++) {
		struct ftl_eb *eb = &f->ebs[i];

		if (eb->state != EB_OPEN)
			continue;
		eb->age = f->clock;
		eb->end_lsn = f->next_lsn;
		ftl_eb_set_state(f, eb, EB_CLOSED);
		if (eb->footer)
			ftl_eb_free_index(eb);
	}
	f->next_seq += (f->geom.ebs + 1) * (full ? REPLAY_FULL : 1);
	f->next_lsn += REPLAY_LSN_GAP * (full ? REPLAY_FULL : 1);
	f->durable_lsn = f->next_lsn;
	lock_release(&f->lock);
}

/* EBs closed before the checkpoint whose footers it did not wait for: they get one now. */
static int replay_footers(struct ftl *f)
{
	int err = 0;

	for (uint32_t i = 0; i < f->geom.ebs && !err; i++) {
		struct ftl_eb *eb = &f->ebs[i];

		if (eb->state != EB_CLOSED || eb->footer || eb->idx)
			continue;
		err = ftl_scan_index(f, eb);
		if (err == -EIO) /* GC will see */
			err = 0;
		if (eb->footer)
			ftl_eb_free_index(eb);
	}
	return err;
}

int ftl_replay_tail(struct ftl *f)
{
	uint32_t *from = calloc(f->geom.ebs, sizeof(*from));
	struct ftl_foundlist l = {.v = NULL};
	int err = from ? replay_gather(f, from) : -ENOMEM;

	if (!err)
		err = ftl_replay_cut(f, from, false, &l);
	if (!err)
		err = ftl_replay_apply(f, &l, false);
	if (!err && f->health == FLASH_DEGRADED)
		err = ftl_replay_drop_clean(f);
	if (!err)
		err = replay_footers(f);
	f->c.replayed_records += l.n;
	ftl_replay_close(f, false);
	if (!err)
		log_info(FTL_MODULE, "controller %u: unclean stop: replayed %zu records after"
			 " checkpoint %" PRIu64, f->super.controller, l.n, f->super.checkpoint);
	else
		log_error(FTL_MODULE, "controller %u: replay failed: %s", f->super.controller,
			  strerror(-err));
	free(l.v);
	free(from);
	return err;
}
