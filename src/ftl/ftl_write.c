/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Host writes: admission, compression outside the lock, then per line one append and one change of
 * the map. A write that spans lines and meets -ENOSPC in the middle has written its first lines.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ftl/ftl_priv.h"

void ftl_extent_of(const struct ftl_media_record *h, ftl_pos pos, struct ftl_extent *e)
{
	memset(e, 0, sizeof(*e));
	e->pos = pos;
	e->stamp = h->stamp;
	e->epoch = h->epoch;
	e->stored_len = h->stored_len;
	e->raw_len = h->raw_len;
	e->valid = h->valid;
	e->dirty = h->dirty;
	e->first = (uint8_t)FTL_ADDR_FIRST(h->addr);
	e->count = (uint8_t)FTL_ADDR_COUNT(h->addr);
	e->flags = h->flags & (FTL_F_ZSTD | FTL_F_CONST | FTL_F_LOST | FTL_F_COLD);
}

void ftl_record_of(const struct ftl_extent *x, uint64_t file, uint64_t line,
		   struct ftl_media_record *h)
{
	memset(h, 0, sizeof(*h));
	h->type = FTL_REC_DATA;
	h->flags = x->flags & (FTL_F_ZSTD | FTL_F_CONST | FTL_F_LOST | FTL_F_COLD);
	h->stamp = x->stamp;
	h->file = file;
	h->addr = FTL_ADDR(line, x->first, x->count);
	h->raw_len = x->raw_len;
	h->stored_len = x->stored_len;
	h->valid = x->valid;
	h->dirty = x->dirty;
	h->epoch = x->epoch;
}

/* Lock held. Dirty data is taken at its full size: what compression wins today, the next version of
 * the same sectors may not. */
static int write_admit(struct ftl *f, const struct flash_write *w)
{
	uint64_t sector = FLASH_SECTOR + FTL_RECORD_HEADER;
	uint64_t room = f->space.usable - f->super.volume_bytes / FLASH_SECTOR * sector;

	if (f->opt.readonly)
		return -EROFS;
	if (f->failed)
		return -EIO;
	if (f->nfree < f->space.reserve_gc + f->space.reserve_ctl)
		goto full;
	if (w->file == FLASH_VOLUME)
		return 0;
	if (w->dirty && (f->dirty_sectors - f->volume_dirty + w->count) * sector > room)
		goto full;
	if (f->super.savings_spare && (f->live_sectors - f->volume_sectors + w->count) * sector > room)
		goto full;
	return 0;
full:
	ftl_kick(f);
	return -ENOSPC;
}

bool ftl_write_older(struct ftl *f, const struct ftl_line *l, uint16_t valid)
{
	if (f->drops_unknown || ftl_map_newer(l, 0, true) & valid)
		return true;
	return ftl_tomb_cover(f, FTL_REC_TRIM, l->file, l->line, valid, 0) ||
	       ftl_gc_was_dropped(f, l->file, l->line);
}

/* Lock held, may be dropped. */
static int write_line(struct ftl *f, const struct flash_write *w, uint64_t line, unsigned first,
		      unsigned count, const struct ftl_packed *z)
{
	uint16_t mask = ftl_mask(first, count);
	struct ftl_media_record h = {
		.type = FTL_REC_DATA, .flags = z->flags | (w->cold ? FTL_F_COLD : 0),
		.stamp = w->stamp, .file = w->file, .addr = FTL_ADDR(line, first, count),
		.raw_len = z->raw_len, .stored_len = z->len, .epoch = w->epoch,
		.payload_crc = z->crc, .payload_hash = z->hash,
	};
	struct ftl_extent e;
	struct ftl_line *l;
	ftl_pos pos;
	bool older;
	int err;

	ftl_log_throttle(f);
	err = ftl_map_edit(f, w->file, line, 1, &l);
	if (err)
		return err;
	h.valid = mask & (uint16_t)~ftl_map_newer(l, w->stamp, false);
	h.valid &= (uint16_t)~ftl_tomb_cover(f, FTL_REC_TRIM, w->file, line, mask, w->stamp);
	if (!h.valid)
		return 0;
	if (w->dirty)
		h.dirty = h.valid & (uint16_t)~ftl_tomb_cover(f, FTL_REC_CLEAN, w->file, line, mask,
							      w->stamp);
	older = ftl_write_older(f, l, h.valid);
	err = ftl_log_append(f, w->cold ? FTL_HOST_COLD : FTL_HOST_HOT, FTL_FOR_DATA, &h, z->data,
			     &pos);
	if (err)
		return err;
	ftl_extent_of(&h, pos, &e);
	if (older)
		e.flags |= FTL_X_OLDER;
	ftl_map_set(f, l, &e);
	return 0;
}

static int write_check(struct ftl *f, const struct flash_write *w)
{
	if (!w->count || w->sector > FLASH_SECTOR_MAX || w->count - 1 > FLASH_SECTOR_MAX - w->sector)
		return -EINVAL;
	if (w->len > (uint64_t)w->count * FLASH_SECTOR ||
	    w->len <= (uint64_t)(w->count - 1) * FLASH_SECTOR)
		return -EINVAL;
	if (w->file == FLASH_VOLUME &&
	    w->sector + w->count > f->super.volume_bytes / FLASH_SECTOR)
		return -EINVAL;
	return 0;
}

int ftl_write(struct ftl *f, const struct flash_write *w)
{
	struct ftl_scratch *s;
	int err = write_check(f, w);

	if (err)
		return err;
	lock_acquire(&f->lock);
	err = write_admit(f, w);
	lock_release(&f->lock);
	if (err)
		return err;
	s = ftl_scratch_get(f);
	if (!s)
		return -ENOMEM;
	for (uint32_t done = 0; done < w->count && !err;) {
		uint64_t sector = w->sector + done;
		unsigned first = (unsigned)(sector % FLASH_LINE_SECTORS);
		unsigned count = FLASH_LINE_SECTORS - first;
		uint32_t len = w->len - done * FLASH_SECTOR;
		struct ftl_packed z;

		if (count > w->count - done)
			count = w->count - done;
		if (len > count * FLASH_SECTOR)
			len = count * FLASH_SECTOR;
		ftl_zip_pack(s, (const uint8_t *)w->data + (size_t)done * FLASH_SECTOR, len, &z);
		lock_acquire(&f->lock);
		err = write_line(f, w, sector / FLASH_LINE_SECTORS, first, count, &z);
		ftl_log_write_ready(f);
		done += count;
		if (!err && done == w->count) {
			f->c.host_writes++;
			f->c.host_write_bytes += w->len;
		}
		lock_release(&f->lock);
	}
	ftl_scratch_put(f, s);
	return err;
}
