/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Reads of the backing under way, so that many readers of one missing line cause one.
 *
 * A flight is a buffer and the promise to read a range of a file into it. It is listed from its
 * start until its lines are on flash (or were given up), so readers also find in it what waits in
 * the fill queue. It may be joined only while the file's generation is the one it began with: bytes
 * read before a change of ours are no answer to a reader who came after it.
 *
 *   started (listed) -> done (listed) -> filled or given up (unlisted) -> freed with the last ref
 *                    \-> failed (unlisted)
 */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "cache/cache_priv.h"

#define CPOOL_SMALLEST (64u << 10)

/* ---- buffers ---- */

static unsigned cpool_class(size_t room)
{
	unsigned i = 0;

	while (((size_t)CPOOL_SMALLEST << i) < room)
		i++;
	return i;
}

void *cpool_get(struct cache *c, size_t room)
{
	unsigned i = cpool_class(room);
	void *buf;

	gild_assert(i < CACHE_POOL_CLASSES);
	lock_acquire(&c->pool.lock);
	buf = c->pool.free[i];
	if (buf) {
		c->pool.free[i] = *(void **)buf;
		c->pool.kept -= (size_t)CPOOL_SMALLEST << i;
	}
	lock_release(&c->pool.lock);
	return buf ? buf : aligned_alloc(FLASH_SECTOR, (size_t)CPOOL_SMALLEST << i);
}

void cpool_put(struct cache *c, void *buf, size_t room)
{
	unsigned i = cpool_class(room);
	size_t size = (size_t)CPOOL_SMALLEST << i;

	if (!buf)
		return;
	lock_acquire(&c->pool.lock);
	if (c->pool.kept + size <= c->pool.limit) {
		*(void **)buf = c->pool.free[i];
		c->pool.free[i] = buf;
		c->pool.kept += size;
		buf = NULL;
	}
	lock_release(&c->pool.lock);
	free(buf);
}

/* ---- flights ---- */

int cflight_start(struct cache *c)
{
	unsigned i;

	lock_init(&c->pool.lock, "cache buffers", RANK_CACHE_POLICY);
	c->pool.limit = c->o.fill_bytes < (16u << 20) ? c->o.fill_bytes : 16u << 20;
	c->flights = calloc(CACHE_FLIGHT_BUCKETS, sizeof(*c->flights));
	if (!c->flights)
		return -ENOMEM;
	for (i = 0; i < CACHE_FLIGHT_BUCKETS; i++) {
		lock_init(&c->flights[i].lock, "cache reads", RANK_CACHE_FILL);
		lock_cond_init(&c->flights[i].cond);
	}
	return 0;
}

void cflight_stop(struct cache *c)
{
	unsigned i;

	for (i = 0; c->flights && i < CACHE_FLIGHT_BUCKETS; i++) {
		gild_assert(!c->flights[i].head);
		lock_destroy(&c->flights[i].lock);
		lock_cond_destroy(&c->flights[i].cond);
	}
	free(c->flights);
	if (!c->pool.lock.name)
		return;
	for (i = 0; i < CACHE_POOL_CLASSES; i++) {
		void *buf = c->pool.free[i], *next;

		for (; buf; buf = next) {
			next = *(void **)buf;
			free(buf);
		}
	}
	lock_destroy(&c->pool.lock);
}

static struct cflight_bucket *cflight_bucket(struct cache *c, const struct cnode *n)
{
	return &c->flights[((uintptr_t)n >> 4) * 0x9e3779b97f4a7c15ULL >> 58];
}

_Static_assert(CACHE_FLIGHT_BUCKETS == 1u << (64 - 58), "the shift in cflight_bucket");

static uint64_t cflight_end(const struct cflight *f)
{
	return f->off + (f->done ? (uint64_t)f->got : f->want);
}

static struct cflight *cflight_find(struct cflight_bucket *b, struct cnode *n, uint32_t gen,
				    uint64_t since, uint64_t off, uint64_t *end)
{
	struct cflight *f;

	for (f = b->head; f; f = f->next) {
		if (f->n != n || f->gen != gen || f->before < since)
			continue;
		if (f->off <= off && off < cflight_end(f)) {
			f->refs++;
			if (cflight_end(f) < *end)
				*end = cflight_end(f);
			return f;
		}
		if (f->off > off && f->off < *end)
			*end = f->off;
	}
	return NULL;
}

static void cflight_free(struct cache *c, struct cflight *f)
{
	if (f->n)
		cache_forget(c, f->n, 1);
	cpool_put(c, f->buf, f->room);
	free(f);
}

static struct cflight *cflight_make(struct cache *c, struct cnode *n, uint32_t gen, uint64_t off,
				    size_t room)
{
	struct cflight *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->buf = cpool_get(c, room);
	if (!f->buf) {
		free(f);
		return NULL;
	}
	f->c = c;
	f->n = n;
	cache_hold(n);
	f->gen = gen;
	f->off = off;
	f->room = room;
	f->refs = 1;
	f->listed = true;
	return f;
}

struct cflight *cflight_get(struct cache *c, struct cnode *n, uint32_t gen, uint64_t since,
			    uint64_t off, uint64_t *end, bool *mine)
{
	struct cflight_bucket *b = cflight_bucket(c, n);
	struct cflight *f, *made;

	if (*end - off > CFLIGHT_MAX)
		*end = off + CFLIGHT_MAX;
	*mine = false;
	lock_acquire(&b->lock);
	f = cflight_find(b, n, gen, since, off, end);
	lock_release(&b->lock);
	if (f)
		return f;
	made = cflight_make(c, n, gen, off, (size_t)(*end - off));
	if (!made)
		return NULL;
	lock_acquire(&b->lock);
	f = cflight_find(b, n, gen, since, off, end);
	if (!f) {
		made->before = clock_file_ns();
		made->want = (size_t)(*end - off);
		made->next = b->head;
		b->head = made;
	}
	lock_release(&b->lock);
	if (f) {
		cflight_free(c, made);
		return f;
	}
	*mine = true;
	return made;
}

static void cflight_unlist_locked(struct cflight_bucket *b, struct cflight *f)
{
	struct cflight **p = &b->head;

	if (!f->listed)
		return;
	while (*p != f)
		p = &(*p)->next;
	*p = f->next;
	f->listed = false;
}

void cflight_finish(struct cache *c, struct cflight *f, ssize_t got)
{
	struct cflight_bucket *b = cflight_bucket(c, f->n);

	lock_acquire(&b->lock);
	f->got = got;
	f->done = true;
	if (got <= 0)
		cflight_unlist_locked(b, f);
	lock_cond_broadcast(&b->cond);
	lock_release(&b->lock);
}

void cflight_wait(struct cache *c, struct cflight *f)
{
	struct cflight_bucket *b = cflight_bucket(c, f->n);

	lock_acquire(&b->lock);
	while (!f->done)
		lock_cond_wait(&b->cond, &b->lock);
	lock_release(&b->lock);
}

void cflight_unlist(struct cache *c, struct cflight *f)
{
	struct cflight_bucket *b = cflight_bucket(c, f->n);

	lock_acquire(&b->lock);
	cflight_unlist_locked(b, f);
	lock_release(&b->lock);
}

void cflight_put(struct cache *c, struct cflight *f)
{
	struct cflight_bucket *b = cflight_bucket(c, f->n);
	bool last;

	lock_acquire(&b->lock);
	last = !--f->refs;
	gild_assert(!last || !f->listed);
	lock_release(&b->lock);
	if (last)
		cflight_free(c, f);
}
