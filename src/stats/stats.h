/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Counters and latency histograms, described once in stats.tbl.
 *
 * stats.tbl lists every counter and histogram of the mount: group, name, unit, help. From that one
 * table come the struct, the JSON, the text and the Prometheus form and the manual's list. Counters
 * only ever rise (relaxed atomics, any thread, no lock); gauges are set; ratios are made when
 * printing. Owners pass struct stats by pointer: one per mount, none global.
 */
#ifndef GILD_STATS_STATS_H
#define GILD_STATS_STATS_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "stats/hist.h"

/* One row per statistic: COUNTER(group, name, unit, help), GAUGE(...), HIST(...). */
struct stats {
#define COUNTER(group, name, unit, help) _Atomic uint64_t group##_##name;
#define GAUGE(group, name, unit, help) _Atomic uint64_t group##_##name;
#define HIST(group, name, unit, help) struct hist group##_##name;
#include "stats/stats.tbl"
#undef COUNTER
#undef GAUGE
#undef HIST
};

void stats_init(struct stats *s);

#define stats_add(s, field, n) \
	((void)atomic_fetch_add_explicit(&(s)->field, (uint64_t)(n), memory_order_relaxed))
#define stats_inc(s, field) stats_add(s, field, 1)
#define stats_set(s, field, v) \
	atomic_store_explicit(&(s)->field, (uint64_t)(v), memory_order_relaxed)
#define stats_get(s, field) atomic_load_explicit(&(s)->field, memory_order_relaxed)

/* A new object {group: {name: number | histogram object}}; the caller owns the reference. Histogram
 * objects: {"count","mean","p50","p90","p99","p999","max"} in the row's unit, and "buckets":
 * [[low, count]...], the buckets that hold anything. NULL: no memory. */
json_t *stats_to_json(const struct stats *s);
/* Name, value, unit and help in columns, one group a paragraph. */
void stats_print_text(const struct stats *s, FILE *to);
/* Prometheus text exposition format 0.0.4, names gildfs_GROUP_NAME, histograms as summaries. */
void stats_print_prometheus(const struct stats *s, FILE *to);
/* The table itself as "group name unit help" lines, tab separated: what every other form must name. */
void stats_print_table(FILE *to);

#endif
