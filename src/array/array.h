/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Several cards as one flash. Today: one card through the final interface; striping and mirroring
 * answer -ENOTSUP. Every card holds a membership record (FLASH_CTL_MEMBER): set uuid, its index, the
 * number of members, the generation; it is checked at opening and is raised durably on the surviving
 * cards before anything that a missing one did not get is acknowledged.
 */
#ifndef GILD_ARRAY_ARRAY_H
#define GILD_ARRAY_ARRAY_H

#include "flash.h"

enum array_mode { ARRAY_STRIPE, ARRAY_MIRROR, ARRAY_ELASTIC };

struct array_member { /* the membership record, little endian on media */
	uint8_t set[16];
	uint32_t index, members;
	uint32_t mode;
	uint32_t pad;
	uint64_t generation;
};

/* Owns the cards when it succeeds. -ENOTSUP, -EINVAL, -ESTALE (cards of different sets). */
int array_open(struct flash **out, struct flash *const *cards, unsigned n, enum array_mode mode);
/* The membership record of a card. -ENOENT: never a member. */
int array_member_get(struct flash *card, struct array_member *out);
int array_member_put(struct flash *card, const struct array_member *m, uint64_t stamp);

#endif
