/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The card: N controllers behind one flash contract. This file routes data; control records, walks
 * and failed controllers have files of their own.
 *
 * Routing is part of the format: it never changes for a card that exists. A line of file F belongs
 * to controller (hash(F, line / N) + line) % N: N neighbouring lines that start at a multiple of N
 * are on N different controllers, so sequential access is spread evenly, and no stride keeps to one
 * of them. The volume (file 0) is striped plainly: line % N.
 *
 * 1. A sector is only ever on the controller its line routes to; ranges (trim, mark_clean) go as
 *    they are to every controller that owns a line of them, for a controller ignores what it lacks.
 * 2. flush answers 0 only when every live controller has everything acknowledged before the call,
 *    and no dirty sector acknowledged since its controller's last good flush went down with it.
 * 3. A controller that failed an update is out: marked so durably on the others before the card
 *    answers (card_out.c). Its sectors read as PRESENT | CORRUPT, for what it holds may be older
 *    than what was acknowledged; writes to it answer -EIO; trims and marks succeed, as nothing of
 *    it is ever read again.
 */
#include "card_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"

#define CARD_ROUTE_MULTIPLIER 0x9e3779b97f4a7c15ULL

unsigned card_route(const struct card *card, uint64_t file, uint64_t line)
{
	uint64_t n = card->n;

	if (n == 1)
		return 0;
	if (file == FLASH_VOLUME)
		return (unsigned)(line % n);
	return (unsigned)((hash_mix64(file * CARD_ROUTE_MULTIPLIER + line / n) % n + line) % n);
}

struct card *card_of(struct flash *f)
{
	return (struct card *)f;
}

/* The next piece of [sector, sector + count) that is in one line, and its controller. */
static uint32_t card_piece(const struct card *card, uint64_t file, uint64_t sector, uint32_t count,
			   unsigned *controller)
{
	uint32_t room = FLASH_LINE_SECTORS - (uint32_t)(sector % FLASH_LINE_SECTORS);

	*controller = card_route(card, file, sector / FLASH_LINE_SECTORS);
	if (card->n == 1 || count < room)
		return count;
	return room;
}

static void card_read_lost(struct flash_sector *state, uint32_t count, uint32_t min_epoch)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		state[i] = (struct flash_sector){.epoch = min_epoch,
						 .flags = FLASH_PRESENT | FLASH_CORRUPT};
}

static int card_read(struct flash *f, uint64_t file, uint64_t sector, uint32_t count,
		     uint32_t min_epoch, void *buf, struct flash_sector *state)
{
	struct card *card = card_of(f);
	char *to = buf;
	unsigned i;
	int r;

	while (count) {
		uint32_t piece = card_piece(card, file, sector, count, &i);

		r = -EIO;
		if (card_is_live(card, i))
			r = card->c[i].flash->ops->read(card->c[i].flash, file, sector, piece,
							min_epoch, to, state);
		if (r == -EIO || r == -EUCLEAN)
			card_read_lost(state, piece, min_epoch);
		else if (r < 0)
			return r;
		sector += piece;
		count -= piece;
		state += piece;
		to += (size_t)piece * FLASH_SECTOR;
	}
	return 0;
}

static int card_write_piece(struct card *card, unsigned i, const struct flash_write *w)
{
	struct card_controller *c = &card->c[i];
	int r;

	if (!card_is_live(card, i))
		return -EIO;
	r = c->flash->ops->write(c->flash, w);
	if (r == 0 && w->dirty)
		atomic_fetch_add(&c->dirty_acked, 1);
	if (r == -EIO)
		card_out(card, i);
	return r;
}

static int card_write(struct flash *f, const struct flash_write *w)
{
	struct card *card = card_of(f);
	struct flash_write piece = *w;
	uint32_t left = w->count, len = w->len;
	unsigned i;
	int r;

	if (!w->count || !w->len || (uint64_t)w->count * FLASH_SECTOR < w->len ||
	    (uint64_t)(w->count - 1) * FLASH_SECTOR >= w->len)
		return -EINVAL;
	while (left) {
		uint32_t room;

		piece.count = card_piece(card, w->file, piece.sector, left, &i);
		room = piece.count * FLASH_SECTOR;
		piece.len = len < room ? len : room;
		r = card_write_piece(card, i, &piece);
		if (r < 0)
			return r;
		left -= piece.count;
		len -= piece.len;
		piece.sector += piece.count;
		piece.data = (const char *)piece.data + piece.len;
	}
	return 0;
}

uint32_t card_owners(const struct card *card, uint64_t file, uint64_t sector, uint64_t count)
{
	uint32_t all = (uint32_t)((1ULL << card->n) - 1), mask = 0;
	uint64_t line = sector / FLASH_LINE_SECTORS, last;

	if (!count)
		return 0;
	if (count > FLASH_SECTOR_MAX - sector)
		return all;
	last = (sector + count - 1) / FLASH_LINE_SECTORS;
	for (; line <= last && mask != all; line++)
		mask |= 1U << card_route(card, file, line);
	return mask;
}

/* trim and mark_clean have the same form. */
typedef int (*card_range_fn)(struct flash *f, uint64_t file, uint64_t sector, uint64_t count,
			     uint64_t stamp);

static int card_range(struct card *card, bool trim, uint64_t file, uint64_t sector, uint64_t count,
		      uint64_t stamp)
{
	uint32_t mask;
	unsigned i;
	int r, result = 0;

	if (sector > FLASH_SECTOR_MAX)
		return -EINVAL;
	mask = card_owners(card, file, sector, count);
	for (i = 0; i < card->n; i++) {
		const struct flash_ops *ops;
		card_range_fn fn;

		if (!(mask & 1U << i))
			continue;
		r = -EIO;
		if (card_is_live(card, i)) {
			ops = card->c[i].flash->ops;
			fn = trim ? ops->trim : ops->mark_clean;
			r = fn(card->c[i].flash, file, sector, count, stamp);
		}
		if (r == -EIO)
			r = card_out(card, i);
		result = result ? result : r;
	}
	return result;
}

static int card_trim(struct flash *f, uint64_t file, uint64_t sector, uint64_t count, uint64_t stamp)
{
	return card_range(card_of(f), true, file, sector, count, stamp);
}

static int card_mark_clean(struct flash *f, uint64_t file, uint64_t sector, uint64_t count,
			   uint64_t stamp)
{
	return card_range(card_of(f), false, file, sector, count, stamp);
}

/* One controller's flush ended with r: what that means for the card. */
static int card_flushed(struct card *card, unsigned i, int r, uint64_t dirty)
{
	struct card_controller *c = &card->c[i];
	uint64_t safe = atomic_load(&c->dirty_safe);

	if (r == -EIO)
		return card_out(card, i);
	if (r < 0)
		return r;
	while (safe < dirty && !atomic_compare_exchange_weak(&c->dirty_safe, &safe, dirty))
		;
	return 0;
}

/* Controllers that share a medium write their chunks, then one media flush serves them all. */
static int card_flush_shared(struct card *card)
{
	uint64_t dirty[CARD_CONTROLLERS_MAX], token[CARD_CONTROLLERS_MAX];
	bool pending[CARD_CONTROLLERS_MAX] = {false};
	unsigned i;
	int r, result = 0, synced = 0;
	bool any = false;

	for (i = 0; i < card->n; i++) {
		if (!card_is_live(card, i))
			continue;
		dirty[i] = atomic_load(&card->c[i].dirty_acked);
		r = ftl_flush_begin(card->c[i].flash, &token[i]);
		pending[i] = r > 0;
		any = any || r > 0;
		if (r <= 0)
			r = card_flushed(card, i, r, dirty[i]);
		if (r < 0 && !result)
			result = r;
	}
	if (any)
		synced = media_flush(card->medium);
	for (i = 0; i < card->n; i++) {
		if (!pending[i])
			continue;
		r = ftl_flush_end(card->c[i].flash, token[i], synced);
		r = card_flushed(card, i, r, dirty[i]);
		if (r < 0 && !result)
			result = r;
	}
	return result;
}

static int card_flush_each(struct card *card)
{
	unsigned i;
	int r, result = 0;

	for (i = 0; i < card->n; i++) {
		struct flash *f = card->c[i].flash;
		uint64_t dirty = atomic_load(&card->c[i].dirty_acked);

		if (!card_is_live(card, i))
			continue;
		r = card_flushed(card, i, f->ops->flush(f), dirty);
		if (r < 0 && !result)
			result = r;
	}
	return result;
}

static int card_flush(struct flash *f)
{
	struct card *card = card_of(f);
	unsigned i, live = 0;
	int r;

	r = card->medium ? card_flush_shared(card) : card_flush_each(card);
	for (i = 0; i < card->n; i++) {
		struct card_controller *c = &card->c[i];

		if (card_is_live(card, i))
			live++;
		else if (atomic_load(&c->dirty_acked) != atomic_load(&c->dirty_safe))
			r = -EIO;
		else if (!r && !card->readonly)
			r = card_out(card, i); /* another thread may still be marking it */
	}
	return live ? r : -EIO;
}

static void card_set_reclaim(struct flash *f, flash_reclaim_fn fn, void *arg)
{
	struct card *card = card_of(f);
	unsigned i;

	for (i = 0; i < card->n; i++) {
		if (card->c[i].flash)
			card->c[i].flash->ops->set_reclaim(card->c[i].flash, fn, arg);
	}
}

static uint64_t card_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void card_stats_add(struct flash_stats *sum, const struct flash_stats *s)
{
#define CARD_ADD(field) sum->field += s->field
#define CARD_MAX(field) sum->field = card_max(sum->field, s->field)
	CARD_ADD(host_reads);
	CARD_ADD(host_read_bytes);
	CARD_ADD(host_writes);
	CARD_ADD(host_write_bytes);
	CARD_ADD(stored_bytes);
	CARD_ADD(flash_write_bytes);
	CARD_ADD(flash_read_bytes);
	CARD_ADD(gc_copied_bytes);
	CARD_ADD(gc_dropped_bytes);
	CARD_ADD(pad_bytes);
	CARD_ADD(footer_bytes);
	CARD_ADD(meta_bytes);
	CARD_ADD(gc_runs);
	CARD_ADD(checkpoints);
	CARD_ADD(flushes);
	CARD_ADD(trims);
	CARD_ADD(erases);
	CARD_ADD(corrupt_sectors);
	CARD_ADD(media_errors);
	CARD_ADD(replayed_records);
	CARD_MAX(unsafe_shutdowns); /* one stop of the card is one of every controller */
	CARD_ADD(raw_bytes);
	CARD_ADD(usable_bytes);
	CARD_ADD(live_bytes);
	CARD_ADD(live_sectors);
	CARD_ADD(dirty_sectors);
	CARD_ADD(free_bytes);
	CARD_ADD(ctl_records);
	CARD_ADD(erase_blocks);
	CARD_MAX(erase_block_bytes);
	CARD_MAX(max_erase_count);
	CARD_ADD(total_erase_count);
	CARD_MAX(max_stamp);
#undef CARD_ADD
#undef CARD_MAX
	sum->unclean = sum->unclean || s->unclean;
}

static void card_stats(struct flash *f, struct flash_stats *out)
{
	struct card *card = card_of(f);
	struct flash_stats s;
	unsigned i;

	memset(out, 0, sizeof(*out));
	for (i = 0; i < card->n; i++) {
		if (card_controller_stats(f, i, &s) == 0)
			card_stats_add(out, &s);
	}
	out->unclean = out->unclean || card->unclean;
}

void card_will_close(struct flash *f)
{
	struct card *card = card_of(f);

	if (card->lock_fd >= 0)
		card_dir_closing(card->lock_fd);
}

int card_controller_stats(struct flash *f, unsigned i, struct flash_stats *out)
{
	struct card *card = card_of(f);

	memset(out, 0, sizeof(*out));
	if (i >= card->n)
		return -EINVAL;
	if (card->c[i].flash)
		card->c[i].flash->ops->stats(card->c[i].flash, out);
	return 0;
}

static void card_health_add(struct card *card, unsigned i, struct flash_health *out)
{
	struct flash_health h = {.state = FLASH_FAILED};
	bool live = card_is_live(card, i);

	if (card->c[i].flash)
		card->c[i].flash->ops->health(card->c[i].flash, &h);
	/* The others go on: the card as a whole is degraded, not failed. */
	if (!live || (card->n > 1 && h.state == FLASH_FAILED))
		h.state = FLASH_DEGRADED;
	if (h.state > out->state)
		out->state = h.state;
	out->media_errors += h.media_errors;
	out->corrupt_sectors += h.corrupt_sectors;
	out->retired_blocks += h.retired_blocks;
	out->generation = card_max(out->generation, h.generation);
	if (!live)
		return;
	if (h.life_left_percent < out->life_left_percent)
		out->life_left_percent = h.life_left_percent;
	if (h.spare_percent < out->spare_percent)
		out->spare_percent = h.spare_percent;
}

static void card_health(struct flash *f, struct flash_health *out)
{
	struct card *card = card_of(f);
	unsigned i, live = 0;

	memset(out, 0, sizeof(*out));
	out->life_left_percent = out->spare_percent = 100;
	for (i = 0; i < card->n; i++) {
		card_health_add(card, i, out);
		live += card_is_live(card, i);
	}
	if (!live) {
		out->state = FLASH_FAILED;
		out->life_left_percent = out->spare_percent = 0;
	}
}

/* After an unclean stop: what only some of the controllers concerned have is completed. */
static int card_settle(struct card *card)
{
	int r = card_trims_reconcile(card);

	return r < 0 ? r : card_ctl_reconcile(card);
}

static int card_close(struct flash *f)
{
	struct card *card = card_of(f);
	unsigned i;
	int r, result = 0;

	/* A clean start does not look for what is uneven: what is left of it must be known there. */
	if (atomic_load(&card->uneven) && !card->readonly) {
		r = card_settle(card);
		if (r < 0 && card->dir_fd >= 0)
			r = card_dir_set_uneven(card->dir_fd, true);
		result = r;
	}
	/* A controller that fails now has to be marked while the others are open. */
	for (i = 0; i < card->n && !card_is_live(card, i); i++)
		;
	if (card->started && !card->readonly && i < card->n) {
		r = card_flush(f);
		result = result ? result : r;
	}
	for (i = 0; i < card->n; i++) {
		struct card_controller *c = &card->c[i];
		bool live = card_is_live(card, i);
		uint64_t dirty = atomic_load(&c->dirty_acked);

		r = 0;
		if (c->flash)
			r = c->flash->ops->close(c->flash);
		if (!live)
			r = dirty != atomic_load(&c->dirty_safe) ? -EIO : 0;
		if (r < 0 && !result)
			result = r;
		meta_close(c->meta);
		media_close(c->region);
	}
	media_close(card->medium);
	if (card->lock_fd >= 0)
		card_dir_unlock(card->lock_fd);
	if (card->dir_fd >= 0)
		close(card->dir_fd);
	lock_destroy(&card->lock);
	free(card);
	return result;
}

static const struct flash_ops card_ops = {
	.read = card_read,
	.write = card_write,
	.mark_clean = card_mark_clean,
	.trim = card_trim,
	.flush = card_flush,
	.ctl_put = card_ctl_put,
	.ctl_get = card_ctl_get,
	.ctl_walk = card_ctl_walk,
	.walk = card_walk,
	.set_reclaim = card_set_reclaim,
	.stats = card_stats,
	.health = card_health,
	.close = card_close,
};

int card_alloc(struct card **out, unsigned n)
{
	struct card *card;

	if (!n || n > CARD_CONTROLLERS_MAX)
		return -EINVAL;
	card = calloc(1, sizeof(*card));
	if (!card)
		return -ENOMEM;
	card->flash.ops = &card_ops;
	card->n = n;
	card->dir_fd = card->lock_fd = -1;
	lock_init(&card->lock, "card", RANK_CARD);
	*out = card;
	return 0;
}

int card_start(struct card *card, bool reconcile)
{
	struct flash_stats s;
	int r;

	r = card_out_load(card);
	if (r < 0)
		return r;
	card->started = true;
	card_stats(&card->flash, &s);
	card->unclean = s.unclean || reconcile;
	if (!card->unclean)
		return 0;
	/* Until it is done, and if it cannot be, both legs are read: slower, not wrong. */
	atomic_store(&card->uneven, true);
	if (card->readonly)
		return 0;
	r = card_settle(card);
	if (r < 0)
		log_warning("card", "copies of control records stay unequal for now: %s",
			    strerror(-r));
	return 0;
}

int card_assemble(struct flash **out, struct flash *const *controllers, unsigned n)
{
	struct card *card;
	unsigned i;
	int r;

	r = card_alloc(&card, n);
	if (r < 0)
		return r;
	for (i = 0; i < n; i++)
		card->c[i].flash = controllers[i];
	r = card_start(card, false);
	if (r < 0) {
		lock_destroy(&card->lock);
		free(card);
		return r;
	}
	*out = &card->flash;
	return 0;
}
