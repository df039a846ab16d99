/* SPDX-License-Identifier: BSD-2-Clause
 *
 * walk(): everything present, or the tombstones still kept, in address order.
 */
#include <errno.h>
#include <stdlib.h>

#include "ftl/ftl_priv.h"

#define WALK_LINES 1024 /* at a time: a walk may end soon, and memory is bounded */

typedef int (*walk_fn)(void *arg, const struct flash_extent *e);

static int walk_tomb(const struct ftl_tomb *t, walk_fn fn, void *arg)
{
	struct flash_extent e = {
		.kind = t->key.type == FTL_REC_TRIM ? FLASH_WALK_TRIM : FLASH_WALK_CLEAN,
		.file = t->key.file, .sector = t->key.first, .count = t->key.count,
		.stamp = t->stamp,
		.stored = ftl_record_bytes(sizeof(struct ftl_media_range)),
	};

	return fn(arg, &e);
}

/* The sector's extent, or NULL. */
static const struct ftl_extent *walk_at(const struct ftl_value *v, unsigned sector)
{
	for (unsigned i = 0; i < v->n; i++)
		if (v->x[i].valid & 1u << sector)
			return &v->x[i];
	return NULL;
}

static int walk_line(struct ftl *f, const struct ftl_linekey *k, unsigned from, walk_fn fn,
		     void *arg)
{
	struct ftl_value v;
	int err;

	lock_acquire(&f->lock);
	err = ftl_map_read(f, k->file, k->line, &v);
	lock_release(&f->lock);
	for (unsigned s = from; s < FLASH_LINE_SECTORS && !err;) {
		const struct ftl_extent *x = walk_at(&v, s);
		struct flash_extent e = {.kind = FLASH_WALK_DATA, .file = k->file};
		unsigned n = 1;

		if (!x) {
			s++;
			continue;
		}
		e.sector = k->line * FLASH_LINE_SECTORS + s;
		e.dirty = x->dirty >> s & 1;
		while (s + n < FLASH_LINE_SECTORS && walk_at(&v, s + n) == x &&
		       (x->dirty >> (s + n) & 1) == e.dirty)
			n++;
		e.count = n;
		e.stamp = x->stamp;
		e.epoch = x->epoch;
		e.stored = ftl_record_bytes(x->stored_len);
		s += n;
		err = fn(arg, &e);
	}
	return err;
}

static int walk_data(struct ftl *f, uint64_t file, uint64_t sector, walk_fn fn, void *arg)
{
	struct ftl_linekey first = {file, sector / FLASH_LINE_SECTORS}, from = first, to;
	int err;

	do {
		struct ftl_linekey *keys = NULL;
		size_t n = 0;

		err = ftl_map_bound(f, from, WALK_LINES, &to);
		if (!err)
			err = ftl_map_keys(f, from, to, &keys, &n);
		for (size_t i = 0; i < n && !err; i++)
			err = walk_line(f, &keys[i],
					keys[i].file == file && keys[i].line == first.line ?
					sector % FLASH_LINE_SECTORS : 0, fn, arg);
		free(keys);
		from = (struct ftl_linekey){to.file, to.line + 1};
	} while (!err && to.line != UINT64_MAX);
	return err;
}

int ftl_walk(struct ftl *f, enum flash_kind kind, uint64_t file, uint64_t sector,
	     int (*fn)(void *arg, const struct flash_extent *e), void *arg)
{
	unsigned type = kind == FLASH_WALK_TRIM ? FTL_REC_TRIM : FTL_REC_CLEAN;
	struct ftl_tomb *tombs = NULL;
	size_t n = 0;
	int err;

	if (kind == FLASH_WALK_DATA)
		return walk_data(f, file, sector, fn, arg);
	lock_acquire(&f->lock);
	err = ftl_tomb_list(f, &tombs, &n);
	lock_release(&f->lock);
	for (size_t i = 0; i < n && !err; i++) {
		const struct ftl_tombkey *k = &tombs[i].key;

		if (k->type == type && (k->file > file || (k->file == file && k->first >= sector)))
			err = walk_tomb(&tombs[i], fn, arg);
	}
	free(tombs);
	return err;
}
