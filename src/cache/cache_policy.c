/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What all policies share: choosing one, keys, pressure.
 */
#include <config.h>

#include <errno.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "cache/cache_policy.h"

#define POLICY_LINE_BYTES 16384u /* a line on flash, at a guess: for sizing tables */
#define POLICY_RAISE_NS (2 * NS_PER_MS) /* GC needs a moment to act on a new level */
#define POLICY_RELAX 256u        /* writes that lower the level by one */

static const struct policy_ops *const policy_table[] = {
	[CACHE_POLICY_FREQ] = &policy_freq,
	[CACHE_POLICY_ALWAYS] = &policy_always,
	[CACHE_POLICY_LRU] = &policy_lru,
};

static int policy_make(struct policy **out, const struct policy_ops *ops, uint64_t lines)
{
	int err = ops->create(out, lines);

	if (err)
		return err;
	(*out)->ops = ops;
	atomic_init(&(*out)->pressure, 0);
	atomic_init(&(*out)->raised_ns, 0);
	atomic_init(&(*out)->written, 0);
	return 0;
}

int policy_create(struct policy **out, enum cache_policy which, uint64_t flash_bytes)
{
	const struct policy_ops *ops = policy_table[which];
	int err = policy_make(out, ops, flash_bytes / POLICY_LINE_BYTES);

	if (!err || ops == &policy_always)
		return err;
	log_warning("cache", "policy %s cannot be had (%s); going on with %s", ops->name,
		    err == -ENOMEM ? "no memory" : "error", policy_always.name);
	return policy_make(out, &policy_always, 0);
}

void policy_destroy(struct policy *p)
{
	if (p)
		p->ops->destroy(p);
}

uint64_t policy_key(uint64_t file, uint64_t line)
{
	return hash_mix64(file * 0x9e3779b97f4a7c15ULL + line);
}

/* ---- visits: 40 bits of the key, 24 of the time in units of 2^23 ns (8 ms) ---- */

#define VISIT_TIME_BITS 24u
#define VISIT_UNIT 23u
#define VISIT_TIME_MASK ((1ULL << VISIT_TIME_BITS) - 1)

static bool policy_visiting(struct policy *p, uint64_t key, uint64_t now)
{
	uint64_t e = atomic_load_explicit(&p->visit[key % POLICY_VISITS], memory_order_relaxed);
	uint64_t age = ((now >> VISIT_UNIT) - e) & VISIT_TIME_MASK;

	return (e ^ key) >> VISIT_TIME_BITS == 0 && age <= POLICY_VISIT_NS >> VISIT_UNIT;
}

bool policy_admit(struct policy *p, uint64_t key, unsigned used_percent, uint64_t now)
{
	return p->ops->admit(p, key, used_percent, policy_visiting(p, key, now));
}

void policy_touch(struct policy *p, uint64_t key, uint64_t now)
{
	if (!policy_visiting(p, key, now))
		p->ops->touch(p, key);
	atomic_store_explicit(&p->visit[key % POLICY_VISITS],
			      (key & ~VISIT_TIME_MASK) | (now >> VISIT_UNIT & VISIT_TIME_MASK),
			      memory_order_relaxed);
}

void policy_no_space(struct policy *p)
{
	uint64_t now = clock_mono_ns();
	uint64_t last = atomic_load_explicit(&p->raised_ns, memory_order_relaxed);
	unsigned level = atomic_load_explicit(&p->pressure, memory_order_relaxed);

	if (now - last < POLICY_RAISE_NS || level >= POLICY_PRESSURE_MAX)
		return;
	if (atomic_compare_exchange_strong_explicit(&p->raised_ns, &last, now, memory_order_relaxed,
						    memory_order_relaxed))
		atomic_store_explicit(&p->pressure, level + 1, memory_order_relaxed);
}

void policy_wrote(struct policy *p)
{
	uint64_t n = atomic_fetch_add_explicit(&p->written, 1, memory_order_relaxed) + 1;
	unsigned level = atomic_load_explicit(&p->pressure, memory_order_relaxed);

	if (level && n % POLICY_RELAX == 0)
		atomic_compare_exchange_strong_explicit(&p->pressure, &level, level - 1,
							memory_order_relaxed, memory_order_relaxed);
}

enum flash_verdict policy_reclaim(struct policy *p, uint64_t key, uint64_t stamp)
{
	return p->ops->reclaim(p, key, stamp,
			       atomic_load_explicit(&p->pressure, memory_order_relaxed));
}
