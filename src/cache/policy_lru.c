/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Least recently used, as far as a table of last touches tells: time is counted in touches (in
 * steps of LRU_STEP), and GC drops lines that were not touched during the last `window` of them.
 * Each level of pressure halves the window; at the highest it is empty. Lines that share a slot
 * look as recent as the later one, so the table only errs towards keeping.
 */
#include <config.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/htab.h"
#include "cache/cache_policy.h"

#define LRU_STEP 64u

struct lru {
	struct policy policy;
	_Atomic uint64_t touches;
	uint64_t window; /* steps */
	size_t mask;
	_Atomic uint32_t last[]; /* step of the last touch, + 1; 0: never */
};

static int lru_create(struct policy **out, uint64_t lines)
{
	size_t slots = 1024;
	struct lru *l;

	while (slots < lines * 2 && slots < (size_t)1 << 22)
		slots <<= 1;
	l = calloc(1, sizeof(*l) + slots * sizeof(l->last[0]));
	if (!l)
		return -ENOMEM;
	l->mask = slots - 1;
	l->window = lines / LRU_STEP + 16;
	*out = &l->policy;
	return 0;
}

static void lru_destroy(struct policy *p)
{
	free(container_of(p, struct lru, policy));
}

static uint32_t lru_now(struct lru *l)
{
	return (uint32_t)(atomic_load_explicit(&l->touches, memory_order_relaxed) / LRU_STEP) + 1;
}

static void lru_touch(struct policy *p, uint64_t key)
{
	struct lru *l = container_of(p, struct lru, policy);

	atomic_fetch_add_explicit(&l->touches, 1, memory_order_relaxed);
	atomic_store_explicit(&l->last[key & l->mask], lru_now(l), memory_order_relaxed);
}

static bool lru_recent(struct lru *l, uint64_t key, unsigned pressure)
{
	uint32_t last = atomic_load_explicit(&l->last[key & l->mask], memory_order_relaxed);

	if (pressure >= POLICY_PRESSURE_MAX || !last)
		return false;
	return (uint32_t)(lru_now(l) - last) < l->window >> pressure;
}

static bool lru_admit(struct policy *p, uint64_t key, unsigned used_percent, unsigned visits)
{
	(void)p;
	(void)key;
	(void)used_percent;
	(void)visits;
	return true;
}

static bool lru_hot(struct policy *p, uint64_t key)
{
	return lru_recent(container_of(p, struct lru, policy), key, 0);
}

static enum flash_verdict lru_reclaim(struct policy *p, uint64_t key, uint64_t stamp,
				      unsigned pressure)
{
	struct lru *l = container_of(p, struct lru, policy);

	(void)stamp;
	if (!lru_recent(l, key, pressure))
		return FLASH_DROP;
	return lru_recent(l, key, pressure + 2) ? FLASH_KEEP_HOT : FLASH_KEEP_COLD;
}

const struct policy_ops policy_lru = {
	.name = "lru",
	.create = lru_create,
	.destroy = lru_destroy,
	.touch = lru_touch,
	.admit = lru_admit,
	.hot = lru_hot,
	.reclaim = lru_reclaim,
};
