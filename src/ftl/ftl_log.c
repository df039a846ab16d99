/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The log: streams append records to chunks in memory, chunks go to the media whole, a flush makes
 * what was appended before it durable.
 *
 * A stream has an open EB and a chunk being filled. A chunk ends when the next record does not fit,
 * when its EB is full, or at a flush; it is then padded to 4 KiB and queued in `ready`. Whoever
 * filled it writes it out after releasing the lock (ftl_log_write_ready), so writers are paced by
 * the medium. Until then readers find the record in memory.
 *
 *     filling --end--> ready --write--> (in flight) --done--> freed when the last reader left
 *                      \___________ in `pending` ________/
 *
 * Invariants
 *  1. A record lies in one chunk. A chunk starts on a 4 KiB boundary of its EB.
 *  2. Every record with lsn < durable_lsn was on the media before a media flush that succeeded began.
 *  3. A failed chunk write keeps its chunk in memory: reads stay right. Nothing is appended after it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "ftl/ftl_priv.h"

static struct ftl_chunk *log_chunk_new(struct ftl *f, struct ftl_eb *eb, uint32_t start)
{
	struct ftl_chunk *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->cap = f->chunk_bytes;
	if (c->cap > f->geom.logical - start)
		c->cap = f->geom.logical - start;
	c->buf = aligned_alloc(FTL_BLOCK, c->cap);
	if (!c->buf) {
		free(c);
		return NULL;
	}
	c->eb = eb;
	c->start = start;
	c->refs = 1;
	c->first_lsn = f->next_lsn;
	c->eb_next = eb->chunks;
	eb->chunks = c;
	return c;
}

void ftl_log_unref(struct ftl *f, struct ftl_chunk *c)
{
	(void)f;
	if (--c->refs)
		return;
	free(c->buf);
	free(c);
}

static void log_chunk_unlink(struct ftl_chunk *c)
{
	struct ftl_chunk **p = &c->eb->chunks;

	while (*p != c)
		p = &(*p)->eb_next;
	*p = c->eb_next;
}

struct ftl_chunk *ftl_log_chunk(struct ftl_eb *eb, uint32_t off)
{
	for (struct ftl_chunk *c = eb->chunks; c; c = c->eb_next) {
		if (off >= c->start && off < c->start + c->len) {
			c->refs++;
			return c;
		}
	}
	return NULL;
}

/* Ends the stream's chunk: pads it and queues it. */
static void log_end_chunk(struct ftl *f, struct ftl_head *h)
{
	struct ftl_chunk *c = h->chunk, **p;
	uint32_t end, pad;

	if (!c)
		return;
	if (!c->len) { /* the append it was made for failed */
		h->chunk = NULL;
		log_chunk_unlink(c);
		ftl_log_unref(f, c);
		return;
	}
	end = ftl_round(c->len, FTL_BLOCK);
	pad = end - c->len;
	memset(c->buf + c->len, 0, pad);
	c->len = end;
	h->off = c->start + end;
	h->eb->pad_bytes += pad;
	f->c.pad_bytes += pad;
	h->chunk = NULL;
	for (p = &f->ready; *p; p = &(*p)->next)
		;
	*p = c;
	c->next = NULL;
	c->pending = f->pending;
	f->pending = c;
	f->nchunks++;
}

void ftl_log_close_head(struct ftl *f, enum ftl_stream s)
{
	struct ftl_head *h = &f->heads[s];
	struct ftl_eb *eb = h->eb;

	if (!eb)
		return;
	log_end_chunk(f, h);
	eb->end_lsn = f->next_lsn;
	eb->age = f->clock;
	ftl_eb_set_state(f, eb, EB_CLOSED);
	ftl_gc_unstick(f); /* one victim more */
	h->eb = NULL;
	h->off = 0;
}

static bool log_may_open(const struct ftl *f, enum ftl_class cls)
{
	switch (cls) {
	case FTL_FOR_GC:
		return f->nfree > 0;
	case FTL_FOR_CTL:
		return f->nfree > f->space.reserve_gc;
	case FTL_FOR_PUT:
		return f->nfree > f->space.reserve_gc + f->space.reserve_ctl / 2;
	default:
		return f->nfree > f->space.reserve_gc + f->space.reserve_ctl;
	}
}

static int log_open_eb(struct ftl *f, enum ftl_stream s, enum ftl_class cls)
{
	struct ftl_head *h = &f->heads[s];
	struct ftl_media_eb m = {
		.magic = FTL_MAGIC_EB, .version = FTL_VERSION, .controller = f->super.controller,
		.state = FTL_EB_OPEN, .stream = s, .first_lsn = f->next_lsn,
		.checkpoint = f->super.checkpoint,
	};
	struct ftl_eb *eb;

	if (!log_may_open(f, cls)) {
		ftl_kick(f);
		return -ENOSPC;
	}
	eb = ftl_eb_take(f);
	gild_assert(eb && !eb->chunks && !eb->live);
	h->chunk = log_chunk_new(f, eb, 0);
	if (!h->chunk)
		return -ENOMEM;
	ftl_eb_free_index(eb);
	ftl_eb_set_seq(f, eb, f->next_seq++);
	ftl_eb_set_state(f, eb, EB_OPEN);
	eb->min_dead = UINT64_MAX;
	eb->first_lsn = f->next_lsn;
	eb->end_lsn = UINT64_MAX;
	eb->max_stamp = eb->host_bytes = eb->gc_bytes = eb->pad_bytes = 0;
	eb->records = 0;
	eb->waste = 0;
	eb->used = FTL_BLOCK;
	eb->stream = s;
	eb->footer = eb->drops = false;
	memcpy(m.uuid, f->super.uuid, sizeof(m.uuid));
	m.seq = eb->seq;
	m.index = eb->index;
	m.erase_count = eb->erase_count;
	ftl_media_put_eb(h->chunk->buf, &m);
	h->chunk->len = FTL_BLOCK;
	f->c.footer_bytes += FTL_BLOCK;
	h->eb = eb;
	h->off = FTL_BLOCK;
	if (cls != FTL_FOR_GC)
		ftl_gc_spent(f);
	if (ftl_gc_wanted(f))
		ftl_kick(f);
	return 0;
}

/* Makes the stream's chunk have room for the record. */
static int log_reserve(struct ftl *f, enum ftl_stream s, enum ftl_class cls, uint32_t bytes)
{
	struct ftl_head *h = &f->heads[s];

	for (;;) {
		int err;

		if (!h->eb) {
			err = log_open_eb(f, s, cls);
			if (err)
				return err;
		}
		if (ftl_round((uint64_t)h->off + bytes, FTL_BLOCK) >
		    ftl_eb_limit(f, h->eb->records + 1)) {
			ftl_log_close_head(f, s);
			continue;
		}
		if (!h->chunk) {
			h->chunk = log_chunk_new(f, h->eb, h->off);
			if (!h->chunk)
				return -ENOMEM;
		}
		if (h->off + bytes <= h->chunk->start + h->chunk->cap)
			return 0;
		log_end_chunk(f, h);
	}
}

int ftl_log_append(struct ftl *f, enum ftl_stream s, enum ftl_class cls, struct ftl_media_record *h,
		   const void *payload, ftl_pos *pos)
{
	struct ftl_head *head = &f->heads[s];
	uint32_t bytes = ftl_record_bytes(h->stored_len);
	struct ftl_media_index x;
	struct ftl_eb *eb;
	uint64_t behind;
	uint8_t *at;
	int err;

	lock_assert_held(&f->lock);
	if (f->failed || f->opt.readonly)
		return f->failed ? -EIO : -EROFS;
	err = log_reserve(f, s, cls, bytes);
	if (err)
		return err;
	eb = head->eb;
	h->lsn = f->next_lsn;
	behind = h->lsn - f->durable_lsn;
	h->undurable = behind > UINT32_MAX ? UINT32_MAX : (uint32_t)behind;
	ftl_media_index_of(h, head->off, &x);
	err = ftl_eb_index_add(eb, &x);
	if (err)
		return err;
	at = head->chunk->buf + (head->off - head->chunk->start);
	ftl_media_put_record(at, h, ftl_media_seed(f->super.uuid, f->super.controller, eb->seq),
			     head->off);
	memcpy(at + FTL_RECORD_HEADER, payload, h->stored_len);
	memset(at + FTL_RECORD_HEADER + h->stored_len, 0, bytes - FTL_RECORD_HEADER - h->stored_len);
	*pos = FTL_POS(eb->seq, head->off);
	head->off += bytes;
	head->chunk->len += bytes;
	eb->used = head->off;
	eb->changed = true;
	f->next_lsn++;
	f->clock += bytes;
	f->log_bytes += bytes;
	if (h->stamp > f->max_stamp)
		f->max_stamp = h->stamp;
	if (h->stamp > eb->max_stamp)
		eb->max_stamp = h->stamp;
	if (cls == FTL_FOR_GC) {
		eb->gc_bytes += bytes;
		f->c.gc_copied_bytes += bytes;
	} else {
		eb->host_bytes += bytes;
		f->c.stored_bytes += bytes;
	}
	if (!f->unflushed_since) {
		f->unflushed_since = clock_mono_ns();
		ftl_kick(f);
	}
	ftl_changed(f);
	return 0;
}

static void log_chunk_done(struct ftl *f, struct ftl_chunk *c)
{
	struct ftl_chunk **p = &f->pending;

	while (*p != c)
		p = &(*p)->pending;
	*p = c->pending;
	f->nchunks--;
	log_chunk_unlink(c);
	ftl_log_unref(f, c);
}

void ftl_log_write_ready(struct ftl *f)
{
	struct ftl_chunk *c;

	lock_assert_held(&f->lock);
	while (!f->failed && (c = f->ready)) {
		int err;

		f->ready = c->next;
		lock_release(&f->lock);
		err = ftl_media_write(f, c->eb->index, c->start, c->buf, c->len);
		lock_acquire(&f->lock);
		if (!err)
			log_chunk_done(f, c);
		lock_cond_broadcast(&f->cond);
	}
}

void ftl_log_throttle(struct ftl *f)
{
	while (f->nchunks >= FTL_CHUNKS_MAX && !f->failed) {
		if (f->ready)
			ftl_log_write_ready(f);
		else
			lock_cond_wait(&f->cond, &f->lock);
	}
}

void ftl_log_pad(struct ftl *f)
{
	for (int s = 0; s < FTL_STREAMS; s++)
		log_end_chunk(f, &f->heads[s]);
}

static bool log_pending_below(const struct ftl *f, uint64_t lsn)
{
	for (const struct ftl_chunk *c = f->pending; c; c = c->pending)
		if (c->first_lsn < lsn)
			return true;
	return false;
}

int ftl_log_begin(struct ftl *f, uint64_t *cover)
{
	lock_assert_held(&f->lock);
	if (f->failed)
		return -EIO;
	*cover = f->next_lsn;
	if (f->durable_lsn >= *cover)
		return 0;
	ftl_log_pad(f);
	ftl_log_write_ready(f);
	while (!f->failed && log_pending_below(f, *cover))
		lock_cond_wait(&f->cond, &f->lock);
	f->footers_unflushed = false; /* the flush that follows covers them, too */
	return f->failed ? -EIO : 1;
}

int ftl_log_end(struct ftl *f, uint64_t cover, int err)
{
	lock_assert_held(&f->lock);
	f->c.flushes++;
	if (err) {
		ftl_fail(f, err, "flush", 0);
		return err;
	}
	if (f->durable_lsn < cover)
		f->durable_lsn = cover;
	f->unflushed_since = f->durable_lsn < f->next_lsn ? clock_mono_ns() : 0;
	lock_cond_broadcast(&f->cond);
	return 0;
}

int ftl_log_flush(struct ftl *f)
{
	uint64_t target, cover;
	int err = 0;

	lock_acquire(&f->lock);
	target = f->next_lsn;
	for (;;) {
		if (f->failed) {
			err = -EIO;
			break;
		}
		if (f->durable_lsn >= target)
			break;
		if (f->flushing) {
			lock_cond_wait(&f->cond, &f->lock);
			continue;
		}
		f->flushing = true;
		err = ftl_log_begin(f, &cover);
		if (err > 0) {
			lock_release(&f->lock);
			err = media_flush(f->media);
			lock_acquire(&f->lock);
			err = ftl_log_end(f, cover, err) ? -EIO : 0;
		}
		f->flushing = false;
		lock_cond_broadcast(&f->cond);
		if (err)
			break;
	}
	lock_release(&f->lock);
	return err;
}

int ftl_flush_begin(struct flash *fl, uint64_t *token)
{
	struct ftl *f = ftl_of(fl);
	int err;

	lock_acquire(&f->lock);
	err = ftl_log_begin(f, token);
	lock_release(&f->lock);
	return err;
}

int ftl_flush_end(struct flash *fl, uint64_t token, int media_result)
{
	struct ftl *f = ftl_of(fl);
	int err;

	lock_acquire(&f->lock);
	err = ftl_log_end(f, token, media_result);
	lock_release(&f->lock);
	return err;
}

/* A CLOSED EB whose records are durable and whose footer is missing; lock held. */
static struct ftl_eb *log_next_footer(struct ftl *f)
{
	for (uint32_t i = 0; i < f->geom.ebs; i++) {
		struct ftl_eb *eb = &f->ebs[i];

		if (eb->state == EB_CLOSED && !eb->footer && eb->idx && eb->end_lsn <= f->durable_lsn)
			return eb;
	}
	return NULL;
}

static int log_write_footer(struct ftl *f, struct ftl_eb *eb)
{
	uint32_t bytes = (uint32_t)ftl_index_bytes(eb->records);
	uint32_t at = f->geom.logical - FTL_BLOCK - bytes;
	struct ftl_media_trailer t = {
		.magic = FTL_MAGIC_TRAILER, .seq = eb->seq, .index_offset = at,
		.records = eb->records, .used = eb->used, .host_bytes = eb->host_bytes,
		.gc_bytes = eb->gc_bytes, .pad_bytes = eb->pad_bytes, .max_stamp = eb->max_stamp,
	};
	uint8_t *buf = aligned_alloc(FTL_BLOCK, bytes + FTL_BLOCK);
	int err;

	if (!buf)
		return -ENOMEM;
	gild_assert(eb->used <= at);
	memset(buf, 0, bytes);
	memcpy(buf, eb->idx, eb->records * sizeof(*eb->idx));
	t.index_crc = ftl_index_crc(buf, eb->records);
	ftl_media_put_trailer(buf + bytes, &t);
	err = ftl_media_write(f, eb->index, at, buf, bytes + FTL_BLOCK);
	free(buf);
	if (err)
		return err;
	lock_acquire(&f->lock);
	f->c.footer_bytes += bytes + FTL_BLOCK;
	eb->footer = true;
	eb->changed = true;
	f->footers_unflushed = true;
	ftl_eb_free_index(eb);
	lock_release(&f->lock);
	return 0;
}

int ftl_log_footers(struct ftl *f)
{
	struct ftl_eb *eb;
	int err = 0;

	lock_assert_held(&f->gc_lock);
	for (;;) {
		lock_acquire(&f->lock);
		eb = f->failed ? NULL : log_next_footer(f);
		lock_release(&f->lock);
		if (!eb)
			return err;
		err = log_write_footer(f, eb);
		if (err)
			return err;
	}
}

void ftl_log_destroy(struct ftl *f)
{
	for (uint32_t i = 0; f->ebs && i < f->geom.ebs; i++) {
		while (f->ebs[i].chunks) {
			struct ftl_chunk *c = f->ebs[i].chunks;

			f->ebs[i].chunks = c->eb_next;
			free(c->buf);
			free(c);
		}
	}
}
