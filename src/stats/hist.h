/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A log-linear histogram of non-negative integers (as HdrHistogram: 2^HIST_SUB_BITS linear steps
 * per power of two), so every value is kept within 1/32 (about 3 %). 15 KiB, no allocation.
 *
 * hist_add is safe from any thread (relaxed atomics). Readers may see a sample in `count` before it
 * is in `sum`; percentiles are made from the buckets alone.
 */
#ifndef GILD_STATS_HIST_H
#define GILD_STATS_HIST_H

#include <stdatomic.h>
#include <stdint.h>

#define HIST_SUB_BITS 5
#define HIST_BUCKETS ((64 - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

struct hist {
	_Atomic uint64_t count, sum, max;
	_Atomic uint64_t bucket[HIST_BUCKETS];
};

void hist_init(struct hist *h);
void hist_add(struct hist *h, uint64_t value);
void hist_merge(struct hist *into, const struct hist *from);
/* The smallest bucket's upper bound that at least `p` percent (0..100) of the samples do not pass;
 * 0 with no samples. p = 100 gives max. */
uint64_t hist_percentile(const struct hist *h, double p);
double hist_mean(const struct hist *h);
/* Bucket i covers [hist_bucket_low(i), hist_bucket_low(i+1)). */
uint64_t hist_bucket_low(unsigned i);
unsigned hist_bucket_of(uint64_t value); /* < HIST_BUCKETS */

#endif
