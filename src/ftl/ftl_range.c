/* SPDX-License-Identifier: BSD-2-Clause
 *
 * trim and mark_clean: one record in the log, then every line of the range in the map. A checkpoint
 * must not fall between the two (it would hold the tombstone without its effect, and replay would
 * start after the record), so a freeze waits for `busy` to be zero.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "ftl/ftl_priv.h"

#define RANGE_FEW 32 /* lines looked up one by one, rather than by a walk of the map */

int ftl_range_append(struct ftl *f, enum ftl_class cls, const struct ftl_tombkey *k, uint64_t stamp,
		     ftl_pos source)
{
	struct ftl_media_range r = {.first = k->first, .count = k->count};
	struct ftl_media_record h = {
		.type = k->type, .stamp = stamp, .file = k->file, .raw_len = sizeof(r),
		.stored_len = sizeof(r), .source = source,
		.flags = source ? FTL_F_RELOCATED : 0,
		.payload_crc = hash_crc32c(0, &r, sizeof(r)), .payload_hash = hash_64(&r, sizeof(r)),
	};
	ftl_pos pos;
	int err = ftl_log_append(f, cls == FTL_FOR_GC ? FTL_RELOCATED : FTL_HOST_HOT, cls, &h, &r,
				 &pos);

	return err ? err : ftl_tomb_add(f, k, stamp, pos);
}

static uint16_t range_mask(uint64_t first, uint64_t last, uint64_t line)
{
	uint64_t a = line * FLASH_LINE_SECTORS, b = a + FLASH_LINE_SECTORS - 1;
	uint64_t from = first > a ? first : a, to = last < b ? last : b;

	return ftl_mask((unsigned)(from - a), (unsigned)(to - from + 1));
}

static bool range_concerns(const struct ftl_value *v, unsigned type, uint16_t mask, uint64_t stamp)
{
	for (unsigned i = 0; i < v->n; i++) {
		const struct ftl_extent *x = &v->x[i];

		if (x->stamp <= stamp && ((type == FTL_REC_TRIM ? x->valid : x->dirty) & mask))
			return true;
	}
	return false;
}

static int range_line(struct ftl *f, unsigned type, uint64_t file, uint64_t line, uint16_t mask,
		      uint64_t stamp)
{
	struct ftl_value v;
	struct ftl_line *l;
	int err;

	lock_acquire(&f->lock);
	err = ftl_map_read(f, file, line, &v);
	if (!err && range_concerns(&v, type, mask, stamp)) {
		err = ftl_map_edit(f, file, line, 0, &l);
		if (!err && type == FTL_REC_TRIM)
			ftl_map_cut(f, l, mask, stamp);
		else if (!err)
			ftl_map_clean(f, l, mask, stamp);
	}
	lock_release(&f->lock);
	return err;
}

int ftl_range_apply(struct ftl *f, unsigned type, uint64_t file, uint64_t first, uint64_t count,
		    uint64_t stamp)
{
	uint64_t last = count > FLASH_SECTOR_MAX - first ? FLASH_SECTOR_MAX : first + count - 1;
	struct ftl_linekey from = {file, first / FLASH_LINE_SECTORS};
	struct ftl_linekey to = {file, last / FLASH_LINE_SECTORS};
	struct ftl_linekey *keys = NULL;
	size_t n = 0;
	int err = 0;

	if (to.line - from.line < RANGE_FEW) {
		for (uint64_t line = from.line; line <= to.line; line++) {
			int e = range_line(f, type, file, line, range_mask(first, last, line), stamp);

			err = err ? err : e;
		}
		return err;
	}
	err = ftl_map_keys(f, from, to, &keys, &n);
	for (size_t i = 0; i < n; i++) {
		int e = range_line(f, type, file, keys[i].line,
				   range_mask(first, last, keys[i].line), stamp);

		err = err ? err : e;
	}
	free(keys);
	return err;
}

int ftl_range_log(struct ftl *f, unsigned type, uint64_t file, uint64_t first, uint64_t count,
		  uint64_t stamp)
{
	struct ftl_tombkey k = {.type = (uint8_t)type, .file = file, .first = first, .count = count};
	uint64_t copied;
	int err;

	if (!count || first > FLASH_SECTOR_MAX)
		return -EINVAL;
	lock_acquire(&f->lock);
	do {
		ftl_log_throttle(f);
		while (f->freezing)
			lock_cond_wait(&f->cond, &f->lock);
		err = ftl_range_append(f, FTL_FOR_CTL, &k, stamp, FTL_POS_NONE);
	} while (err == -ENOSPC && ftl_gc_wait(f));
	if (err) {
		lock_release(&f->lock);
		return err;
	}
	f->busy++;
	copied = f->c.gc_copied_bytes;
	f->c.trims += type == FTL_REC_TRIM;
	lock_release(&f->lock);
	err = ftl_range_apply(f, type, file, first, count, stamp);
	lock_acquire(&f->lock);
	/* GC may have copied a line before its turn came: the copy is held back, too. */
	if (!err && copied != f->c.gc_copied_bytes)
		err = ftl_tomb_settle(f, &k, stamp);
	if (!--f->busy && f->freezing)
		lock_cond_broadcast(&f->cond);
	ftl_log_write_ready(f);
	lock_release(&f->lock);
	return err;
}
