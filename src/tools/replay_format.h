/* SPDX-License-Identifier: BSD-2-Clause
 * Numbers for people, the same in the terminal and in the report. All return `buf`; 32 bytes hold
 * every result. What is not finite is written "-". */
#ifndef GILD_TOOLS_REPLAY_FORMAT_H
#define GILD_TOOLS_REPLAY_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#define REPLAY_FORMAT_LEN 40

/* "1,234,567" */
const char *replay_format_count(uint64_t n, char *buf, size_t len);
/* Three to four significant digits, thousands separated: "12,345", "123.4", "1.234", "0.0123". */
const char *replay_format_number(double x, char *buf, size_t len);
/* Nanoseconds with their unit: "870 ns", "12.3 us", "4.56 ms", "1.23 s", "95 min". In the report
 * `micro` is a Greek mu. */
const char *replay_format_ns(double ns, const char *micro, char *buf, size_t len);
/* Bytes with a decimal unit, as disks are sold: "1.48 GB". */
const char *replay_format_bytes(double bytes, char *buf, size_t len);

#endif
