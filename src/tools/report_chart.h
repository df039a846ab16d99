/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The report's charts, written as HTML with inline SVG. Colours and fonts are the style sheet's;
 * report_class() names a series'. Every chart is a <figure> with a title, whatever data it gets.
 */
#ifndef GILD_TOOLS_REPORT_CHART_H
#define GILD_TOOLS_REPORT_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "stats/hist.h"
#include "tools/report_scale.h"

#define REPORT_COLOURS 8 /* classes s0..s7, then they come again, dotted */

struct report_point {
	double x, y; /* y is NAN where nothing was measured: the line has a gap */
};

struct report_series {
	const char *label;
	unsigned colour;
	const struct report_point *points;
	size_t count;
};

struct report_lines {
	const char *title, *unit_text; /* "Page rate", "pages per second" */
	enum report_unit unit;
	double fixed_max;   /* of the y axis; 0: from the data */
	double warmup;      /* seconds to shade; 0: none */
	const char *empty;  /* said when there is nothing to draw */
	const struct report_series *series;
	size_t count;
};

struct report_bar {
	const char *label, *text; /* name and value as shown */
	unsigned colour;
	double value;
	double ratio; /* to the first; 0: not shown */
};

struct report_histogram {
	const char *label;
	unsigned colour;
	const struct hist *hist; /* ns */
};

/* Text for HTML: & < > " ' become entities, control characters spaces. */
void report_escape(FILE *to, const char *text);
/* The classes of a line: beyond REPORT_COLOURS the colours come again, dotted. Returns buf. */
const char *report_class(unsigned colour, char *buf, size_t len);
/* Lines over the elapsed time. Latencies that span much get a logarithmic axis. */
void report_chart_lines(FILE *to, const struct report_lines *chart);
void report_chart_bars(FILE *to, const char *title, const char *unit_text,
		       const struct report_bar *bars, size_t count);
/* Percent of all samples per band of latency, over a logarithmic axis. */
void report_chart_histogram(FILE *to, const char *title, const char *empty,
			    const struct report_histogram *hists, size_t count);

#endif
