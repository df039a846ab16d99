/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Map against log, both ways.
 *
 *   map -> log   every extent's record is at its place, with the same address, stamp and lengths;
 *                sums give each EB's live bytes and the totals
 *   log -> map   every data record that the map does not have as its header says is explained: by a
 *                higher stamp, a copy, a tombstone, or (clean) by a drop; and its EB's min_dead knows
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ftl/ftl_priv.h"

struct audit {
	struct ftl *f;
	struct ftl_scratch *s;
	uint64_t *live, *waste; /* per EB */
	uint64_t sectors, dirty, ctl;
	unsigned bad;
};

#define audit_bad(a, ...)                                                                          \
	do {                                                                                       \
		(a)->bad++;                                                                        \
		log_error(FTL_MODULE, "audit: " __VA_ARGS__);                                      \
	} while (0)

/* The record at `pos`; counts its bytes as live. */
static int audit_record(struct audit *a, ftl_pos pos, uint32_t stored_len,
			struct ftl_media_record *h, const char *what)
{
	const uint8_t *payload;
	struct ftl_chunk *c;
	struct ftl_eb *eb;
	int err;

	lock_acquire(&a->f->lock);
	eb = ftl_eb_find(a->f, pos);
	c = eb ? ftl_log_chunk(eb, FTL_POS_OFF(pos)) : NULL;
	lock_release(&a->f->lock);
	if (!eb || (eb->state != EB_OPEN && eb->state != EB_CLOSED)) {
		audit_bad(a, "%s at %" PRIu64 ":%u: no such erase block", what, FTL_POS_SEQ(pos),
			  FTL_POS_OFF(pos));
		return -EUCLEAN;
	}
	a->live[eb->index] += ftl_record_bytes(stored_len);
	err = ftl_read_record(a->f, eb, c, pos, stored_len, a->s, h, &payload);
	if (err)
		audit_bad(a, "%s at %" PRIu64 ":%u (erase block %u): %s", what, FTL_POS_SEQ(pos),
			  FTL_POS_OFF(pos), eb->index, strerror(-err));
	lock_acquire(&a->f->lock);
	if (c)
		ftl_log_unref(a->f, c);
	lock_release(&a->f->lock);
	return err;
}

static void audit_waste(struct audit *a, const struct ftl_extent *x)
{
	struct ftl_eb *eb;

	lock_acquire(&a->f->lock);
	eb = ftl_eb_find(a->f, x->pos);
	lock_release(&a->f->lock);
	if (eb)
		a->waste[eb->index] += ftl_extent_waste(x);
}

static void audit_line(struct audit *a, const struct ftl_linekey *k)
{
	struct ftl_value v;
	int err;

	lock_acquire(&a->f->lock);
	err = ftl_map_read(a->f, k->file, k->line, &v);
	lock_release(&a->f->lock);
	if (err) {
		a->bad++;
		return;
	}
	if (v.n && !ftl_map_check(v.x, v.n))
		audit_bad(a, "file %" PRIu64 " line %" PRIu64 ": extents overlap", k->file, k->line);
	for (unsigned i = 0; i < v.n; i++) {
		const struct ftl_extent *x = &v.x[i];
		struct ftl_media_record h;

		a->sectors += (unsigned)__builtin_popcount(x->valid);
		a->dirty += (unsigned)__builtin_popcount(x->dirty);
		audit_waste(a, x);
		if (audit_record(a, x->pos, x->stored_len, &h, "data"))
			continue;
		if (h.type != FTL_REC_DATA || h.file != k->file || h.stamp != x->stamp ||
		    h.addr != FTL_ADDR(k->line, x->first, x->count) || h.raw_len != x->raw_len ||
		    h.epoch != x->epoch || (x->valid & ~h.valid) || (x->dirty & ~h.dirty))
			audit_bad(a, "file %" PRIu64 " line %" PRIu64 ": record and map differ",
				  k->file, k->line);
	}
}

static void audit_map(struct audit *a)
{
	struct ftl_linekey from = {0, 0}, to = {UINT64_MAX, UINT64_MAX}, *keys = NULL;
	size_t n = 0;

	if (ftl_map_keys(a->f, from, to, &keys, &n)) {
		audit_bad(a, "the map cannot be walked");
		return;
	}
	for (size_t i = 0; i < n; i++)
		audit_line(a, &keys[i]);
	free(keys);
}

static void audit_tombs(struct audit *a)
{
	struct ftl_tomb *v = NULL;
	size_t n = 0;

	lock_acquire(&a->f->lock);
	if (ftl_tomb_list(a->f, &v, &n))
		a->bad++;
	lock_release(&a->f->lock);
	for (size_t i = 0; i < n; i++) {
		struct ftl_media_record h;

		if (!audit_record(a, v[i].pos, sizeof(struct ftl_media_range), &h, "tombstone") &&
		    (h.type != v[i].key.type || h.stamp != v[i].stamp || h.file != v[i].key.file))
			audit_bad(a, "tombstone of file %" PRIu64 " differs", v[i].key.file);
	}
	free(v);
}

static int audit_ctl(void *arg, const struct ftl_ctlkey *k, const struct ftl_ctlmeta *m)
{
	struct ftl_media_record h;
	struct audit *a = arg;

	a->ctl += !m->deleted;
	if (!audit_record(a, m->pos, (uint32_t)sizeof(struct ftl_media_ctl) + m->len, &h, "control") &&
	    (h.stamp != m->stamp || h.type != (m->deleted ? FTL_REC_CTL_DEL : FTL_REC_CTL)))
		audit_bad(a, "control record of kind %u differs", k->kind);
	return 0;
}

/* Sectors of the record for which the map has nothing, or something older. */
static uint16_t audit_missing(const struct ftl_value *v, const struct ftl_media_index *x)
{
	uint16_t newer = 0;

	for (unsigned i = 0; i < v->n; i++)
		if (v->x[i].stamp >= x->stamp)
			newer |= v->x[i].valid;
	return x->valid & (uint16_t)~newer;
}

static void audit_dead(struct audit *a, struct ftl_eb *eb, const struct ftl_media_index *x)
{
	uint64_t line = FTL_ADDR_LINE(x->addr), min_dead;
	ftl_pos pos = FTL_POS(eb->seq, x->offset);
	uint16_t missing, trimmed, cleaned;
	bool as_header = false;
	struct ftl_value v;

	lock_acquire(&a->f->lock);
	if (ftl_map_read(a->f, x->file, line, &v))
		a->bad++;
	missing = audit_missing(&v, x);
	trimmed = ftl_tomb_cover(a->f, FTL_REC_TRIM, x->file, line, missing, x->stamp);
	cleaned = ftl_tomb_cover(a->f, FTL_REC_CLEAN, x->file, line, missing, x->stamp);
	min_dead = eb->min_dead;
	lock_release(&a->f->lock);
	for (unsigned i = 0; i < v.n; i++) {
		if (v.x[i].pos == pos)
			as_header = v.x[i].valid == x->valid && v.x[i].dirty == x->dirty;
		/* A trim or a newer version may not have been forgotten. */
		if (v.x[i].stamp < x->stamp && v.x[i].valid & missing & ~trimmed)
			audit_bad(a, "file %" PRIu64 " line %" PRIu64 ": the log has stamp %" PRIu64
				  ", the map %" PRIu64, x->file, line, x->stamp, v.x[i].stamp);
	}
	if (missing & x->dirty & ~trimmed & ~cleaned)
		audit_bad(a, "file %" PRIu64 " line %" PRIu64 ": dirty sectors %04x of stamp %" PRIu64
			  " are gone", x->file, line, missing & x->dirty & ~trimmed & ~cleaned,
			  x->stamp);
	if (!as_header && min_dead > x->stamp)
		audit_bad(a, "erase block %u: min_dead %" PRIu64 ", but %" PRIu64 " is dead in it",
			  eb->index, min_dead, x->stamp);
}

static void audit_log(struct audit *a)
{
	for (uint32_t i = 0; i < a->f->geom.ebs; i++) {
		struct ftl_eb *eb = &a->f->ebs[i];

		if (eb->state != EB_OPEN && eb->state != EB_CLOSED)
			continue;
		if (ftl_scan_index(a->f, eb)) {
			audit_bad(a, "erase block %u cannot be read", i);
			continue;
		}
		for (uint32_t k = 0; k < eb->records; k++)
			if (eb->idx[k].type == FTL_REC_DATA)
				audit_dead(a, eb, &eb->idx[k]);
		if (eb->footer)
			ftl_eb_free_index(eb);
	}
}

static void audit_sums(struct audit *a)
{
	struct ftl *f = a->f;
	uint64_t live = 0;
	uint32_t nfree = 0;

	for (uint32_t i = 0; i < f->geom.ebs; i++) {
		live += a->live[i];
		nfree += f->ebs[i].state == EB_FREE;
		if (f->ebs[i].live != a->live[i] || f->ebs[i].waste != a->waste[i])
			audit_bad(a, "erase block %u (state %u): %" PRIu64 " live and %" PRIu64
				  " wasted bytes counted, %" PRIu64 " and %" PRIu64 " found", i,
				  f->ebs[i].state, f->ebs[i].live, f->ebs[i].waste, a->live[i],
				  a->waste[i]);
	}
	if (live != f->live_bytes || a->sectors != f->live_sectors || a->dirty != f->dirty_sectors ||
	    a->ctl != f->ctl_records || nfree != f->nfree)
		audit_bad(a, "totals differ: live %" PRIu64 "/%" PRIu64 " sectors %" PRIu64 "/%" PRIu64
			  " dirty %" PRIu64 "/%" PRIu64 " control %" PRIu64 "/%" PRIu64
			  " free %u/%u", live, f->live_bytes, a->sectors, f->live_sectors, a->dirty,
			  f->dirty_sectors, a->ctl, f->ctl_records, nfree, f->nfree);
}

int ftl_audit(struct flash *fl)
{
	struct ftl *f = ftl_of(fl);
	struct audit a = {.f = f};

	a.s = ftl_scratch_get(f);
	a.live = calloc(f->geom.ebs, sizeof(*a.live));
	a.waste = calloc(f->geom.ebs, sizeof(*a.waste));
	if (!a.s || !a.live || !a.waste) {
		ftl_scratch_put(f, a.s);
		free(a.live);
		free(a.waste);
		return -ENOMEM;
	}
	lock_acquire(&f->gc_lock);
	audit_map(&a);
	audit_tombs(&a);
	if (ftl_ctl_each(f, audit_ctl, &a))
		audit_bad(&a, "control records cannot be walked");
	audit_log(&a);
	audit_sums(&a);
	lock_release(&f->gc_lock);
	ftl_scratch_put(f, a.s);
	free(a.live);
	free(a.waste);
	return a.bad ? -EUCLEAN : 0;
}
