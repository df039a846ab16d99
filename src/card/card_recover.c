/* SPDX-License-Identifier: BSD-2-Clause
 *
 * gild recover: new environments from the logs.
 *
 *   build meta/N.new for every controller --all built--> exchange each with meta/N --> take back
 *
 * 1. As long as one of them cannot be built the old environments stay as they are.
 * 2. A controller without a superblock cannot say what it holds: it is emptied. So is one that is
 *    marked out of use, as what it holds may be old. The other controllers keep what they have, and
 *    every control record has a second copy there.
 * 3. Control records are made equal at the end, whatever was recovered or emptied.
 */
#include <config.h>

#include "card_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

#define CARD_NEW ".new"

/* Which controllers have no superblock, as a mask. Refuses what is not this card's medium. */
static int card_recover_survey(struct card *card, const struct card_config *cfg, const char *dir,
			       uint32_t *blank)
{
	struct ftl_identity id;
	unsigned i;
	int r;

	*blank = 0;
	for (i = 0; i < card->n; i++) {
		r = ftl_identify(card->c[i].region, &id);
		if (r == -ENODATA || r == -EUCLEAN)
			*blank |= 1U << i;
		else if (r < 0)
			return r;
		else if (card_match(cfg, i, &id) < 0) {
			log_error("card", "the medium of card %s belongs to another card: correct "
				  "\"medium\" in " CARD_JSON " or format the card anew", dir);
			return -EUCLEAN;
		}
	}
	if (*blank == (uint32_t)((1ULL << card->n) - 1)) {
		log_error("card", "nothing on the medium of card %s can be recognised; format it anew",
			  dir);
		return -EUCLEAN;
	}
	return 0;
}

static int card_recover_empty(struct card *card, const struct card_config *cfg, unsigned i,
			      struct meta *meta)
{
	struct ftl_format f;

	log_warning("card", "controller %u is emptied", i);
	card_ftl_format(cfg, i, &f);
	return ftl_format(card->c[i].region, meta, &f);
}

static int card_recover_build(struct card *card, const struct card_config *cfg, const char *dir,
			      unsigned i, bool blank)
{
	uint64_t region = card_region_bytes(cfg->size, cfg->controllers);
	struct meta *meta;
	char path[4200], name[32];
	int r;

	snprintf(name, sizeof(name), CARD_META "/%u" CARD_NEW, i);
	r = card_dir_remove(card->dir_fd, name);
	if (r < 0)
		return r;
	card_meta_path(path, sizeof(path), dir, i, CARD_NEW);
	r = meta_open(&meta, path, ftl_tables, card_map_bytes(region), true);
	if (r < 0)
		return r;
	if (blank)
		r = card_recover_empty(card, cfg, i, meta);
	else
		r = ftl_recover(card->c[i].region, meta);
	meta_close(meta);
	return r;
}

/* Exchanges meta/i.new and meta/i, and removes the old one. */
static int card_recover_swap(struct card *card, unsigned i)
{
	char old[32], new[32];
	int r;

	snprintf(old, sizeof(old), CARD_META "/%u", i);
	snprintf(new, sizeof(new), CARD_META "/%u" CARD_NEW, i);
	if (renameat2(card->dir_fd, new, card->dir_fd, old, RENAME_EXCHANGE) < 0) {
		/* No old one, or a filesystem that cannot exchange. */
		r = card_dir_remove(card->dir_fd, old);
		if (r < 0)
			return r;
		if (renameat(card->dir_fd, new, card->dir_fd, old) < 0)
			return -errno;
	}
	return card_dir_remove(card->dir_fd, new);
}

static int card_recover_sync(struct card *card)
{
	int fd = openat(card->dir_fd, CARD_META, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

	if (fd < 0)
		return -errno;
	if (fsync(fd) < 0)
		r = -errno;
	close(fd);
	return r;
}

/* Controllers that are marked out of use are emptied and taken back. */
static int card_recover_take_back(struct card *card, const struct card_config *cfg)
{
	const struct ftl_options o = {0};
	uint32_t emptied = 0;
	unsigned i;
	int r;

	r = card_out_load(card);
	for (i = 0; i < card->n && r == 0; i++) {
		struct card_controller *c = &card->c[i];

		if (card_is_live(card, i))
			continue;
		if (c->flash)
			c->flash->ops->close(c->flash);
		c->flash = NULL;
		if (card_recover_empty(card, cfg, i, c->meta) < 0)
			continue; /* still broken: it stays out */
		r = ftl_open(&c->flash, c->region, c->meta, &o);
		emptied |= 1U << i;
	}
	return r < 0 ? r : card_out_clear(card, emptied);
}

static int card_recover_locked(struct card *card, const struct card_config *cfg, const char *dir)
{
	const struct ftl_options o = {0};
	uint32_t blank;
	unsigned i;
	int r;

	r = card_recover_survey(card, cfg, dir, &blank);
	if (r < 0)
		return r;
	if (mkdirat(card->dir_fd, CARD_META, 0700) < 0 && errno != EEXIST)
		return -errno;
	for (i = 0; i < card->n && r == 0; i++)
		r = card_recover_build(card, cfg, dir, i, blank & 1U << i);
	for (i = 0; i < card->n && r == 0; i++)
		r = card_recover_swap(card, i);
	if (r < 0 || (r = card_recover_sync(card)) < 0)
		return r;
	/* From here on a failure leaves a card that opens, if unevenly. */
	card_dir_set_uneven(card->dir_fd, true);
	if ((r = card_open_metas(card, dir, card_region_bytes(cfg->size, card->n))) < 0 ||
	    (r = card_open_controllers(card, &o)) < 0 ||
	    (r = card_recover_take_back(card, cfg)) < 0)
		return r;
	return card_start(card, true);
}

int card_recover(const char *dir)
{
	struct card_config cfg;
	struct card *card;
	char name[32];
	unsigned i;
	int r;

	r = card_open_parts(&card, &cfg, dir, "gild recover", 0, false);
	if (r < 0)
		return r;
	r = card_recover_locked(card, &cfg, dir);
	if (r < 0) {
		for (i = 0; i < card->n; i++) {
			snprintf(name, sizeof(name), CARD_META "/%u" CARD_NEW, i);
			card_dir_remove(card->dir_fd, name);
		}
		card_abandon(card);
		return r;
	}
	/* The mark of unevenness stays: that is how the next open learns that the stop was unclean, and
	 * that stamps of lost records may be in use elsewhere. */
	return card->flash.ops->close(&card->flash);
}
