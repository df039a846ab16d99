/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Control records on two controllers, so that the loss of one loses none.
 *
 * A record's legs are controller hash(kind, key) % N and the next one (one leg when N is 1). Both
 * carry the caller's stamp; a deletion is a record of its controller's log as well, and ctl_get
 * tells its stamp for as long as the log keeps it.
 *
 * States of the two legs of one key:
 *
 *   even     both have the same stamp, or both have nothing
 *   uneven   one has a newer record or deletion: a put failed on the second leg (its caller has the
 *            error), or the power went between the two (nobody was told that it is durable)
 *
 * 1. put returns 0 when both live legs have it; flush returns 0 when both have it durably. So what
 *    was flushed is on both legs, and what differs after a power cut was never flushed: either
 *    outcome keeps the contract. But one must be chosen and made durable before the first answer,
 *    or the loss of a leg later would change an answer that was given.
 * 2. Chosen is the highest stamp, be it a record or a deletion. A leg whose deletion is no longer
 *    kept (stamp 0) loses against a record: a record too many is safe for every kind (the caller
 *    checks a file entry against the file, an open mark only drops lines), a missing one is not.
 * 3. While a key may be uneven (card.uneven), readers look at both legs and take the highest stamp;
 *    so (2) holds for them before and during card_ctl_reconcile, which may be cut and repeated.
 * 4. A leg that missed an update by failing is out for good (card_out.c) before the put is
 *    acknowledged: records it still has, deleted or replaced meanwhile, are never looked at.
 * 5. With both legs of a key out it cannot be known what the record was: -EIO, never -ENOENT.
 */
#include "card_priv.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"

struct card_legs {
	unsigned count;
	unsigned leg[2];
};

static void card_ctl_legs(const struct card *card, enum flash_ctl kind,
			  const uint8_t key[FLASH_CTL_KEY], struct card_legs *l)
{
	uint8_t named[FLASH_CTL_KEY + 1];

	named[0] = (uint8_t)kind;
	memcpy(named + 1, key, FLASH_CTL_KEY);
	l->leg[0] = (unsigned)(hash_64(named, sizeof(named)) % card->n);
	l->leg[1] = (l->leg[0] + 1) % card->n;
	l->count = card->n > 1 ? 2 : 1;
}

static bool card_ctl_is_callers(enum flash_ctl kind)
{
	return kind > 0 && kind < FLASH_CTL_KINDS && kind != FLASH_CTL_CARD;
}

int card_ctl_put(struct flash *f, enum flash_ctl kind, const uint8_t key[FLASH_CTL_KEY],
		 const void *value, size_t len, uint64_t stamp)
{
	struct card *card = card_of(f);
	struct card_legs l;
	unsigned k, done = 0;
	int r;

	if (!card_ctl_is_callers(kind) || len > FLASH_CTL_VALUE)
		return -EINVAL;
	card_ctl_legs(card, kind, key, &l);
	for (k = 0; k < l.count; k++) {
		struct flash *leg = card->c[l.leg[k]].flash;

		r = -EIO;
		if (card_is_live(card, l.leg[k]))
			r = leg->ops->ctl_put(leg, kind, key, value, len, stamp);
		if (r == 0) {
			done++;
			continue;
		}
		if (r == -EIO)
			r = card_out(card, l.leg[k]);
		if (r < 0) {
			if (done)
				atomic_store(&card->uneven, true);
			return r;
		}
	}
	return done ? 0 : -EIO;
}

struct card_copy { /* what one leg has of a key */
	int error;      /* 0, -ENOENT (then stamp is that of the deletion or 0), or why it cannot say */
	uint64_t stamp;
	size_t len;
	uint8_t value[FLASH_CTL_VALUE];
};

static void card_ctl_copy(struct card *card, unsigned leg, enum flash_ctl kind,
			  const uint8_t key[FLASH_CTL_KEY], struct card_copy *c)
{
	struct flash *f = card->c[leg].flash;

	c->stamp = 0;
	c->len = sizeof(c->value);
	c->error = -EIO;
	if (card_is_live(card, leg))
		c->error = f->ops->ctl_get(f, kind, key, c->value, &c->len, &c->stamp);
}

static bool card_copy_knows(const struct card_copy *c)
{
	return c->error == 0 || c->error == -ENOENT;
}

/* Invariant 2: the copy that counts, of two. */
static const struct card_copy *card_copy_newest(const struct card_copy *a,
						const struct card_copy *b)
{
	if (!card_copy_knows(a) || !card_copy_knows(b))
		return card_copy_knows(b) ? b : a;
	return b->stamp > a->stamp ? b : a;
}

int card_ctl_get(struct flash *f, enum flash_ctl kind, const uint8_t key[FLASH_CTL_KEY],
		 void *value, size_t *len, uint64_t *stamp)
{
	struct card *card = card_of(f);
	struct card_copy copy[2];
	const struct card_copy *c = &copy[0];
	struct card_legs l;

	if (!card_ctl_is_callers(kind))
		return -EINVAL;
	card_ctl_legs(card, kind, key, &l);
	card_ctl_copy(card, l.leg[0], kind, key, &copy[0]);
	/* An absence is asked twice although both should agree: it costs one look-up, and heals what
	 * a damaged log lost on one leg. */
	if (l.count > 1 && (copy[0].error || atomic_load(&card->uneven))) {
		card_ctl_copy(card, l.leg[1], kind, key, &copy[1]);
		c = card_copy_newest(&copy[0], &copy[1]);
	}
	if (stamp)
		*stamp = c->stamp;
	if (c->error)
		return c->error;
	if (c->len > *len) {
		*len = c->len;
		return -EOVERFLOW;
	}
	*len = c->len;
	memcpy(value, c->value, c->len);
	return 0;
}

struct card_ctl_walker {
	struct card *card;
	unsigned leg; /* whose records are being walked */
	enum flash_ctl kind;
	int (*fn)(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value, size_t len,
		  uint64_t stamp);
	void *arg;
	uint64_t copied, deleted; /* card_ctl_reconcile */
};

/* A record is reported when its first leg is walked; by the second only if the first lacks it. */
static int card_ctl_walk_one(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value,
			     size_t len, uint64_t stamp)
{
	struct card_ctl_walker *w = arg;
	struct card *card = w->card;
	struct card_copy other;
	struct card_legs l;

	card_ctl_legs(card, w->kind, key, &l);
	if (w->leg == l.leg[0] && (l.count == 1 || !atomic_load(&card->uneven)))
		return w->fn(w->arg, key, value, len, stamp);
	card_ctl_copy(card, l.leg[w->leg == l.leg[0]], w->kind, key, &other);
	if (w->leg != l.leg[0]) {
		if (other.error == 0 || (other.error == -ENOENT && other.stamp > stamp))
			return 0;
	} else if (card_copy_knows(&other) && other.stamp > stamp) {
		if (other.error == -ENOENT)
			return 0;
		return w->fn(w->arg, key, other.value, other.len, other.stamp);
	}
	return w->fn(w->arg, key, value, len, stamp);
}

int card_ctl_walk(struct flash *f, enum flash_ctl kind,
		  int (*fn)(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value,
			    size_t len, uint64_t stamp),
		  void *arg)
{
	struct card *card = card_of(f);
	struct card_ctl_walker w = {.card = card, .kind = kind, .fn = fn, .arg = arg};
	unsigned i;
	int r;

	if (!card_ctl_is_callers(kind))
		return -EINVAL;
	for (i = 0; i < card->n; i++) {
		if (!card_is_live(card, i) && !card_is_live(card, (i + 1) % card->n))
			return -EIO;
	}
	for (i = 0; i < card->n; i++) {
		if (!card_is_live(card, i))
			continue;
		w.leg = i;
		r = card->c[i].flash->ops->ctl_walk(card->c[i].flash, kind, card_ctl_walk_one, &w);
		if (r)
			return r;
	}
	return 0;
}

/* Brings one leg of a key to what the other has. */
static int card_ctl_even(struct card *card, unsigned leg, enum flash_ctl kind,
			 const uint8_t key[FLASH_CTL_KEY], const void *value, size_t len,
			 uint64_t stamp)
{
	struct flash *f = card->c[leg].flash;
	int r;

	r = f->ops->ctl_put(f, kind, key, value, len, stamp);
	return r == -EIO ? card_out(card, leg) : r;
}

static int card_ctl_reconcile_one(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value,
				  size_t len, uint64_t stamp)
{
	struct card_ctl_walker *w = arg;
	struct card_copy other;
	struct card_legs l;
	unsigned o;

	card_ctl_legs(w->card, w->kind, key, &l);
	o = l.leg[w->leg == l.leg[0]];
	if (l.count == 1 || (w->leg != l.leg[0] && w->leg != l.leg[1]) || !card_is_live(w->card, o))
		return 0;
	card_ctl_copy(w->card, o, w->kind, key, &other);
	if (!card_copy_knows(&other))
		return other.error;
	if (other.error == -ENOENT && other.stamp > stamp) {
		w->deleted++;
		return card_ctl_even(w->card, w->leg, w->kind, key, NULL, 0, other.stamp);
	}
	if (other.error == 0 && other.stamp >= stamp)
		return 0; /* equal, or found from the other side */
	w->copied++;
	return card_ctl_even(w->card, o, w->kind, key, value, len, stamp);
}

int card_ctl_reconcile(struct card *card)
{
	struct card_ctl_walker w = {.card = card};
	unsigned i;
	int kind, r;

	for (kind = 1; kind < FLASH_CTL_KINDS; kind++) {
		if (!card_ctl_is_callers(kind))
			continue;
		for (i = 0; i < card->n; i++) {
			struct flash *f = card->c[i].flash;

			if (!card_is_live(card, i))
				continue;
			w.kind = kind;
			w.leg = i;
			r = f->ops->ctl_walk(f, kind, card_ctl_reconcile_one, &w);
			if (r < 0)
				return r;
		}
	}
	r = card->flash.ops->flush(&card->flash);
	if (r < 0)
		return r;
	if (w.copied || w.deleted)
		log_info("card", "%llu control records copied and %llu deleted to make both copies "
			 "equal", (unsigned long long)w.copied, (unsigned long long)w.deleted);
	atomic_store(&card->uneven, false);
	return 0;
}
