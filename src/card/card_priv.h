/* SPDX-License-Identifier: BSD-2-Clause
 * What the files of src/card share. */
#ifndef GILD_CARD_PRIV_H
#define GILD_CARD_PRIV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/clock.h"
#include "card/card.h"
#include "flash.h"
#include "media/media.h"
#include "meta/meta.h"

struct card_config { /* card.json */
	uint8_t uuid[16];
	char created[32];          /* ISO 8601, UTC */
	unsigned controllers, op_percent;
	bool savings_spare;
	uint64_t volume_bytes, size;
	char medium[4096];         /* CARD_MEDIUM, or the absolute path of a block device */
};

struct card_controller {
	struct flash *flash;        /* constant after open; NULL: it was out when the card was opened */
	struct media *region;       /* of card_open, else NULL */
	struct meta *meta;          /* same */
	_Atomic bool out;           /* missed an update: never asked again (card_out.c) */
	_Atomic uint64_t dirty_acked; /* dirty writes that returned 0 */
	_Atomic uint64_t dirty_safe;  /* of those, covered by a flush that returned 0 */
};

struct card {
	struct flash flash;
	/* constant after open */
	unsigned n;
	bool readonly;
	bool unclean;               /* the last stop, of a controller or by the directory's account */
	bool started;               /* every controller that is not out is open */
	struct media *medium;       /* all controllers' regions are of it (card_open), else NULL */
	int dir_fd, lock_fd;        /* of card_open, else -1 */
	/* A control record may differ on its two legs: readers look at both. Set before controllers
	 * are used by others, or by whoever made it so; cleared by card_ctl_reconcile only. */
	_Atomic bool uneven;
	/* Serialises what takes a controller out; held over calls to the controllers. */
	struct lock lock;
	uint64_t out_generation;    /* of the newest mark on the controllers; 0: never one */
	uint32_t out_mask;          /* what that mark says; durable on every controller not in it */
	struct card_controller c[CARD_CONTROLLERS_MAX];
};

/* ---- card.c ---- */

unsigned card_route(const struct card *card, uint64_t file, uint64_t line);
struct card *card_of(struct flash *f);
/* Which controllers own a line of the range, as a bit mask. */
uint32_t card_owners(const struct card *card, uint64_t file, uint64_t sector, uint64_t count);
/* Allocates a card without controllers: the caller fills c[], lock_fd and so on. */
int card_alloc(struct card **out, unsigned n);
/* Takes over what the controllers remember: marks, and after an unclean stop uneven records. */
int card_start(struct card *card, bool reconcile);

static inline bool card_is_live(const struct card *card, unsigned i)
{
	return !atomic_load_explicit(&card->c[i].out, memory_order_acquire);
}

/* ---- card_out.c ---- */

/* An update of controller i failed with -EIO. 0: it is out, durably so; the card goes on without it.
 * -EIO: nobody is left to remember that. */
int card_out(struct card *card, unsigned i);
/* Reads the marks of all controllers and applies the newest one. */
int card_out_load(struct card *card);
/* Takes the controllers of `emptied` (a bit each) back. */
int card_out_clear(struct card *card, uint32_t emptied);

/* ---- card_ctl.c ---- */

int card_ctl_put(struct flash *f, enum flash_ctl kind, const uint8_t key[FLASH_CTL_KEY],
		 const void *value, size_t len, uint64_t stamp);
int card_ctl_get(struct flash *f, enum flash_ctl kind, const uint8_t key[FLASH_CTL_KEY],
		 void *value, size_t *len, uint64_t *stamp);
int card_ctl_walk(struct flash *f, enum flash_ctl kind,
		  int (*fn)(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value,
			    size_t len, uint64_t stamp),
		  void *arg);
/* Makes both legs of every record equal, durably, and clears `uneven`. */
int card_ctl_reconcile(struct card *card);

/* ---- card_walk.c ---- */

int card_walk(struct flash *f, enum flash_kind kind, uint64_t file, uint64_t sector,
	      int (*fn)(void *arg, const struct flash_extent *e), void *arg);

/* Tombstones that reached some of their controllers reach the others; not flushed. */
int card_trims_reconcile(struct card *card);

/* ---- card_open.c ---- */

/* card.json, lock, medium and regions. */
int card_open_parts(struct card **out, struct card_config *cfg, const char *dir,
		    const char *holder, uint64_t wait_ns, bool readonly);
/* Is this the superblock of controller i of this card? 0, or -EUCLEAN. */
int card_match(const struct card_config *cfg, unsigned i, const struct ftl_identity *id);
int card_open_metas(struct card *card, const char *dir, uint64_t region);
/* A controller whose medium cannot be read is left NULL. */
int card_open_controllers(struct card *card, const struct ftl_options *o);
/* Closes a card that was never handed out. */
void card_abandon(struct card *card);
void card_meta_path(char *buf, size_t len, const char *dir, unsigned i, const char *suffix);

/* ---- card_dir.c ---- */

#define CARD_VERSION 1u
#define CARD_JSON "card.json"
#define CARD_JSON_NEW "card.json.new"
#define CARD_LOCK "lock"
#define CARD_MEDIUM "medium.dat"
#define CARD_META "meta"
#define CARD_UNEVEN "uneven"       /* exists: legs of control records may differ */
#define CARD_SIZE_MAX (1ULL << 50)
#define CARD_OP_MAX 400u

/* -EPERM (logged): another user owns the directory or may write to it. */
int card_dir_check_owner(int dir_fd, const char *dir);
/* Opens the directory. -ENOENT, -ENOTDIR, -EACCES, -EPERM ...: logged. */
int card_dir_open(int *out, const char *dir);
/* -ENODATA no card; -EPROTO newer; -EUCLEAN makes no sense: logged. */
int card_dir_load(struct card_config *out, int dir_fd, const char *dir);
int card_dir_save(const struct card_config *cfg, int dir_fd, const char *dir);
#define CARD_CLOSING "(closing)"    /* in the lock's text: the holder is about to let go */
#define CARD_CLOSING_NS (120 * NS_PER_S)

/* Locks the card against other processes. -EBUSY: the holder is named in the log. */
int card_dir_lock(int *out, int dir_fd, const char *dir, const char *holder, uint64_t wait_ns);
void card_dir_closing(int lock_fd);
void card_dir_unlock(int lock_fd);
bool card_dir_uneven(int dir_fd);
int card_dir_set_uneven(int dir_fd, bool on);
/* Removes name and all below it; 0 also when it is not there. */
int card_dir_remove(int dir_fd, const char *name);
/* Path of the medium into buf. */
int card_dir_medium(const struct card_config *cfg, const char *dir, char *buf, size_t len);
/* Bytes of one controller's region; controller i's starts at i times that. */
uint64_t card_region_bytes(uint64_t size, unsigned controllers);
/* Address space of one controller's environment. */
uint64_t card_map_bytes(uint64_t region);
/* What ftl_format is told for controller i. */
void card_ftl_format(const struct card_config *cfg, unsigned i, struct ftl_format *out);

#endif
