/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The one function that knows every layer: a table of steps, started top to bottom and undone in
 * reverse, also when a later one fails. */
#include <config.h>

#include "tools/stack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define STACK_CARD_WAIT_NS (3 * NS_PER_S) /* for a daemon that was unmounted a moment ago */

static int stack_start_backing(struct stack *s, const struct stack_config *c)
{
	struct backing_options o = {.fsid = c->fsid, .readonly = c->readonly};
	int rc = backing_open(&s->backing, c->backing, &o);

	if (rc < 0)
		log_error("gildfs", "cannot open the backing %s: %s", c->backing, strerror(-rc));
	return rc;
}

static int stack_stop_backing(struct stack *s)
{
	backing_close(s->backing);
	return 0;
}

static int stack_stop_cards(struct stack *s)
{
	int rc = 0;

	while (s->card_count > 0) {
		struct flash *card = s->cards[--s->card_count];
		int one = card->ops->close(card);

		if (one < 0 && rc == 0)
			rc = one;
	}
	return rc;
}

static int stack_start_cards(struct stack *s, const struct stack_config *c)
{
	struct card_options o = {
		.ftl = {.background = true}, .holder = c->holder, .wait_ns = STACK_CARD_WAIT_NS};

	for (unsigned i = 0; i < c->card_count; i++) {
		int rc = card_open(&s->cards[i], c->cards[i], &o);

		if (rc < 0) {
			stack_stop_cards(s);
			return rc;
		}
		s->card_count = i + 1;
	}
	return 0;
}

static int stack_start_array(struct stack *s, const struct stack_config *c)
{
	int rc;

	if (s->card_count == 0)
		return 0;
	rc = array_open(&s->flash, s->cards, s->card_count, (enum array_mode)c->raid);
	if (rc == -ENOTSUP)
		log_error("gildfs", "%u cards with raid=%d are not supported by this version: "
			  "give one card=", s->card_count, c->raid);
	else if (rc < 0)
		log_error("gildfs", "the cards do not make an array: %s", strerror(-rc));
	else
		s->card_count = 0; /* the array owns them now */
	return rc;
}

static int stack_stop_array(struct stack *s)
{
	int rc = 0;

	if (s->flash)
		rc = s->flash->ops->close(s->flash);
	s->flash = NULL;
	return rc;
}

static int stack_start_cache(struct stack *s, const struct stack_config *c)
{
	int rc = cache_open(&s->cache, s->flash, s->backing, &s->stats, &c->cache);

	if (rc < 0)
		log_error("gildfs", "cannot start the cache: %s", strerror(-rc));
	return rc;
}

static int stack_stop_cache(struct stack *s)
{
	return cache_close(s->cache);
}

static const struct stack_step {
	int (*start)(struct stack *s, const struct stack_config *c);
	int (*stop)(struct stack *s);
} stack_steps[] = {
	{stack_start_backing, stack_stop_backing},
	{stack_start_cards, stack_stop_cards},
	{stack_start_array, stack_stop_array},
	{stack_start_cache, stack_stop_cache},
};
#define STACK_STEPS (sizeof(stack_steps) / sizeof(stack_steps[0]))

static int stack_undo(struct stack *s, size_t steps)
{
	int rc = 0;

	while (steps-- > 0) {
		int one = stack_steps[steps].stop(s);

		if (one < 0 && rc == 0)
			rc = one;
	}
	free(s);
	return rc;
}

int stack_open(struct stack **out, const struct stack_config *config)
{
	struct stack *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	stats_init(&s->stats);
	for (size_t i = 0; i < STACK_STEPS; i++) {
		int rc = stack_steps[i].start(s, config);

		if (rc < 0) {
			stack_undo(s, i);
			return rc;
		}
	}
	*out = s;
	return 0;
}

int stack_close(struct stack *s)
{
	if (!s)
		return 0;
	for (unsigned i = 0; i < CARD_CONTROLLERS_MAX && s->cards[i]; i++)
		card_will_close(s->cards[i]);
	return stack_undo(s, STACK_STEPS);
}
