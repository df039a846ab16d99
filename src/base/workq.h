/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A bounded work queue with its own threads: for everything that may block.
 *
 * Items are intrusive: the caller embeds struct work in its request and gets it back in `run`.
 * Threads start with the queue and are named `name` (visible in ps -L). FIFO order of starting.
 */
#ifndef GILD_BASE_WORKQ_H
#define GILD_BASE_WORKQ_H

#include <stdbool.h>
#include <stddef.h>

struct workq;

struct work {
	void (*run)(struct work *w); /* called once, on a queue thread, no lock held; may free w */
	struct work *next;           /* owned by the queue while queued */
};

/* `limit`: items waiting at most (0: unbounded). Errors: -ENOMEM, -EAGAIN (threads). */
int workq_create(struct workq **out, const char *name, unsigned threads, size_t limit);
/* 0, or -EAGAIN when `limit` items wait already, or -ESHUTDOWN when the queue is stopping. */
int workq_submit(struct workq *q, struct work *w);
size_t workq_depth(const struct workq *q); /* items waiting, not those running */
void workq_drain(struct workq *q);         /* returns when every item submitted before has run */
/* Refuses new items, runs those waiting, joins the threads, frees. NULL-safe. */
void workq_destroy(struct workq *q);

#endif
