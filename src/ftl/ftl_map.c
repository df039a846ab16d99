/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The map: line -> extents. Two overlays in memory over one LMDB table.
 *
 *     current   every line changed since the last freeze, whole
 *     frozen    the same for the checkpoint being committed, else NULL
 *     table     the last checkpoint
 *
 * A lookup asks them in this order. The table is read without the lock; a line that is in no overlay
 * afterwards was not changed meanwhile, unless a checkpoint finished in between (drops_of_frozen
 * moved): then the lookup starts again.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "ftl/ftl_priv.h"

int ftl_overlay_new(struct ftl_overlay **out)
{
	struct ftl_overlay *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	if (htab_init(&o->lines, 64) || htab_init(&o->files, 64) || htab_init(&o->ctl, 64)) {
		ftl_overlay_free(o);
		return -ENOMEM;
	}
	*out = o;
	return 0;
}

static void overlay_free_line(struct htab_node *n, void *arg)
{
	struct ftl_line *l = container_of(n, struct ftl_line, node);

	(void)arg;
	free(l->x);
	free(l);
}

static void overlay_free_file(struct htab_node *n, void *arg)
{
	(void)arg;
	free(container_of(n, struct ftl_ofile, node));
}

static void overlay_free_ctl(struct htab_node *n, void *arg)
{
	(void)arg;
	free(container_of(n, struct ftl_ctlent, node));
}

void ftl_overlay_free(struct ftl_overlay *o)
{
	if (!o)
		return;
	if (o->lines.buckets)
		htab_each(&o->lines, overlay_free_line, NULL);
	if (o->files.buckets)
		htab_each(&o->files, overlay_free_file, NULL);
	if (o->ctl.buckets)
		htab_each(&o->ctl, overlay_free_ctl, NULL);
	htab_destroy(&o->lines);
	htab_destroy(&o->files);
	htab_destroy(&o->ctl);
	free(o->tombs);
	free(o);
}

struct ftl_line *ftl_overlay_line(struct ftl_overlay *o, uint64_t file, uint64_t line)
{
	struct htab_node *n;

	if (!o)
		return NULL;
	for (n = htab_find(&o->lines, ftl_hash2(file, line)); n; n = htab_next(n)) {
		struct ftl_line *l = container_of(n, struct ftl_line, node);

		if (l->file == file && l->line == line)
			return l;
	}
	return NULL;
}

static struct ftl_ofile *overlay_file(struct ftl_overlay *o, uint64_t file)
{
	struct htab_node *n;

	if (!o)
		return NULL;
	for (n = htab_find(&o->files, hash_mix64(file)); n; n = htab_next(n)) {
		struct ftl_ofile *p = container_of(n, struct ftl_ofile, node);

		if (p->file == file)
			return p;
	}
	return NULL;
}

bool ftl_map_check(const struct ftl_extent *x, unsigned n)
{
	uint16_t seen = 0;

	if (!n || n > FLASH_LINE_SECTORS)
		return false;
	for (unsigned i = 0; i < n; i++, x++) {
		if (!x->count || x->first + x->count > FLASH_LINE_SECTORS || !x->valid ||
		    (x->valid & ~ftl_mask(x->first, x->count)) || (x->dirty & ~x->valid) ||
		    (x->valid & seen))
			return false;
		if (!x->raw_len || x->raw_len > x->count * FLASH_SECTOR ||
		    x->stored_len > x->raw_len + FTL_ALIGN)
			return false;
		seen |= x->valid;
	}
	return true;
}

static int map_read_table(struct ftl *f, uint64_t file, uint64_t line, struct ftl_value *v)
{
	uint64_t key[2] = {htobe64(file), htobe64(line)};
	size_t len = sizeof(v->x);
	int err = meta_get(f->meta, FTL_T_MAP, key, sizeof(key), v->x, &len);
	uint32_t crc;

	v->n = 0;
	if (err == -ENOENT)
		return 0;
	if (!err) {
		v->n = (unsigned)(len / sizeof(v->x[0]));
		crc = v->x[0].crc;
		if (len % sizeof(v->x[0]) ||
		    ftl_ckpt_crc_key(key, sizeof(key), v->x, len, &v->x[0].crc) != crc ||
		    !ftl_map_check(v->x, v->n))
			err = -EUCLEAN;
		v->x[0].crc = 0;
	}
	if (err) {
		v->n = 0;
		log_error(FTL_MODULE, "controller %u: map entry of file %" PRIu64 " line %" PRIu64
			  " unreadable: %s; run recover", f->super.controller, file, line,
			  strerror(-err));
		return -EUCLEAN;
	}
	return 0;
}

int ftl_map_read(struct ftl *f, uint64_t file, uint64_t line, struct ftl_value *v)
{
	lock_assert_held(&f->lock);
	for (bool tried = false;; tried = true) {
		struct ftl_line *l = ftl_overlay_line(f->cur, file, line);
		unsigned long drops = f->drops_of_frozen;
		int err;

		if (!l)
			l = ftl_overlay_line(f->frozen, file, line);
		if (l) {
			v->n = l->n;
			memcpy(v->x, l->x, l->n * sizeof(*l->x));
			return 0;
		}
		if (tried)
			return 0;
		for (;;) {
			lock_release(&f->lock);
			err = map_read_table(f, file, line, v);
			lock_acquire(&f->lock);
			if (err)
				return err;
			if (drops == f->drops_of_frozen)
				break;
			drops = f->drops_of_frozen;
		}
	}
}

static int map_grow(struct ftl_line *l, unsigned want)
{
	unsigned cap = l->cap ? l->cap : 1;
	struct ftl_extent *x;

	if (want > FLASH_LINE_SECTORS)
		want = FLASH_LINE_SECTORS;
	if (want <= l->cap)
		return 0;
	while (cap < want)
		cap *= 2;
	x = realloc(l->x, cap * sizeof(*x));
	if (!x)
		return -ENOMEM;
	l->x = x;
	l->cap = (uint8_t)cap;
	return 0;
}

static int map_new_line(struct ftl *f, uint64_t file, uint64_t line, const struct ftl_value *v,
			unsigned extra, struct ftl_line **out)
{
	struct ftl_ofile *o = overlay_file(f->cur, file);
	struct ftl_line *l = calloc(1, sizeof(*l));

	if (!l || map_grow(l, v->n + extra)) {
		free(l);
		return -ENOMEM;
	}
	if (!o) {
		o = calloc(1, sizeof(*o));
		if (!o) {
			free(l->x);
			free(l);
			return -ENOMEM;
		}
		o->file = file;
		htab_insert(&f->cur->files, &o->node, hash_mix64(file));
	}
	l->file = file;
	l->line = line;
	l->n = (uint8_t)v->n;
	memcpy(l->x, v->x, v->n * sizeof(v->x[0]));
	l->owner = o;
	l->next = o->lines;
	if (l->next)
		l->next->prev = l;
	o->lines = l;
	htab_insert(&f->cur->lines, &l->node, ftl_hash2(file, line));
	ftl_changed(f);
	*out = l;
	return 0;
}

int ftl_map_edit(struct ftl *f, uint64_t file, uint64_t line, unsigned extra, struct ftl_line **out)
{
	struct ftl_line *l = ftl_overlay_line(f->cur, file, line);
	struct ftl_value v;
	int err;

	if (!l) {
		err = ftl_map_read(f, file, line, &v);
		if (err)
			return err;
		l = ftl_overlay_line(f->cur, file, line);
		if (!l)
			return map_new_line(f, file, line, &v, extra ? extra : 1, out);
	}
	*out = l;
	return map_grow(l, l->n + extra);
}

uint16_t ftl_map_newer(const struct ftl_line *l, uint64_t stamp, bool equal)
{
	uint16_t mask = 0;

	for (unsigned i = 0; i < l->n; i++)
		if (l->x[i].stamp > stamp || (equal && l->x[i].stamp == stamp))
			mask |= l->x[i].valid;
	return mask;
}

uint32_t ftl_extent_waste(const struct ftl_extent *x)
{
	unsigned live = (unsigned)__builtin_popcount(x->valid);

	return live * 4 > x->count * 3u ? 0 : x->stored_len / x->count * (x->count - live);
}

static void map_waste(struct ftl *f, const struct ftl_extent *x, bool add)
{
	uint32_t waste = ftl_extent_waste(x);
	struct ftl_eb *eb = waste ? ftl_eb_find(f, x->pos) : NULL;

	if (!eb)
		return;
	eb->changed = true;
	if (add)
		eb->waste += waste;
	else
		eb->waste -= waste < eb->waste ? waste : eb->waste;
}

static void map_count(struct ftl *f, const struct ftl_line *l, int live, int dirty)
{
	f->live_sectors += (uint64_t)(int64_t)live;
	f->dirty_sectors += (uint64_t)(int64_t)dirty;
	if (l->file == FLASH_VOLUME) {
		f->volume_sectors += (uint64_t)(int64_t)live;
		f->volume_dirty += (uint64_t)(int64_t)dirty;
	}
}

void ftl_map_take(struct ftl *f, struct ftl_line *l, struct ftl_extent *x, uint16_t mask)
{
	mask &= x->valid;
	if (!mask)
		return;
	map_count(f, l, -__builtin_popcount(mask), -__builtin_popcount(mask & x->dirty));
	map_waste(f, x, false);
	x->valid &= (uint16_t)~mask;
	x->dirty &= x->valid;
	if (x->valid) {
		map_waste(f, x, true);
		ftl_eb_sub(f, x->pos, 0, x->stamp);
		return;
	}
	ftl_eb_sub(f, x->pos, ftl_record_bytes(x->stored_len), x->stamp);
	*x = l->x[--l->n];
}

void ftl_map_set(struct ftl *f, struct ftl_line *l, const struct ftl_extent *e)
{
	/* Backwards: ftl_map_take moves the last entry into the place of one that goes. */
	for (unsigned i = l->n; i-- > 0;)
		ftl_map_take(f, l, &l->x[i], e->valid);
	gild_assert(l->n < l->cap);
	l->x[l->n++] = *e;
	map_count(f, l, __builtin_popcount(e->valid), __builtin_popcount(e->dirty));
	ftl_eb_add(f, e->pos, ftl_record_bytes(e->stored_len));
	map_waste(f, e, true);
}

uint16_t ftl_map_cut(struct ftl *f, struct ftl_line *l, uint16_t mask, uint64_t stamp)
{
	uint16_t cut = 0;

	for (unsigned i = l->n; i-- > 0;) {
		if (l->x[i].stamp > stamp)
			continue;
		cut |= l->x[i].valid & mask;
		ftl_map_take(f, l, &l->x[i], mask);
	}
	return cut;
}

void ftl_map_clean(struct ftl *f, struct ftl_line *l, uint16_t mask, uint64_t stamp)
{
	for (unsigned i = 0; i < l->n; i++) {
		struct ftl_extent *x = &l->x[i];
		uint16_t m = x->dirty & mask;

		if (x->stamp > stamp || !m)
			continue;
		x->dirty &= (uint16_t)~mask;
		map_count(f, l, 0, -__builtin_popcount(m));
		/* Its record still says dirty. */
		ftl_eb_sub(f, x->pos, 0, x->stamp);
		ftl_gc_unstick(f);
	}
}

struct ftl_extent *ftl_map_at(struct ftl_line *l, ftl_pos pos)
{
	for (unsigned i = 0; i < l->n; i++)
		if (l->x[i].pos == pos)
			return &l->x[i];
	return NULL;
}

struct map_thaw {
	struct ftl *f;
	int err;
};

static void map_thaw_line(struct htab_node *n, void *arg)
{
	struct ftl_line *l = container_of(n, struct ftl_line, node), *to;
	struct map_thaw *t = arg;
	struct ftl_value v = {.n = l->n};

	if (t->err || ftl_overlay_line(t->f->cur, l->file, l->line))
		return;
	memcpy(v.x, l->x, l->n * sizeof(*l->x));
	t->err = map_new_line(t->f, l->file, l->line, &v, 1, &to);
}

int ftl_map_thaw(struct ftl *f)
{
	struct map_thaw t = {.f = f};

	htab_each(&f->frozen->lines, map_thaw_line, &t);
	return t.err;
}

struct map_keys {
	struct ftl_linekey from, to, *v;
	size_t n, cap;
	int err;
};

static int map_key_cmp(const void *a, const void *b)
{
	const struct ftl_linekey *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->line < y->line ? -1 : x->line > y->line;
}

static void map_keys_add(struct map_keys *k, uint64_t file, uint64_t line)
{
	struct ftl_linekey key = {file, line};

	if (k->err || map_key_cmp(&key, &k->from) < 0 || map_key_cmp(&key, &k->to) > 0)
		return;
	if (k->n == k->cap) {
		size_t cap = k->cap ? k->cap * 2 : 64;
		struct ftl_linekey *p = realloc(k->v, cap * sizeof(*p));

		if (!p) {
			k->err = -ENOMEM;
			return;
		}
		k->v = p;
		k->cap = cap;
	}
	k->v[k->n++] = key;
}

static int map_keys_walk(void *arg, const struct meta_buf *key, const struct meta_buf *value)
{
	struct map_keys *k = arg;
	uint64_t raw[2];
	struct ftl_linekey at;

	(void)value;
	if (key->len != sizeof(raw))
		return -EUCLEAN;
	memcpy(raw, key->data, sizeof(raw));
	at.file = be64toh(raw[0]);
	at.line = be64toh(raw[1]);
	if (map_key_cmp(&at, &k->to) > 0)
		return 1;
	map_keys_add(k, at.file, at.line);
	return k->err;
}

static void map_keys_line(struct htab_node *n, void *arg)
{
	struct ftl_line *l = container_of(n, struct ftl_line, node);

	map_keys_add(arg, l->file, l->line);
}

static void map_keys_overlay(struct map_keys *k, struct ftl_overlay *o)
{
	struct ftl_ofile *file;

	if (!o)
		return;
	if (k->from.file != k->to.file) {
		htab_each(&o->lines, map_keys_line, k);
		return;
	}
	file = overlay_file(o, k->from.file);
	for (struct ftl_line *l = file ? file->lines : NULL; l; l = l->next)
		map_keys_add(k, l->file, l->line);
}

int ftl_map_keys(struct ftl *f, struct ftl_linekey from, struct ftl_linekey to,
		 struct ftl_linekey **keys, size_t *n)
{
	struct map_keys k = {.from = from, .to = to};
	uint64_t raw[2] = {htobe64(from.file), htobe64(from.line)};
	size_t out = 0;
	int err;

	/* Overlays first: what a checkpoint moves out of them is in the table by then. */
	lock_acquire(&f->lock);
	map_keys_overlay(&k, f->cur);
	map_keys_overlay(&k, f->frozen);
	lock_release(&f->lock);
	err = k.err;
	if (!err)
		err = meta_walk(f->meta, FTL_T_MAP, raw, sizeof(raw), map_keys_walk, &k);
	if (err < 0) {
		free(k.v);
		return err;
	}
	if (k.n)
		qsort(k.v, k.n, sizeof(*k.v), map_key_cmp);
	for (size_t i = 0; i < k.n; i++)
		if (!i || map_key_cmp(&k.v[i], &k.v[i - 1]))
			k.v[out++] = k.v[i];
	*keys = k.v;
	*n = out;
	return 0;
}

struct map_bound {
	struct ftl_linekey key;
	size_t left;
};

static int map_bound_walk(void *arg, const struct meta_buf *key, const struct meta_buf *value)
{
	struct map_bound *b = arg;
	uint64_t raw[2];

	(void)value;
	if (key->len != sizeof(raw))
		return -EUCLEAN;
	memcpy(raw, key->data, sizeof(raw));
	b->key.file = be64toh(raw[0]);
	b->key.line = be64toh(raw[1]);
	return --b->left == 0;
}

int ftl_map_bound(struct ftl *f, struct ftl_linekey from, size_t n, struct ftl_linekey *to)
{
	struct map_bound b = {.left = n};
	uint64_t raw[2] = {htobe64(from.file), htobe64(from.line)};
	int r = meta_walk(f->meta, FTL_T_MAP, raw, sizeof(raw), map_bound_walk, &b);

	*to = r > 0 ? b.key : (struct ftl_linekey){UINT64_MAX, UINT64_MAX};
	return r < 0 ? r : 0;
}
