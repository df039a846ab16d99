/* SPDX-License-Identifier: BSD-2-Clause
 *
 * An array of one card: everything goes through, behind the membership record.
 *
 * 1. A card without a record becomes the only member of a new set, durably, before it is used.
 * 2. A card that is one of several members is refused: what it has may be older than what the
 *    others have, and only they can tell.
 */
#include <config.h>

#include "array/array.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"

struct array {
	struct flash flash;
	/* constant after open */
	struct flash *card;
	struct array_member member;
};

static const uint8_t array_member_key[FLASH_CTL_KEY];

int array_member_get(struct flash *card, struct array_member *out)
{
	uint8_t value[FLASH_CTL_VALUE];
	size_t len = sizeof(value);
	uint64_t stamp;
	int r;

	r = card->ops->ctl_get(card, FLASH_CTL_MEMBER, array_member_key, value, &len, &stamp);
	if (r < 0)
		return r;
	if (len < sizeof(*out)) /* longer ones are of later versions and start like this */
		return -EUCLEAN;
	memcpy(out, value, sizeof(*out));
	out->index = le32toh(out->index);
	out->members = le32toh(out->members);
	out->mode = le32toh(out->mode);
	out->live = le32toh(out->live);
	out->generation = le64toh(out->generation);
	return 0;
}

int array_member_put(struct flash *card, const struct array_member *m, uint64_t stamp)
{
	struct array_member out = *m;
	int r;

	out.index = htole32(m->index);
	out.members = htole32(m->members);
	out.mode = htole32(m->mode);
	out.live = htole32(m->live);
	out.generation = htole64(m->generation);
	r = card->ops->ctl_put(card, FLASH_CTL_MEMBER, array_member_key, &out, sizeof(out), stamp);
	return r < 0 ? r : card->ops->flush(card);
}

static struct flash *array_card(struct flash *f)
{
	return ((struct array *)f)->card;
}

static int array_read(struct flash *f, uint64_t file, uint64_t sector, uint32_t count,
		      uint32_t min_epoch, void *buf, struct flash_sector *state)
{
	f = array_card(f);
	return f->ops->read(f, file, sector, count, min_epoch, buf, state);
}

static int array_write(struct flash *f, const struct flash_write *w)
{
	f = array_card(f);
	return f->ops->write(f, w);
}

static int array_mark_clean(struct flash *f, uint64_t file, uint64_t sector, uint64_t count,
			    uint64_t stamp)
{
	f = array_card(f);
	return f->ops->mark_clean(f, file, sector, count, stamp);
}

static int array_trim(struct flash *f, uint64_t file, uint64_t sector, uint64_t count,
		      uint64_t stamp)
{
	f = array_card(f);
	return f->ops->trim(f, file, sector, count, stamp);
}

static int array_flush(struct flash *f)
{
	f = array_card(f);
	return f->ops->flush(f);
}

static int array_ctl_put(struct flash *f, enum flash_ctl kind, const uint8_t key[FLASH_CTL_KEY],
			 const void *value, size_t len, uint64_t stamp)
{
	if (kind == FLASH_CTL_MEMBER)
		return -EINVAL; /* ours */
	f = array_card(f);
	return f->ops->ctl_put(f, kind, key, value, len, stamp);
}

static int array_ctl_get(struct flash *f, enum flash_ctl kind, const uint8_t key[FLASH_CTL_KEY],
			 void *value, size_t *len, uint64_t *stamp)
{
	f = array_card(f);
	return f->ops->ctl_get(f, kind, key, value, len, stamp);
}

static int array_ctl_walk(struct flash *f, enum flash_ctl kind,
			  int (*fn)(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value,
				    size_t len, uint64_t stamp),
			  void *arg)
{
	f = array_card(f);
	return f->ops->ctl_walk(f, kind, fn, arg);
}

static int array_walk(struct flash *f, enum flash_kind kind, uint64_t file, uint64_t sector,
		      int (*fn)(void *arg, const struct flash_extent *e), void *arg)
{
	f = array_card(f);
	return f->ops->walk(f, kind, file, sector, fn, arg);
}

static void array_set_reclaim(struct flash *f, flash_reclaim_fn fn, void *arg)
{
	f = array_card(f);
	f->ops->set_reclaim(f, fn, arg);
}

static void array_stats(struct flash *f, struct flash_stats *out)
{
	f = array_card(f);
	f->ops->stats(f, out);
}

static void array_health(struct flash *f, struct flash_health *out)
{
	struct array *a = (struct array *)f;

	a->card->ops->health(a->card, out);
	out->generation = a->member.generation;
}

static int array_close(struct flash *f)
{
	struct flash *card = array_card(f);

	free(f);
	return card->ops->close(card);
}

static const struct flash_ops array_ops = {
	.read = array_read,
	.write = array_write,
	.mark_clean = array_mark_clean,
	.trim = array_trim,
	.flush = array_flush,
	.ctl_put = array_ctl_put,
	.ctl_get = array_ctl_get,
	.ctl_walk = array_ctl_walk,
	.walk = array_walk,
	.set_reclaim = array_set_reclaim,
	.stats = array_stats,
	.health = array_health,
	.close = array_close,
};

/* Invariant 1. */
static int array_found(struct array *a, enum array_mode mode)
{
	struct flash_stats s;

	a->member = (struct array_member){
		.members = 1, .mode = mode, .live = 1, .generation = 1};
	if (getrandom(a->member.set, sizeof(a->member.set), 0) != sizeof(a->member.set))
		return -EIO;
	a->card->ops->stats(a->card, &s);
	return array_member_put(a->card, &a->member, s.max_stamp + 1);
}

int array_open(struct flash **out, struct flash *const *cards, unsigned n, enum array_mode mode)
{
	struct array *a;
	int r;

	*out = NULL;
	if (n == 0 || mode > ARRAY_ELASTIC)
		return -EINVAL;
	if (n > 1)
		return -ENOTSUP;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->flash.ops = &array_ops;
	a->card = cards[0];
	r = array_member_get(a->card, &a->member);
	if (r == -ENOENT) {
		r = array_found(a, mode);
	} else if (r == -EUCLEAN) {
		log_error("array", "the card's membership record is damaged; format the card anew");
	} else if (r == 0 && (a->member.members != 1 || a->member.index != 0)) {
		log_error("array", "the card is number %u of %u of an array; it cannot be used alone",
			  a->member.index + 1, a->member.members);
		r = -ESTALE;
	}
	if (r < 0) {
		free(a);
		return r;
	}
	*out = &a->flash;
	return 0;
}
