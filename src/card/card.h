/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A card: N controllers as one device, in a directory: card.json, the media (or their names) and
 * one LMDB environment a controller. Lines are spread over controllers by a hash of (file, line);
 * each control record goes to two of them. Offers the flash contract.
 *
 * A call over several lines is one call a controller: when it fails, a part may have been done.
 *
 * When a controller fails, the card goes on without it: it is marked out of use on the others, its
 * sectors read as PRESENT | CORRUPT (what they were cannot be known), writes to it answer -EIO, trims
 * and mark_cleans that concern it succeed, control records live on with one copy, health says
 * DEGRADED. flush answers -EIO from then on if, and only if, dirty sectors that were acknowledged and
 * not yet flushed went down with it. It stays out after a restart until card_recover empties it.
 * FLASH_CTL_CARD records are the card's own: its callers' calls with that kind answer -EINVAL.
 */
#ifndef GILD_CARD_CARD_H
#define GILD_CARD_CARD_H

#include <sys/types.h>

#include "flash.h"
#include "ftl/ftl.h"

#define CARD_CONTROLLERS_MAX 16

struct card_format {
	uint64_t size;           /* bytes of the medium; 0: all of a block device */
	const char *device;      /* block device to use as the medium, or NULL: a file in the directory */
	unsigned controllers;    /* 0: 4 */
	unsigned op_percent;     /* 0: 28 */
	bool savings_spare;
	uint64_t volume_bytes;
	bool force;              /* also over a card that exists */
};

struct card_info { /* what card.json and the superblocks say */
	uint8_t uuid[16];
	unsigned version, controllers, op_percent;
	uint64_t size, raw_bytes, usable_bytes, erase_block;
	bool savings_spare, clean;
	char medium[4096];       /* path */
};

struct card_options {
	struct ftl_options ftl;
	const char *holder;      /* who uses it, shown to others who try ("gildfs on /srv/www") */
	uint64_t wait_ns;        /* how long to wait for a holder who may be about to close it */
};

/* `dir` is made when missing, and becomes 0700. -EEXIST: it holds a card or other files and not
 * `force`; -EPERM: it is another user's; -ENOSPC; -EINVAL. A sentence is logged; on errors nothing is left behind. */
int card_format(const char *dir, const struct card_format *f);
/* Errors, each logged as a sentence with the remedy: -ENOENT no such directory; -ENODATA not a card;
 * -EPERM others may write to
 * it; -EBUSY in use (the holder is named); -EPROTO newer version; -EUCLEAN, -ESTALE damaged or map
 * missing ("run gild recover"); -EIO. Nothing is changed on disk when it fails. */
int card_open(struct flash **out, const char *dir, const struct card_options *o);
/* Rebuilds every controller's environment from its log; the old ones stay until all are complete. What
 * has no superblock, or is marked out of use, is emptied instead. Errors as card_open. */
int card_recover(const char *dir);
int card_describe(const char *dir, struct card_info *out); /* errors as card_open; takes no lock */
/* N open controllers as a card, without a directory (tests). Owns them: close closes all. */
int card_assemble(struct flash **out, struct flash *const *controllers, unsigned n);
/* Tells those who wait for the card that it will be closed soon: they then wait longer. */
void card_will_close(struct flash *card);
/* Per controller numbers of an open card; -EINVAL beyond the last. */
int card_controller_stats(struct flash *card, unsigned i, struct flash_stats *out);

#endif
