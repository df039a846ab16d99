/* SPDX-License-Identifier: BSD-2-Clause
 *
 * By frequency: until flash is full everything is admitted; from then on only what was asked for
 * before, so that a scan (a backup, a crawler) does not push out what is used; and one in FREQ_LUCK
 * of the others, so that a load which comes back later than the sketch remembers gets in, too. "Full"
 * ends only when much of it is free again: GC gives space back in lumps, and each lump would let the
 * scan in.
 *
 * GC keeps lines that were used at least twice within the sketch's memory; each level of pressure
 * asks for one use more. A sketch that is young (after a remount) knows nobody: until it has seen as
 * many requests as flash holds lines, only pressure asks.
 */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/htab.h"
#include "cache/cache_policy.h"
#include "cache/cache_sketch.h"

#define FREQ_KEEP 2u
#define FREQ_HOT 4u
#define FREQ_LUCK 8u
#define FREQ_ROOM_PERCENT 60u /* below this use flash is not full any more */

struct freq {
	struct policy policy;
	struct sketch sketch;
	uint64_t lines; /* constant: what flash may hold */
	_Atomic bool full;
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
	if (!atomic_load_explicit(&f->full, memory_order_relaxed) ||
	    sketch_count(&f->sketch, key) >= 1 + visits)
		return true;
	turn = atomic_load_explicit(&f->sketch.touches, memory_order_relaxed) >> 16;
	return hash_mix64(key + turn) % FREQ_LUCK == 0;
}

static bool freq_hot(struct policy *p, uint64_t key)
{
	return sketch_count(&container_of(p, struct freq, policy)->sketch, key) >= FREQ_KEEP;
}

static enum flash_verdict freq_reclaim(struct policy *p, uint64_t key, uint64_t stamp,
				       unsigned pressure)
{
	struct freq *f = container_of(p, struct freq, policy);
	unsigned n = sketch_count(&f->sketch, key);
	bool young = atomic_load_explicit(&f->sketch.touches, memory_order_relaxed) < f->lines;

	(void)stamp;
	if (n < (young ? 0 : FREQ_KEEP) + pressure)
		return FLASH_DROP;
	return n >= FREQ_HOT + pressure ? FLASH_KEEP_HOT : FLASH_KEEP_COLD;
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
