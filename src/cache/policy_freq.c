/* SPDX-License-Identifier: BSD-2-Clause
 *
 * By frequency. Until flash is full everything is admitted; from then on a line must have been asked
 * for more often than what GC meets (the bar: a moving average of the counts of the lines it asks
 * about), so neither a scan (a backup, a crawler) nor a load that goes round and round pushes out
 * what is used. One in FREQ_LUCK of the others gets in all the same: a load may come back later than
 * the sketch remembers, and what GC meets must be known. "Full" ends only when much of flash is free
 * again: GC gives space back in lumps, and each lump would let the scan in.
 *
 * GC drops lines below the bar; each level of pressure raises it by one use. Lines at the bar are
 * kept or dropped by a coin, so that lines which are all alike do not block GC. A sketch that is
 * young (after a remount) knows nobody: until it has seen as many requests as flash holds lines, only
 * pressure asks.
 */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/htab.h"
#include "cache/cache_policy.h"
#include "cache/cache_sketch.h"

#define FREQ_WRITE 2u /* uses that make a line worth new bytes when it is written to */
#define FREQ_ONE 64u  /* scale of the bar */
#define FREQ_SPEED 16u /* lines the average goes over */
#define FREQ_LUCK 8u
#define FREQ_ROOM_PERCENT 60u /* below this use flash is not full any more */

struct freq {
	struct policy policy;
	struct sketch sketch;
	uint64_t lines; /* constant: what flash may hold */
	_Atomic bool full;
	_Atomic unsigned bar; /* in 1/FREQ_ONE uses */
};

static int freq_create(struct policy **out, uint64_t lines)
{
	struct freq *f = calloc(1, sizeof(*f));
	int err;

	if (!f)
		return -ENOMEM;
	err = sketch_init(&f->sketch, lines);
	if (err) {
		free(f);
		return err;
	}
	f->lines = lines;
	*out = &f->policy;
	return 0;
}

static void freq_destroy(struct policy *p)
{
	struct freq *f = container_of(p, struct freq, policy);

	sketch_destroy(&f->sketch);
	free(f);
}

static unsigned freq_bar(struct freq *f)
{
	return atomic_load_explicit(&f->bar, memory_order_relaxed);
}

static void freq_touch(struct policy *p, uint64_t key)
{
	sketch_touch(&container_of(p, struct freq, policy)->sketch, key);
}

static bool freq_admit(struct policy *p, uint64_t key, unsigned used_percent, unsigned visits)
{
	struct freq *f = container_of(p, struct freq, policy);
	uint64_t turn;

	if (used_percent >= POLICY_EAGER_PERCENT)
		atomic_store_explicit(&f->full, true, memory_order_relaxed);
	else if (used_percent < FREQ_ROOM_PERCENT)
		atomic_store_explicit(&f->full, false, memory_order_relaxed);
	if (!atomic_load_explicit(&f->full, memory_order_relaxed))
		return true;
	if ((sketch_count(&f->sketch, key) - visits) * FREQ_ONE > freq_bar(f))
		return true;
	turn = atomic_load_explicit(&f->sketch.touches, memory_order_relaxed) >> 16;
	return hash_mix64(key + turn) % FREQ_LUCK == 0;
}

static bool freq_hot(struct policy *p, uint64_t key)
{
	return sketch_count(&container_of(p, struct freq, policy)->sketch, key) >= FREQ_WRITE;
}

static enum flash_verdict freq_reclaim(struct policy *p, uint64_t key, uint64_t stamp,
				       unsigned pressure)
{
	struct freq *f = container_of(p, struct freq, policy);
	unsigned n = sketch_count(&f->sketch, key) * FREQ_ONE, bar = freq_bar(f);
	uint64_t touches = atomic_load_explicit(&f->sketch.touches, memory_order_relaxed);
	unsigned coin = (unsigned)(hash_mix64(key + stamp) % FREQ_ONE);

	/* lost updates are no harm */
	atomic_store_explicit(&f->bar, bar + n / FREQ_SPEED - bar / FREQ_SPEED, memory_order_relaxed);
	if (touches < f->lines)
		bar = 0;
	else if (bar < FREQ_ONE)
		bar = FREQ_ONE; /* what nobody asks for goes first */
	bar += pressure * FREQ_ONE;
	if (n + coin < bar + FREQ_ONE / 2 && bar)
		return FLASH_DROP;
	return n >= 2 * bar ? FLASH_KEEP_HOT : FLASH_KEEP_COLD;
}

const struct policy_ops policy_freq = {
	.name = "freq",
	.create = freq_create,
	.destroy = freq_destroy,
	.touch = freq_touch,
	.admit = freq_admit,
	.hot = freq_hot,
	.reclaim = freq_reclaim,
};
