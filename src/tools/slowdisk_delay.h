/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A disk model behind the real clock: holds answers back until the modelled array would have them.
 *
 * An item is released when two things are over: the model's time, and the caller's own work (the
 * real I/O, which runs meanwhile). Whichever ends last calls item->done, without any lock, on the
 * delay's thread or the caller's. All functions are thread safe.
 */
#ifndef GILD_TOOLS_SLOWDISK_DELAY_H
#define GILD_TOOLS_SLOWDISK_DELAY_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "tools/disk_model.h"

struct delay;

struct delay_item {
	struct disk_model_request request; /* offset, length, write: set before delay_begin */
	void (*done)(struct delay_item *item);
	_Atomic unsigned waiting; /* of the two: how many are not over */
};

/* Parameters as disk_model_create; `on`: whether delays apply from the start. Starts no thread, so
 * that a process may fork in between. -EINVAL, -ENOMEM. */
int delay_create(struct delay **out, enum disk_model_kind kind, uint64_t bytes, double stroke,
		 bool on);
int delay_start(struct delay *d); /* the thread; -EAGAIN */
/* Ends the thread; what the model still holds is released at once. No delay_begin may follow. */
void delay_stop(struct delay *d);
void delay_destroy(struct delay *d); /* NULL-safe; stopped, or never started */

/* The model's time begins now. With delays off only delay_end is waited for. */
void delay_begin(struct delay *d, struct delay_item *item);
/* The caller's own work is over; the item may be gone when this returns. */
void delay_end(struct delay_item *item);

/* For requests that begin from now on. */
void delay_switch(struct delay *d, bool on);
/* Model, state and counters as one JSON object; the reference is the caller's. NULL: no memory. */
json_t *delay_report(struct delay *d);

#endif
