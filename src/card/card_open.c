/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Opening and describing a card that exists.
 *
 * 1. The parts are checked in the order card.json, lock, medium, superblocks, environments, and all
 *    of them before the first is opened for use: a refused card is as it was.
 * 2. What a controller remembers of being out, and uneven control records, are settled before the
 *    card is handed out. If the opening fails after a controller was opened following an unclean
 *    stop, the directory remembers that records may be uneven, for closing makes it look clean.
 */
#include <config.h>

#include "card_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/options.h"

static int card_open_medium(struct card *card, const struct card_config *cfg, const char *dir,
			    unsigned flags)
{
	bool device = cfg->medium[0] == '/';
	char path[4200], a[32], b[32];
	struct stat st;
	int r;

	r = card_dir_medium(cfg, dir, path, sizeof(path));
	if (r < 0)
		return r;
	if (stat(path, &st) < 0) {
		log_error("card", "the medium %s of card %s is missing (%s); bring it back or format the "
			  "card anew", path, dir, strerror(errno));
		return -EUCLEAN;
	}
	if (!device && S_ISREG(st.st_mode) && (uint64_t)st.st_size != cfg->size) {
		log_error("card", "the medium %s was made with %s and has %s now; bring it back or "
			  "format the card anew", path,
			  options_format_size(cfg->size, a, sizeof(a)),
			  options_format_size((uint64_t)st.st_size, b, sizeof(b)));
		return -EUCLEAN;
	}
	return media_open_file(&card->medium, path, cfg->size, flags);
}

int card_match(const struct card_config *cfg, unsigned i, const struct ftl_identity *id)
{
	const struct ftl_format *f = &id->format;

	if (memcmp(f->uuid, cfg->uuid, sizeof(f->uuid)) || f->controller != i ||
	    f->controllers != cfg->controllers ||
	    id->raw_bytes != card_region_bytes(cfg->size, cfg->controllers))
		return -EUCLEAN;
	return 0;
}

static int card_open_regions(struct card *card, const struct card_config *cfg)
{
	uint64_t bytes = card_region_bytes(cfg->size, cfg->controllers);
	unsigned i;
	int r = 0;

	for (i = 0; i < card->n && r == 0; i++)
		r = media_open_region(&card->c[i].region, card->medium, i * bytes, bytes);
	return r;
}

static int card_check_superblocks(struct card *card, const struct card_config *cfg,
				  const char *dir)
{
	struct ftl_identity id;
	unsigned i;
	int r;

	for (i = 0; i < card->n; i++) {
		r = ftl_identify(card->c[i].region, &id);
		if (r == -EPROTO) {
			log_error("card", "controller %u of card %s is of a newer version: use a newer "
				  "gildfs", i, dir);
			return r;
		}
		if (r == 0 && card_match(cfg, i, &id) < 0) {
			log_error("card", "the medium of card %s belongs to another card: correct "
				  "\"medium\" in " CARD_JSON " or format the card anew", dir);
			return -EUCLEAN;
		}
		if (r == -ENODATA || r == -EUCLEAN) {
			log_error("card", "the superblock of controller %u of card %s is damaged: `gild "
				  "recover %s` empties that controller and keeps the others", i, dir,
				  dir);
			return -EUCLEAN;
		}
		if (r < 0)
			return r;
	}
	return 0;
}

void card_meta_path(char *buf, size_t len, const char *dir, unsigned i, const char *suffix)
{
	snprintf(buf, len, "%s/" CARD_META "/%u%s", dir, i, suffix);
}

int card_open_metas(struct card *card, const char *dir, uint64_t region)
{
	char path[4200], file[4300];
	unsigned i;
	int r;

	for (i = 0; i < card->n; i++) {
		card_meta_path(path, sizeof(path), dir, i, "");
		snprintf(file, sizeof(file), "%s/data.mdb", path);
		if (access(file, F_OK) < 0) {
			r = -errno;
			log_error("card", "the map of controller %u of card %s is missing: rebuild it "
				  "with `gild recover %s`", i, dir, dir);
			return r == -ENOENT ? -ESTALE : r;
		}
		r = meta_check(path);
		if (r < 0)
			return r;
	}
	for (i = 0; i < card->n; i++) {
		card_meta_path(path, sizeof(path), dir, i, "");
		r = meta_open(&card->c[i].meta, path, ftl_tables, card_map_bytes(region), false);
		if (r < 0)
			return r;
	}
	return 0;
}

int card_open_controllers(struct card *card, const struct ftl_options *o)
{
	unsigned i;
	int r;

	for (i = 0; i < card->n; i++) {
		r = ftl_open(&card->c[i].flash, card->c[i].region, card->c[i].meta, o);
		if (r < 0)
			card->c[i].flash = NULL;
		if (r < 0 && r != -EIO)
			return r;
	}
	return 0; /* card_out_load() judges those that cannot be read */
}

/* Invariant 2 of the head comment. */
void card_abandon(struct card *card)
{
	struct flash_stats s;

	card->flash.ops->stats(&card->flash, &s);
	if (s.unclean && !card->readonly)
		card_dir_set_uneven(card->dir_fd, true);
	atomic_store(&card->uneven, false);
	card->flash.ops->close(&card->flash);
}

int card_open_parts(struct card **out, struct card_config *cfg, const char *dir,
		    const char *holder, uint64_t wait_ns, bool readonly)
{
	struct card *card = NULL;
	int dir_fd, r;

	r = card_dir_open(&dir_fd, dir);
	if (r < 0)
		return r;
	r = card_dir_load(cfg, dir_fd, dir);
	if (r == 0)
		r = card_alloc(&card, cfg->controllers);
	if (r < 0) {
		close(dir_fd);
		return r;
	}
	card->dir_fd = dir_fd;
	card->readonly = readonly;
	r = card_dir_lock(&card->lock_fd, dir_fd, dir, holder, wait_ns);
	if (r == 0)
		r = card_dir_load(cfg, dir_fd, dir); /* it may have been formatted in between */
	if (r == 0 && cfg->controllers != card->n)
		r = -EBUSY;
	if (r == 0)
		r = card_open_medium(card, cfg, dir, readonly ? MEDIA_READONLY : MEDIA_DIRECT);
	if (r == 0)
		r = card_open_regions(card, cfg);
	if (r < 0) {
		card_abandon(card);
		return r;
	}
	*out = card;
	return 0;
}

int card_open(struct flash **out, const char *dir, const struct card_options *o)
{
	struct card_config cfg;
	struct card *card;
	bool uneven;
	int r;

	*out = NULL;
	r = card_open_parts(&card, &cfg, dir, o->holder, o->wait_ns, o->ftl.readonly);
	if (r < 0)
		return r;
	if ((r = card_check_superblocks(card, &cfg, dir)) < 0 ||
	    (r = card_open_metas(card, dir, card_region_bytes(cfg.size, cfg.controllers))) < 0 ||
	    (r = card_open_controllers(card, &o->ftl)) < 0)
		goto fail;
	uneven = card_dir_uneven(card->dir_fd);
	r = card_start(card, uneven);
	if (r < 0)
		goto fail;
	if (uneven && !atomic_load(&card->uneven))
		card_dir_set_uneven(card->dir_fd, false);
	*out = &card->flash;
	return 0;
fail:
	card_abandon(card);
	return r;
}

/* The superblocks' part of a description. */
static int card_describe_medium(const struct card_config *cfg, const char *dir,
				struct card_info *out)
{
	uint64_t bytes = card_region_bytes(cfg->size, cfg->controllers);
	struct card *card;
	struct ftl_identity id;
	unsigned i;
	int r;

	r = card_alloc(&card, cfg->controllers);
	if (r < 0)
		return r;
	card->readonly = true;
	r = card_open_medium(card, cfg, dir, MEDIA_READONLY | MEDIA_PEEK);
	if (r == 0)
		r = card_open_regions(card, cfg);
	if (r == 0)
		r = card_check_superblocks(card, cfg, dir);
	out->clean = true;
	for (i = 0; i < card->n && r == 0; i++) {
		r = ftl_identify(card->c[i].region, &id);
		if (r < 0)
			break;
		out->clean = out->clean && id.clean;
		out->raw_bytes += bytes;
		out->usable_bytes += ftl_usable_bytes(bytes, &id.format.geometry,
						      id.format.op_percent);
		out->erase_block = id.format.geometry.erase_block;
	}
	card_abandon(card);
	return r;
}

int card_describe(const char *dir, struct card_info *out)
{
	struct card_config cfg;
	int fd, r;

	memset(out, 0, sizeof(*out));
	r = card_dir_open(&fd, dir);
	if (r < 0)
		return r;
	r = card_dir_load(&cfg, fd, dir);
	close(fd);
	if (r == 0)
		r = card_dir_medium(&cfg, dir, out->medium, sizeof(out->medium));
	if (r < 0)
		return r;
	memcpy(out->uuid, cfg.uuid, sizeof(out->uuid));
	out->version = CARD_VERSION;
	out->controllers = cfg.controllers;
	out->op_percent = cfg.op_percent;
	out->savings_spare = cfg.savings_spare;
	out->size = cfg.size;
	return card_describe_medium(&cfg, dir, out);
}
