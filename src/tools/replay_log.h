/* SPDX-License-Identifier: BSD-2-Clause
 *
 * An access log in the combined format, as the web server of the load would write it: one write(2)
 * a hit. One client owns a struct replay_log; many may append to one descriptor.
 */
#ifndef GILD_TOOLS_REPLAY_LOG_H
#define GILD_TOOLS_REPLAY_LOG_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* A path of 4095 bytes may become three times as long, twice: request and referrer. */
#define REPLAY_LOG_LINE (6 * 4096 + 256)

struct replay_log {
	int fd; /* opened with O_APPEND; the caller's */
	time_t second; /* the one `date` shows */
	char date[40];
	char line[REPLAY_LOG_LINE];
};

void replay_log_init(struct replay_log *log, int fd);
/* Appends one line. `referrer` may be NULL; `err` is the negative errno of the request or 0. 0 or
 * -errno of the write. */
int replay_log_hit(struct replay_log *log, const char *path, const char *referrer, int err,
		   uint64_t bytes);
/* The line itself, in log->line: for tests. Returns its length. */
size_t replay_log_format(struct replay_log *log, time_t now, const char *path,
			 const char *referrer, int err, uint64_t bytes);

#endif
