/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The result of a run of `gild replay`: what was asked for, one row a second, histograms, totals,
 * and its JSON form, which `gild report` reads.
 *
 * Raw counters and nanoseconds only; rates, means and ratios are made when printing. One thread
 * owns a result.
 *
 * JSON: {"format": "gild-replay", "version": 1, "settings": {...}, "content": {...},
 *   "series": {"columns": [names], "rows": [[numbers]...]},
 *   "histograms": {"page"|"first_byte"|"file": {"unit": "ns", "count", "mean", "p50", "p90", "p99",
 *                  "p999", "max", "buckets": [[low, count]...]}},
 *   "totals": {"whole": {...}, "measured": {...}}, "first_error": "...", "interrupted": bool,
 *   "mount": {"mountpoint": "...", "stats": {as the control socket gave them}}}
 */
#ifndef GILD_TOOLS_REPLAY_RESULT_H
#define GILD_TOOLS_REPLAY_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "stats/hist.h"
#include "tools/replay_content.h"

/* What is counted. "first" counts the HTML pages whose first bytes came (or whose end did). */
enum replay_counter {
	REPLAY_PAGES,      /* page views with all four files read */
	REPLAY_HITS,       /* files read */
	REPLAY_BYTES,
	REPLAY_ERRORS,     /* files that could not be read wholly, log lines not written */
	REPLAY_PAGE_NS,    /* sum of the response times of the pages counted */
	REPLAY_FIRSTS,
	REPLAY_FIRST_NS,   /* sum of the times to first byte */
	REPLAY_HTML_BYTES, /* the part of the bytes that was HTML */
	REPLAY_COUNTERS
};

/* One interval of the run, about a second. */
struct replay_second {
	double at, span; /* seconds: end of the interval since the start, and its length */
	uint64_t n[REPLAY_COUNTERS];
	uint64_t page_p99_ns; /* 0 when no page was finished */
	bool cache_known;     /* the two below come from the mount */
	uint64_t cache_hits, cache_requests;
};

struct replay_totals {
	double seconds;
	uint64_t n[REPLAY_COUNTERS];
	bool cache_known;
	uint64_t cache_hits, cache_requests;
};

struct replay_settings {
	char *root, *label, *list, *access_log, *host; /* malloced, NULL where not used */
	double started;                                /* seconds since 1970 */
	uint64_t clients, duration_ns, warmup_ns, pages, seed, piece;
};

struct replay_result {
	struct replay_settings settings;
	struct replay_counts content;
	struct replay_second *seconds;
	size_t count, room;
	struct hist *page, *first, *file; /* measured part only, ns */
	struct replay_totals whole, measured;
	char *first_error; /* "path: reason" or NULL */
	bool interrupted;
	char *mountpoint; /* of the gildfs mount below the root, or NULL */
	json_t *stats;    /* what it said at the end, or NULL */
};

/* The percentiles of a histogram, wherever it came from. */
struct replay_latency {
	uint64_t count;
	double mean;
	uint64_t p50, p90, p99, p999, max;
};

int replay_result_create(struct replay_result **out); /* -ENOMEM */
void replay_result_destroy(struct replay_result *r);  /* NULL-safe */
int replay_result_add(struct replay_result *r, const struct replay_second *s); /* -ENOMEM */

/* A new reference, or NULL without memory. */
json_t *replay_result_to_json(const struct replay_result *r);
/* Everything is checked: -EINVAL leaves in `why` what is wrong with which member. -ENOMEM. */
int replay_result_from_json(struct replay_result **out, const json_t *json, char *why, size_t len);

void replay_latency_of(const struct hist *h, struct replay_latency *l);
/* Reads a histogram object, from a result or from the stats of a mount. `h` (may be NULL) gets its
 * buckets where it has any. 0, -ENOENT without a count, -EINVAL when malformed. */
int replay_latency_from_json(const json_t *json, struct replay_latency *l, struct hist *h);
/* The histogram object latency.`name` in the mount's stats, borrowed, or NULL. */
const json_t *replay_result_mount_latency(const struct replay_result *r, const char *name);

#endif
