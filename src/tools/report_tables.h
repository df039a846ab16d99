/* SPDX-License-Identifier: BSD-2-Clause
 * The report's figures and the tables that show them. */
#ifndef GILD_TOOLS_REPORT_TABLES_H
#define GILD_TOOLS_REPORT_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "tools/replay_result.h"

/* What the report is made of; everything is the caller's. */
struct report_page {
	const char *title;
	const struct replay_result *const *results; /* `count` of them */
	const char *const *labels;                  /* one each, all different */
	size_t count;
	bool published; /* add the figures of the published web-server report */
};

/* The figures of the measured part, or of the whole run where it ended in its warm-up. What was not
 * measured is NAN. */
struct report_figures {
	const struct replay_totals *basis;
	double pages_s, hits_s, bytes_s;
	double page_ns, page_p99_ns, first_ns; /* of the measured part only */
	double hit_rate;                       /* percent */
};

void report_figures_of(const struct replay_result *r, struct report_figures *f);

/* "17.5x", or "-" when either is not known or zero; with a real multiplication sign. */
const char *report_format_ratio(double value, double first, char *buf, size_t len);

void report_table_glance(FILE *to, const struct report_page *page);
void report_table_latencies(FILE *to, const struct report_page *page);
void report_table_mounts(FILE *to, const struct report_page *page); /* nothing without mounts */
void report_table_settings(FILE *to, const struct report_page *page);
void report_table_published(FILE *to, const struct report_page *page);

#endif
