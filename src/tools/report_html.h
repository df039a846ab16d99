/* SPDX-License-Identifier: BSD-2-Clause
 * The report as one HTML file: style sheet and charts inside, no script, nothing from elsewhere. */
#ifndef GILD_TOOLS_REPORT_HTML_H
#define GILD_TOOLS_REPORT_HTML_H

#include <stdio.h>

#include "tools/report_tables.h"

/* 0, -ENOMEM, or -errno of writing. The output is well-formed XML too. */
int report_html_write(FILE *to, const struct report_page *page);

#endif
