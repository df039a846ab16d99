/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Making a controller, and telling what is on a medium: the superblocks.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "ftl/ftl_priv.h"

#define FORMAT_SEQ_GAP (1ULL << 20) /* more than a life uses after its last checkpoint */
#define FORMAT_LSN_GAP (1ULL << 42)

const char *const ftl_tables[] = {"map", "ctl", "tombs", "ebs", "state", NULL};

void ftl_space(const struct ftl_geom *g, uint32_t op_percent, struct ftl_space *out)
{
	uint64_t payload = g->logical - 2 * FTL_BLOCK;
	uint64_t record = FLASH_SECTOR + FTL_RECORD_HEADER + sizeof(struct ftl_media_index);
	uint32_t share = g->ebs / 64 > 2 ? g->ebs / 64 : 2;
	uint32_t ebs;

	out->reserve_gc = 2;
	out->reserve_ctl = share > 3 ? share : 3; /* GC's open EB, new records, what makes space */
	out->low_water = out->reserve_gc + out->reserve_ctl + share;
	out->high_water = out->low_water + share;
	ebs = g->ebs - out->low_water - FTL_STREAMS;
	out->usable = ebs * payload / record * FLASH_SECTOR / (100 + op_percent) * 100;
}

uint64_t ftl_usable_bytes(uint64_t raw_bytes, const struct ftl_geometry *in, uint32_t op_percent)
{
	struct ftl_space space;
	struct ftl_geom g;

	if (ftl_geom_init(&g, raw_bytes, in))
		return 0;
	ftl_space(&g, op_percent, &space);
	return space.usable;
}

static void format_super(const struct ftl_format *f, const struct ftl_geom *g,
			 struct ftl_media_super *s)
{
	memset(s, 0, sizeof(*s));
	s->magic = FTL_MAGIC_SUPER;
	s->version = FTL_VERSION;
	memcpy(s->uuid, f->uuid, sizeof(s->uuid));
	s->controller = f->controller;
	s->controllers = f->controllers;
	s->raw_bytes = g->raw_bytes;
	s->first_eb = g->first_eb;
	s->erase_block = g->eb_bytes;
	s->erase_blocks = g->ebs;
	s->dies = g->dies;
	s->slice = g->slice;
	s->parity = g->parity;
	s->op_percent = f->op_percent;
	s->savings_spare = f->savings_spare;
	s->volume_bytes = f->volume_bytes;
	s->format_time = (uint64_t)time(NULL);
	s->clean = 1;
}

/* A controller that is emptied keeps its uuid, and what it held stays on the medium: no sequence or lsn of
 * that life may come again, or its records would pass. They begin by the clock, and above the old ones
 * where the old superblock tells. */
static void format_begin(struct media *m, struct ftl_media_super *s)
{
	struct ftl_media_super old = {.magic = 0};
	int slot;

	s->seq = 1 + ((s->format_time & UINT32_MAX) << 6);
	s->lsn = 1 + ((s->format_time & UINT32_MAX) << 30);
	if (ftl_super_read(m, &old, &slot))
		return;
	if (old.seq < FTL_SEQ_MAX - FORMAT_SEQ_GAP && old.seq + FORMAT_SEQ_GAP > s->seq)
		s->seq = old.seq + FORMAT_SEQ_GAP;
	if (old.lsn < FTL_LSN_MAX - FORMAT_LSN_GAP && old.lsn + FORMAT_LSN_GAP > s->lsn)
		s->lsn = old.lsn + FORMAT_LSN_GAP;
}

/* Every EB gets an ERASED header: the medium may hold another life of the same uuid. */
static int format_ebs(struct media *m, const struct ftl_media_super *s, const struct ftl_geom *g,
		      uint8_t *block)
{
	int err = 0;

	for (uint32_t i = 0; i < g->ebs && !err; i++) {
		struct ftl_media_eb h = {
			.magic = FTL_MAGIC_EB, .version = FTL_VERSION, .controller = s->controller,
			.state = FTL_EB_ERASED, .index = i,
		};

		memcpy(h.uuid, s->uuid, sizeof(h.uuid));
		ftl_media_put_eb(block, &h);
		err = ftl_geom_write(g, m, i, 0, block, FTL_BLOCK);
	}
	return err ? err : media_flush(m);
}

static int format_supers(struct media *m, const uint8_t *block)
{
	int err = media_write(m, block, FTL_BLOCK, 0);

	if (!err)
		err = media_write(m, block, FTL_BLOCK, FTL_BLOCK);
	return err ? err : media_flush(m);
}

int ftl_meta_clear(struct meta *meta)
{
	struct meta_txn *t;
	int err = meta_begin_write(meta, &t);

	if (err)
		return err;
	for (unsigned i = 0; ftl_tables[i] && !err; i++)
		err = meta_clear(t, i);
	if (err) {
		meta_abort(t);
		return err;
	}
	return meta_commit(t);
}

int ftl_format(struct media *m, struct meta *meta, const struct ftl_format *f)
{
	struct ftl_geometry chosen = f->geometry;
	struct ftl_media_super s;
	struct ftl_space space;
	struct ftl_geom g;
	uint8_t *block = NULL;
	int err = 0;

	if (!chosen.erase_block)
		err = ftl_choose_geometry(media_size(m), &chosen);
	if (err)
		return err;
	if (chosen.parity || f->geometry.parity)
		return -ENOTSUP;
	err = ftl_geom_init(&g, media_size(m), &chosen);
	if (err)
		return err;
	if (f->op_percent > 400 || f->volume_bytes % FLASH_SECTOR)
		return -EINVAL;
	ftl_space(&g, f->op_percent, &space);
	if (f->volume_bytes > space.usable)
		return -ENOSPC;
	block = aligned_alloc(FTL_BLOCK, FTL_BLOCK);
	if (!block)
		return -ENOMEM;
	memset(block, 0, FTL_BLOCK);
	format_super(f, &g, &s);
	format_begin(m, &s);
	err = format_supers(m, block); /* from here on it is nobody's */
	if (!err)
		err = format_ebs(m, &s, &g, block);
	if (!err)
		err = ftl_ckpt_init(meta, &s, &g);
	if (err)
		goto out;
	ftl_media_put_super(block, &s);
	err = format_supers(m, block);
out:
	free(block);
	return err;
}

/* The newer valid superblock; *slot: where. Of equal ones, the one that is not clean. */
int ftl_super_read(struct media *m, struct ftl_media_super *out, int *slot)
{
	uint8_t *block = aligned_alloc(FTL_BLOCK, FTL_BLOCK);
	int best = -ENODATA;

	if (!block)
		return -ENOMEM;
	for (int i = 0; i < 2; i++) {
		struct ftl_media_super s;
		int err = media_size(m) < 2 * FTL_BLOCK ? -ENODATA :
			  media_read(m, block, FTL_BLOCK, (uint64_t)i * FTL_BLOCK);

		if (!err)
			err = ftl_media_get_super(block, &s);
		if (err) {
			if (best == -ENODATA)
				best = err;
			continue;
		}
		if (!best && (s.checkpoint < out->checkpoint ||
			      (s.checkpoint == out->checkpoint && s.clean)))
			continue;
		*out = s;
		*slot = i;
		best = 0;
	}
	free(block);
	return best;
}

static void super_format(const struct ftl_media_super *s, struct ftl_format *f)
{
	memset(f, 0, sizeof(*f));
	memcpy(f->uuid, s->uuid, sizeof(f->uuid));
	f->controller = s->controller;
	f->controllers = s->controllers;
	f->geometry.erase_block = s->erase_block;
	f->geometry.dies = s->dies;
	f->geometry.slice = s->slice;
	f->geometry.parity = s->parity;
	f->op_percent = s->op_percent;
	f->savings_spare = s->savings_spare;
	f->volume_bytes = s->volume_bytes;
}

/* The geometry a superblock names, if it can be true of this medium. */
int ftl_super_geom(const struct ftl_media_super *s, struct media *m, struct ftl_geom *g)
{
	struct ftl_format f;

	super_format(s, &f);
	if (s->raw_bytes > media_size(m)) {
		log_error(FTL_MODULE, "controller %u: the medium has %llu bytes, was formatted with %llu:"
			  " it was truncated", s->controller, (unsigned long long)media_size(m),
			  (unsigned long long)s->raw_bytes);
		return -EUCLEAN;
	}
	if (ftl_geom_init(g, s->raw_bytes, &f.geometry) || g->first_eb != s->first_eb ||
	    g->ebs != s->erase_blocks || s->op_percent > 400 || s->seq > FTL_SEQ_MAX ||
	    s->lsn > FTL_LSN_MAX) {
		log_error(FTL_MODULE, "controller %u: its superblock makes no sense", s->controller);
		return -EUCLEAN;
	}
	return 0;
}

int ftl_identify(struct media *m, struct ftl_identity *out)
{
	struct ftl_media_super s = {.magic = 0};
	int slot, err = ftl_super_read(m, &s, &slot);

	if (err)
		return err;
	super_format(&s, &out->format);
	out->checkpoint = s.checkpoint;
	out->raw_bytes = s.raw_bytes;
	out->clean = s.clean;
	return 0;
}
