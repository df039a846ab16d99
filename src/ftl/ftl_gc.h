/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Between ftl_gc.c (which erase block) and ftl_gc_move.c (what happens to its records).
 */
#ifndef GILD_FTL_FTL_GC_H
#define GILD_FTL_FTL_GC_H

#include "ftl/ftl_priv.h"

struct gc { /* one victim */
	struct ftl *f;
	struct ftl_eb *eb;
	struct ftl_scratch *s;
	bool tombs;        /* taken for its dead records, whatever it gains */
	uint64_t min_dead; /* when the round began */
	int err;
};

/* Moves, drops or retires a record of the victim if it is live. */
int ftl_gc_record(struct gc *g, const struct ftl_media_index *x);
int ftl_gc_data(struct gc *g, const struct ftl_media_index *x);
/* Bytes that dropping the record would free, were it asked for now. */
uint32_t ftl_gc_would_drop(struct gc *g, const struct ftl_media_index *x);
/* Lock held: a line was dropped silently from an EB. */
int ftl_gc_note_drop(struct ftl *f, const struct ftl_eb *eb, uint64_t file, uint64_t line);

#endif
