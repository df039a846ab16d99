/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Values below 32 have a bucket each. Above, the power of two and the five bits after the leading
 * one choose the bucket: bucket = 32 * (power - 5) + (value >> (power - 5)), where the second term
 * is in 32..63. So neighbouring powers join without a gap: value 63 is bucket 63, 64 and 65 are 64.
 */
#include <config.h>

#include <math.h>

#include "stats/hist.h"

#define HIST_STEPS (1u << HIST_SUB_BITS)

unsigned hist_bucket_of(uint64_t value)
{
	unsigned shift;

	if (value < HIST_STEPS)
		return (unsigned)value;
	shift = 63u - (unsigned)__builtin_clzll(value) - HIST_SUB_BITS;
	return HIST_STEPS * shift + (unsigned)(value >> shift);
}

uint64_t hist_bucket_low(unsigned i)
{
	if (i < HIST_STEPS)
		return i;
	if (i >= HIST_BUCKETS)
		return UINT64_MAX;
	return (uint64_t)(HIST_STEPS + i % HIST_STEPS) << (i / HIST_STEPS - 1);
}

void hist_init(struct hist *h)
{
	unsigned i;

	atomic_init(&h->count, 0);
	atomic_init(&h->sum, 0);
	atomic_init(&h->max, 0);
	for (i = 0; i < HIST_BUCKETS; i++)
		atomic_init(&h->bucket[i], 0);
}

static void hist_raise_max(struct hist *h, uint64_t value)
{
	uint64_t max = atomic_load_explicit(&h->max, memory_order_relaxed);

	while (value > max &&
	       !atomic_compare_exchange_weak_explicit(&h->max, &max, value, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

void hist_add(struct hist *h, uint64_t value)
{
	atomic_fetch_add_explicit(&h->count, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->bucket[hist_bucket_of(value)], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->sum, value, memory_order_relaxed);
	hist_raise_max(h, value);
}

void hist_merge(struct hist *into, const struct hist *from)
{
	unsigned i;

	atomic_fetch_add_explicit(&into->count, from->count, memory_order_relaxed);
	atomic_fetch_add_explicit(&into->sum, from->sum, memory_order_relaxed);
	for (i = 0; i < HIST_BUCKETS; i++) {
		uint64_t n = atomic_load_explicit(&from->bucket[i], memory_order_relaxed);

		if (n)
			atomic_fetch_add_explicit(&into->bucket[i], n, memory_order_relaxed);
	}
	hist_raise_max(into, from->max);
}

uint64_t hist_percentile(const struct hist *h, double p)
{
	uint64_t max = atomic_load_explicit(&h->max, memory_order_relaxed);
	uint64_t total = 0, seen = 0, high;
	double wanted;
	unsigned i;

	for (i = 0; i < HIST_BUCKETS; i++)
		total += atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
	if (total == 0)
		return 0;
	if (p >= 100)
		return max;
	wanted = ceil(p / 100 * (double)total);
	for (i = 0; i < HIST_BUCKETS; i++) {
		seen += atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
		if (seen && (double)seen >= wanted)
			break;
	}
	high = hist_bucket_low(i + 1) - 1;
	return high < max ? high : max;
}

double hist_mean(const struct hist *h)
{
	uint64_t n = atomic_load_explicit(&h->count, memory_order_relaxed);

	return n ? (double)atomic_load_explicit(&h->sum, memory_order_relaxed) / (double)n : 0;
}
