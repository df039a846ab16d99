/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Results and their JSON. Reading trusts nothing: the file may be of another program, cut short or
 * edited, and its numbers later become coordinates.
 */
#include <config.h>

#include "tools/replay_result.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESULT_FORMAT "gild-replay"
#define RESULT_VERSION 1
#define RESULT_MAX_NUMBER 9e18   /* what a JSON integer holds */
#define RESULT_MAX_SECONDS 1e9   /* thirty years: no chart is longer */
#define RESULT_MAX_ROWS 10000000

static const char *const result_counter_names[REPLAY_COUNTERS] = {
	"pages", "hits", "bytes", "errors", "page_ns", "firsts", "first_ns", "html_bytes",
};

/* Columns of a row: time, length, the counters, then these. */
enum { COLUMN_AT, COLUMN_SPAN, COLUMN_COUNTERS };
enum {
	COLUMN_P99 = COLUMN_COUNTERS + REPLAY_COUNTERS,
	COLUMN_CACHE_HITS,
	COLUMN_CACHE_REQUESTS,
	COLUMNS
};

int replay_result_create(struct replay_result **out)
{
	struct replay_result *r = calloc(1, sizeof(*r));

	*out = NULL;
	if (!r)
		return -ENOMEM;
	r->page = calloc(1, sizeof(*r->page));
	r->first = calloc(1, sizeof(*r->first));
	r->file = calloc(1, sizeof(*r->file));
	if (!r->page || !r->first || !r->file) {
		replay_result_destroy(r);
		return -ENOMEM;
	}
	hist_init(r->page);
	hist_init(r->first);
	hist_init(r->file);
	*out = r;
	return 0;
}

void replay_result_destroy(struct replay_result *r)
{
	if (!r)
		return;
	free(r->settings.root);
	free(r->settings.label);
	free(r->settings.list);
	free(r->settings.access_log);
	free(r->settings.host);
	free(r->seconds);
	free(r->page);
	free(r->first);
	free(r->file);
	free(r->first_error);
	free(r->mountpoint);
	json_decref(r->stats);
	free(r);
}

int replay_result_add(struct replay_result *r, const struct replay_second *s)
{
	if (r->count == r->room) {
		size_t room = r->room ? r->room * 2 : 512;
		struct replay_second *p = reallocarray(r->seconds, room, sizeof(*p));

		if (!p)
			return -ENOMEM;
		r->seconds = p;
		r->room = room;
	}
	r->seconds[r->count++] = *s;
	return 0;
}

/* File names need not be UTF-8, JSON strings must be. */
static json_t *result_text(const char *s)
{
	json_t *j = s ? json_string(s) : json_null();
	char *copy;

	if (j)
		return j;
	copy = strdup(s);
	if (!copy)
		return NULL;
	for (char *p = copy; *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	j = json_string(copy);
	free(copy);
	return j;
}

static json_t *result_int(uint64_t v)
{
	return json_integer((json_int_t)v);
}

static json_t *result_hist_json(const struct hist *h)
{
	struct replay_latency l;
	json_t *j, *buckets = json_array();

	replay_latency_of(h, &l);
	for (unsigned i = 0; buckets && i < HIST_BUCKETS; i++) {
		uint64_t n = atomic_load_explicit(&h->bucket[i], memory_order_relaxed);

		if (n)
			json_array_append_new(buckets, json_pack("[I,I]", (json_int_t)hist_bucket_low(i),
								 (json_int_t)n));
	}
	j = json_pack("{s:s, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:o}", "unit", "ns", "count",
		      (json_int_t)l.count, "mean", l.mean, "p50", (json_int_t)l.p50, "p90",
		      (json_int_t)l.p90, "p99", (json_int_t)l.p99, "p999", (json_int_t)l.p999, "max",
		      (json_int_t)l.max, "buckets", buckets);
	return j;
}

static json_t *result_totals_json(const struct replay_totals *t)
{
	json_t *j = json_object();

	json_object_set_new(j, "seconds", json_real(t->seconds));
	for (unsigned i = 0; i < REPLAY_COUNTERS; i++)
		json_object_set_new(j, result_counter_names[i], result_int(t->n[i]));
	if (t->cache_known) {
		json_object_set_new(j, "cache_hits", result_int(t->cache_hits));
		json_object_set_new(j, "cache_requests", result_int(t->cache_requests));
	}
	return j;
}

static const char *result_column_name(unsigned i)
{
	switch (i) {
	case COLUMN_AT:
		return "at";
	case COLUMN_SPAN:
		return "span";
	case COLUMN_P99:
		return "page_p99_ns";
	case COLUMN_CACHE_HITS:
		return "cache_hits";
	case COLUMN_CACHE_REQUESTS:
		return "cache_requests";
	default:
		return result_counter_names[i - COLUMN_COUNTERS];
	}
}

static json_t *result_row_json(const struct replay_second *s)
{
	json_t *row = json_array();

	json_array_append_new(row, json_real(s->at));
	json_array_append_new(row, json_real(s->span));
	for (unsigned i = 0; i < REPLAY_COUNTERS; i++)
		json_array_append_new(row, result_int(s->n[i]));
	json_array_append_new(row, result_int(s->page_p99_ns));
	json_array_append_new(row, s->cache_known ? result_int(s->cache_hits) : json_null());
	json_array_append_new(row, s->cache_known ? result_int(s->cache_requests) : json_null());
	return row;
}

static json_t *result_series_json(const struct replay_result *r)
{
	json_t *columns = json_array(), *rows = json_array();

	for (unsigned i = 0; i < COLUMNS; i++)
		json_array_append_new(columns, json_string(result_column_name(i)));
	for (size_t i = 0; i < r->count; i++)
		json_array_append_new(rows, result_row_json(&r->seconds[i]));
	return json_pack("{s:o, s:o}", "columns", columns, "rows", rows);
}

static json_t *result_settings_json(const struct replay_settings *s)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:f, s:I, s:I, s:I, s:I, s:I, s:I}", "root",
			 result_text(s->root), "label", result_text(s->label), "list",
			 result_text(s->list), "access_log", result_text(s->access_log), "host",
			 result_text(s->host), "started", s->started, "clients",
			 (json_int_t)s->clients, "duration_ns", (json_int_t)s->duration_ns, "warmup_ns",
			 (json_int_t)s->warmup_ns, "pages", (json_int_t)s->pages, "seed",
			 (json_int_t)s->seed, "piece", (json_int_t)s->piece);
}

json_t *replay_result_to_json(const struct replay_result *r)
{
	const struct replay_counts *c = &r->content;
	json_t *j, *content, *hists, *totals;

	content = json_pack("{s:I, s:I, s:I, s:I, s:I}", "pages", (json_int_t)c->pages, "images",
			    (json_int_t)c->images, "others", (json_int_t)c->others, "skipped",
			    (json_int_t)c->skipped, "unreadable", (json_int_t)c->unreadable);
	hists = json_pack("{s:o, s:o, s:o}", "page", result_hist_json(r->page), "first_byte",
			  result_hist_json(r->first), "file", result_hist_json(r->file));
	totals = json_pack("{s:o, s:o}", "whole", result_totals_json(&r->whole), "measured",
			   result_totals_json(&r->measured));
	j = json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "format", RESULT_FORMAT,
		      "version", RESULT_VERSION, "settings", result_settings_json(&r->settings),
		      "content", content, "totals", totals, "histograms", hists, "series",
		      result_series_json(r), "first_error", result_text(r->first_error),
		      "interrupted", r->interrupted);
	if (j && r->mountpoint)
		json_object_set_new(j, "mount",
				    json_pack("{s:o, s:O?}", "mountpoint",
					      result_text(r->mountpoint), "stats", r->stats));
	return j;
}

void replay_latency_of(const struct hist *h, struct replay_latency *l)
{
	l->count = atomic_load_explicit(&h->count, memory_order_relaxed);
	l->mean = hist_mean(h);
	l->p50 = hist_percentile(h, 50);
	l->p90 = hist_percentile(h, 90);
	l->p99 = hist_percentile(h, 99);
	l->p999 = hist_percentile(h, 99.9);
	l->max = hist_percentile(h, 100);
}

/* Where reading is and what was wrong there. */
struct result_reader {
	char *why;
	size_t len;
	bool bad;
};

static void result_bad(struct result_reader *rd, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Keeps the first complaint. */
static void result_bad(struct result_reader *rd, const char *fmt, ...)
{
	va_list ap;

	if (rd->bad)
		return;
	rd->bad = true;
	va_start(ap, fmt);
	vsnprintf(rd->why, rd->len, fmt, ap);
	va_end(ap);
}

static bool result_number_ok(const json_t *j, double max)
{
	double v = json_number_value(j);

	return json_is_number(j) && isfinite(v) && v >= 0 && v <= max;
}

static uint64_t result_get_int(struct result_reader *rd, const json_t *obj, const char *name)
{
	const json_t *j = json_object_get(obj, name);

	if (!json_is_integer(j) || json_integer_value(j) < 0) {
		result_bad(rd, "\"%s\" is missing or not a count", name);
		return 0;
	}
	return (uint64_t)json_integer_value(j);
}

static double result_get_real(struct result_reader *rd, const json_t *obj, const char *name,
			      double max)
{
	const json_t *j = json_object_get(obj, name);

	if (!result_number_ok(j, max)) {
		result_bad(rd, "\"%s\" is missing or out of range", name);
		return 0;
	}
	return json_number_value(j);
}

static char *result_get_text(struct result_reader *rd, const json_t *obj, const char *name)
{
	const json_t *j = json_object_get(obj, name);
	char *copy;

	if (!j || json_is_null(j))
		return NULL;
	if (!json_is_string(j)) {
		result_bad(rd, "\"%s\" is not a text", name);
		return NULL;
	}
	copy = strdup(json_string_value(j));
	if (!copy)
		result_bad(rd, "\"%s\" does not fit into memory", name);
	return copy;
}

static const json_t *result_get_object(struct result_reader *rd, const json_t *obj,
				       const char *name)
{
	const json_t *j = json_object_get(obj, name);

	if (!json_is_object(j))
		result_bad(rd, "\"%s\" is missing or not an object", name);
	return j;
}

static void result_read_settings(struct result_reader *rd, const json_t *j,
				 struct replay_settings *s)
{
	s->root = result_get_text(rd, j, "root");
	s->label = result_get_text(rd, j, "label");
	s->list = result_get_text(rd, j, "list");
	s->access_log = result_get_text(rd, j, "access_log");
	s->host = result_get_text(rd, j, "host");
	s->started = result_get_real(rd, j, "started", 1e11);
	s->clients = result_get_int(rd, j, "clients");
	s->duration_ns = result_get_int(rd, j, "duration_ns");
	s->warmup_ns = result_get_int(rd, j, "warmup_ns");
	s->pages = result_get_int(rd, j, "pages");
	s->seed = result_get_int(rd, j, "seed");
	s->piece = result_get_int(rd, j, "piece");
}

static void result_read_content(struct result_reader *rd, const json_t *j, struct replay_counts *c)
{
	c->pages = result_get_int(rd, j, "pages");
	c->images = result_get_int(rd, j, "images");
	c->others = result_get_int(rd, j, "others");
	c->skipped = result_get_int(rd, j, "skipped");
	c->unreadable = result_get_int(rd, j, "unreadable");
}

static void result_read_totals(struct result_reader *rd, const json_t *all, const char *name,
			       struct replay_totals *t)
{
	const json_t *j = result_get_object(rd, all, name);

	t->seconds = result_get_real(rd, j, "seconds", RESULT_MAX_SECONDS);
	for (unsigned i = 0; i < REPLAY_COUNTERS; i++)
		t->n[i] = result_get_int(rd, j, result_counter_names[i]);
	t->cache_known = json_object_get(j, "cache_requests") != NULL;
	if (t->cache_known) {
		t->cache_hits = result_get_int(rd, j, "cache_hits");
		t->cache_requests = result_get_int(rd, j, "cache_requests");
	}
}

static bool result_columns_ok(const json_t *columns)
{
	if (json_array_size(columns) != COLUMNS)
		return false;
	for (unsigned i = 0; i < COLUMNS; i++) {
		const char *name = json_string_value(json_array_get(columns, i));

		if (!name || strcmp(name, result_column_name(i)))
			return false;
	}
	return true;
}

static void result_read_row(struct result_reader *rd, const json_t *row, size_t number,
			    struct replay_second *s)
{
	uint64_t v[COLUMNS] = {0};

	s->at = json_number_value(json_array_get(row, COLUMN_AT));
	s->span = json_number_value(json_array_get(row, COLUMN_SPAN));
	if (!result_number_ok(json_array_get(row, COLUMN_AT), RESULT_MAX_SECONDS) ||
	    !result_number_ok(json_array_get(row, COLUMN_SPAN), RESULT_MAX_SECONDS) ||
	    json_array_size(row) != COLUMNS) {
		result_bad(rd, "row %zu of \"series\" is malformed", number);
		return;
	}
	s->cache_known = !json_is_null(json_array_get(row, COLUMN_CACHE_REQUESTS));
	for (unsigned i = COLUMN_COUNTERS; i < (s->cache_known ? COLUMNS : COLUMN_CACHE_HITS); i++) {
		const json_t *j = json_array_get(row, i);

		if (!json_is_integer(j) || json_integer_value(j) < 0)
			result_bad(rd, "row %zu of \"series\" has no count in column \"%s\"", number,
				   result_column_name(i));
		v[i] = (uint64_t)json_integer_value(j);
	}
	memcpy(s->n, v + COLUMN_COUNTERS, sizeof(s->n));
	s->page_p99_ns = v[COLUMN_P99];
	s->cache_hits = v[COLUMN_CACHE_HITS];
	s->cache_requests = v[COLUMN_CACHE_REQUESTS];
}

static int result_read_series(struct result_reader *rd, const json_t *j, struct replay_result *r)
{
	const json_t *rows = json_object_get(j, "rows");
	double before = 0;
	int err = 0;

	if (!result_columns_ok(json_object_get(j, "columns")) || !json_is_array(rows) ||
	    json_array_size(rows) > RESULT_MAX_ROWS) {
		result_bad(rd, "\"series\" does not have the expected columns and rows");
		return 0;
	}
	for (size_t i = 0; !err && !rd->bad && i < json_array_size(rows); i++) {
		struct replay_second s = {0};

		result_read_row(rd, json_array_get(rows, i), i, &s);
		if (s.at < before)
			result_bad(rd, "row %zu of \"series\" goes back in time", i);
		before = s.at;
		err = replay_result_add(r, &s);
	}
	return err;
}

static int latency_read_buckets(const json_t *buckets, double mean, struct hist *h)
{
	uint64_t total = 0;

	for (size_t i = 0; i < json_array_size(buckets); i++) {
		const json_t *b = json_array_get(buckets, i);
		json_int_t low = json_integer_value(json_array_get(b, 0));
		json_int_t n = json_integer_value(json_array_get(b, 1));

		if (!json_is_integer(json_array_get(b, 0)) || low < 0 ||
		    !json_is_integer(json_array_get(b, 1)) || n < 0 ||
		    (uint64_t)n > (uint64_t)INT64_MAX - total)
			return -EINVAL;
		total += (uint64_t)n;
		atomic_fetch_add_explicit(&h->bucket[hist_bucket_of((uint64_t)low)], (uint64_t)n,
					  memory_order_relaxed);
	}
	atomic_fetch_add_explicit(&h->count, total, memory_order_relaxed);
	if (mean * (double)total < RESULT_MAX_NUMBER)
		atomic_fetch_add_explicit(&h->sum, (uint64_t)llround(mean * (double)total),
					  memory_order_relaxed);
	return 0;
}

int replay_latency_from_json(const json_t *json, struct replay_latency *l, struct hist *h)
{
	static const char *const names[] = {"p50", "p90", "p99", "p999", "max"};
	uint64_t *const into[] = {&l->p50, &l->p90, &l->p99, &l->p999, &l->max};
	const json_t *count = json_object_get(json, "count");
	const json_t *mean = json_object_get(json, "mean");

	memset(l, 0, sizeof(*l));
	if (!count)
		return -ENOENT;
	if (!json_is_integer(count) || json_integer_value(count) < 0 ||
	    !result_number_ok(mean, RESULT_MAX_NUMBER))
		return -EINVAL;
	l->count = (uint64_t)json_integer_value(count);
	l->mean = json_number_value(mean);
	for (unsigned i = 0; i < 5; i++) {
		const json_t *j = json_object_get(json, names[i]);

		if (!result_number_ok(j, RESULT_MAX_NUMBER))
			return -EINVAL;
		*into[i] = (uint64_t)json_number_value(j);
	}
	if (h && latency_read_buckets(json_object_get(json, "buckets"), l->mean, h))
		return -EINVAL;
	if (h)
		atomic_store_explicit(&h->max, l->max, memory_order_relaxed);
	return 0;
}

static void result_read_hist(struct result_reader *rd, const json_t *all, const char *name,
			     struct hist *h)
{
	struct replay_latency l;

	if (replay_latency_from_json(json_object_get(all, name), &l, h))
		result_bad(rd, "histogram \"%s\" is missing or malformed", name);
}

const json_t *replay_result_mount_latency(const struct replay_result *r, const char *name)
{
	return json_object_get(json_object_get(r->stats, "latency"), name);
}

static int result_read(struct result_reader *rd, const json_t *json, struct replay_result *r)
{
	const json_t *hists = result_get_object(rd, json, "histograms");
	const json_t *totals = result_get_object(rd, json, "totals");
	const json_t *mount = json_object_get(json, "mount");

	result_read_settings(rd, result_get_object(rd, json, "settings"), &r->settings);
	result_read_content(rd, result_get_object(rd, json, "content"), &r->content);
	result_read_totals(rd, totals, "whole", &r->whole);
	result_read_totals(rd, totals, "measured", &r->measured);
	result_read_hist(rd, hists, "page", r->page);
	result_read_hist(rd, hists, "first_byte", r->first);
	result_read_hist(rd, hists, "file", r->file);
	r->first_error = result_get_text(rd, json, "first_error");
	r->interrupted = json_is_true(json_object_get(json, "interrupted"));
	r->mountpoint = result_get_text(rd, mount, "mountpoint");
	if (json_is_object(json_object_get(mount, "stats")))
		r->stats = json_incref(json_object_get(mount, "stats"));
	return result_read_series(rd, json_object_get(json, "series"), r);
}

int replay_result_from_json(struct replay_result **out, const json_t *json, char *why, size_t len)
{
	struct result_reader rd = {.why = why, .len = len};
	const char *format = json_string_value(json_object_get(json, "format"));
	struct replay_result *r = NULL;
	int err;

	*out = NULL;
	if (!format || strcmp(format, RESULT_FORMAT)) {
		snprintf(why, len, "it is not a result of gild replay");
		return -EINVAL;
	}
	if (json_integer_value(json_object_get(json, "version")) != RESULT_VERSION) {
		snprintf(why, len, "its version is not %d, the one this program reads",
			 RESULT_VERSION);
		return -EINVAL;
	}
	err = replay_result_create(&r);
	if (!err)
		err = result_read(&rd, json, r);
	if (!err && rd.bad)
		err = -EINVAL;
	if (err) {
		replay_result_destroy(r);
		if (err == -ENOMEM)
			snprintf(why, len, "it does not fit into memory");
		return err;
	}
	*out = r;
	return 0;
}
