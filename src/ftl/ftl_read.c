/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The read path: one lookup, then a media read of exactly the record (or its chunk in memory), both
 * CRCs checked, decompressed, its valid sectors scattered. GC is never on it.
 *
 * A record that is not at its place is not corrupt yet: GC may have moved it after the lookup. Only
 * if a second lookup still names the place, it is.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "ftl/ftl_priv.h"

#define READ_TRIES 16

struct read_piece {
	const struct ftl_extent *x;
	struct ftl_eb *eb;
	struct ftl_chunk *chunk;
	uint16_t want; /* sectors of the line */
};

struct read_line { /* one line's part of a call */
	uint64_t file, line;
	unsigned first, count; /* sectors of the line */
	uint32_t min_epoch;
	uint8_t *buf;          /* of sector `first` */
	struct flash_sector *state;
};

int ftl_read_record(struct ftl *f, const struct ftl_eb *eb, struct ftl_chunk *c, ftl_pos pos,
		    uint32_t stored_len, struct ftl_scratch *s, struct ftl_media_record *h,
		    const uint8_t **payload)
{
	uint32_t off = FTL_POS_OFF(pos);
	uint32_t from = off / FTL_BLOCK * FTL_BLOCK;
	uint32_t to = ftl_round((uint64_t)off + FTL_RECORD_HEADER + stored_len, FTL_BLOCK);
	uint32_t seed = ftl_media_seed(f->super.uuid, f->super.controller, FTL_POS_SEQ(pos));
	const uint8_t *at;
	int err;

	if (c) {
		if (off - c->start + FTL_RECORD_HEADER + stored_len > c->cap)
			return -EUCLEAN;
		at = c->buf + (off - c->start);
	} else {
		if (to > f->geom.logical || to - from > FTL_IO_BYTES)
			return -EUCLEAN;
		err = ftl_media_read(f, eb, from, s->io, to - from);
		if (err)
			return err;
		at = s->io + (off - from);
	}
	err = ftl_media_get_record(at, seed, off, h);
	if (err)
		return -EUCLEAN;
	*payload = at + FTL_RECORD_HEADER;
	if (h->stored_len != stored_len || !ftl_media_payload_ok(h, *payload))
		return -EUCLEAN;
	return 0;
}

static void read_scatter(const struct read_line *r, const struct read_piece *p, const uint8_t *raw)
{
	const struct ftl_extent *x = p->x;

	for (unsigned i = 0; i < r->count; i++) {
		unsigned s = r->first + i, k = s - x->first;
		uint32_t have;

		if (!(p->want & 1u << s))
			continue;
		have = x->raw_len - k * FLASH_SECTOR;
		if (have > FLASH_SECTOR)
			have = FLASH_SECTOR;
		memcpy(r->buf + i * FLASH_SECTOR, raw + k * FLASH_SECTOR, have);
		memset(r->buf + i * FLASH_SECTOR + have, 0, FLASH_SECTOR - have);
	}
}

static int read_piece(struct ftl *f, const struct read_line *r, const struct read_piece *p,
		      struct ftl_scratch *s)
{
	const struct ftl_extent *x = p->x;
	uint32_t whole = x->count * FLASH_SECTOR;
	struct ftl_media_record h;
	const uint8_t *payload;
	uint8_t *dst;
	int err;

	if (!p->eb || (x->flags & FTL_F_LOST))
		return -EUCLEAN;
	err = ftl_read_record(f, p->eb, p->chunk, x->pos, x->stored_len, s, &h,
			      &payload);
	if (err)
		return err;
	if (!p->chunk && !ftl_eb_is(p->eb, FTL_POS_SEQ(x->pos)))
		return -EUCLEAN;
	if (h.type != FTL_REC_DATA || h.file != r->file || h.stamp != x->stamp ||
	    h.addr != FTL_ADDR(r->line, x->first, x->count) || h.raw_len != x->raw_len)
		return -EUCLEAN;
	if (p->want != ftl_mask(x->first, x->count)) {
		err = ftl_zip_unpack(s, h.flags, payload, h.stored_len, s->raw, h.raw_len);
		if (!err)
			read_scatter(r, p, s->raw);
		return err;
	}
	dst = r->buf + (x->first - r->first) * FLASH_SECTOR;
	err = ftl_zip_unpack(s, h.flags, payload, h.stored_len, dst, h.raw_len);
	if (!err)
		memset(dst + h.raw_len, 0, whole - h.raw_len);
	return err;
}

/* Lock held: what to read, and references to chunks in memory. */
static unsigned read_plan(struct ftl *f, const struct read_line *r, const struct ftl_value *v,
			  struct read_piece *p)
{
	uint16_t mask = ftl_mask(r->first, r->count);
	unsigned n = 0;

	for (unsigned i = 0; i < v->n; i++) {
		const struct ftl_extent *x = &v->x[i];

		if (!(x->valid & mask) || x->epoch < r->min_epoch)
			continue;
		p[n].x = x;
		p[n].want = x->valid & mask;
		p[n].eb = ftl_eb_find(f, x->pos);
		p[n].chunk = p[n].eb ? ftl_log_chunk(p[n].eb, FTL_POS_OFF(x->pos)) : NULL;
		n++;
	}
	return n;
}

static bool read_still_there(struct ftl *f, const struct read_line *r, ftl_pos pos)
{
	struct ftl_value v;
	bool there = false;

	lock_acquire(&f->lock);
	if (!ftl_map_read(f, r->file, r->line, &v))
		for (unsigned i = 0; i < v.n; i++)
			there |= v.x[i].pos == pos;
	lock_release(&f->lock);
	return there;
}

static void read_mark(struct ftl *f, const struct read_line *r, const struct read_piece *p, bool bad)
{
	const struct ftl_extent *x = p->x;

	for (unsigned i = 0; i < r->count; i++) {
		uint16_t bit = (uint16_t)(1u << (r->first + i));

		if (!(p->want & bit))
			continue;
		r->state[i].stamp = x->stamp;
		r->state[i].epoch = x->epoch;
		r->state[i].flags = FLASH_PRESENT | (x->dirty & bit ? FLASH_DIRTY : 0) |
				    (bad ? FLASH_CORRUPT : 0);
	}
	if (!bad)
		return;
	atomic_fetch_add(&f->a_corrupt, (unsigned)__builtin_popcount(p->want));
	if (!(x->flags & FTL_F_LOST))
		log_error(FTL_MODULE, "controller %u: file %" PRIu64 " line %" PRIu64
			  ": corrupt record at %" PRIu64 ":%u", f->super.controller, r->file,
			  r->line, FTL_POS_SEQ(x->pos), FTL_POS_OFF(x->pos));
}

/* -EAGAIN: something moved, look again. */
static int read_line_once(struct ftl *f, const struct read_line *r, struct ftl_scratch *s)
{
	struct read_piece p[FLASH_LINE_SECTORS];
	struct ftl_value v;
	unsigned n = 0;
	bool chunks = false;
	int err;

	memset(r->state, 0, r->count * sizeof(*r->state));
	lock_acquire(&f->lock);
	err = ftl_map_read(f, r->file, r->line, &v);
	if (!err)
		n = read_plan(f, r, &v, p);
	lock_release(&f->lock);
	for (unsigned i = 0; i < n; i++) {
		int e = err ? err : read_piece(f, r, &p[i], s);

		chunks |= p[i].chunk != NULL;
		if (e && !err && !read_still_there(f, r, p[i].x->pos))
			err = -EAGAIN;
		if (!err)
			read_mark(f, r, &p[i], e != 0);
	}
	if (chunks) {
		lock_acquire(&f->lock);
		for (unsigned i = 0; i < n; i++)
			if (p[i].chunk)
				ftl_log_unref(f, p[i].chunk);
		lock_release(&f->lock);
	}
	return err;
}

int ftl_read(struct ftl *f, uint64_t file, uint64_t sector, uint32_t count, uint32_t min_epoch,
	     void *buf, struct flash_sector *state)
{
	struct ftl_scratch *s;
	int err = 0;

	if (!count || sector > FLASH_SECTOR_MAX || count - 1 > FLASH_SECTOR_MAX - sector)
		return -EINVAL;
	s = ftl_scratch_get(f);
	if (!s)
		return -ENOMEM;
	atomic_fetch_add_explicit(&f->a_reads, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&f->a_read_bytes, (uint64_t)count * FLASH_SECTOR,
				  memory_order_relaxed);
	for (uint32_t done = 0; done < count && !err;) {
		struct read_line r = {
			.file = file, .line = (sector + done) / FLASH_LINE_SECTORS,
			.first = (unsigned)((sector + done) % FLASH_LINE_SECTORS),
			.min_epoch = min_epoch, .state = state + done,
			.buf = (uint8_t *)buf + (size_t)done * FLASH_SECTOR,
		};

		r.count = FLASH_LINE_SECTORS - r.first;
		if (r.count > count - done)
			r.count = count - done;
		err = -EAGAIN;
		for (int tries = 0; err == -EAGAIN && tries < READ_TRIES; tries++)
			err = read_line_once(f, &r, s);
		done += r.count;
	}
	ftl_scratch_put(f, s);
	return err == -EAGAIN ? -EIO : err;
}
