/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Writing: to the backing, and flash never keeps an older byte.
 *
 * Invariant: when a write (or any other change of bytes) returns, no sector of its range is on flash
 * with other bytes than the backing's. Whole sectors of hot lines are written to flash in
 * write-through mode; everything else of the range is trimmed, as is the whole range when the
 * backing's answer is an error or short, since nobody knows then what it did.
 *
 * Files without a record have nothing on flash: for them (new files, mostly) flash is not touched.
 */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include "cache/cache_priv.h"

/* Puts [lo, hi) of one line on flash, whole sectors and the file's tail; the rest is trimmed. */
static void cwrite_line(struct cmodify *m, const char *buf, uint64_t off, uint64_t lo, uint64_t hi,
			uint64_t size)
{
	struct cache *c = m->c;
	uint64_t first = (lo + FLASH_SECTOR - 1) / FLASH_SECTOR * FLASH_SECTOR;
	uint64_t last = hi == size ? hi : hi / FLASH_SECTOR * FLASH_SECTOR;
	struct flash_write w = {.file = m->number, .epoch = m->epoch};
	int err;

	if (first >= last) {
		cmodify_drop(m, lo, hi - lo);
		return;
	}
	cmodify_drop(m, lo, first - lo);
	cmodify_drop(m, last, hi - last);
	if (!m->record)
		return;
	w.sector = first / FLASH_SECTOR;
	w.len = (uint32_t)(last - first);
	w.count = (w.len + FLASH_SECTOR - 1) / FLASH_SECTOR;
	w.data = buf + (first - off);
	w.stamp = cache_stamp(c);
	err = c->flash->ops->write(c->flash, &w);
	if (!err) {
		policy_wrote(c->policy);
		return;
	}
	if (err == -ENOSPC)
		policy_no_space(c->policy);
	else
		cache_flash_failed(c, "take written bytes", err);
	cmodify_drop(m, first, last - first);
}

/* [off, off+len) was written; the file is `size` bytes long now. */
static void cwrite_flash(struct cmodify *m, const char *buf, uint64_t off, uint64_t len,
			 uint64_t size)
{
	struct cache *c = m->c;
	uint64_t pos = off, end = off + len, cold = off, now = clock_mono_ns();

	if (off > m->old_size && m->old_size % FLASH_SECTOR)
		cmodify_drop(m, m->old_size, 1); /* zeros follow the old end now */
	while (pos < end && m->record) {
		uint64_t line = pos / FLASH_LINE, next = (line + 1) * FLASH_LINE;
		uint64_t key = policy_key(m->number, line);
		bool hot = c->o.mode == CACHE_WRITE_THROUGH && c->policy->ops->hot(c->policy, key);

		next = next > end ? end : next;
		policy_touch(c->policy, key, now);
		if (hot) {
			cmodify_drop(m, cold, pos - cold);
			cwrite_line(m, buf, off, pos, next, size);
			cold = next;
		}
		pos = next;
	}
	cmodify_drop(m, cold, end - cold);
}

static ssize_t cwrite_backing(struct cmodify *m, const void *buf, size_t len, uint64_t *off,
			      bool append)
{
	struct cache *c = m->c;
	ssize_t n;

	if (m->append_only && !append)
		return -EPERM;
	n = append ? backing_append(c->backing, m->n->bnode, buf, len, off)
		   : backing_pwrite(c->backing, m->n->bnode, buf, len, *off);
	if (n >= 0) {
		stats_inc(c->stats, backing_writes);
		stats_add(c->stats, backing_write_bytes, n);
	} else if (cache_is_transport_error((int)n)) {
		stats_inc(c->stats, backing_errors);
	}
	return n;
}

ssize_t cache_write(struct cache *c, struct cnode *n, const void *buf, size_t len, uint64_t *off,
		    bool append)
{
	uint64_t begun = clock_mono_ns(), size;
	struct cmodify m;
	ssize_t got;

	if (c->o.mode == CACHE_READ_ONLY)
		return -EROFS;
	if (!S_ISREG(backing_type(n->bnode)))
		return -EINVAL;
	stats_inc(c->stats, write_requests);
	cmodify_begin(&m, c, n, true);
	got = cwrite_backing(&m, buf, len, off, append);
	if (got < 0) {
		if (append)
			cmodify_end(&m, CMODIFY_LOST, 0, NULL, 0, NULL);
		else {
			cmodify_drop(&m, *off, len);
			cmodify_end(&m, CMODIFY_DATA, UINT64_MAX, NULL, 0, NULL);
		}
		stats_inc(c->stats, write_errors);
		return got;
	}
	size = *off + (uint64_t)got > m.old_size ? *off + (uint64_t)got : m.old_size;
	if ((size_t)got == len)
		cwrite_flash(&m, buf, *off, len, size);
	else
		cmodify_drop(&m, *off, len);
	cmodify_end(&m, CMODIFY_DATA, size, NULL, 0, NULL);
	stats_add(c->stats, write_bytes, got);
	hist_add(&c->stats->latency_write, clock_mono_ns() - begun);
	return got;
}

int cache_fsync(struct cache *c, struct cnode *n, bool datasync)
{
	return backing_fsync(c->backing, n->bnode, datasync);
}

int cache_fallocate(struct cache *c, struct cnode *n, int mode, uint64_t off, uint64_t len)
{
	bool shifts = mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE);
	struct cmodify m;
	int err;

	if (c->o.mode == CACHE_READ_ONLY)
		return -EROFS;
	if (!len || off + len < off)
		return -EINVAL;
	cmodify_begin(&m, c, n, true);
	err = backing_fallocate(c->backing, n->bnode, mode, off, len);
	if (shifts || off + len > m.old_size)
		cmodify_drop(&m, off < m.old_size ? off : m.old_size, UINT64_MAX);
	else
		cmodify_drop(&m, off, len);
	cmodify_end(&m, CMODIFY_DATA, UINT64_MAX, NULL, 0, NULL);
	return err;
}

ssize_t cache_copy_range(struct cache *c, struct cnode *from, uint64_t from_off, struct cnode *to,
			 uint64_t to_off, size_t len)
{
	struct cmodify m;
	uint64_t size;
	ssize_t got;

	if (c->o.mode == CACHE_READ_ONLY)
		return -EROFS;
	if (to_off + len < to_off)
		return -EINVAL;
	cmodify_begin(&m, c, to, true);
	got = m.append_only ? -EPERM
			    : backing_copy_range(c->backing, from->bnode, from_off, to->bnode,
						 to_off, len);
	if (to_off > m.old_size && m.old_size % FLASH_SECTOR)
		cmodify_drop(&m, m.old_size, 1);
	cmodify_drop(&m, to_off, len);
	size = got > 0 && to_off + (uint64_t)got > m.old_size ? to_off + (uint64_t)got : m.old_size;
	cmodify_end(&m, CMODIFY_DATA, got < 0 ? UINT64_MAX : size, NULL, 0, NULL);
	return got;
}

int cache_setattr(struct cache *c, struct cnode *n, unsigned set, const struct stat *st,
		  struct cache_attr *out)
{
	bool data = set & BSET_SIZE;
	enum cmodify_how how = CMODIFY_META;
	uint64_t size = UINT64_MAX;
	struct cmodify m;
	struct battr a;
	int err;

	if (c->o.mode == CACHE_READ_ONLY)
		return -EROFS;
	cmodify_begin(&m, c, n, data);
	err = backing_setattr(c->backing, n->bnode, set, st, &a);
	if (data) {
		size = (uint64_t)st->st_size;
		cmodify_drop(&m, size < m.old_size ? size : m.old_size, UINT64_MAX);
		how = CMODIFY_DATA;
	} else if (set & (BSET_MTIME | BSET_MTIME_NOW)) {
		how = CMODIFY_TIMES;
	}
	if (err) /* perhaps some of it was done: the backing is asked */
		cmodify_end(&m, data ? CMODIFY_DATA : CMODIFY_TIMES, UINT64_MAX, NULL, 0, NULL);
	else
		cmodify_end(&m, how, size, &a, clock_mono_ns(), out);
	return err;
}
