/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What records an erase block holds: from its footer, else by reading all of it.
 *
 * Reading all of it: a record counts when both CRCs are right. After a bad header, reading goes on at
 * the next 4 KiB boundary, where a flush or a new chunk may have started. A good header with a bad
 * payload is either torn (the write was never flushed: the record never was) or rot (it was: the
 * record counts, its bytes are lost). The durable hints of other records tell (ftl_media.h): of the
 * same EB, or of all EBs of the tail (ftl_replay.c).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ftl/ftl_priv.h"

#define SCAN_WINDOW (512u << 10)

struct scan {
	struct ftl *f;
	struct ftl_eb *eb;
	uint8_t *buf;
	uint32_t at, len; /* of the window */
	uint32_t seed;
	int err;
	uint64_t durable; /* lsns below were flushed when some record was appended; 1 at least */
	bool hole; /* something that is neither record nor padding .. */
	uint64_t after_hole; /* .. lowest lsn behind one */
	struct scan_rec {
		struct ftl_media_index x;
		bool good;
	} *recs;
	size_t n, cap;
};

int ftl_scan_header(struct ftl *f, uint32_t index, struct ftl_media_eb *h)
{
	uint8_t *block = aligned_alloc(FTL_BLOCK, FTL_BLOCK);
	int err;

	if (!block)
		return -ENOMEM;
	err = ftl_media_read(f, &f->ebs[index], 0, block, FTL_BLOCK);
	if (!err)
		err = ftl_media_get_eb(block, f->super.uuid, f->super.controller, index, h);
	free(block);
	return err;
}

int ftl_scan_footer(struct ftl *f, const struct ftl_eb *eb, struct ftl_media_index **idx,
		    struct ftl_media_trailer *t)
{
	uint8_t *block = aligned_alloc(FTL_BLOCK, FTL_BLOCK), *buf = NULL;
	struct ftl_media_index *x;
	uint32_t bytes;
	int err;

	if (!block)
		return -ENOMEM;
	err = ftl_media_read(f, eb, f->geom.logical - FTL_BLOCK, block, FTL_BLOCK);
	if (!err)
		err = ftl_media_get_trailer(block, eb->seq, f->geom.logical, t);
	free(block);
	if (err)
		return err;
	bytes = (uint32_t)ftl_index_bytes(t->records);
	buf = aligned_alloc(FTL_BLOCK, bytes + FTL_BLOCK);
	if (!buf)
		return -ENOMEM;
	err = ftl_media_read(f, eb, t->index_offset, buf, bytes);
	if (!err && ftl_index_crc(buf, t->records) != t->index_crc)
		err = -EUCLEAN;
	x = (struct ftl_media_index *)(void *)buf;
	for (uint32_t i = 0; i < t->records && !err; i++)
		if (!ftl_media_index_sane(&x[i], (uint32_t)t->used))
			err = -EUCLEAN;
	if (err) {
		free(buf);
		return err;
	}
	*idx = x;
	return 0;
}

/* Reads the window. Recovery goes on without blocks that cannot be read; everybody else stops. */
static void scan_fill(struct scan *s)
{
	if (!ftl_geom_read(&s->f->geom, s->f->media, s->eb->index, s->at, s->buf, s->len)) {
		atomic_fetch_add(&s->f->a_flash_read, s->len);
		return;
	}
	for (uint32_t i = 0; i < s->len; i += FTL_BLOCK) {
		int err = ftl_media_read(s->f, s->eb, s->at + i, s->buf + i, FTL_BLOCK);

		if (!err)
			continue;
		memset(s->buf + i, 0, FTL_BLOCK);
		s->hole = true;
		if (!s->f->tolerant) {
			s->err = err;
			return;
		}
	}
}

/* [off, off+len) in the window, or NULL beyond the end or on error. */
static const uint8_t *scan_window(struct scan *s, uint32_t off, uint32_t len)
{
	uint32_t end = s->f->geom.logical;

	if (len > end || off > end - len)
		return NULL;
	if (off < s->at || off + len > s->at + s->len) {
		s->at = off / FTL_BLOCK * FTL_BLOCK;
		s->len = end - s->at < SCAN_WINDOW ? end - s->at : SCAN_WINDOW;
		scan_fill(s);
	}
	return s->err ? NULL : s->buf + (off - s->at);
}

static int scan_add(struct scan *s, const struct ftl_media_record *h, uint32_t off, bool good)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 256;
		void *p = realloc(s->recs, cap * sizeof(*s->recs));

		if (!p)
			return -ENOMEM;
		s->recs = p;
		s->cap = cap;
	}
	ftl_media_index_of(h, off, &s->recs[s->n].x);
	s->recs[s->n++].good = good;
	if (h->lsn - h->undurable > s->durable && h->undurable <= h->lsn)
		s->durable = h->lsn - h->undurable;
	return 0;
}

/* From here to the end of the block there are only zeros. */
static bool scan_padding(const uint8_t *p, uint32_t off)
{
	uint32_t n = FTL_BLOCK - off % FTL_BLOCK;

	for (uint32_t i = 0; i < n && i < FTL_RECORD_HEADER; i++)
		if (p[i])
			return false;
	return true;
}

static int scan_read(struct scan *s)
{
	uint32_t limit = ftl_eb_limit(s->f, 0), off = FTL_BLOCK;
	struct ftl_media_record h;

	while (off + FTL_RECORD_HEADER <= limit) {
		const uint8_t *p = scan_window(s, off, FTL_RECORD_HEADER);
		bool good;
		int err;

		if (!p)
			break;
		if (ftl_media_get_record(p, s->seed, off, &h) || h.lsn < s->eb->first_lsn) {
			s->hole |= !scan_padding(p, off);
			off = ftl_round((uint64_t)off + 1, FTL_BLOCK);
			continue;
		}
		/* Appending would have stopped before: nonsense with good CRCs. */
		if (ftl_round((uint64_t)off + ftl_record_bytes(h.stored_len), FTL_BLOCK) >
		    ftl_eb_limit(s->f, (uint32_t)s->n + 1))
			break;
		p = scan_window(s, off, FTL_RECORD_HEADER + h.stored_len);
		if (!p)
			break;
		if (s->hole && h.lsn < s->after_hole)
			s->after_hole = h.lsn;
		s->hole = false;
		good = ftl_media_payload_ok(&h, p + FTL_RECORD_HEADER);
		err = scan_add(s, &h, off, good);
		if (err)
			return err;
		off += ftl_record_bytes(h.stored_len);
	}
	return s->err;
}

/* Everything with a good header goes into the index, what has a bad payload marked (pad = 1). */
static int scan_index_all(struct scan *s)
{
	struct ftl_eb *eb = s->eb;
	int err = 0;

	lock_acquire(&s->f->lock); /* a freeze reads what is set here */
	ftl_eb_free_index(eb);
	eb->records = 0;
	eb->footer = false;
	for (size_t i = 0; i < s->n && !err; i++) {
		s->recs[i].x.pad = !s->recs[i].good;
		err = ftl_eb_index_add(eb, &s->recs[i].x);
	}
	eb->scan_durable = s->durable;
	lock_release(&s->f->lock);
	return err;
}

void ftl_scan_settle(struct ftl *f, struct ftl_eb *eb, uint64_t durable, uint64_t cut)
{
	uint32_t n = 0;

	lock_acquire(&f->lock);
	eb->used = FTL_BLOCK;
	eb->max_stamp = eb->host_bytes = eb->gc_bytes = eb->pad_bytes = 0;
	for (uint32_t i = 0; i < eb->records; i++) {
		struct ftl_media_index *x = &eb->idx[i];
		uint32_t bytes = ftl_record_bytes(x->stored_len);

		eb->used = x->offset + bytes;
		if (x->lsn >= cut || (x->pad && x->lsn >= durable)) {
			/* It never was. Should it come back all the same, tombstones are kept. */
			if (x->stamp > f->max_stamp)
				f->max_stamp = x->stamp;
			if (x->type == FTL_REC_DATA || x->type == FTL_REC_CTL)
				ftl_eb_sub(f, FTL_POS(eb->seq, x->offset), 0, x->stamp);
			continue;
		}
		if (x->pad)
			log_error(FTL_MODULE, "controller %u: erase block %u + %u: a flushed record of"
				  " file %" PRIu64 " is damaged", f->super.controller, eb->index,
				  x->offset, x->file);
		if (x->stamp > eb->max_stamp)
			eb->max_stamp = x->stamp;
		if (x->flags & FTL_F_RELOCATED)
			eb->gc_bytes += bytes;
		else
			eb->host_bytes += bytes;
		eb->idx[n] = *x;
		eb->idx[n++].pad = 0;
	}
	eb->records = n;
	lock_release(&f->lock);
}

static int scan_raw(struct ftl *f, struct ftl_eb *eb)
{
	struct scan s = {
		.f = f, .eb = eb, .durable = 1, .after_hole = UINT64_MAX, .buf = aligned_alloc(FTL_BLOCK, SCAN_WINDOW),
		.seed = ftl_media_seed(f->super.uuid, f->super.controller, eb->seq),
	};
	int err = s.buf ? scan_read(&s) : -ENOMEM;

	if (!err)
		err = scan_index_all(&s);
	/* What was there was flushed. In the tail, gaps among the lsns tell. */
	if (!err && f->tolerant && s.after_hole <= s.durable) {
		log_error(FTL_MODULE, "controller %u: erase block %u: records are lost",
			  f->super.controller, eb->index);
		f->c.media_errors++;
		f->health = FLASH_DEGRADED;
	}
	free(s.buf);
	free(s.recs);
	return err;
}

int ftl_scan_read(struct ftl *f, struct ftl_eb *eb)
{
	struct ftl_media_index *idx;
	struct ftl_media_trailer t;
	int err = ftl_scan_footer(f, eb, &idx, &t);

	if (err == -ENOMEM || (err == -EIO && !f->tolerant))
		return err;
	if (err == -EUCLEAN || err == -EIO)
		log_warning(FTL_MODULE, "controller %u: erase block %u: its footer is damaged, reading"
			    " all of it", f->super.controller, eb->index);
	if (err)
		return scan_raw(f, eb);
	lock_acquire(&f->lock);
	ftl_eb_free_index(eb);
	eb->idx = idx;
	eb->records = eb->idx_cap = t.records;
	eb->used = (uint32_t)t.used;
	eb->footer = true;
	eb->max_stamp = t.max_stamp;
	eb->host_bytes = t.host_bytes;
	eb->gc_bytes = t.gc_bytes;
	eb->pad_bytes = t.pad_bytes;
	lock_release(&f->lock);
	return 0;
}

int ftl_scan_index(struct ftl *f, struct ftl_eb *eb)
{
	int err = eb->idx ? 0 : ftl_scan_read(f, eb);

	if (!err && !eb->footer && eb->scan_durable) {
		ftl_scan_settle(f, eb, eb->scan_durable, UINT64_MAX);
		eb->scan_durable = 0;
	}
	return err;
}

int ftl_scan_found(struct ftl_eb *eb, uint32_t from, struct ftl_foundlist *out)
{
	for (uint32_t i = 0; i < eb->records; i++) {
		if (eb->idx[i].offset < from)
			continue;
		if (out->n == out->cap) {
			size_t cap = out->cap ? out->cap * 2 : 1024;
			struct ftl_found *p = realloc(out->v, cap * sizeof(*p));

			if (!p)
				return -ENOMEM;
			out->v = p;
			out->cap = cap;
		}
		out->v[out->n].x = eb->idx[i];
		out->v[out->n++].eb = eb;
	}
	return 0;
}
