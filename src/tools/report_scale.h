/* SPDX-License-Identifier: BSD-2-Clause
 * Axes: from values to pixels, with ticks at round numbers and their labels. No value, however odd,
 * makes a coordinate that is not finite. */
#ifndef GILD_TOOLS_REPORT_SCALE_H
#define GILD_TOOLS_REPORT_SCALE_H

#include <stdbool.h>
#include <stddef.h>

#define REPORT_TICKS 24

enum report_unit {
	REPORT_NUMBER,
	REPORT_PERCENT, /* 0..100 */
	REPORT_NS,      /* a latency */
	REPORT_ELAPSED, /* seconds since the start of a run */
};

struct report_scale {
	enum report_unit unit;
	bool log;
	double lo, hi;       /* values at the ends; lo > 0 when log */
	double from, to;     /* their pixels */
	double ticks[REPORT_TICKS];
	int count;
	double step;         /* between ticks, when linear */
};

/* From 0 to at least `hi`; rounded up to a tick unless `exact`. */
void report_scale_linear(struct report_scale *s, enum report_unit unit, double hi, bool exact);
/* From at most `lo`, or 1, to at least `hi`. */
void report_scale_log(struct report_scale *s, enum report_unit unit, double lo, double hi);
void report_scale_place(struct report_scale *s, double from, double to);
double report_scale_at(const struct report_scale *s, double value); /* clamped to the ends */
/* The label of a tick; returns buf. */
const char *report_scale_label(const struct report_scale *s, double value, char *buf, size_t len);
/* "s", "min" or "h": what elapsed labels count. */
const char *report_scale_elapsed_unit(const struct report_scale *s);

#endif
