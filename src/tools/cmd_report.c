/* SPDX-License-Identifier: BSD-2-Clause
 *
 * gild report: results of gild replay as one HTML page.
 */
#include <config.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/options.h"
#include "tools/gild.h"
#include "tools/replay_result.h"
#include "tools/report_html.h"
#include "tools/report_tables.h"

#define REPORT_MAX_RESULTS 64

struct report_options {
	const char *output, *title;
	bool published;
};

#define AT(member) offsetof(struct report_options, member)
static const struct option_spec report_specs[] = {
	{.name = "output", .letter = 'o', .kind = OPTION_STRING, .offset = AT(output), .arg = "FILE",
	 .fallback = "report.html", .help = "write the report here; - is standard output"},
	{.name = "title", .letter = 't', .kind = OPTION_STRING, .offset = AT(title), .arg = "TEXT",
	 .fallback = "Web-server load", .help = "the report's heading"},
	{.name = "published", .kind = OPTION_FLAG, .offset = AT(published),
	 .help = "add the figures of the published web-server report for comparison"},
	{.name = NULL},
};
#undef AT

static const struct option_usage report_usage = {
	.program = "gild report",
	.synopsis = "RESULT.json... [OPTION...]",
	.summary = "Draws results of gild replay, laid over each other, as one self-contained HTML page.",
	.notes = "The first result is the one the others are compared with. Runs are named by the label\n"
		 "gild replay gave them.",
	.specs = report_specs,
};

struct report {
	struct report_options opt;
	struct replay_result *results[REPORT_MAX_RESULTS];
	char *labels[REPORT_MAX_RESULTS];
	size_t count;
};

static int report_fail(const char *what, int err)
{
	fprintf(stderr, "gild report: %s: %s\n", what, strerror(-err));
	return 1;
}

static int report_load(struct report *rep, const char *path)
{
	char why[256];
	json_error_t e;
	json_t *json;
	FILE *f = fopen(path, "re");
	int err;

	if (!f)
		return report_fail(path, -errno);
	errno = 0;
	json = json_loadf(f, JSON_REJECT_DUPLICATES, &e);
	err = ferror(f) ? (errno ? -errno : -EIO) : 0;
	fclose(f);
	if (err) {
		json_decref(json);
		return report_fail(path, err);
	}
	if (!json) {
		fprintf(stderr, "gild report: %s is not JSON: line %d: %s\n", path, e.line, e.text);
		return 1;
	}
	err = replay_result_from_json(&rep->results[rep->count], json, why, sizeof(why));
	json_decref(json);
	if (err) {
		fprintf(stderr, "gild report: %s cannot be drawn: %s\n", path, why);
		return 1;
	}
	rep->count++;
	return 0;
}

/* The run's label, else its file's name; numbered where two would be the same. */
static int report_name(struct report *rep, size_t i, const char *path)
{
	const char *base = rep->results[i]->settings.label;
	unsigned number = 1;
	bool again;

	if (!base || !*base)
		base = path;
	do {
		free(rep->labels[i]);
		if ((number == 1 ? asprintf(&rep->labels[i], "%s", base)
				 : asprintf(&rep->labels[i], "%s (%u)", base, number)) < 0) {
			rep->labels[i] = NULL;
			return report_fail(path, -ENOMEM);
		}
		again = false;
		for (size_t k = 0; k < i; k++)
			again |= !strcmp(rep->labels[k], rep->labels[i]);
		number++;
	} while (again);
	return 0;
}

static int report_write(const struct report *rep, FILE *to)
{
	struct report_page page = {
		.title = rep->opt.title,
		.results = (const struct replay_result *const *)rep->results,
		.labels = (const char *const *)rep->labels,
		.count = rep->count,
		.published = rep->opt.published,
	};

	return report_html_write(to, &page);
}

/* Written beside and renamed, so that a failure leaves the old report. */
static int report_write_file(const struct report *rep)
{
	const char *path = rep->opt.output;
	struct stat st;
	char *temp = NULL;
	FILE *f;
	int err;

	if (!strcmp(path, "-")) {
		err = report_write(rep, stdout);
		return err ? report_fail("standard output", err) : 0;
	}
	/* A device or pipe cannot be replaced. */
	if (!stat(path, &st) && !S_ISREG(st.st_mode)) {
		temp = strdup(path);
	} else if (asprintf(&temp, "%s.new", path) < 0) {
		temp = NULL;
	}
	f = temp ? fopen(temp, "we") : NULL;
	if (!f) {
		err = report_fail(path, temp ? -errno : -ENOMEM);
		free(temp);
		return err;
	}
	err = report_write(rep, f);
	if (fclose(f) && !err)
		err = -errno;
	if (!err && strcmp(temp, path) && rename(temp, path))
		err = -errno;
	if (err && strcmp(temp, path))
		unlink(temp);
	free(temp);
	return err ? report_fail(path, err) : 0;
}

/* The page's first table for the terminal: the runs side by side, ratios to the first. */
static void report_print(const struct report *rep)
{
	double first = 0;

	printf("%-30s %9s %7s %9s %8s %9s %9s %9s %7s\n", "", "pages/s", "ratio", "hits/s", "MB/s",
	       "page ms", "p99 ms", "first ms", "hit %");
	for (size_t i = 0; i < rep->count; i++) {
		struct report_figures f;
		char hit[16] = "-";

		report_figures_of(rep->results[i], &f);
		if (i == 0)
			first = f.pages_s;
		if (isfinite(f.hit_rate))
			snprintf(hit, sizeof(hit), "%.1f", f.hit_rate);
		printf("%-30.30s %9.1f %6.2fx %9.0f %8.1f %9.2f %9.2f %9.2f %7s\n", rep->labels[i],
		       f.pages_s, first > 0 ? f.pages_s / first : 0.0, f.hits_s, f.bytes_s / 1e6,
		       f.page_ns / 1e6, f.page_p99_ns / 1e6, f.first_ns / 1e6, hit);
	}
}

int cmd_report(int argc, char **argv)
{
	struct report rep = {0};
	int words, rc;

	options_defaults(&report_usage, &rep.opt);
	rc = options_parse(&report_usage, &rep.opt, argc, argv, &words);
	if (rc)
		return rc > 0 ? 0 : 2;
	if (words < 1 || words > REPORT_MAX_RESULTS) {
		fprintf(stderr, "gild report: give 1 to %d results of gild replay --json\n",
			REPORT_MAX_RESULTS);
		return 2;
	}
	for (int i = 0; !rc && i < words; i++) {
		rc = report_load(&rep, argv[i]);
		if (!rc)
			rc = report_name(&rep, rep.count - 1, argv[i]);
	}
	if (!rc)
		rc = report_write_file(&rep);
	if (!rc && strcmp(rep.opt.output, "-") != 0)
		report_print(&rep);
	for (size_t i = 0; i < REPORT_MAX_RESULTS; i++) {
		replay_result_destroy(rep.results[i]);
		free(rep.labels[i]);
	}
	return rc;
}
