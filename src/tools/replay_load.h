/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The load generator: N clients (threads) each ask for one page view after the other.
 *
 * A page view is one HTML page, then its three images, one after the other on one connection, as a
 * web server would serve them: open, fstat, read in pieces, close. All clients draw from one
 * numbered sequence of views (replay_content_pick).
 */
#ifndef GILD_TOOLS_REPLAY_LOAD_H
#define GILD_TOOLS_REPLAY_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "tools/replay_content.h"
#include "tools/replay_result.h"

#define REPLAY_MAX_CLIENTS 4096
#define REPLAY_MAX_FILE 0x7ffff000ULL /* what one sendfile call can send: larger files are errors */

struct replay_config {
	const struct replay_content *content; /* at least one page and three images */
	int root_fd;
	unsigned clients;     /* 1..REPLAY_MAX_CLIENTS */
	size_t piece;         /* bytes a read */
	uint64_t seed;
	uint64_t duration_ns; /* of the whole run; 0: no bound */
	uint64_t pages;       /* page views begun in all; 0: no bound */
	uint64_t warmup_ns;   /* left out of `measured` and of the histograms */
	int log_fd;           /* access log, opened with O_APPEND; -1: none */
	int stop_fd;          /* becomes readable when the run shall end; -1: none */
	/* Cumulative hits and requests of the cache below. Called by the caller's thread once a second;
	 * an error means unknown. NULL: none. */
	int (*probe)(void *arg, uint64_t *hits, uint64_t *requests);
	/* Called by the caller's thread after each second. NULL: none. */
	void (*second)(void *arg, const struct replay_second *s);
	void *arg;
};

/* Runs to the end and fills series, histograms, totals, first_error and interrupted of `r`. Errors:
 * -ENOMEM, -EAGAIN (no thread). Files that fail are counted, not returned. */
int replay_load_run(const struct replay_config *config, struct replay_result *r);

#endif
