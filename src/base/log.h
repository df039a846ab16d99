/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Log lines: one severity, one module, one sentence naming the object and what to do.
 *
 * Whoever detects an error logs it once; everybody above only returns it. Lines go to stderr
 * (foreground) or syslog (daemon), and the last LOG_RING of them are kept in memory for the control
 * socket and for assertion failures. All functions are thread safe and never fail.
 */
#ifndef GILD_BASE_LOG_H
#define GILD_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum log_level { LOG_LV_ERROR, LOG_LV_WARNING, LOG_LV_INFO, LOG_LV_DEBUG };

#define LOG_RING 256 /* lines kept in memory */

/* Lines above this level are dropped. Default LOG_LV_INFO. */
void log_set_level(enum log_level level);
/* true: syslog(3) under `ident` (kept by reference); false: stderr. Default stderr. */
void log_set_syslog(bool on, const char *ident);

/* `module` is a short constant name ("ftl", "cache"); no newline in the format. */
void log_write(enum log_level level, const char *module, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#define log_error(module, ...) log_write(LOG_LV_ERROR, module, __VA_ARGS__)
#define log_warning(module, ...) log_write(LOG_LV_WARNING, module, __VA_ARGS__)
#define log_info(module, ...) log_write(LOG_LV_INFO, module, __VA_ARGS__)
#define log_debug(module, ...) log_write(LOG_LV_DEBUG, module, __VA_ARGS__)

/* Writes the kept lines, oldest first, with time and severity. */
void log_dump_ring(FILE *to);

/* Assertions that stay on in release builds: for what cannot happen, never for input. On failure
 * dumps the ring and aborts. */
#define gild_assert(cond) \
	((cond) ? (void)0 : log_assert_failed(#cond, __FILE__, __LINE__, __func__))
void log_assert_failed(const char *cond, const char *file, int line, const char *func)
	__attribute__((noreturn, cold));

#endif
