/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tombstones: logged trims and mark_cleans that may still have to hold back older records in the
 * log. All are in memory, by line where they lie in one, and in a list a file.
 *
 * A tombstone acts on data of its range with a stamp up to its own. A newer one with the same or a
 * wider range makes it superfluous (a trim also a mark_clean): its record is dead then, and harmless
 * if it comes back. GC copies the others, or retires them (ftl_gc.c, invariant 3 in ftl_priv.h).
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "ftl/ftl_priv.h"

#define TOMB_KEY 25
#define TOMBS_MOST 65536

static uint64_t tomb_last(const struct ftl_tombkey *k)
{
	return k->count > FLASH_SECTOR_MAX - k->first ? FLASH_SECTOR_MAX : k->first + k->count - 1;
}

static uint64_t tomb_wide_hash(uint64_t file)
{
	return hash_mix64(~file);
}

static uint64_t tomb_hash(const struct ftl_tombkey *k)
{
	uint64_t line = k->first / FLASH_LINE_SECTORS;

	if (tomb_last(k) / FLASH_LINE_SECTORS != line)
		return tomb_wide_hash(k->file);
	return ftl_hash2(k->file, line);
}

static bool tomb_same(const struct ftl_tombkey *a, const struct ftl_tombkey *b)
{
	return a->type == b->type && a->file == b->file && a->first == b->first &&
	       a->count == b->count;
}

void ftl_tomb_key(const struct ftl_tombkey *k, uint8_t out[TOMB_KEY])
{
	uint64_t be[3] = {htobe64(k->file), htobe64(k->first), htobe64(k->count)};

	out[0] = k->type;
	memcpy(out + 1, be, sizeof(be));
}

struct ftl_tomb *ftl_tomb_find(struct ftl *f, const struct ftl_tombkey *k)
{
	struct htab_node *n;

	for (n = htab_find(&f->tombs, tomb_hash(k)); n; n = htab_next(n)) {
		struct ftl_tomb *t = container_of(n, struct ftl_tomb, node);

		if (tomb_same(&t->key, k))
			return t;
	}
	return NULL;
}

static struct ftl_tombfile *tomb_file(struct ftl *f, uint64_t file)
{
	struct htab_node *n;

	for (n = htab_find(&f->tombfiles, hash_mix64(file)); n; n = htab_next(n)) {
		struct ftl_tombfile *p = container_of(n, struct ftl_tombfile, node);

		if (p->file == file)
			return p;
	}
	return NULL;
}

static int tomb_note(struct ftl *f, const struct ftl_tombkey *k, uint64_t stamp, uint64_t lsn,
		     ftl_pos pos)
{
	struct ftl_overlay *o = f->cur;

	if (o->ntombs == o->tombs_cap) {
		size_t cap = o->tombs_cap ? o->tombs_cap * 2 : 64;
		struct ftl_tombchange *p = realloc(o->tombs, cap * sizeof(*p));

		if (!p)
			return -ENOMEM;
		o->tombs = p;
		o->tombs_cap = cap;
	}
	o->tombs[o->ntombs++] = (struct ftl_tombchange){
		.key = *k, .stamp = stamp, .lsn = lsn, .pos = pos,
	};
	ftl_changed(f);
	return 0;
}

uint64_t ftl_tomb_bytes(const struct ftl *f)
{
	return (f->tombs.count + f->ctl_deletions) * FTL_TOMB_COST;
}

void ftl_tomb_pressure(struct ftl *f, uint64_t stamp)
{
	uint64_t n = f->tombs.count + f->ctl_deletions;

	if (stamp > f->max_tomb_stamp)
		f->max_tomb_stamp = stamp;
	/* Half of what is reserved for them, or too much memory: GC turns to what they guard against. */
	if (n % 64 || f->gc_tombs || f->tombs_due)
		return;
	if (ftl_tomb_bytes(f) > f->geom.raw_bytes / 128 || f->tombs.count > TOMBS_MOST) {
		f->gc_tombs = true;
		f->gc_tombs_lsn = f->next_lsn;
		ftl_kick(f);
	}
}

static int tomb_insert(struct ftl *f, const struct ftl_tombkey *k, uint64_t stamp, uint64_t lsn,
		       ftl_pos pos)
{
	struct ftl_tombfile *o = tomb_file(f, k->file);
	struct ftl_tomb *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	if (!o) {
		o = calloc(1, sizeof(*o));
		if (!o) {
			free(t);
			return -ENOMEM;
		}
		o->file = k->file;
		htab_insert(&f->tombfiles, &o->node, hash_mix64(k->file));
	}
	t->key = *k;
	t->stamp = stamp;
	t->lsn = lsn;
	t->pos = pos;
	t->owner = o;
	t->next = o->tombs;
	if (t->next)
		t->next->prev = t;
	o->tombs = t;
	htab_insert(&f->tombs, &t->node, tomb_hash(k));
	ftl_tomb_pressure(f, stamp);
	return 0;
}

int ftl_tomb_remove(struct ftl *f, struct ftl_tomb *t)
{
	int err = tomb_note(f, &t->key, t->stamp, t->lsn, FTL_POS_NONE);

	if (err)
		return err;
	ftl_eb_sub_tomb(f, t->pos, FTL_TOMB_BYTES);
	if (t->prev)
		t->prev->next = t->next;
	else
		t->owner->tombs = t->next;
	if (t->next)
		t->next->prev = t->prev;
	if (!t->owner->tombs) {
		htab_remove(&f->tombfiles, &t->owner->node);
		free(t->owner);
	}
	htab_remove(&f->tombs, &t->node);
	free(t);
	return 0;
}

struct tomb_guard { /* an EB; sorted by first_lsn, min_dead of all up to it */
	uint64_t first_lsn, min_dead;
};

struct tomb_retire {
	struct ftl *f;
	struct tomb_guard *v;
	size_t n;
	int err;
};

static int tomb_guard_cmp(const void *a, const void *b)
{
	const struct tomb_guard *x = a, *y = b;

	return x->first_lsn < y->first_lsn ? -1 : x->first_lsn > y->first_lsn;
}

/* ftl_eb_guarded() for many. */
static bool tomb_guarded(const struct tomb_retire *r, const struct ftl_tomb *t)
{
	size_t lo = 0, hi = r->n; /* the first with first_lsn >= lsn */

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (r->v[mid].first_lsn < t->lsn)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && r->v[lo - 1].min_dead <= t->stamp;
}

static void tomb_retire_one(struct htab_node *n, void *arg)
{
	struct ftl_tomb *t = container_of(n, struct ftl_tomb, node);
	struct tomb_retire *r = arg;

	if (!r->err && !tomb_guarded(r, t))
		r->err = ftl_tomb_remove(r->f, t);
}

void ftl_tomb_retire(struct ftl *f)
{
	struct tomb_retire r = {.f = f, .v = malloc(f->geom.ebs * sizeof(*r.v))};

	if (!r.v)
		return; /* another time */
	for (uint32_t i = 0; i < f->geom.ebs; i++)
		if (f->ebs[i].state != EB_FREE)
			r.v[r.n++] = (struct tomb_guard){f->ebs[i].first_lsn, f->ebs[i].min_dead};
	qsort(r.v, r.n, sizeof(*r.v), tomb_guard_cmp);
	for (size_t i = 1; i < r.n; i++)
		if (r.v[i - 1].min_dead < r.v[i].min_dead)
			r.v[i].min_dead = r.v[i - 1].min_dead;
	htab_each(&f->tombs, tomb_retire_one, &r);
	free(r.v);
}

int ftl_tomb_settle(struct ftl *f, const struct ftl_tombkey *k, uint64_t stamp)
{
	struct ftl_tomb *t = ftl_tomb_find(f, k);

	if (!t || t->stamp != stamp)
		return 0;
	t->lsn = f->next_lsn;
	return tomb_note(f, &t->key, t->stamp, t->lsn, t->pos);
}

int ftl_tomb_move(struct ftl *f, struct ftl_tomb *t, ftl_pos pos)
{
	int err = tomb_note(f, &t->key, t->stamp, t->lsn, pos);

	if (err)
		return err;
	ftl_eb_sub_tomb(f, t->pos, FTL_TOMB_BYTES);
	ftl_eb_add(f, pos, FTL_TOMB_BYTES);
	t->pos = pos;
	return 0;
}

/* Goes because `k` of `stamp` does all it does. */
static bool tomb_subsumed(const struct ftl_tomb *t, const struct ftl_tombkey *k, uint64_t stamp)
{
	if (t->stamp > stamp || t->key.file != k->file)
		return false;
	if (k->type == FTL_REC_CLEAN && t->key.type == FTL_REC_TRIM)
		return false;
	return t->key.first >= k->first && tomb_last(&t->key) <= tomb_last(k);
}

static int tomb_subsume_line(struct ftl *f, const struct ftl_tombkey *k, uint64_t stamp)
{
	struct htab_node *n = htab_find(&f->tombs, tomb_hash(k));

	while (n) {
		struct ftl_tomb *t = container_of(n, struct ftl_tomb, node);
		int err = 0;

		n = htab_next(n);
		if (tomb_subsumed(t, k, stamp))
			err = ftl_tomb_remove(f, t);
		if (err)
			return err;
	}
	return 0;
}

static int tomb_subsume_file(struct ftl *f, const struct ftl_tombkey *k, uint64_t stamp)
{
	struct ftl_tombfile *o = tomb_file(f, k->file);
	struct ftl_tomb *t = o ? o->tombs : NULL, *next;

	for (; t; t = next) {
		int err = 0;

		next = t->next;
		if (tomb_subsumed(t, k, stamp))
			err = ftl_tomb_remove(f, t);
		if (err)
			return err;
	}
	return 0;
}

int ftl_tomb_add(struct ftl *f, const struct ftl_tombkey *k, uint64_t stamp, ftl_pos pos)
{
	struct ftl_tomb *t = ftl_tomb_find(f, k);
	int err;

	if (t && t->stamp > stamp)
		return 0;
	if (t && t->stamp == stamp)
		return ftl_tomb_move(f, t, pos);
	err = tomb_hash(k) == tomb_wide_hash(k->file) ? tomb_subsume_file(f, k, stamp) :
							tomb_subsume_line(f, k, stamp);
	if (!err)
		err = tomb_note(f, k, stamp, f->next_lsn, pos);
	if (!err)
		err = tomb_insert(f, k, stamp, f->next_lsn, pos);
	if (!err)
		ftl_eb_add(f, pos, FTL_TOMB_BYTES);
	return err;
}

static uint16_t tomb_mask(const struct ftl_tombkey *k, uint64_t line)
{
	uint64_t first = line * FLASH_LINE_SECTORS, last = first + FLASH_LINE_SECTORS - 1;
	uint64_t from = k->first > first ? k->first : first;
	uint64_t to = tomb_last(k) < last ? tomb_last(k) : last;

	return from > to ? 0 : ftl_mask((unsigned)(from - first), (unsigned)(to - from + 1));
}

uint16_t ftl_tomb_cover(struct ftl *f, unsigned type, uint64_t file, uint64_t line, uint16_t mask,
			uint64_t stamp)
{
	uint64_t hash[2] = {ftl_hash2(file, line), tomb_wide_hash(file)};
	uint16_t cover = 0;

	if (stamp > f->max_tomb_stamp)
		return 0;
	for (int i = 0; i < 2; i++) {
		struct htab_node *n;

		for (n = htab_find(&f->tombs, hash[i]); n; n = htab_next(n)) {
			struct ftl_tomb *t = container_of(n, struct ftl_tomb, node);

			if (t->key.file == file && t->key.type == type && t->stamp >= stamp)
				cover |= tomb_mask(&t->key, line);
		}
	}
	return cover & mask;
}

struct tomb_loading {
	struct ftl *f;
	int err;
};

static int tomb_load_one(void *arg, const struct meta_buf *key, const struct meta_buf *value)
{
	struct tomb_loading *l = arg;
	const uint8_t *p = key->data;
	struct ftl_tombvalue v;
	struct ftl_tombkey k;
	uint64_t be[3];
	uint32_t crc;

	if (key->len != TOMB_KEY || value->len != sizeof(v) ||
	    (p[0] != FTL_REC_TRIM && p[0] != FTL_REC_CLEAN))
		return -EUCLEAN;
	memcpy(be, p + 1, sizeof(be));
	memcpy(&v, value->data, sizeof(v));
	crc = v.crc;
	if (ftl_ckpt_crc_key(p, TOMB_KEY, &v, sizeof(v), &v.crc) != crc)
		return -EUCLEAN;
	k.type = p[0];
	k.file = be64toh(be[0]);
	k.first = be64toh(be[1]);
	k.count = be64toh(be[2]);
	if (!k.count || k.first > FLASH_SECTOR_MAX)
		return -EUCLEAN;
	return tomb_insert(l->f, &k, v.stamp, v.lsn, v.pos);
}

int ftl_tomb_load(struct ftl *f)
{
	struct tomb_loading l = {.f = f};

	return meta_walk(f->meta, FTL_T_TOMBS, NULL, 0, tomb_load_one, &l);
}

struct tomb_gather {
	struct ftl_tomb *v;
	size_t n;
};

static void tomb_gather_one(struct htab_node *n, void *arg)
{
	struct tomb_gather *g = arg;

	g->v[g->n++] = *container_of(n, struct ftl_tomb, node);
}

static int tomb_cmp(const void *a, const void *b)
{
	const struct ftl_tomb *x = a, *y = b;

	if (x->key.file != y->key.file)
		return x->key.file < y->key.file ? -1 : 1;
	return x->key.first < y->key.first ? -1 : x->key.first > y->key.first;
}

int ftl_tomb_list(struct ftl *f, struct ftl_tomb **out, size_t *n)
{
	struct tomb_gather g = {.v = malloc((f->tombs.count + 1) * sizeof(*g.v))};

	if (!g.v)
		return -ENOMEM;
	htab_each(&f->tombs, tomb_gather_one, &g);
	qsort(g.v, g.n, sizeof(*g.v), tomb_cmp);
	*out = g.v;
	*n = g.n;
	return 0;
}

int ftl_tomb_rescue(struct ftl *f, uint64_t seq)
{
	struct ftl_tomb *v = NULL;
	size_t n = 0;
	int err;

	lock_acquire(&f->lock);
	err = ftl_tomb_list(f, &v, &n);
	lock_release(&f->lock);
	for (size_t i = 0; i < n && !err; i++) {
		struct ftl_tomb *t;

		lock_acquire(&f->lock);
		t = ftl_tomb_find(f, &v[i].key);
		if (t && FTL_POS_SEQ(t->pos) == seq)
			err = ftl_range_append(f, FTL_FOR_GC, &v[i].key, t->stamp, t->pos);
		lock_release(&f->lock);
	}
	free(v);
	return err;
}

static void tomb_free_one(struct htab_node *n, void *arg)
{
	(void)arg;
	free(container_of(n, struct ftl_tomb, node));
}

static void tomb_free_file(struct htab_node *n, void *arg)
{
	(void)arg;
	free(container_of(n, struct ftl_tombfile, node));
}

void ftl_tomb_destroy(struct ftl *f)
{
	if (f->tombs.buckets)
		htab_each(&f->tombs, tomb_free_one, NULL);
	if (f->tombfiles.buckets)
		htab_each(&f->tombfiles, tomb_free_file, NULL);
	htab_destroy(&f->tombs);
	htab_destroy(&f->tombfiles);
}
