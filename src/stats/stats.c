/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The forms of the statistics, all from the one table.
 */
#include <config.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "stats/stats.h"

enum stats_kind { STATS_COUNTER, STATS_GAUGE, STATS_HIST };

struct stats_row {
	enum stats_kind kind;
	const char *group, *name, *unit, *help;
	size_t offset;
};

#define STATS_ROW(kind, group, name, unit, help) \
	{kind, #group, #name, #unit, help, offsetof(struct stats, group##_##name)},
static const struct stats_row stats_rows[] = {
#define COUNTER(group, name, unit, help) STATS_ROW(STATS_COUNTER, group, name, unit, help)
#define GAUGE(group, name, unit, help) STATS_ROW(STATS_GAUGE, group, name, unit, help)
#define HIST(group, name, unit, help) STATS_ROW(STATS_HIST, group, name, unit, help)
#include "stats/stats.tbl"
#undef COUNTER
#undef GAUGE
#undef HIST
};

#define STATS_ROWS (sizeof(stats_rows) / sizeof(stats_rows[0]))

static const struct {
	const char *name, *quantile;
	double percent;
} stats_points[] = {{"p50", "0.5", 50}, {"p90", "0.9", 90}, {"p99", "0.99", 99},
		    {"p999", "0.999", 99.9}};

#define STATS_POINTS (sizeof(stats_points) / sizeof(stats_points[0]))

static const struct hist *stats_hist(const struct stats *s, const struct stats_row *r)
{
	return (const void *)((const char *)s + r->offset);
}

static uint64_t stats_value(const struct stats *s, const struct stats_row *r)
{
	const _Atomic uint64_t *p = (const void *)((const char *)s + r->offset);

	return atomic_load_explicit(p, memory_order_relaxed);
}

void stats_init(struct stats *s)
{
	size_t i;

	for (i = 0; i < STATS_ROWS; i++) {
		void *at = (char *)s + stats_rows[i].offset;

		if (stats_rows[i].kind == STATS_HIST)
			hist_init(at);
		else
			atomic_init((_Atomic uint64_t *)at, 0);
	}
}

/* [[low, count]...] of the buckets that hold anything: what a chart is drawn from. */
static json_t *stats_buckets_to_json(const struct hist *h)
{
	json_t *all = json_array();
	unsigned i;

	for (i = 0; i < HIST_BUCKETS; i++) {
		uint64_t n = atomic_load_explicit(&h->bucket[i], memory_order_relaxed);

		if (n)
			json_array_append_new(all, json_pack("[I, I]", (json_int_t)hist_bucket_low(i),
							     (json_int_t)n));
	}
	return all;
}

static json_t *stats_hist_to_json(const struct hist *h)
{
	json_t *o = json_object();
	size_t i;
	int rc;

	rc = json_object_set_new(o, "count", json_integer((json_int_t)h->count));
	rc |= json_object_set_new(o, "mean", json_real(hist_mean(h)));
	for (i = 0; i < STATS_POINTS; i++) {
		uint64_t v = hist_percentile(h, stats_points[i].percent);

		rc |= json_object_set_new(o, stats_points[i].name, json_integer((json_int_t)v));
	}
	rc |= json_object_set_new(o, "max", json_integer((json_int_t)h->max));
	rc |= json_object_set_new(o, "buckets", stats_buckets_to_json(h));
	if (rc) {
		json_decref(o);
		return NULL;
	}
	return o;
}

static int stats_row_to_json(json_t *all, const struct stats *s, const struct stats_row *r)
{
	json_t *group = json_object_get(all, r->group);
	json_t *value;

	if (!group) {
		group = json_object();
		if (json_object_set_new(all, r->group, group))
			return -1;
	}
	if (r->kind == STATS_HIST)
		value = stats_hist_to_json(stats_hist(s, r));
	else
		value = json_integer((json_int_t)stats_value(s, r));
	return json_object_set_new(group, r->name, value);
}

json_t *stats_to_json(const struct stats *s)
{
	json_t *all = json_object();
	size_t i;

	for (i = 0; i < STATS_ROWS; i++) {
		if (stats_row_to_json(all, s, &stats_rows[i])) {
			json_decref(all);
			return NULL;
		}
	}
	return all;
}

static void stats_print_hist(const struct hist *h, const struct stats_row *r, FILE *to)
{
	fprintf(to, "%-10s %-14s %14" PRIu64 " %-6s %s\n", r->group, r->name, h->count, "n",
		r->help);
	if (h->count)
		fprintf(to,
			"%-25s %14.0f %-6s mean; p50 %" PRIu64 ", p90 %" PRIu64 ", p99 %" PRIu64
			", p99.9 %" PRIu64 ", max %" PRIu64 "\n",
			"", hist_mean(h), r->unit, hist_percentile(h, 50), hist_percentile(h, 90),
			hist_percentile(h, 99), hist_percentile(h, 99.9), h->max);
}

void stats_print_text(const struct stats *s, FILE *to)
{
	size_t i;

	for (i = 0; i < STATS_ROWS; i++) {
		const struct stats_row *r = &stats_rows[i];

		if (i && strcmp(r->group, r[-1].group) != 0)
			fputc('\n', to);
		if (r->kind == STATS_HIST)
			stats_print_hist(stats_hist(s, r), r, to);
		else
			fprintf(to, "%-10s %-14s %14" PRIu64 " %-6s %s\n", r->group, r->name,
				stats_value(s, r), r->unit, r->help);
	}
}

/* Help texts of the format escape backslash and newline; the table has neither. */
static void stats_print_summary(const struct hist *h, const struct stats_row *r, FILE *to)
{
	size_t i;

	for (i = 0; i < STATS_POINTS; i++)
		fprintf(to, "gildfs_%s_%s{quantile=\"%s\"} %" PRIu64 "\n", r->group, r->name,
			stats_points[i].quantile, hist_percentile(h, stats_points[i].percent));
	fprintf(to, "gildfs_%s_%s_sum %" PRIu64 "\n", r->group, r->name, h->sum);
	fprintf(to, "gildfs_%s_%s_count %" PRIu64 "\n", r->group, r->name, h->count);
}

void stats_print_prometheus(const struct stats *s, FILE *to)
{
	static const char *const types[] = {"counter", "gauge", "summary"};
	size_t i;

	for (i = 0; i < STATS_ROWS; i++) {
		const struct stats_row *r = &stats_rows[i];

		fprintf(to, "# HELP gildfs_%s_%s %s (%s)\n", r->group, r->name, r->help, r->unit);
		fprintf(to, "# TYPE gildfs_%s_%s %s\n", r->group, r->name, types[r->kind]);
		if (r->kind == STATS_HIST)
			stats_print_summary(stats_hist(s, r), r, to);
		else
			fprintf(to, "gildfs_%s_%s %" PRIu64 "\n", r->group, r->name,
				stats_value(s, r));
	}
}

void stats_print_table(FILE *to)
{
	size_t i;

	for (i = 0; i < STATS_ROWS; i++) {
		const struct stats_row *r = &stats_rows[i];

		fprintf(to, "%s\t%s\t%s\t%s\n", r->group, r->name, r->unit, r->help);
	}
}
