/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One walk over all controllers, in address order.
 *
 * Each controller's walk is taken in batches (a walk can start anywhere), and the batches are
 * merged. Memory is one batch a controller, whatever the card holds.
 *
 * 1. A batch ends between two addresses: all extents that start at one address are in one batch.
 * 2. A range that went to several controllers is reported once.
 * 3. A tombstone that is reported holds for all of its range. A power cut can leave it on some of the
 *    controllers that own a part: after an unclean stop it is completed on the others. (It was never
 *    flushed, so either way would do; but not both, for a mirror applies what a walk reports.) A
 *    mark_clean needs no such care: it says that the backing has the bytes, which stays true.
 */
#include "card_priv.h"

#include <errno.h>
#include <stdlib.h>

#define CARD_WALK_BATCH 1024u

struct card_walk_leg {
	struct flash *flash;       /* NULL: out of use */
	struct flash_extent *e;
	size_t count, room, next;  /* extents held, of room; next to report */
	uint64_t file, sector;     /* where the next batch starts */
	bool end;                  /* there is none */
};

static bool card_walk_same(const struct flash_extent *a, const struct flash_extent *b)
{
	return a->file == b->file && a->sector == b->sector;
}

static bool card_walk_before(const struct flash_extent *a, const struct flash_extent *b)
{
	return a->file < b->file || (a->file == b->file && a->sector < b->sector);
}

static int card_walk_collect(void *arg, const struct flash_extent *e)
{
	struct card_walk_leg *l = arg;

	if (l->count >= CARD_WALK_BATCH && !card_walk_same(e, &l->e[l->count - 1])) {
		l->file = e->file;
		l->sector = e->sector;
		return 1;
	}
	if (l->count == l->room) {
		size_t room = l->room ? 2 * l->room : CARD_WALK_BATCH;
		struct flash_extent *bigger = realloc(l->e, room * sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		l->e = bigger;
		l->room = room;
	}
	l->e[l->count++] = *e;
	return 0;
}

/* The next extent of this controller, or NULL at its end. */
static int card_walk_peek(struct card_walk_leg *l, enum flash_kind kind,
			  const struct flash_extent **out)
{
	int r;

	*out = NULL;
	if (!l->flash)
		return 0;
	if (l->next == l->count && !l->end) {
		l->count = l->next = 0;
		r = l->flash->ops->walk(l->flash, kind, l->file, l->sector, card_walk_collect, l);
		if (r < 0)
			return r;
		l->end = r == 0;
	}
	if (l->next < l->count)
		*out = &l->e[l->next];
	return 0;
}

/* Was this extent, the k-th controller's, reported for an earlier controller? */
static bool card_walk_reported(const struct card_walk_leg *legs, unsigned k,
			       const struct flash_extent *e)
{
	unsigned i;
	size_t j;

	for (i = 0; i < k; i++) {
		for (j = legs[i].next; j < legs[i].count; j++) {
			const struct flash_extent *o = &legs[i].e[j];

			if (!card_walk_same(o, e))
				break;
			if (o->count == e->count && o->stamp == e->stamp)
				return true;
		}
	}
	return false;
}

/* Steps over everything that starts at the address of `at`. */
static void card_walk_step(struct card_walk_leg *legs, unsigned n, const struct flash_extent *at)
{
	unsigned i;

	for (i = 0; i < n; i++) {
		while (legs[i].next < legs[i].count && card_walk_same(&legs[i].e[legs[i].next], at))
			legs[i].next++;
	}
}

/* Reports everything that starts at the address of `at` and steps over it. */
static int card_walk_report(struct card_walk_leg *legs, unsigned n, struct flash_extent at,
			    int (*fn)(void *arg, const struct flash_extent *e), void *arg)
{
	unsigned i;
	size_t j;
	int r;

	for (i = 0; i < n; i++) {
		for (j = legs[i].next; j < legs[i].count; j++) {
			if (!card_walk_same(&legs[i].e[j], &at))
				break;
			if (card_walk_reported(legs, i, &legs[i].e[j]))
				continue;
			r = fn(arg, &legs[i].e[j]);
			if (r)
				return r;
		}
	}
	card_walk_step(legs, n, &at);
	return 0;
}

static void card_walk_init(struct card *card, struct card_walk_leg *legs, uint64_t file,
			   uint64_t sector)
{
	unsigned i;

	for (i = 0; i < card->n; i++) {
		legs[i] = (struct card_walk_leg){.file = file, .sector = sector};
		if (card_is_live(card, i))
			legs[i].flash = card->c[i].flash;
	}
}

static void card_walk_done(struct card_walk_leg *legs, unsigned n)
{
	unsigned i;

	for (i = 0; i < n; i++)
		free(legs[i].e);
}

/* The first extent of all controllers' next ones; *out NULL at the end. */
static int card_walk_first(struct card_walk_leg *legs, unsigned n, enum flash_kind kind,
			   const struct flash_extent **out)
{
	const struct flash_extent *e;
	unsigned i;
	int r;

	*out = NULL;
	for (i = 0; i < n; i++) {
		r = card_walk_peek(&legs[i], kind, &e);
		if (r < 0)
			return r;
		if (e && (!*out || card_walk_before(e, *out)))
			*out = e;
	}
	return 0;
}

int card_walk(struct flash *f, enum flash_kind kind, uint64_t file, uint64_t sector,
	      int (*fn)(void *arg, const struct flash_extent *e), void *arg)
{
	struct card *card = card_of(f);
	struct card_walk_leg legs[CARD_CONTROLLERS_MAX];
	const struct flash_extent *first;
	int r;

	card_walk_init(card, legs, file, sector);
	do {
		r = card_walk_first(legs, card->n, kind, &first);
		if (!r && first)
			r = card_walk_report(legs, card->n, *first, fn, arg);
	} while (!r && first);
	card_walk_done(legs, card->n);
	return r;
}

/* Which controllers hold this very tombstone, as a bit mask. */
static uint32_t card_trim_holders(const struct card_walk_leg *legs, unsigned n,
				  const struct flash_extent *e)
{
	uint32_t mask = 0;
	unsigned i;
	size_t j;

	for (i = 0; i < n; i++) {
		for (j = legs[i].next; j < legs[i].count; j++) {
			if (!card_walk_same(&legs[i].e[j], e))
				break;
			if (legs[i].e[j].count == e->count && legs[i].e[j].stamp == e->stamp)
				mask |= 1U << i;
		}
	}
	return mask;
}

static int card_trim_complete(struct card *card, const struct card_walk_leg *legs,
			      const struct flash_extent *e)
{
	uint32_t missing = card_owners(card, e->file, e->sector, e->count) &
			   ~card_trim_holders(legs, card->n, e);
	unsigned i;
	int r = 0;

	for (i = 0; i < card->n && r == 0; i++) {
		struct flash *f = card->c[i].flash;

		if (!(missing & 1U << i) || !card_is_live(card, i))
			continue;
		r = f->ops->trim(f, e->file, e->sector, e->count, e->stamp);
		if (r == -EIO)
			r = card_out(card, i);
	}
	return r;
}

int card_trims_reconcile(struct card *card)
{
	struct card_walk_leg legs[CARD_CONTROLLERS_MAX];
	const struct flash_extent *first;
	struct flash_extent at;
	unsigned i;
	size_t j;
	int r;

	card_walk_init(card, legs, 0, 0);
	do {
		r = card_walk_first(legs, card->n, FLASH_WALK_TRIM, &first);
		if (r || !first)
			break;
		at = *first;
		for (i = 0; i < card->n && !r; i++) {
			for (j = legs[i].next; j < legs[i].count && !r; j++) {
				if (!card_walk_same(&legs[i].e[j], &at))
					break;
				if (!card_walk_reported(legs, i, &legs[i].e[j]))
					r = card_trim_complete(card, legs, &legs[i].e[j]);
			}
		}
		card_walk_step(legs, card->n, &at);
	} while (!r);
	card_walk_done(legs, card->n);
	return r;
}
