/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/htab.h"
#include "base/log.h"
#include "ram_flash.h"

enum ram_kind { RAM_WRITE, RAM_TRIM, RAM_CLEAN, RAM_CTL };

struct ram_op {
	struct ram_op *next;
	enum ram_kind kind;
	uint64_t file, sector, count, stamp;
	uint32_t epoch;
	bool dirty;
	enum flash_ctl ctl;
	uint8_t key[FLASH_CTL_KEY];
	size_t len;
	uint8_t data[];
};

struct ram_sector {
	struct htab_node node;
	uint64_t file, sector, stamp;
	uint32_t epoch;
	uint8_t flags;
	uint8_t data[FLASH_SECTOR];
};

struct ram_ctl {
	struct htab_node node;
	enum flash_ctl kind;
	uint8_t key[FLASH_CTL_KEY];
	uint64_t stamp;
	size_t len; /* 0: a deletion */
	uint8_t value[FLASH_CTL_VALUE];
};

struct ram_image {
	struct htab sectors, ctls;
};

struct ram_busy { /* a call that changes something, under way */
	struct ram_busy *next;
	const struct ram_op *op;
};

struct ram_flash {
	struct flash flash;
	pthread_mutex_t lock, busy_lock;
	struct ram_image now, durable;
	struct ram_op *log, **log_tail;
	struct ram_busy *busy;
	uint64_t capacity, max_stamp, calls, fail_at;
	bool full, unclean;
	struct ram_counts counts;
	flash_reclaim_fn reclaim;
	void *reclaim_arg;
};

static struct ram_flash *ram_of(struct flash *f)
{
	return container_of(f, struct ram_flash, flash);
}

/* ---- images ---- */

static uint64_t ram_hash(uint64_t file, uint64_t sector)
{
	return hash_mix64(file * 0x9e3779b97f4a7c15ULL ^ sector);
}

static struct ram_sector *ram_find(struct ram_image *m, uint64_t file, uint64_t sector)
{
	struct htab_node *h;

	for (h = htab_find(&m->sectors, ram_hash(file, sector)); h; h = htab_next(h)) {
		struct ram_sector *s = container_of(h, struct ram_sector, node);

		if (s->file == file && s->sector == sector)
			return s;
	}
	return NULL;
}

static void ram_drop(struct ram_image *m, struct ram_sector *s)
{
	htab_remove(&m->sectors, &s->node);
	free(s);
}

static struct ram_ctl *ram_ctl_find(struct ram_image *m, enum flash_ctl kind, const uint8_t *key)
{
	struct htab_node *h;

	for (h = htab_find(&m->ctls, hash_64(key, FLASH_CTL_KEY) + kind); h; h = htab_next(h)) {
		struct ram_ctl *c = container_of(h, struct ram_ctl, node);

		if (c->kind == kind && !memcmp(c->key, key, FLASH_CTL_KEY))
			return c;
	}
	return NULL;
}

static void ram_apply_write(struct ram_image *m, const struct ram_op *op, bool check)
{
	uint64_t i;

	for (i = 0; i < op->count; i++) {
		struct ram_sector *s = ram_find(m, op->file, op->sector + i);
		size_t at = i * FLASH_SECTOR, n = op->len - at;

		if (!s) {
			s = calloc(1, sizeof(*s));
			gild_assert(s);
			s->file = op->file;
			s->sector = op->sector + i;
			htab_insert(&m->sectors, &s->node, ram_hash(s->file, s->sector));
		}
		gild_assert(!check || op->stamp > s->stamp);
		n = n > FLASH_SECTOR ? FLASH_SECTOR : n;
		s->stamp = op->stamp;
		s->epoch = op->epoch;
		s->flags = FLASH_PRESENT | (op->dirty ? FLASH_DIRTY : 0);
		memcpy(s->data, op->data + at, n);
		memset(s->data + n, 0, FLASH_SECTOR - n);
	}
}

struct ram_range {
	struct ram_image *m;
	const struct ram_op *op;
	bool check;
};

static void ram_apply_range(struct htab_node *h, void *arg)
{
	struct ram_range *r = arg;
	const struct ram_op *op = r->op;
	struct ram_sector *s = container_of(h, struct ram_sector, node);

	if (s->file != op->file || s->sector < op->sector || s->sector - op->sector >= op->count)
		return;
	if (op->kind == RAM_CLEAN) {
		if (s->stamp <= op->stamp)
			s->flags &= (uint8_t)~FLASH_DIRTY;
		return;
	}
	gild_assert(!r->check || op->stamp > s->stamp);
	ram_drop(r->m, s);
}

static void ram_apply_ctl(struct ram_image *m, const struct ram_op *op, bool check)
{
	struct ram_ctl *c = ram_ctl_find(m, op->ctl, op->key);

	if (!c) {
		c = calloc(1, sizeof(*c));
		gild_assert(c);
		c->kind = op->ctl;
		memcpy(c->key, op->key, FLASH_CTL_KEY);
		htab_insert(&m->ctls, &c->node, hash_64(op->key, FLASH_CTL_KEY) + op->ctl);
	}
	gild_assert(!check || op->stamp > c->stamp);
	c->stamp = op->stamp;
	c->len = op->len;
	memcpy(c->value, op->data, op->len);
}

static void ram_apply(struct ram_image *m, const struct ram_op *op, bool check)
{
	struct ram_range r = {.m = m, .op = op, .check = check};

	if (op->kind == RAM_WRITE)
		ram_apply_write(m, op, check);
	else if (op->kind == RAM_CTL)
		ram_apply_ctl(m, op, check);
	else
		htab_each(&m->sectors, ram_apply_range, &r);
}

static void ram_free_sector(struct htab_node *h, void *arg)
{
	ram_drop(arg, container_of(h, struct ram_sector, node));
}

static void ram_free_ctl(struct htab_node *h, void *arg)
{
	htab_remove(arg, h);
	free(container_of(h, struct ram_ctl, node));
}

static void ram_image_clear(struct ram_image *m)
{
	htab_each(&m->sectors, ram_free_sector, m);
	htab_each(&m->ctls, ram_free_ctl, &m->ctls);
}

static void ram_copy_sector(struct htab_node *h, void *arg)
{
	struct ram_image *to = arg;
	struct ram_sector *s = malloc(sizeof(*s));

	gild_assert(s);
	*s = *container_of(h, struct ram_sector, node);
	htab_insert(&to->sectors, &s->node, h->hash);
}

static void ram_copy_ctl(struct htab_node *h, void *arg)
{
	struct ram_image *to = arg;
	struct ram_ctl *c = malloc(sizeof(*c));

	gild_assert(c);
	*c = *container_of(h, struct ram_ctl, node);
	htab_insert(&to->ctls, &c->node, h->hash);
}

/* ---- changing calls ---- */

static bool ram_overlap(const struct ram_op *a, const struct ram_op *b)
{
	if ((a->kind == RAM_CTL) != (b->kind == RAM_CTL))
		return false;
	if (a->kind == RAM_CTL)
		return a->ctl == b->ctl && !memcmp(a->key, b->key, FLASH_CTL_KEY);
	if (a->file != b->file)
		return false;
	return a->sector < b->sector ? b->sector - a->sector < a->count
				     : a->sector - b->sector < b->count;
}

static void ram_enter(struct ram_flash *r, struct ram_busy *b, const struct ram_op *op)
{
	struct ram_busy *o;
	bool caller_orders_overlapping_calls = true;

	pthread_mutex_lock(&r->busy_lock);
	for (o = r->busy; o; o = o->next)
		if (ram_overlap(o->op, op))
			caller_orders_overlapping_calls = false;
	gild_assert(caller_orders_overlapping_calls);
	b->op = op;
	b->next = r->busy;
	r->busy = b;
	pthread_mutex_unlock(&r->busy_lock);
}

static void ram_leave(struct ram_flash *r, struct ram_busy *b)
{
	struct ram_busy **p;

	pthread_mutex_lock(&r->busy_lock);
	for (p = &r->busy; *p != b; p = &(*p)->next)
		;
	*p = b->next;
	pthread_mutex_unlock(&r->busy_lock);
}

struct ram_gc {
	struct ram_flash *r;
	uint64_t need;
};

static void ram_gc_one(struct htab_node *h, void *arg)
{
	struct ram_gc *g = arg;
	struct ram_sector *s = container_of(h, struct ram_sector, node);

	if (!g->need || (s->flags & FLASH_DIRTY) || !g->r->reclaim)
		return;
	if (g->r->reclaim(g->r->reclaim_arg, s->file, s->sector / FLASH_LINE_SECTORS, s->stamp,
			  s->epoch) != FLASH_DROP)
		return;
	ram_drop(&g->r->now, s);
	g->r->counts.dropped++;
	g->need--;
}

static int ram_room(struct ram_flash *r, uint64_t count)
{
	struct ram_gc g = {.r = r};
	uint64_t have = r->now.sectors.count;

	if (r->full)
		return -ENOSPC;
	if (!r->capacity || have + count <= r->capacity)
		return 0;
	g.need = have + count - r->capacity;
	htab_each(&r->now.sectors, ram_gc_one, &g);
	return g.need ? -ENOSPC : 0;
}

/* Takes over `op`. */
static int ram_do(struct ram_flash *r, struct ram_op *op)
{
	struct ram_busy b;
	int err = 0;

	ram_enter(r, &b, op);
	pthread_mutex_lock(&r->lock);
	if (r->fail_at && ++r->calls >= r->fail_at)
		err = -EIO;
	else if (!r->fail_at)
		r->calls++;
	if (!err && op->kind == RAM_WRITE)
		err = ram_room(r, op->count);
	if (err == -ENOSPC)
		r->counts.nospace++;
	if (!err) {
		ram_apply(&r->now, op, true);
		if (op->stamp > r->max_stamp)
			r->max_stamp = op->stamp;
		*r->log_tail = op;
		r->log_tail = &op->next;
		r->counts.writes += op->kind == RAM_WRITE;
		r->counts.trims += op->kind == RAM_TRIM;
		r->counts.puts += op->kind == RAM_CTL;
	}
	pthread_mutex_unlock(&r->lock);
	ram_leave(r, &b);
	if (err)
		free(op);
	return err;
}

static struct ram_op *ram_op_new(enum ram_kind kind, uint64_t file, uint64_t sector, uint64_t count,
				 uint64_t stamp, const void *data, size_t len)
{
	struct ram_op *op = calloc(1, sizeof(*op) + len + 1);

	gild_assert(op);
	op->kind = kind;
	op->file = file;
	op->sector = sector;
	op->count = count;
	op->stamp = stamp;
	op->len = len;
	if (len)
		memcpy(op->data, data, len);
	return op;
}

static int ram_write(struct flash *f, const struct flash_write *w)
{
	struct ram_op *op;

	gild_assert(w->count && w->len <= w->count * FLASH_SECTOR);
	gild_assert(w->len > (w->count - 1) * FLASH_SECTOR);
	op = ram_op_new(RAM_WRITE, w->file, w->sector, w->count, w->stamp, w->data, w->len);
	op->epoch = w->epoch;
	op->dirty = w->dirty;
	return ram_do(ram_of(f), op);
}

static int ram_trim(struct flash *f, uint64_t file, uint64_t sector, uint64_t count, uint64_t stamp)
{
	gild_assert(count);
	return ram_do(ram_of(f), ram_op_new(RAM_TRIM, file, sector, count, stamp, NULL, 0));
}

static int ram_mark_clean(struct flash *f, uint64_t file, uint64_t sector, uint64_t count,
			  uint64_t stamp)
{
	return ram_do(ram_of(f), ram_op_new(RAM_CLEAN, file, sector, count, stamp, NULL, 0));
}

static int ram_ctl_put(struct flash *f, enum flash_ctl kind, const uint8_t key[FLASH_CTL_KEY],
		       const void *value, size_t len, uint64_t stamp)
{
	struct ram_op *op = ram_op_new(RAM_CTL, 0, 0, 0, stamp, value, len);

	gild_assert(len <= FLASH_CTL_VALUE);
	op->ctl = kind;
	memcpy(op->key, key, FLASH_CTL_KEY);
	return ram_do(ram_of(f), op);
}

static int ram_flush(struct flash *f)
{
	struct ram_flash *r = ram_of(f);
	struct ram_op *op, *next;
	int err = 0;

	pthread_mutex_lock(&r->lock);
	r->calls++;
	if (r->fail_at && r->calls >= r->fail_at)
		err = -EIO;
	for (op = r->log; op && !err; op = next) {
		next = op->next;
		ram_apply(&r->durable, op, false);
		free(op);
		r->log = next;
	}
	if (!r->log)
		r->log_tail = &r->log;
	r->counts.flushes++;
	pthread_mutex_unlock(&r->lock);
	return err;
}

/* ---- asking ---- */

static int ram_read(struct flash *f, uint64_t file, uint64_t sector, uint32_t count,
		    uint32_t min_epoch, void *buf, struct flash_sector *state)
{
	struct ram_flash *r = ram_of(f);
	uint32_t i;

	pthread_mutex_lock(&r->lock);
	r->counts.reads++;
	for (i = 0; i < count; i++) {
		struct ram_sector *s = ram_find(&r->now, file, sector + i);

		memset(&state[i], 0, sizeof(state[i]));
		memset((char *)buf + (size_t)i * FLASH_SECTOR, 0xdb, FLASH_SECTOR);
		if (!s || s->epoch < min_epoch)
			continue;
		state[i] = (struct flash_sector){s->stamp, s->epoch, s->flags};
		if (!(s->flags & FLASH_CORRUPT))
			memcpy((char *)buf + (size_t)i * FLASH_SECTOR, s->data, FLASH_SECTOR);
	}
	pthread_mutex_unlock(&r->lock);
	return 0;
}

static int ram_ctl_get(struct flash *f, enum flash_ctl kind, const uint8_t key[FLASH_CTL_KEY],
		       void *value, size_t *len, uint64_t *stamp)
{
	struct ram_flash *r = ram_of(f);
	struct ram_ctl *c;
	int err = 0;

	pthread_mutex_lock(&r->lock);
	c = ram_ctl_find(&r->now, kind, key);
	*stamp = c ? c->stamp : 0;
	if (!c || !c->len)
		err = -ENOENT;
	else if (c->len > *len)
		err = -EOVERFLOW;
	else
		memcpy(value, c->value, c->len);
	if (c && c->len)
		*len = c->len;
	pthread_mutex_unlock(&r->lock);
	return err;
}

struct ram_gather {
	struct ram_ctl *items;
	size_t count, room;
	enum flash_ctl kind;
};

static void ram_gather_one(struct htab_node *h, void *arg)
{
	struct ram_gather *g = arg;
	struct ram_ctl *c = container_of(h, struct ram_ctl, node);

	if (c->kind != g->kind || !c->len)
		return;
	gild_assert(g->count < g->room);
	g->items[g->count++] = *c;
}

static void ram_gather(struct ram_flash *r, struct ram_gather *g)
{
	pthread_mutex_lock(&r->lock);
	g->room = r->now.ctls.count + 1;
	g->items = calloc(g->room, sizeof(*g->items));
	gild_assert(g->items);
	htab_each(&r->now.ctls, ram_gather_one, g);
	pthread_mutex_unlock(&r->lock);
}

static int ram_ctl_walk(struct flash *f, enum flash_ctl kind,
			int (*fn)(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value,
				  size_t len, uint64_t stamp),
			void *arg)
{
	struct ram_gather g = {.kind = kind};
	size_t i;
	int stop = 0;

	ram_gather(ram_of(f), &g);
	for (i = 0; i < g.count && !stop; i++)
		stop = fn(arg, g.items[i].key, g.items[i].value, g.items[i].len, g.items[i].stamp);
	free(g.items);
	return stop;
}

struct ram_extents {
	struct flash_extent *items;
	size_t count;
	uint64_t file, sector;
};

static void ram_extent_one(struct htab_node *h, void *arg)
{
	struct ram_extents *x = arg;
	struct ram_sector *s = container_of(h, struct ram_sector, node);

	if (s->file > x->file || (s->file == x->file && s->sector >= x->sector))
		x->items[x->count++] = (struct flash_extent){.kind = FLASH_WALK_DATA,
							     .file = s->file,
							     .sector = s->sector,
							     .count = 1,
							     .stamp = s->stamp,
							     .epoch = s->epoch,
							     .dirty = s->flags & FLASH_DIRTY};
}

static int ram_extent_order(const void *a, const void *b)
{
	const struct flash_extent *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->sector < y->sector ? -1 : x->sector > y->sector;
}

/* Data only: no tombstones or marks are kept. */
static int ram_walk(struct flash *f, enum flash_kind kind, uint64_t file, uint64_t sector,
		    int (*fn)(void *arg, const struct flash_extent *e), void *arg)
{
	struct ram_flash *r = ram_of(f);
	struct ram_extents x = {.file = file, .sector = sector};
	size_t i;
	int stop = 0;

	if (kind != FLASH_WALK_DATA)
		return 0;
	pthread_mutex_lock(&r->lock);
	x.items = calloc(r->now.sectors.count + 1, sizeof(*x.items));
	gild_assert(x.items);
	htab_each(&r->now.sectors, ram_extent_one, &x);
	pthread_mutex_unlock(&r->lock);
	qsort(x.items, x.count, sizeof(*x.items), ram_extent_order);
	for (i = 0; i < x.count && !stop; i++)
		stop = fn(arg, &x.items[i]);
	free(x.items);
	return stop;
}

static void ram_set_reclaim(struct flash *f, flash_reclaim_fn fn, void *arg)
{
	struct ram_flash *r = ram_of(f);

	pthread_mutex_lock(&r->lock);
	r->reclaim = fn;
	r->reclaim_arg = arg;
	pthread_mutex_unlock(&r->lock);
}

static void ram_stats(struct flash *f, struct flash_stats *out)
{
	struct ram_flash *r = ram_of(f);
	uint64_t sectors;

	memset(out, 0, sizeof(*out));
	pthread_mutex_lock(&r->lock);
	sectors = r->now.sectors.count;
	out->usable_bytes = (r->capacity ? r->capacity : 1u << 20) * FLASH_SECTOR;
	out->live_bytes = sectors * FLASH_SECTOR;
	out->live_sectors = sectors;
	out->max_stamp = r->max_stamp;
	out->unclean = r->unclean;
	pthread_mutex_unlock(&r->lock);
}

static void ram_health(struct flash *f, struct flash_health *out)
{
	(void)f;
	memset(out, 0, sizeof(*out));
	out->life_left_percent = out->spare_percent = 100;
}

static int ram_close(struct flash *f)
{
	ram_flash_free(ram_of(f));
	return 0;
}

static const struct flash_ops ram_ops = {
	.read = ram_read,
	.write = ram_write,
	.mark_clean = ram_mark_clean,
	.trim = ram_trim,
	.flush = ram_flush,
	.ctl_put = ram_ctl_put,
	.ctl_get = ram_ctl_get,
	.ctl_walk = ram_ctl_walk,
	.walk = ram_walk,
	.set_reclaim = ram_set_reclaim,
	.stats = ram_stats,
	.health = ram_health,
	.close = ram_close,
};

/* ---- for tests ---- */

struct ram_flash *ram_flash_new(uint64_t capacity_sectors)
{
	struct ram_flash *r = calloc(1, sizeof(*r));

	gild_assert(r);
	r->flash.ops = &ram_ops;
	r->capacity = capacity_sectors;
	r->log_tail = &r->log;
	pthread_mutex_init(&r->lock, NULL);
	pthread_mutex_init(&r->busy_lock, NULL);
	gild_assert(!htab_init(&r->now.sectors, 1024) && !htab_init(&r->now.ctls, 64));
	gild_assert(!htab_init(&r->durable.sectors, 1024) && !htab_init(&r->durable.ctls, 64));
	return r;
}

struct flash *ram_flash_ops(struct ram_flash *r)
{
	return &r->flash;
}

static void ram_log_clear(struct ram_flash *r)
{
	struct ram_op *op, *next;

	for (op = r->log; op; op = next) {
		next = op->next;
		free(op);
	}
	r->log = NULL;
	r->log_tail = &r->log;
}

void ram_flash_free(struct ram_flash *r)
{
	ram_log_clear(r);
	ram_image_clear(&r->now);
	ram_image_clear(&r->durable);
	htab_destroy(&r->now.sectors);
	htab_destroy(&r->now.ctls);
	htab_destroy(&r->durable.sectors);
	htab_destroy(&r->durable.ctls);
	pthread_mutex_destroy(&r->lock);
	pthread_mutex_destroy(&r->busy_lock);
	free(r);
}

void ram_flash_cut(struct ram_flash *r, uint64_t seed)
{
	unsigned share = (unsigned)(hash_mix64(seed) % 5); /* of four */
	struct ram_op *op;
	uint64_t i = 0;

	pthread_mutex_lock(&r->lock);
	for (op = r->log; op; op = op->next, i++)
		if (seed == 1 || (seed && hash_mix64(seed * 1000003 + i) % 4 < share))
			ram_apply(&r->durable, op, false);
	ram_log_clear(r);
	ram_image_clear(&r->now);
	htab_each(&r->durable.sectors, ram_copy_sector, &r->now);
	htab_each(&r->durable.ctls, ram_copy_ctl, &r->now);
	r->unclean = true;
	r->fail_at = 0;
	pthread_mutex_unlock(&r->lock);
}

void ram_flash_closed_cleanly(struct ram_flash *r)
{
	ram_flush(&r->flash);
	r->unclean = false;
}

void ram_flash_counts(struct ram_flash *r, struct ram_counts *out)
{
	pthread_mutex_lock(&r->lock);
	*out = r->counts;
	pthread_mutex_unlock(&r->lock);
}

void ram_flash_fail_at(struct ram_flash *r, uint64_t n)
{
	pthread_mutex_lock(&r->lock);
	r->fail_at = n;
	pthread_mutex_unlock(&r->lock);
}

uint64_t ram_flash_calls(struct ram_flash *r)
{
	uint64_t n;

	pthread_mutex_lock(&r->lock);
	n = r->calls;
	pthread_mutex_unlock(&r->lock);
	return n;
}

void ram_flash_full(struct ram_flash *r, bool full)
{
	pthread_mutex_lock(&r->lock);
	r->full = full;
	pthread_mutex_unlock(&r->lock);
}

static void ram_corrupt_one(struct htab_node *h, void *arg)
{
	(void)arg;
	container_of(h, struct ram_sector, node)->flags |= FLASH_CORRUPT;
}

void ram_flash_corrupt(struct ram_flash *r)
{
	pthread_mutex_lock(&r->lock);
	htab_each(&r->now.sectors, ram_corrupt_one, NULL);
	pthread_mutex_unlock(&r->lock);
}

uint64_t ram_flash_sectors(struct ram_flash *r)
{
	uint64_t n;

	pthread_mutex_lock(&r->lock);
	n = r->now.sectors.count;
	pthread_mutex_unlock(&r->lock);
	return n;
}

uint64_t ram_flash_records(struct ram_flash *r, enum flash_ctl kind)
{
	struct ram_gather g = {.kind = kind};

	ram_gather(r, &g);
	free(g.items);
	return g.count;
}
