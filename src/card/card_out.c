/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Controllers that are out of use.
 *
 * A controller that fails an update (write, trim, mark_clean, control record, flush) holds from then
 * on things that are older than what the card acknowledged. It might work again after a restart, so
 * that it is out has to be remembered, and by somebody else: a mark, one control record (kind
 * FLASH_CTL_CARD, key 0) on every controller that is left.
 *
 *   live --update failed--> out (in memory) --mark durable on all live ones--> out, acknowledged
 *   out --gild recover empties it--> live
 *
 * 1. A failed update is answered as if done (or by the second leg) only when the mark is durable on
 *    every live controller; until then everybody who meets the controller waits here or gets -EIO.
 * 2. Marks carry a generation that rises with every change; it is also the record's stamp, which is
 *    compared with stamps of that one record only. At a start the highest generation found counts,
 *    and is completed on those that miss it.
 * 3. What is out is never asked again, whether it answers or not. Only emptying it brings it back.
 * 4. With no controller left nothing can be remembered: every update answers -EIO.
 */
#include "card_priv.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/log.h"

struct card_media_mark { /* little endian; longer ones are of later versions and start like this */
	uint32_t mask;
	uint32_t pad;
	uint64_t generation;
};
static_assert(sizeof(struct card_media_mark) == 16, "media format");

static const uint8_t card_mark_key[FLASH_CTL_KEY];

static uint32_t card_out_flags(const struct card *card)
{
	uint32_t mask = 0;
	unsigned i;

	for (i = 0; i < card->n; i++)
		mask |= card_is_live(card, i) ? 0 : 1U << i;
	return mask;
}

static int card_out_put(struct card *card, unsigned i, uint32_t mask, uint64_t generation)
{
	struct card_media_mark m = {.mask = htole32(mask), .generation = htole64(generation)};
	struct flash *f = card->c[i].flash;
	int r;

	r = f->ops->ctl_put(f, FLASH_CTL_CARD, card_mark_key, &m, sizeof(m), generation);
	return r < 0 ? r : f->ops->flush(f);
}

/* Writes a mark of what is out now; starts again when that takes further ones down. */
static int card_out_mark_locked(struct card *card)
{
	uint32_t all = (uint32_t)((1ULL << card->n) - 1), mask;
	unsigned i;
	int r;

	lock_assert_held(&card->lock);
	do {
		mask = card_out_flags(card);
		if (mask == all)
			return -EIO;
		card->out_generation++;
		for (i = 0; i < card->n; i++) {
			if (!card_is_live(card, i))
				continue;
			r = card_out_put(card, i, mask, card->out_generation);
			if (r == -EIO)
				atomic_store(&card->c[i].out, true);
			else if (r < 0)
				return -EIO;
		}
	} while (mask != card_out_flags(card));
	card->out_mask = mask;
	return 0;
}

int card_out(struct card *card, unsigned i)
{
	int r = 0;

	if (card->readonly)
		return -EIO;
	lock_acquire(&card->lock);
	if (!atomic_exchange(&card->c[i].out, true))
		log_error("card", "controller %u failed and is out of use; the card goes on without it "
			  "until `gild recover` empties it", i);
	if (!(card->out_mask & 1U << i))
		r = card_out_mark_locked(card);
	lock_release(&card->lock);
	return r;
}

static int card_out_get(struct flash *f, struct card_media_mark *m)
{
	char buf[FLASH_CTL_VALUE];
	size_t len = sizeof(buf);
	uint64_t stamp;
	int r;

	memset(m, 0, sizeof(*m));
	r = f->ops->ctl_get(f, FLASH_CTL_CARD, card_mark_key, buf, &len, &stamp);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	if (len < sizeof(*m)) {
		log_error("card", "the mark of controllers out of use has %zu bytes; run `gild recover`",
			  len);
		return -EUCLEAN;
	}
	memcpy(m, buf, sizeof(*m));
	m->mask = le32toh(m->mask);
	m->generation = le64toh(m->generation);
	return 0;
}

int card_out_load(struct card *card)
{
	struct card_media_mark m, newest = {0};
	uint64_t oldest = UINT64_MAX;
	unsigned i;
	int r = 0;

	for (i = 0; i < card->n; i++) {
		if (!card->c[i].flash)
			continue;
		r = card_out_get(card->c[i].flash, &m);
		if (r < 0)
			return r;
		if (m.generation > newest.generation)
			newest = m;
	}
	for (i = 0; i < card->n; i++) {
		if (newest.mask & 1U << i) {
			log_warning("card", "controller %u is out of use since it failed; "
				    "`gild recover` empties it and takes it back", i);
			atomic_store(&card->c[i].out, true);
		} else if (!card->c[i].flash) {
			return -EIO;
		} else {
			r = card_out_get(card->c[i].flash, &m);
			if (r < 0)
				return r;
			oldest = m.generation < oldest ? m.generation : oldest;
		}
	}
	card->out_generation = newest.generation;
	if (card->readonly || oldest >= newest.generation) {
		card->out_mask = newest.mask;
		return 0;
	}
	lock_acquire(&card->lock);
	r = card_out_mark_locked(card);
	lock_release(&card->lock);
	return r;
}

int card_out_clear(struct card *card, uint32_t emptied)
{
	unsigned i;
	int r;

	if (!emptied)
		return 0;
	for (i = 0; i < card->n; i++) {
		if (emptied & 1U << i)
			atomic_store(&card->c[i].out, false);
	}
	lock_acquire(&card->lock);
	r = card_out_mark_locked(card);
	lock_release(&card->lock);
	return r;
}
