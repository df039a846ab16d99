/* SPDX-License-Identifier: BSD-2-Clause
 * The stack of layers behind one mount, built and taken down in one place. */
#ifndef GILD_TOOLS_STACK_H
#define GILD_TOOLS_STACK_H

#include "array/array.h"
#include "backing/backing.h"
#include "cache/cache.h"
#include "card/card.h"
#include "stats/stats.h"

struct stack_config {
	const char *backing;      /* path */
	const char *fsid;         /* or NULL */
	const char *const *cards; /* paths */
	unsigned card_count;
	int raid;                 /* enum array_mode */
	const char *holder;       /* shown to others who want the cards */
	bool readonly;
	struct cache_options cache;
};

struct stack {
	struct stats stats;
	struct backing *backing;
	struct flash *cards[CARD_CONTROLLERS_MAX];
	unsigned card_count;
	struct flash *flash;      /* the array; owns the cards once it is open */
	struct cache *cache;
};

/* Opens backing, cards, array, cache, in this order; on an error a sentence was logged and whatever
 * was open is closed again. */
int stack_open(struct stack **out, const struct stack_config *config);
/* Closes in reverse order; the first error. NULL-safe. */
int stack_close(struct stack *s);

#endif
