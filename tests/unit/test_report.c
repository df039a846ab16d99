/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include <check.h>

#include "base/clock.h"
#include "base/hash.h"
#include "stats/stats.h"
#include "tools/gild.h"
#include "tools/replay_result.h"
#include "tools/report_chart.h"
#include "tools/report_html.h"
#include "tools/report_scale.h"
#include "unit_util.h"

#define MAX_DEPTH 64
#define MAX_RESULTS 12

/* A run of `seconds` rows at about `rate` pages a second. */
static struct replay_result *make_result(size_t seconds, double rate, bool cache)
{
	struct replay_result *r;

	ck_assert_ok(replay_result_create(&r));
	r->settings = (struct replay_settings){.root = strdup("/srv/www"), .host = strdup("h"),
					       .started = 1.75e9, .clients = 16, .seed = 7,
					       .duration_ns = seconds * NS_PER_S, .piece = 131072};
	r->content = (struct replay_counts){.pages = 1000, .images = 5000};
	for (size_t i = 0; i < seconds; i++) {
		uint64_t pages = (uint64_t)(rate * (1 + (double)(i % 7) / 10));
		struct replay_second s = {.at = (double)(i + 1), .span = 1, .cache_known = cache,
					  .cache_hits = pages * 3, .cache_requests = pages * 4};

		s.n[REPLAY_PAGES] = s.n[REPLAY_FIRSTS] = pages;
		s.n[REPLAY_HITS] = pages * 4;
		s.n[REPLAY_BYTES] = pages * 110000;
		s.n[REPLAY_HTML_BYTES] = pages * 9000;
		s.n[REPLAY_PAGE_NS] = pages ? (uint64_t)(16e9 / rate) * pages : 0;
		s.n[REPLAY_FIRST_NS] = s.n[REPLAY_PAGE_NS] / 3;
		s.page_p99_ns = pages ? s.n[REPLAY_PAGE_NS] / pages * 3 : 0;
		for (int k = 0; k < REPLAY_COUNTERS; k++)
			r->whole.n[k] += s.n[k];
		ck_assert_ok(replay_result_add(r, &s));
		for (uint64_t k = 0; pages && k < 50; k++) {
			uint64_t ns = s.n[REPLAY_PAGE_NS] / pages * (1 + hash_mix64(k + i) % 9) / 5;

			hist_add(r->page, ns);
			hist_add(r->first, ns / 3);
			hist_add(r->file, ns / 4);
		}
	}
	r->whole.seconds = (double)seconds;
	r->measured = r->whole;
	return r;
}

static void add_mount(struct replay_result *r)
{
	static struct stats stats;

	stats_init(&stats);
	for (uint64_t i = 0; i < 2000; i++) {
		hist_add(&stats.latency_hit, 50000 + hash_mix64(i) % 200000);
		hist_add(&stats.latency_miss, 5000000 + hash_mix64(i) % 20000000);
	}
	stats_add(&stats, read_hits, 1234567);
	r->mountpoint = strdup("/srv/www");
	r->stats = stats_to_json(&stats);
}

static char *render(struct replay_result **results, const char *const *labels, size_t count)
{
	struct report_page page = {.title = "T & <i>", .count = count, .published = true,
				   .labels = labels,
				   .results = (const struct replay_result *const *)results};
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	ck_assert_ok(report_html_write(f, &page));
	ck_assert_int_eq(fclose(f), 0);
	for (size_t i = 0; i < count; i++)
		replay_result_destroy(results[i]);
	return text;
}

static void check_entity(const char *p)
{
	static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
	bool found = false;

	for (int i = 0; i < 5; i++)
		found |= !strncmp(p, known[i], strlen(known[i]));
	ck_assert_msg(found, "bare & at %.40s", p);
}

/* Reads one tag at `p`, keeps the stack of open ones; returns what follows it. */
static const char *check_tag(const char *p, char (*stack)[32], int *depth)
{
	bool closing = p[1] == '/';
	const char *name = p + 1 + closing;
	size_t len = strcspn(name, " />\n");
	char quote = 0;

	ck_assert_msg(len > 0 && len < 32, "no tag name at %.40s", p);
	for (p = name + len; *p && (quote || *p != '>'); p++) {
		if (*p == '&')
			check_entity(p);
		ck_assert_msg(*p != '<', "< inside a tag at %.40s", p);
		if (*p == '"')
			quote = quote ? 0 : '"';
	}
	ck_assert_msg(*p == '>' && !quote, "unfinished tag %.40s", name);
	if (closing) {
		ck_assert_msg(*depth > 0, "nothing open at %.40s", name);
		--*depth;
		ck_assert_msg(strlen(stack[*depth]) == len && !strncmp(stack[*depth], name, len),
			      "%s closed by %.*s", stack[*depth], (int)len, name);
	} else if (p[-1] != '/') {
		ck_assert_int_lt(*depth, MAX_DEPTH);
		snprintf(stack[*depth], 32, "%.*s", (int)len, name);
		++*depth;
	}
	return p + 1;
}

static void check_balanced(const char *html)
{
	char stack[MAX_DEPTH][32];
	const char *p = html;
	int depth = 0;

	ck_assert_int_eq(strncmp(p, "<!DOCTYPE html>", 15), 0);
	for (p += 15; *p;) {
		if (*p == '<') {
			p = check_tag(p, stack, &depth);
			if (depth && !strcmp(stack[depth - 1], "style"))
				p = strstr(p, "</style>");
			continue;
		}
		if (*p == '&')
			check_entity(p);
		ck_assert_msg(*p != '>', "bare > at %.40s", p);
		p++;
	}
	ck_assert_int_eq(depth, 0);
}

/* No word "nan" or "inf", however joined to signs and digits. */
static void check_finite(const char *html)
{
	static const char *const words[] = {"nan", "inf", "infinity"};

	for (int i = 0; i < 3; i++)
		for (const char *p = html; (p = strcasestr(p, words[i])); p++) {
			const char *end = p + strlen(words[i]);

			ck_assert_msg((p > html && isalpha((unsigned char)p[-1])) ||
					      isalpha((unsigned char)*end),
				      "not a number: %.60s", p - 20);
		}
}

static void check_self_contained(const char *html)
{
	static const char *const parts[] = {"<script", "http:", "https:", "src=", "url(", "<link",
					    "@import", "href="};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		ck_assert_ptr_null(strcasestr(html, parts[i]));
}

static void check_report(const char *html)
{
	static const char *const titles[] = {
		"<b>Page rate</b>", "<b>Throughput</b>", "<b>Average page response</b>",
		"<b>99th percentile of page response</b>", "<b>Average time to first byte</b>",
		"<b>Hit rate</b>", "<b>Pages</b>", "<b>Hits</b>", "<b>Page response</b>",
		"<b>One file</b>", "<b>Hits, inside gildfs</b>", "<b>Misses, inside gildfs</b>",
		"prefers-color-scheme:dark", "<h2>Settings</h2>"};

	for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
		ck_assert_has(html, titles[i]);
	check_balanced(html);
	check_finite(html);
	check_self_contained(html);
}

static unsigned count_of(const char *text, const char *part)
{
	unsigned n = 0;

	for (; (text = strstr(text, part)); text++)
		n++;
	return n;
}

START_TEST(three_results)
{
	struct replay_result *r[] = {make_result(90, 278.2, false), make_result(90, 1500, true),
				     make_result(90, 4869, true)};
	const char *const labels[] = {"disk", "cold", "warm"};
	char *html;

	add_mount(r[2]);
	html = render(r, labels, 3);
	check_report(html);
	/* Six charts over time and the distributions of pages, files, hits and misses. */
	ck_assert_uint_eq(count_of(html, "role=\"img\""), 10);
	ck_assert_uint_eq(count_of(html, "class=\"empty\""), 0);
	/* 17.5 times the pages: in the bars of pages, hits, throughput, and in two tables. */
	ck_assert_uint_ge(count_of(html, "17.5\xc3\x97"), 4);
	ck_assert_has(html, "1,234,567");
	free(html);
}
END_TEST

START_TEST(everything_is_escaped)
{
	static const char evil[] = "</title></style><script>alert(\"x\")</script>&amp'\x01<b>";
	struct replay_result *r[] = {make_result(5, 100, false)};
	const char *const labels[] = {evil};
	char *html;

	free(r[0]->settings.root);
	free(r[0]->settings.host);
	r[0]->settings.root = strdup(evil);
	r[0]->settings.host = strdup(evil);
	r[0]->settings.list = strdup(evil);
	r[0]->settings.access_log = strdup(evil);
	r[0]->mountpoint = strdup(evil);
	r[0]->first_error = strdup(evil);
	html = render(r, labels, 1);
	check_report(html);
	ck_assert_ptr_null(strchr(html, '\x01'));
	ck_assert_has(html, "T &amp; &lt;i&gt;");
	ck_assert_uint_ge(count_of(html, "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;amp&#39; &lt;b&gt;"),
			  8);
	free(html);
}
END_TEST

START_TEST(nothing_recorded)
{
	struct replay_result *r[] = {make_result(0, 0, false), make_result(1, 0, true)};
	const char *const labels[] = {"none", "one second, no hit"};
	char *html = render(r, labels, 2);

	check_report(html);
	ck_assert_has(html, "the run ended in its warm-up");
	ck_assert_has(html, "No page view was finished.");
	ck_assert_has(html, "Nothing was read");
	free(html);
	r[0] = make_result(0, 0, false);
	html = render(r, labels, 1);
	check_report(html);
	ck_assert_has(html, "No second of the run was recorded.");
	ck_assert_uint_eq(count_of(html, "role=\"img\""), 0);
	free(html);
}
END_TEST

START_TEST(one_second_is_a_dot)
{
	struct replay_result *r[] = {make_result(1, 300, true)};
	const char *const labels[] = {"one"};
	char *html = render(r, labels, 1);

	check_report(html);
	ck_assert_uint_eq(count_of(html, "<circle"), 6);
	free(html);
}
END_TEST

START_TEST(long_runs_are_thinned_many_are_told_apart)
{
	struct replay_result *r[MAX_RESULTS];
	const char *labels[MAX_RESULTS];
	char names[MAX_RESULTS][300];
	char *html;

	for (size_t i = 0; i < MAX_RESULTS; i++) {
		r[i] = make_result(i ? 5400 : 7, 10 * pow(3, (double)i), i % 2);
		memset(names[i], 'a' + (int)i, 299);
		names[i][299] = '\0';
		labels[i] = names[i];
	}
	html = render(r, labels, MAX_RESULTS);
	check_report(html);
	ck_assert_uint_lt(strlen(html), 2000000);
	ck_assert_has(html, "class=\"line s7\"");
	ck_assert_has(html, "class=\"line s0 again\"");
	ck_assert_has(html, "elapsed time, min");
	free(html);
}
END_TEST

START_TEST(extremes_stay_finite)
{
	struct replay_result *r[] = {make_result(3, 10, true)};
	const char *const labels[] = {"x"};
	char *html;

	for (int k = 0; k < REPLAY_COUNTERS; k++)
		r[0]->seconds[1].n[k] = r[0]->whole.n[k] = r[0]->measured.n[k] = INT64_MAX;
	r[0]->seconds[1].span = 0;
	r[0]->seconds[2].span = 1e9;
	r[0]->seconds[2].at = 1e9;
	r[0]->seconds[2].page_p99_ns = INT64_MAX;
	r[0]->measured.seconds = 1e-300;
	r[0]->settings.started = 1e11;
	hist_add(r[0]->page, INT64_MAX);
	hist_add(r[0]->page, 0);
	html = render(r, labels, 1);
	check_report(html);
	free(html);
}
END_TEST

static void check_scale(const struct report_scale *s, double lo, double hi)
{
	char label[64], before[64] = "";

	ck_assert_msg(s->count >= 2 && s->count <= REPORT_TICKS, "%d ticks for %g..%g", s->count, lo, hi);
	ck_assert_double_le(s->lo, lo * (1 + 1e-9));
	ck_assert_double_ge(s->hi, hi * (1 - 1e-9));
	for (int i = 0; i < s->count; i++) {
		double at = report_scale_at(s, s->ticks[i]);

		ck_assert(at >= 100 - 1e-6 && at <= 500 + 1e-6);
		ck_assert(!i || s->ticks[i] > s->ticks[i - 1]);
		report_scale_label(s, s->ticks[i], label, sizeof(label));
		ck_assert_msg(strcmp(label, before), "two ticks \"%s\" for %g..%g", label, lo, hi);
		snprintf(before, sizeof(before), "%s", label);
	}
	ck_assert_double_eq(report_scale_at(s, NAN), 100);
	ck_assert_double_eq(report_scale_at(s, INFINITY), 500);
}

START_TEST(axes_hold_any_range)
{
	static const enum report_unit units[] = {REPORT_NUMBER, REPORT_NS, REPORT_ELAPSED};
	uint64_t seed = 99;

	printf("axes_hold_any_range: seed %llu\n", (unsigned long long)seed);
	for (uint64_t i = 0; i < 3000; i++) {
		double hi = pow(10, (double)(hash_mix64(seed + i) % 13000) / 1000);
		double lo = hi / pow(10, (double)(hash_mix64(seed * 3 + i) % 9000) / 1000 + 0.05);
		struct report_scale s;

		report_scale_linear(&s, units[i % 3], hi, i % 2);
		report_scale_place(&s, 100, 500);
		check_scale(&s, 0, hi);
		report_scale_log(&s, REPORT_NS, lo, hi);
		report_scale_place(&s, 100, 500);
		check_scale(&s, fmax(lo, 1), hi);
	}
}
END_TEST

struct command {
	int (*run)(int argc, char **argv);
	int argc;
	char *argv[12];
};

static void run_command(void *arg)
{
	struct command *c = arg;
	int rc = c->run(c->argc, c->argv);

	fflush(NULL);
	_exit(rc);
}

static void check_command(struct command c, int rc, const char *part)
{
	char out[8192];
	int status;

	while (c.argv[c.argc])
		c.argc++;
	status = run_child(run_command, &c, out, sizeof(out));
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == rc, "%d: %s", status, out);
	ck_assert_has(out, part);
	if (rc)
		ck_assert_msg(strchr(out, '\n') == out + strlen(out) - 1, "not one line: %s", out);
}

static void put_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	fputs(text, f);
	fclose(f);
}

#define REPORT(...) ((struct command){.run = cmd_report, .argv = {(char *)"report", __VA_ARGS__}})

START_TEST(bad_input_is_named)
{
	char dir[256], a[300], out[300];
	struct stat st;

	scratch_make(dir);
	snprintf(a, sizeof(a), "%s/a.json", dir);
	snprintf(out, sizeof(out), "%s/out.html", dir);
	check_command(REPORT(NULL), 2, "give 1 to");
	check_command(REPORT(a, (char *)"-o", out), 1, a);
	check_command(REPORT(dir, (char *)"-o", out), 1, dir);
	put_text(a, "");
	check_command(REPORT(a, (char *)"-o", out), 1, "is not JSON");
	put_text(a, "{\"format\":");
	check_command(REPORT(a, (char *)"-o", out), 1, "is not JSON");
	put_text(a, "{\"format\":\"other\"}");
	check_command(REPORT(a, (char *)"-o", out), 1, "not a result of gild replay");
	put_text(a, "[1,2]");
	check_command(REPORT(a, (char *)"-o", out), 1, a);
	ck_assert_int_eq(stat(out, &st), -1);
	scratch_remove(dir);
}
END_TEST

static char *read_text(const char *path)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = fopen(path, "r");

	ck_assert_ptr_nonnull(f);
	ck_assert_int_gt(getdelim(&text, &size, '\0', f), 0);
	fclose(f);
	return text;
}

/* The two commands after each other, as a user has them. */
START_TEST(from_run_to_report)
{
	char dir[256], path[300], json[300], out[300], bad[300];
	char *html;

	scratch_make(dir);
	for (int i = 0; i < 8; i++) {
		snprintf(path, sizeof(path), "%s/f%d.%s", dir, i, i < 3 ? "html" : "jpg");
		put_text(path, "some content\n");
	}
	snprintf(json, sizeof(json), "%s/r.json", dir);
	snprintf(out, sizeof(out), "%s/out.html", dir);
	snprintf(bad, sizeof(bad), "%s/none/out.html", dir);
	check_command((struct command){.run = cmd_replay,
				       .argv = {(char *)"replay", dir, (char *)"--pages=200",
						(char *)"--json", json, (char *)"--label=twice"}},
		      0, "800");
	check_command(REPORT(json, json, (char *)"--output", out, (char *)"--title=A <title>"), 0, "");
	html = read_text(out);
	check_report(html);
	ck_assert_has(html, "A &lt;title&gt;");
	ck_assert_has(html, ">twice<");
	ck_assert_has(html, ">twice (2)<");
	ck_assert_uint_ge(count_of(html, ">800<"), 2);
	check_command(REPORT(json, (char *)"-o", bad), 1, bad);
	free(html);
	scratch_remove(dir);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("report");
	TCase *t = tcase_create("report");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, three_results);
	tcase_add_test(t, everything_is_escaped);
	tcase_add_test(t, nothing_recorded);
	tcase_add_test(t, one_second_is_a_dot);
	tcase_add_test(t, long_runs_are_thinned_many_are_told_apart);
	tcase_add_test(t, extremes_stay_finite);
	tcase_add_test(t, axes_hold_any_range);
	tcase_add_test(t, bad_input_is_named);
	tcase_add_test(t, from_run_to_report);
	suite_add_tcase(s, t);
	return unit_main(s);
}
