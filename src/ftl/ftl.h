/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One controller: a log-structured, compressing flash translation layer over one medium and one
 * LMDB environment. Offers the flash contract (flash.h). Knows nothing of cards or caches.
 */
#ifndef GILD_FTL_FTL_H
#define GILD_FTL_FTL_H

#include "flash.h"
#include "media/media.h"
#include "meta/meta.h"

/* Tables of the controller's LMDB environment, in this order (meta_open's argument). */
extern const char *const ftl_tables[];

struct ftl_geometry {
	uint32_t erase_block; /* bytes, power of two, 256 KiB .. 256 MiB */
	uint32_t dies;        /* slices in a row, 2 .. 64; one is parity when `parity` */
	uint32_t slice;       /* bytes of a slice, power of two, >= 4096 */
	bool parity;          /* RAISE; not built yet: ftl_format answers -ENOTSUP */
};

struct ftl_format {
	uint8_t uuid[16];     /* of the card */
	uint32_t controller;  /* its index in the card */
	uint32_t controllers; /* how many the card has */
	struct ftl_geometry geometry; /* zero: chosen from the medium's size */
	uint32_t op_percent;  /* over-provisioning: usable = raw / (1 + op/100) */
	bool savings_spare;   /* compression becomes spare instead of capacity */
	uint64_t volume_bytes; /* thick file 0; 0: a cache */
};

struct ftl_identity { /* what a superblock says */
	struct ftl_format format;
	uint64_t checkpoint; /* number of the last checkpoint known to the medium */
	uint64_t raw_bytes;
	bool clean;          /* closed properly */
};

struct ftl_options {
	bool background;          /* own thread for GC, checkpoints and the flush every second; without
				   * it, ftl_step() does one round (tests) */
	uint64_t checkpoint_bytes; /* log bytes between checkpoints; 0: 1/16 of raw, 8 MiB..1 GiB */
	uint64_t checkpoint_lines; /* overlay lines that force one; 0: 65536 */
	unsigned zstd_level;      /* 0: 1 */
	bool readonly;            /* replay in memory, write nothing */
};

/* What ftl_format would choose for a medium of `raw_bytes`. -ENOSPC when it is too small. */
int ftl_choose_geometry(uint64_t raw_bytes, struct ftl_geometry *out);
/* What live data may take of it, as flash_stats.usable_bytes will say. 0: not a geometry. */
uint64_t ftl_usable_bytes(uint64_t raw_bytes, const struct ftl_geometry *g, uint32_t op_percent);
/* Writes superblocks and empties the environment. Whatever the medium held is lost. */
int ftl_format(struct media *m, struct meta *meta, const struct ftl_format *f);
/* Reads the superblock. -ENODATA: not a controller; -EPROTO: of a newer version; -EUCLEAN. */
int ftl_identify(struct media *m, struct ftl_identity *out);
/* Last checkpoint + replay. Errors besides the above: -ESTALE the environment does not belong to
 * this medium, or is older than it: ftl_recover() is needed. `media` and `meta` stay the caller's
 * and outlive the controller. Whoever calls logs nothing: ftl has. */
int ftl_open(struct flash **out, struct media *m, struct meta *meta, const struct ftl_options *o);
/* Rebuilds the environment (emptied first) from the log alone. */
int ftl_recover(struct media *m, struct meta *meta);

/* flush in two halves, for a card whose controllers share one medium (one media flush for all):
 * begin writes everything acknowledged so far and returns 1 and a token when the medium must be
 * flushed now, 0 when all of it is durable already, or an error; end is told that flush's result
 * (called exactly once after a 1, also on errors; returns 0 or the error). Any thread; several
 * pairs may overlap. */
int ftl_flush_begin(struct flash *f, uint64_t *token);
int ftl_flush_end(struct flash *f, uint64_t token, int media_result);

/* Without `background`: one round of GC (when space is short), checkpoint (when due), footers. */
int ftl_step(struct flash *f);
/* Forces a checkpoint: afterwards nothing needs replay. */
int ftl_checkpoint(struct flash *f);
/* Map against log, both ways; live bytes per erase block. 0, or -EUCLEAN after logging each
 * difference. No writes may run meanwhile. */
int ftl_audit(struct flash *f);

#endif
