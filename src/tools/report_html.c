/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The report's document: from results to series, and the order of the page.
 */
#include <config.h>

#include "tools/report_html.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay_format.h"
#include "tools/report_chart.h"

#define HTML_MAX_POINTS 300 /* a line has no more: longer runs are averaged */

static const char html_style[] =
	":root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1b1f24;--soft:#5b6470;"
	"--rule:#dfe3e8;--grid:#e9ecf0;--axis:#9aa3ad;--shade:#8a94a01f;"
	"--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b4559b;--c4:#a87400;--c5:#3a9ad9;--c6:#5f6670;"
	"--c7:#7a4b1e}\n"
	"@media(prefers-color-scheme:dark){:root{--bg:#14171b;--card:#1c2026;--ink:#e6e9ed;"
	"--soft:#9aa4b0;--rule:#333a43;--grid:#2a3038;--axis:#5d6773;--shade:#9aa4b01c;"
	"--c0:#58a9ea;--c1:#f08a4b;--c2:#2fc79b;--c3:#e093cb;--c4:#e3b341;--c5:#9ad6fa;--c6:#b3bac3;"
	"--c7:#c99c6d}}\n"
	"*{box-sizing:border-box}\n"
	"body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"
	"'Segoe UI',Roboto,'Helvetica Neue',Arial,'Noto Sans',sans-serif;"
	"font-variant-numeric:tabular-nums}\n"
	"header,main,footer{max-width:1240px;margin:0 auto;padding:0 24px}\n"
	"header{padding-top:32px}\n"
	"h1{font-size:26px;line-height:1.25;margin:0 0 6px;font-weight:650;letter-spacing:-.01em;"
	"overflow-wrap:anywhere}\n"
	"h2{font-size:18px;margin:36px 0 12px;font-weight:650}\n"
	"h3{font-size:14px;margin:22px 0 8px;font-weight:650}\n"
	"p{margin:0 0 10px}.soft,footer{color:var(--soft)}footer{padding-top:28px;padding-bottom:36px;"
	"font-size:13px}\n"
	".legend{position:sticky;top:0;z-index:1;background:var(--bg);border-bottom:1px solid "
	"var(--rule);margin-top:18px}\n"
	".legend ul{max-width:1240px;margin:0 auto;padding:9px 24px;list-style:none;display:flex;"
	"flex-wrap:wrap;gap:4px 22px}\n"
	".legend li{display:flex;align-items:center;gap:8px;min-width:0;font-size:14px}\n"
	".legend span{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;max-width:44ch}\n"
	".key{width:28px;height:10px;flex:none}\n"
	".grid2,.grid3{display:grid;gap:16px}\n"
	".grid2{grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr))}\n"
	".grid3{grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr))}\n"
	".card{margin:0;background:var(--card);border:1px solid var(--rule);border-radius:8px;"
	"padding:12px 16px 10px;min-width:0}\n"
	"figcaption{margin-bottom:8px;line-height:1.35}figcaption b{font-weight:650}\n"
	"figcaption span{color:var(--soft);font-size:13px;margin-left:4px}\n"
	".note{border:1px solid var(--rule);border-radius:4px;padding:0 5px;white-space:nowrap}\n"
	"svg{display:block;width:100%;height:auto;overflow:visible}\n"
	"svg text{font-size:11.5px;fill:var(--soft)}svg .y{text-anchor:end}"
	"svg .x{text-anchor:middle}\n"
	".grid{stroke:var(--grid)}.axis{stroke:var(--axis)}.warmup{fill:var(--shade)}\n"
	".line{fill:none;stroke:var(--c);stroke-width:1.8;stroke-linejoin:round;"
	"stroke-linecap:butt}\n"
	".dot{fill:var(--c);stroke:var(--card);stroke-width:1}.area{fill:var(--c);opacity:.13}\n"
	".mark{stroke-width:1.2;stroke-dasharray:3 4!important;opacity:.8}\n"
	".hover{fill:var(--ink);opacity:0}.hover:hover{opacity:.08}\n"
	".empty{color:var(--soft);min-height:90px;display:flex;align-items:center;"
	"justify-content:center;text-align:center;margin:0;padding:12px}\n"
	".bar{display:grid;grid-template-columns:minmax(0,1fr) auto 4.2em;gap:1px 10px;"
	"align-items:baseline;margin-bottom:9px;font-size:14px}\n"
	".bar .name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}\n"
	".bar .value{font-weight:600}.bar .ratio{color:var(--soft);text-align:right}\n"
	".bar .track{grid-column:1/-1;height:10px;background:var(--grid);border-radius:2px}\n"
	".bar i{display:block;height:100%;background:var(--c);border-radius:2px}\n"
	".scroll{overflow-x:auto;background:var(--card);border:1px solid var(--rule);"
	"border-radius:8px}\n"
	"table{border-collapse:collapse;width:100%;font-size:14px}\n"
	"th,td{padding:7px 14px;border-bottom:1px solid var(--grid);text-align:right;"
	"font-weight:400;white-space:nowrap}\n"
	"tr:last-child>*{border-bottom:0}thead th{color:var(--soft);font-size:13px;"
	"border-bottom:1px solid var(--rule)}\n"
	"th:first-child{text-align:left}.figures tbody th{white-space:normal;min-width:14em;"
	"overflow-wrap:anywhere}\n"
	"table.figures tbody tr>th:first-child{max-width:26em}.figures .main{font-weight:650}.group th{font-weight:650;padding-top:14px}\n"
	".settings th,.settings td{text-align:left;vertical-align:top}\n"
	".settings thead th{color:var(--ink);font-weight:650;white-space:normal;"
	"overflow-wrap:anywhere}\n"
	".settings td{white-space:normal;overflow-wrap:anywhere;min-width:15em}"
	".settings tbody th{color:var(--soft)}\n"
	".published>*{color:var(--soft)}\n"
	".swatch{display:inline-block;width:10px;height:10px;border-radius:2px;background:var(--c);"
	"margin-right:8px}\n"
	".s0{--c:var(--c0)}.s1{--c:var(--c1)}.s2{--c:var(--c2)}.s3{--c:var(--c3)}"
	".s4{--c:var(--c4)}.s5{--c:var(--c5)}.s6{--c:var(--c6)}.s7{--c:var(--c7)}\n"
	".line.again{stroke-dasharray:1.5 3!important}.line.s4,.line.s5,.line.s6,.line.s7{stroke-dasharray:7 3}\n"
	"@media print{.legend{position:static}.card,.scroll{break-inside:avoid}}\n";

enum html_metric {
	METRIC_PAGES,
	METRIC_BYTES,
	METRIC_PAGE_NS,
	METRIC_PAGE_P99,
	METRIC_FIRST_NS,
	METRIC_HIT_RATE,
};

/* Some seconds of a run taken together. */
struct html_bin {
	double from, until;
	uint64_t n[REPLAY_COUNTERS], p99_ns, cache_hits, cache_requests;
};

static double html_metric_of(const struct html_bin *b, enum html_metric metric)
{
	double span = b->until - b->from, pages = (double)b->n[REPLAY_PAGES];
	double firsts = (double)b->n[REPLAY_FIRSTS], requests = (double)b->cache_requests;

	switch (metric) {
	case METRIC_PAGES:
		return span > 0 ? pages / span : NAN;
	case METRIC_BYTES:
		return span > 0 ? (double)b->n[REPLAY_BYTES] / 1e6 / span : NAN;
	case METRIC_PAGE_NS:
		return pages > 0 ? (double)b->n[REPLAY_PAGE_NS] / pages : NAN;
	case METRIC_PAGE_P99:
		return pages > 0 ? (double)b->p99_ns : NAN;
	case METRIC_FIRST_NS:
		return firsts > 0 ? (double)b->n[REPLAY_FIRST_NS] / firsts : NAN;
	case METRIC_HIT_RATE:
		return requests > 0 ? 100.0 * (double)b->cache_hits / requests : NAN;
	}
	return NAN;
}

static void html_bin_add(struct html_bin *b, const struct replay_second *s)
{
	for (int k = 0; k < REPLAY_COUNTERS; k++)
		b->n[k] += s->n[k];
	b->until = s->at;
	b->p99_ns = s->page_p99_ns > b->p99_ns ? s->page_p99_ns : b->p99_ns;
	b->cache_hits += s->cache_hits;
	b->cache_requests += s->cache_requests;
}

/* The points of one line, malloced; *count of them. NULL: no memory. */
static struct report_point *html_make_points(const struct replay_result *r,
					     enum html_metric metric, size_t *count)
{
	size_t each = (r->count + HTML_MAX_POINTS - 1) / HTML_MAX_POINTS;
	struct report_point *p = calloc(r->count + 1, sizeof(*p));

	*count = 0;
	for (size_t i = 0; p && i < r->count; i += each) {
		struct html_bin b = {.from = fmax(0, r->seconds[i].at - r->seconds[i].span)};

		for (size_t k = i; k < i + each && k < r->count; k++)
			html_bin_add(&b, &r->seconds[k]);
		p[*count].x = (b.from + b.until) / 2;
		p[*count].y = html_metric_of(&b, metric);
		++*count;
	}
	return p;
}

/* The warm-up, when all runs had the same. */
static double html_common_warmup(const struct report_page *page)
{
	uint64_t ns = page->results[0]->settings.warmup_ns;

	for (size_t i = 1; i < page->count; i++)
		if (page->results[i]->settings.warmup_ns != ns)
			return 0;
	return (double)ns / 1e9;
}

static int html_write_lines(FILE *to, const struct report_page *page, enum html_metric metric,
			    struct report_lines *chart)
{
	struct report_series *series = calloc(page->count, sizeof(*series));
	int err = series ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < page->count; i++) {
		series[i].label = page->labels[i];
		series[i].colour = (unsigned)i;
		series[i].points = html_make_points(page->results[i], metric, &series[i].count);
		if (!series[i].points)
			err = -ENOMEM;
	}
	chart->series = series;
	chart->count = page->count;
	chart->warmup = html_common_warmup(page);
	if (!err)
		report_chart_lines(to, chart);
	for (size_t i = 0; series && i < page->count; i++)
		free((void *)series[i].points);
	free(series);
	return err;
}

static int html_write_over_time(FILE *to, const struct report_page *page)
{
	static const struct {
		enum html_metric metric;
		struct report_lines chart;
	} charts[] = {
		{METRIC_PAGES, {.title = "Page rate", .unit_text = "page views per second",
				.empty = "No second of the run was recorded."}},
		{METRIC_BYTES, {.title = "Throughput", .unit_text = "MB per second",
				.empty = "No second of the run was recorded."}},
		{METRIC_PAGE_NS, {.title = "Average page response",
				  .unit_text = "page and its three images", .unit = REPORT_NS,
				  .empty = "No page view was finished."}},
		{METRIC_PAGE_P99, {.title = "99th percentile of page response",
				   .unit_text = "of each second", .unit = REPORT_NS,
				   .empty = "No page view was finished."}},
		{METRIC_FIRST_NS, {.title = "Average time to first byte",
				   .unit_text = "of the HTML page", .unit = REPORT_NS,
				   .empty = "No page was read."}},
		{METRIC_HIT_RATE, {.title = "Hit rate",
				   .unit_text = "of the reads that reached gildfs",
				   .unit = REPORT_PERCENT, .fixed_max = 100,
				   .empty = "Not known: no run was on a gildfs mount, or no read "
					    "reached it."}},
	};
	int err = 0;

	fputs("<h2>Over the elapsed time</h2>\n<div class=\"grid2\">\n", to);
	for (size_t i = 0; !err && i < sizeof(charts) / sizeof(charts[0]); i++) {
		struct report_lines chart = charts[i].chart;

		err = html_write_lines(to, page, charts[i].metric, &chart);
	}
	fputs("</div>\n", to);
	return err;
}

/* One chart of totals: `what` 0 pages, 1 hits, 2 throughput. */
static int html_write_bars(FILE *to, const struct report_page *page, int what)
{
	static const char *const titles[] = {"Pages", "Hits", "Throughput"};
	static const char *const units[] = {"page views in the measured time",
					    "files read in the measured time", "MB per second"};
	struct report_bar *bars = calloc(page->count, sizeof(*bars));
	char(*texts)[REPLAY_FORMAT_LEN] = calloc(page->count, sizeof(*texts));
	int err = bars && texts ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < page->count; i++) {
		struct report_figures f;
		struct report_bar *b = &bars[i];

		report_figures_of(page->results[i], &f);
		b->label = page->labels[i];
		b->colour = (unsigned)i;
		b->text = texts[i];
		if (what == 2) {
			b->value = isfinite(f.bytes_s) ? f.bytes_s / 1e6 : 0;
			replay_format_number(b->value, texts[i], sizeof(texts[i]));
		} else {
			uint64_t n = f.basis->n[what ? REPLAY_HITS : REPLAY_PAGES];

			b->value = (double)n;
			replay_format_count(n, texts[i], sizeof(texts[i]));
		}
		b->ratio = i && bars[0].value > 0 ? b->value / bars[0].value : 0;
	}
	if (!err)
		report_chart_bars(to, titles[what], units[what], bars, page->count);
	free(bars);
	free(texts);
	return err;
}

/* Histograms of the mounts' own times; `hists` are freed by the caller. */
static int html_write_mount_histogram(FILE *to, const struct report_page *page, const char *title,
				      const char *member)
{
	struct report_histogram *h = calloc(page->count, sizeof(*h));
	struct hist *hists = calloc(page->count, sizeof(*hists));
	int err = h && hists ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < page->count; i++) {
		struct replay_latency l;
		const json_t *j = replay_result_mount_latency(page->results[i], member);

		h[i].label = page->labels[i];
		h[i].colour = (unsigned)i;
		hist_init(&hists[i]);
		if (!replay_latency_from_json(j, &l, &hists[i]))
			h[i].hist = &hists[i];
	}
	if (!err)
		report_chart_histogram(to, title,
				       "No distribution: no run has one from a gildfs mount. Where a "
				       "mount gave percentiles, they are in the table below.",
				       h, page->count);
	free(h);
	free(hists);
	return err;
}

static int html_write_histogram(FILE *to, const struct report_page *page, const char *title,
				bool files)
{
	struct report_histogram *h = calloc(page->count, sizeof(*h));

	if (!h)
		return -ENOMEM;
	for (size_t i = 0; i < page->count; i++) {
		h[i].label = page->labels[i];
		h[i].colour = (unsigned)i;
		h[i].hist = files ? page->results[i]->file : page->results[i]->page;
	}
	report_chart_histogram(to, title, "Nothing was read in the measured part of the run.", h,
			       page->count);
	free(h);
	return 0;
}

static int html_write_latency(FILE *to, const struct report_page *page)
{
	int err;

	fputs("<h2>Distribution of latency</h2>\n<div class=\"grid2\">\n", to);
	err = html_write_histogram(to, page, "Page response", false);
	if (!err)
		err = html_write_histogram(to, page, "One file", true);
	if (!err)
		err = html_write_mount_histogram(to, page, "Hits, inside gildfs", "hit");
	if (!err)
		err = html_write_mount_histogram(to, page, "Misses, inside gildfs", "miss");
	fputs("</div>\n<h3>Percentiles</h3>\n", to);
	report_table_latencies(to, page);
	return err;
}

static void html_write_legend(FILE *to, const struct report_page *page)
{
	char class[32];

	fputs("<nav class=\"legend\" aria-label=\"Legend\"><ul>\n", to);
	for (size_t i = 0; i < page->count; i++) {
		fprintf(to, "<li><svg class=\"key\" viewBox=\"0 0 28 10\"><path class=\"line %s\" "
			    "style=\"stroke-width:3\" d=\"M0 5H28\"/></svg><span title=\"",
			report_class((unsigned)i, class, sizeof(class)));
		report_escape(to, page->labels[i]);
		fputs("\">", to);
		report_escape(to, page->labels[i]);
		fputs("</span></li>\n", to);
	}
	fputs("</ul></nav>\n", to);
}

/* What a reader must know before comparing. */
static void html_write_warnings(FILE *to, const struct report_page *page)
{
	bool different = false;

	for (size_t i = 0; i < page->count; i++) {
		const struct replay_result *r = page->results[i], *first = page->results[0];
		uint64_t errors = r->whole.n[REPLAY_ERRORS];

		different |= r->settings.clients != first->settings.clients ||
			     r->content.pages != first->content.pages ||
			     r->content.images != first->content.images;
		if (!(r->measured.seconds > 0)) {
			fputs("<p>", to);
			report_escape(to, page->labels[i]);
			fputs(": the run ended in its warm-up; its rates are those of the whole run and "
			      "its latencies are missing.</p>\n", to);
		}
		if (errors) {
			fputs("<p>", to);
			report_escape(to, page->labels[i]);
			fprintf(to, ": %llu error%s; see the settings.</p>\n",
				(unsigned long long)errors, errors == 1 ? "" : "s");
		}
	}
	if (different)
		fputs("<p>The runs differ in their content or number of clients: compare with care."
		      "</p>\n", to);
}

static void html_write_head(FILE *to, const struct report_page *page)
{
	const struct replay_result *first = page->results[0];
	char a[REPLAY_FORMAT_LEN], b[REPLAY_FORMAT_LEN];

	fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>", to);
	report_escape(to, page->title);
	fprintf(to, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<header>\n<h1>", html_style);
	report_escape(to, page->title);
	fprintf(to, "</h1>\n<p class=\"soft\">One page view reads an HTML page and three different "
		    "images, chosen evenly at random from %s pages and %s images. %s</p>\n</header>\n",
		replay_format_count(first->content.pages, a, sizeof(a)),
		replay_format_count(first->content.images, b, sizeof(b)),
		page->count > 1 ? "Ratios are to the first run." : "");
}

int report_html_write(FILE *to, const struct report_page *page)
{
	int err = 0;

	html_write_head(to, page);
	html_write_legend(to, page);
	fputs("<main>\n<h2>At a glance</h2>\n", to);
	html_write_warnings(to, page);
	report_table_glance(to, page);
	fputs("<h2>Totals</h2>\n<div class=\"grid3\">\n", to);
	for (int what = 0; !err && what < 3; what++)
		err = html_write_bars(to, page, what);
	fputs("</div>\n", to);
	if (!err)
		err = html_write_over_time(to, page);
	if (!err)
		err = html_write_latency(to, page);
	report_table_mounts(to, page);
	if (page->published) {
		fputs("<h2>Beside the published report</h2>\n<p class=\"soft\">The same load on other "
		      "hardware, with 1.48 million files and the web server in between. Some published "
		      "figures are derived from its ratios.</p>\n", to);
		report_table_published(to, page);
	}
	fputs("<h2>Settings</h2>\n", to);
	report_table_settings(to, page);
	fputs("</main>\n<footer>Made by gild report " PACKAGE_VERSION ". Averages and distributions "
	      "leave out the warm-up (shaded).</footer>\n</body>\n</html>\n", to);
	if (!err && (fflush(to) || ferror(to)))
		err = errno ? -errno : -EIO;
	return err;
}
