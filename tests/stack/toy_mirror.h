/* SPDX-License-Identifier: BSD-2-Clause
 * A mirror of two cards, no more than is needed to show that flash.h suffices for one: stamps, walks,
 * deletions' stamps and the membership record. See toy_mirror.c. */
#ifndef GILD_TESTS_TOY_MIRROR_H
#define GILD_TESTS_TOY_MIRROR_H

#include "array/array.h"
#include "unit/card_rig.h"

#define MIRROR_STAMP_GAP (1ULL << 20)
#define MIRROR_KINDS (FLASH_CTL_CACHE + 1)

struct mirror {
	struct rig rig[2];
	bool unplugged[2];       /* not to be found at opening */
	bool forced;             /* the user says: what is not to be found did not go on without us */
	bool together;           /* when one leg's power goes so does the other's, at that call */
	struct flash *leg[2];    /* NULL: not in use */
	struct array_member member; /* of the live legs; index is not used */
	uint64_t stamp;          /* the last one drawn */
	unsigned restamped;      /* sectors and records of a stale leg that were ahead */
	unsigned copied;
};

void mirror_make(struct mirror *m, uint64_t seed);
void mirror_destroy(struct mirror *m);
/* Both cards that are plugged in; makes them equal. -ESTALE: one alone, and it does not know whether
 * the other went on without it (unless forced). -EIO: the power went again. */
int mirror_open(struct mirror *m);
int mirror_close(struct mirror *m);
/* A leg that was lost is back: brings it up to date while the other is in use. */
int mirror_attach(struct mirror *m, unsigned i);

int mirror_write(struct mirror *m, uint64_t file, uint64_t sector, uint32_t count, bool dirty);
int mirror_trim(struct mirror *m, uint64_t file, uint64_t sector, uint64_t count);
int mirror_mark_clean(struct mirror *m, uint64_t file, uint64_t sector, uint64_t count,
		      uint64_t stamp);
int mirror_put(struct mirror *m, uint64_t key, size_t len);
int mirror_flush(struct mirror *m);
void mirror_step(struct mirror *m); /* the cards' background work */
/* As rig_read and rig_get, of the first leg that has it. */
int64_t mirror_read(struct mirror *m, uint64_t file, uint64_t sector);
int64_t mirror_get(struct mirror *m, uint64_t key);

#endif
