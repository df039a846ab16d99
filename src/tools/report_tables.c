/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "tools/report_tables.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "tools/replay_format.h"
#include "tools/report_chart.h"

#define MICRO "\xc2\xb5"
#define DASH "\xe2\x80\x93"
#define TIMES "\xc3\x97"

static double table_per(double sum, double n)
{
	return n > 0 ? sum / n : NAN;
}

void report_figures_of(const struct replay_result *r, struct report_figures *f)
{
	struct replay_latency page, first;
	const struct replay_totals *t = r->measured.seconds > 0 ? &r->measured : &r->whole;

	replay_latency_of(r->page, &page);
	replay_latency_of(r->first, &first);
	f->basis = t;
	f->pages_s = table_per((double)t->n[REPLAY_PAGES], t->seconds);
	f->hits_s = table_per((double)t->n[REPLAY_HITS], t->seconds);
	f->bytes_s = table_per((double)t->n[REPLAY_BYTES], t->seconds);
	f->page_ns = page.count ? page.mean : NAN;
	f->page_p99_ns = page.count ? (double)page.p99 : NAN;
	f->first_ns = first.count ? first.mean : NAN;
	f->hit_rate = t->cache_known ? table_per(100.0 * (double)t->cache_hits,
						 (double)t->cache_requests)
				     : NAN;
}

const char *report_format_ratio(double value, double first, char *buf, size_t len)
{
	double ratio = value / first;

	if (!isfinite(ratio) || !(first > 0) || !(value > 0) || ratio > 1e9)
		snprintf(buf, len, DASH);
	else if (ratio < 0.0095)
		snprintf(buf, len, "%.1g" TIMES, ratio);
	else
		snprintf(buf, len, "%.*f" TIMES, ratio >= 99.95 ? 0 : ratio >= 9.995 ? 1 : 2, ratio);
	return buf;
}

static void table_open(FILE *to, const char *class, const char *const *heads, size_t count)
{
	fprintf(to, "<div class=\"scroll\"><table class=\"%s\">\n<thead><tr>", class);
	for (size_t i = 0; i < count; i++)
		fprintf(to, "<th%s>%s</th>", i ? "" : " class=\"first\"", heads[i]);
	fputs("</tr></thead>\n<tbody>\n", to);
}

static void table_close(FILE *to)
{
	fputs("</tbody></table></div>\n", to);
}

static void table_name(FILE *to, const char *label, unsigned colour)
{
	fprintf(to, "<th scope=\"row\"><i class=\"swatch s%u\"></i>", colour % REPORT_COLOURS);
	report_escape(to, label);
	fputs("</th>", to);
}

static void table_cell(FILE *to, const char *text)
{
	fputs("<td>", to);
	report_escape(to, text);
	fputs("</td>", to);
}

static void table_number(FILE *to, double x)
{
	char b[REPLAY_FORMAT_LEN];

	table_cell(to, isfinite(x) ? replay_format_number(x, b, sizeof(b)) : DASH);
}

static void table_ns(FILE *to, double ns)
{
	char b[REPLAY_FORMAT_LEN];

	table_cell(to, isfinite(ns) ? replay_format_ns(ns, MICRO, b, sizeof(b)) : DASH);
}

static void table_count(FILE *to, uint64_t n)
{
	char b[REPLAY_FORMAT_LEN];

	table_cell(to, replay_format_count(n, b, sizeof(b)));
}

void report_table_glance(FILE *to, const struct report_page *page)
{
	static const char *const heads[] = {"Run", "Pages/s", "Ratio", "Hits/s", "MB/s",
					    "Page response", "p99", "First byte",
					    "Hit rate", "Errors"};
	double first = NAN;
	char b[REPLAY_FORMAT_LEN];

	table_open(to, "figures", heads, sizeof(heads) / sizeof(heads[0]));
	for (size_t i = 0; i < page->count; i++) {
		const struct replay_result *r = page->results[i];
		struct report_figures f;

		report_figures_of(r, &f);
		if (!i)
			first = f.pages_s;
		fputs("<tr>", to);
		table_name(to, page->labels[i], (unsigned)i);
		fputs("<td class=\"main\">", to);
		fputs(isfinite(f.pages_s) ? replay_format_number(f.pages_s, b, sizeof(b)) : DASH, to);
		fputs("</td>", to);
		table_cell(to, report_format_ratio(f.pages_s, first, b, sizeof(b)));
		table_number(to, f.hits_s);
		table_number(to, f.bytes_s / 1e6);
		table_ns(to, f.page_ns);
		table_ns(to, f.page_p99_ns);
		table_ns(to, f.first_ns);
		if (isfinite(f.hit_rate))
			snprintf(b, sizeof(b), "%.1f %%", f.hit_rate);
		table_cell(to, isfinite(f.hit_rate) ? b : DASH);
		table_count(to, r->whole.n[REPLAY_ERRORS]);
		fputs("</tr>\n", to);
	}
	table_close(to);
}

static void table_latency_row(FILE *to, const char *label, unsigned colour,
			      const struct replay_latency *l)
{
	const double values[] = {l->mean, (double)l->p50, (double)l->p90, (double)l->p99,
				 (double)l->p999, (double)l->max};

	fputs("<tr>", to);
	table_name(to, label, colour);
	table_count(to, l->count);
	for (int i = 0; i < 6; i++)
		table_ns(to, l->count ? values[i] : NAN);
	fputs("</tr>\n", to);
}

static void table_latency_group(FILE *to, const char *name)
{
	fprintf(to, "<tr class=\"group\"><th colspan=\"8\" scope=\"rowgroup\">%s</th></tr>\n", name);
}

static void table_latency_hists(FILE *to, const struct report_page *page, const char *name,
				const struct hist *(*pick)(const struct replay_result *r))
{
	table_latency_group(to, name);
	for (size_t i = 0; i < page->count; i++) {
		struct replay_latency l;

		replay_latency_of(pick(page->results[i]), &l);
		table_latency_row(to, page->labels[i], (unsigned)i, &l);
	}
}

static void table_latency_mount(FILE *to, const struct report_page *page, const char *name,
				const char *member)
{
	struct replay_latency l;
	bool begun = false;

	for (size_t i = 0; i < page->count; i++) {
		const json_t *j = replay_result_mount_latency(page->results[i], member);

		if (replay_latency_from_json(j, &l, NULL))
			continue;
		if (!begun)
			table_latency_group(to, name);
		begun = true;
		table_latency_row(to, page->labels[i], (unsigned)i, &l);
	}
}

static const struct hist *table_pick_page(const struct replay_result *r)
{
	return r->page;
}

static const struct hist *table_pick_first(const struct replay_result *r)
{
	return r->first;
}

static const struct hist *table_pick_file(const struct replay_result *r)
{
	return r->file;
}

void report_table_latencies(FILE *to, const struct report_page *page)
{
	static const char *const heads[] = {"", "Count", "Mean", "p50", "p90", "p99", "p99.9", "Max"};

	table_open(to, "figures", heads, sizeof(heads) / sizeof(heads[0]));
	table_latency_hists(to, page, "Page response", table_pick_page);
	table_latency_hists(to, page, "Time to first byte", table_pick_first);
	table_latency_hists(to, page, "One file", table_pick_file);
	table_latency_mount(to, page, "Inside gildfs: reads from flash (hits), since the mount", "hit");
	table_latency_mount(to, page, "Inside gildfs: reads partly from flash, since the mount",
			    "partial");
	table_latency_mount(to, page, "Inside gildfs: reads from the backing (misses), since the mount",
			    "miss");
	table_close(to);
}

/* A counter of the mount, NAN when it has none of this name. */
static double table_stat(const struct replay_result *r, const char *group, const char *name)
{
	const json_t *j = json_object_get(json_object_get(r->stats, group), name);

	return json_is_integer(j) && json_integer_value(j) >= 0 ? json_number_value(j) : NAN;
}

static void table_stat_count(FILE *to, const struct replay_result *r, const char *group,
			     const char *name)
{
	double n = table_stat(r, group, name);

	if (isfinite(n))
		table_count(to, (uint64_t)n);
	else
		table_cell(to, DASH);
}

static void table_bytes(FILE *to, double bytes)
{
	char b[REPLAY_FORMAT_LEN];

	table_cell(to, isfinite(bytes) ? replay_format_bytes(bytes, b, sizeof(b)) : DASH);
}

void report_table_mounts(FILE *to, const struct report_page *page)
{
	static const char *const heads[] = {"Run", "Hits", "Partial", "Misses", "Bypass",
					    "From flash", "From the backing", "Fills"};
	static const char *const counters[] = {"hits", "partial", "misses", "bypass"};
	bool begun = false;

	for (size_t i = 0; i < page->count; i++) {
		const struct replay_result *r = page->results[i];

		if (!r->stats)
			continue;
		if (!begun) {
			fputs("<h3>What gildfs counted, since the mount</h3>\n", to);
			table_open(to, "figures", heads, sizeof(heads) / sizeof(heads[0]));
		}
		begun = true;
		fputs("<tr>", to);
		table_name(to, page->labels[i], (unsigned)i);
		for (int k = 0; k < 4; k++)
			table_stat_count(to, r, "read", counters[k]);
		table_bytes(to, table_stat(r, "read", "hit_bytes"));
		table_bytes(to, table_stat(r, "read", "backing_bytes"));
		table_stat_count(to, r, "fill", "done");
		fputs("</tr>\n", to);
	}
	if (begun)
		table_close(to);
}

/* The settings: one function a row, so that the table reads downwards and runs stand side by side. */
static void setting_root(FILE *to, const struct replay_result *r)
{
	report_escape(to, r->settings.root ? r->settings.root : DASH);
}

static void setting_began(FILE *to, const struct replay_result *r)
{
	time_t t = (time_t)r->settings.started;
	char b[64] = DASH;
	struct tm tm;

	if (t > 0 && gmtime_r(&t, &tm))
		strftime(b, sizeof(b), "%Y-%m-%d %H:%M:%S UTC", &tm);
	fputs(b, to);
	if (r->settings.host && r->settings.host[0]) {
		fputs(" on ", to);
		report_escape(to, r->settings.host);
	}
}

static void setting_load(FILE *to, const struct replay_result *r)
{
	const struct replay_settings *s = &r->settings;
	char b[REPLAY_FORMAT_LEN];

	fprintf(to, "%" PRIu64 " client%s", s->clients, s->clients == 1 ? "" : "s");
	if (s->duration_ns)
		fprintf(to, ", %s", replay_format_ns((double)s->duration_ns, MICRO, b, sizeof(b)));
	if (s->pages)
		fprintf(to, ", %s page views at most", replay_format_count(s->pages, b, sizeof(b)));
	fputs(r->interrupted ? " (interrupted)" : "", to);
}

static void setting_measured(FILE *to, const struct replay_result *r)
{
	fprintf(to, "%.1f s", r->measured.seconds);
	if (r->whole.seconds - r->measured.seconds > 0.05)
		fprintf(to, " after %.1f s of warm-up", r->whole.seconds - r->measured.seconds);
}

static void setting_seed(FILE *to, const struct replay_result *r)
{
	fprintf(to, "%" PRIu64, r->settings.seed);
}

static void setting_piece(FILE *to, const struct replay_result *r)
{
	fprintf(to, "%" PRIu64 " KiB", r->settings.piece / 1024);
}

static void setting_content(FILE *to, const struct replay_result *r)
{
	char a[REPLAY_FORMAT_LEN], b[REPLAY_FORMAT_LEN];

	fprintf(to, "%s HTML pages, %s images", replay_format_count(r->content.pages, a, sizeof(a)),
		replay_format_count(r->content.images, b, sizeof(b)));
	if (r->content.unreadable)
		fprintf(to, "; %s directories unreadable",
			replay_format_count(r->content.unreadable, a, sizeof(a)));
}

/* Pages and images are drawn evenly, so the means of what was read stand for the whole. */
static void setting_size(FILE *to, const struct replay_result *r)
{
	const uint64_t *n = r->whole.n;
	double pages = (double)n[REPLAY_FIRSTS], images = (double)n[REPLAY_HITS] - pages;
	double html = (double)n[REPLAY_HTML_BYTES], rest = (double)n[REPLAY_BYTES] - html;
	char a[REPLAY_FORMAT_LEN], b[REPLAY_FORMAT_LEN], c[REPLAY_FORMAT_LEN];

	if (!(pages > 0) || !(images > 0) || rest < 0) {
		fputs(DASH, to);
		return;
	}
	fprintf(to, "about %s (mean page %s, mean image %s)",
		replay_format_bytes(html / pages * (double)r->content.pages +
					    rest / images * (double)r->content.images,
				    a, sizeof(a)),
		replay_format_bytes(html / pages, b, sizeof(b)),
		replay_format_bytes(rest / images, c, sizeof(c)));
}

static void setting_list(FILE *to, const struct replay_result *r)
{
	report_escape(to, r->settings.list ? r->settings.list : "scanned");
}

static void setting_log(FILE *to, const struct replay_result *r)
{
	report_escape(to, r->settings.access_log ? r->settings.access_log : "none");
}

static void setting_mount(FILE *to, const struct replay_result *r)
{
	report_escape(to, r->mountpoint ? r->mountpoint : "none");
}

static void setting_errors(FILE *to, const struct replay_result *r)
{
	char b[REPLAY_FORMAT_LEN];

	if (!r->whole.n[REPLAY_ERRORS] && !r->first_error) {
		fputs("none", to);
		return;
	}
	fprintf(to, "%s; the first: ",
		replay_format_count(r->whole.n[REPLAY_ERRORS], b, sizeof(b)));
	report_escape(to, r->first_error ? r->first_error : "not recorded");
}

void report_table_settings(FILE *to, const struct report_page *page)
{
	static const struct {
		const char *name;
		void (*put)(FILE *to, const struct replay_result *r);
	} rows[] = {
		{"Directory", setting_root},    {"Began", setting_began},
		{"Load", setting_load},         {"Measured", setting_measured},
		{"Seed", setting_seed},         {"Largest read", setting_piece},
		{"Content", setting_content},   {"Its size, estimated", setting_size},
		{"List of paths", setting_list}, {"Access log", setting_log},
		{"gildfs mount", setting_mount}, {"Errors", setting_errors},
	};

	fputs("<div class=\"scroll\"><table class=\"settings\">\n<thead><tr><th></th>", to);
	for (size_t i = 0; i < page->count; i++)
		table_name(to, page->labels[i], (unsigned)i);
	fputs("</tr></thead>\n<tbody>\n", to);
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		fprintf(to, "<tr><th scope=\"row\">%s</th>", rows[k].name);
		for (size_t i = 0; i < page->count; i++) {
			fputs("<td>", to);
			rows[k].put(to, page->results[i]);
			fputs("</td>", to);
		}
		fputs("</tr>\n", to);
	}
	table_close(to);
}

void report_table_published(FILE *to, const struct report_page *page)
{
	static const struct {
		const char *name;
		double pages_s, bytes_s, page_ns, first_ns;
	} rows[] = {
		{"Published: six 15K disks, RAID10", 278.2, 5429e6 / 8 / 17.5, 0.0107e9 * 16.5,
		 0.0033e9 * 16.9},
		{"Published: 24 15K disks, RAID10", 1506.7, 5429e6 / 8 / 3.2, 0.0107e9 * 3.1,
		 0.0033e9 * 3.6},
		{"Published: flash card as primary storage", 4863.9, 5429e6 / 8, 0.0107e9, 0.0033e9},
	};
	static const char *const heads[] = {"", "Pages/s", "Ratio", "MB/s", "Page response",
					    "First byte"};
	double first = NAN;
	char b[REPLAY_FORMAT_LEN];

	table_open(to, "figures", heads, sizeof(heads) / sizeof(heads[0]));
	for (size_t i = 0; i < page->count; i++) {
		struct report_figures f;

		report_figures_of(page->results[i], &f);
		if (!i)
			first = f.pages_s;
		fputs("<tr>", to);
		table_name(to, page->labels[i], (unsigned)i);
		table_number(to, f.pages_s);
		table_cell(to, report_format_ratio(f.pages_s, first, b, sizeof(b)));
		table_number(to, f.bytes_s / 1e6);
		table_ns(to, f.page_ns);
		table_ns(to, f.first_ns);
		fputs("</tr>\n", to);
	}
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		fprintf(to, "<tr class=\"published\"><th scope=\"row\">%s</th>", rows[i].name);
		table_number(to, rows[i].pages_s);
		table_cell(to, report_format_ratio(rows[i].pages_s, rows[0].pages_s, b, sizeof(b)));
		table_number(to, rows[i].bytes_s / 1e6);
		table_ns(to, rows[i].page_ns);
		table_ns(to, rows[i].first_ns);
		fputs("</tr>\n", to);
	}
	table_close(to);
}
