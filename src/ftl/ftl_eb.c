/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The erase block table: states (ftl_priv.h), live bytes, the stamps of what is dead.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "ftl/ftl_priv.h"

int ftl_eb_init(struct ftl *f)
{
	int err = htab_init(&f->seqs, f->geom.ebs);

	if (err)
		return err;
	f->ebs = calloc(f->geom.ebs, sizeof(*f->ebs));
	if (!f->ebs)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->geom.ebs; i++) {
		f->ebs[i].index = i;
		f->ebs[i].min_dead = UINT64_MAX;
		f->ebs[i].changed = true;
	}
	f->gc_epoch = 1;
	f->nfree = f->geom.ebs;
	return 0;
}

void ftl_eb_destroy(struct ftl *f)
{
	for (uint32_t i = 0; f->ebs && i < f->geom.ebs; i++)
		ftl_eb_free_index(&f->ebs[i]);
	free(f->ebs);
	htab_destroy(&f->seqs);
}

struct ftl_eb *ftl_eb_find(struct ftl *f, ftl_pos pos)
{
	uint64_t seq = FTL_POS_SEQ(pos);
	struct htab_node *n;

	for (n = htab_find(&f->seqs, hash_mix64(seq)); n; n = htab_next(n)) {
		struct ftl_eb *eb = container_of(n, struct ftl_eb, by_seq);

		if (eb->seq == seq)
			return eb;
	}
	return NULL;
}

void ftl_eb_set_seq(struct ftl *f, struct ftl_eb *eb, uint64_t seq)
{
	__atomic_store_n(&eb->seq, seq, __ATOMIC_RELEASE);
	htab_insert(&f->seqs, &eb->by_seq, hash_mix64(seq));
}

bool ftl_eb_is(const struct ftl_eb *eb, uint64_t seq)
{
	return __atomic_load_n(&eb->seq, __ATOMIC_ACQUIRE) == seq;
}

void ftl_eb_clear_seq(struct ftl *f, struct ftl_eb *eb)
{
	if (eb->state == EB_FREE)
		return;
	htab_remove(&f->seqs, &eb->by_seq);
}

void ftl_eb_set_state(struct ftl *f, struct ftl_eb *eb, enum ftl_eb_state state)
{
	if (eb->state == EB_FREE)
		f->nfree--;
	if (eb->state == EB_PENDING || eb->state == EB_ERASING)
		f->npending--;
	if (state == EB_FREE)
		f->nfree++;
	if (state == EB_PENDING || state == EB_ERASING)
		f->npending++;
	__atomic_store_n(&eb->state, (uint8_t)state, __ATOMIC_RELAXED); /* see ftl_ckpt_erase() */
	eb->changed = true;
	ftl_changed(f);
}

void ftl_eb_add(struct ftl *f, ftl_pos pos, uint32_t bytes)
{
	struct ftl_eb *eb = ftl_eb_find(f, pos);

	gild_assert(eb);
	eb->live += bytes;
	eb->changed = true;
	f->live_bytes += bytes;
}

void ftl_eb_sub_tomb(struct ftl *f, ftl_pos pos, uint32_t bytes)
{
	struct ftl_eb *eb = ftl_eb_find(f, pos);

	/* The position comes from LMDB: it may be nonsense. */
	if (!eb || eb->live < bytes || f->live_bytes < bytes) {
		log_error(FTL_MODULE, "controller %u: the map is damaged: no live record at %" PRIu64
			  ":%u; run recover", f->super.controller, FTL_POS_SEQ(pos), FTL_POS_OFF(pos));
		f->health = FLASH_DEGRADED > f->health ? FLASH_DEGRADED : f->health;
		return;
	}
	eb->live -= bytes;
	eb->changed = true;
	f->live_bytes -= bytes;
	ftl_gc_unstick(f);
}

void ftl_eb_sub(struct ftl *f, ftl_pos pos, uint32_t bytes, uint64_t stamp)
{
	struct ftl_eb *eb = ftl_eb_find(f, pos);

	if (bytes)
		ftl_eb_sub_tomb(f, pos, bytes);
	if (eb && stamp < eb->min_dead) {
		eb->min_dead = stamp;
		eb->changed = true;
	}
}

uint64_t ftl_eb_min_dead(struct ftl *f)
{
	uint64_t min = UINT64_MAX;

	for (uint32_t i = 0; i < f->geom.ebs; i++)
		if (f->ebs[i].state != EB_FREE && f->ebs[i].min_dead < min)
			min = f->ebs[i].min_dead;
	return min;
}

bool ftl_eb_guarded(struct ftl *f, uint64_t stamp, uint64_t lsn)
{
	for (uint32_t i = 0; i < f->geom.ebs; i++)
		if (f->ebs[i].state != EB_FREE && f->ebs[i].first_lsn < lsn &&
		    f->ebs[i].min_dead <= stamp)
			return true;
	return false;
}

struct ftl_eb *ftl_eb_take(struct ftl *f)
{
	struct ftl_eb *best = NULL;

	for (uint32_t i = 0; i < f->geom.ebs; i++) {
		struct ftl_eb *eb = &f->ebs[i];

		if (eb->state == EB_FREE && (!best || eb->erase_count < best->erase_count))
			best = eb;
	}
	return best;
}

uint32_t ftl_eb_limit(const struct ftl *f, uint32_t records)
{
	uint64_t tail = FTL_BLOCK + ftl_index_bytes(records);

	return tail >= f->geom.logical ? 0 : f->geom.logical - (uint32_t)tail;
}

int ftl_eb_index_add(struct ftl_eb *eb, const struct ftl_media_index *x)
{
	if (eb->records == eb->idx_cap) {
		uint32_t cap = eb->idx_cap ? eb->idx_cap * 2 : 64;
		struct ftl_media_index *p = realloc(eb->idx, cap * sizeof(*p));

		if (!p)
			return -ENOMEM;
		eb->idx = p;
		eb->idx_cap = cap;
	}
	eb->idx[eb->records++] = *x;
	return 0;
}

void ftl_eb_free_index(struct ftl_eb *eb)
{
	free(eb->idx);
	eb->idx = NULL;
	eb->idx_cap = 0;
}
