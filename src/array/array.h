/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Several cards as one flash. Today: one card through the final interface; striping and mirroring
 * answer -ENOTSUP. Every card holds a membership record (FLASH_CTL_MEMBER): set uuid, its index, the
 * number of members, which of them are live, the generation; it is checked at opening and is raised
 * durably on the surviving cards before anything that a missing one did not get is acknowledged.
 *
 * The rules a mirror follows (tests/stack/toy_mirror.c is one, and shows that they suffice):
 *  - A member whose generation is below the highest is stale: not read until it was made equal to a
 *    live one. What it has above the live one's stamps was never acknowledged as durable; the live
 *    one's state is then written to both with a new stamp, so that no old stamp can win later.
 *  - Members of equal generation are made equal by stamp after an unclean stop, before the first
 *    read: tombstones first, both ways, then data and control records, both ways.
 *  - A member alone is used only if its own record says that the others are not live. Else it cannot
 *    know whether they went on without it.
 *  - New stamps start above every member's max_stamp, plus a gap larger than what may be drawn between
 *    two flushes, and the first one is durable on every member in use before the next is drawn.
 */
#ifndef GILD_ARRAY_ARRAY_H
#define GILD_ARRAY_ARRAY_H

#include "flash.h"

enum array_mode { ARRAY_STRIPE, ARRAY_MIRROR, ARRAY_ELASTIC };

struct array_member { /* the membership record, little endian on media */
	uint8_t set[16];
	uint32_t index, members;
	uint32_t mode;
	uint32_t live; /* bit i: member i has everything that this generation acknowledged */
	uint64_t generation;
};

/* Owns the cards when it succeeds. -ENOTSUP, -EINVAL, -ESTALE (cards of different sets). */
int array_open(struct flash **out, struct flash *const *cards, unsigned n, enum array_mode mode);
/* The membership record of a card. -ENOENT: never a member. */
int array_member_get(struct flash *card, struct array_member *out);
int array_member_put(struct flash *card, const struct array_member *m, uint64_t stamp);

#endif
