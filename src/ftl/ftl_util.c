/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the other files share: scratch pool, media access with counting, the way into failure.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "ftl/ftl_priv.h"

#define SCRATCH_KEPT 8

struct ftl_scratch *ftl_scratch_get(struct ftl *f)
{
	struct ftl_scratch *s;

	lock_acquire(&f->pool_lock);
	s = f->scratch;
	if (s) {
		f->scratch = s->next;
		f->nscratch--;
	}
	lock_release(&f->pool_lock);
	if (!s && ftl_scratch_new(&s, f->opt.zstd_level ? (int)f->opt.zstd_level : 1))
		return NULL;
	return s;
}

void ftl_scratch_put(struct ftl *f, struct ftl_scratch *s)
{
	if (!s)
		return;
	lock_acquire(&f->pool_lock);
	if (f->nscratch < SCRATCH_KEPT) {
		s->next = f->scratch;
		f->scratch = s;
		f->nscratch++;
		s = NULL;
	}
	lock_release(&f->pool_lock);
	ftl_scratch_free(s);
}

void ftl_fail(struct ftl *f, int err, const char *what, uint64_t at)
{
	lock_assert_held(&f->lock);
	f->c.media_errors++;
	if (!f->failed) {
		log_error(FTL_MODULE, "controller %u: %s at %" PRIu64 " failed: %s; read-only from now on",
			  f->super.controller, what, at, strerror(-err));
		f->failed = err;
		f->health = FLASH_READONLY;
	}
	lock_cond_broadcast(&f->cond);
}

int ftl_media_flush(struct ftl *f)
{
	int err = media_flush(f->media);

	lock_acquire(&f->lock);
	f->c.flushes++;
	if (err)
		ftl_fail(f, err, "flush", 0);
	lock_release(&f->lock);
	return err ? -EIO : 0;
}

int ftl_media_read(struct ftl *f, const struct ftl_eb *eb, uint32_t off, void *buf, uint32_t len)
{
	int err = ftl_geom_read(&f->geom, f->media, eb->index, off, buf, len);

	if (!err) {
		atomic_fetch_add_explicit(&f->a_flash_read, len, memory_order_relaxed);
		return 0;
	}
	lock_acquire(&f->lock);
	f->c.media_errors++;
	lock_release(&f->lock);
	log_error(FTL_MODULE, "controller %u: reading %u bytes at erase block %u + %u failed: %s",
		  f->super.controller, len, eb->index, off, strerror(-err));
	return err;
}

int ftl_media_write(struct ftl *f, uint32_t eb, uint32_t off, const void *buf, uint32_t len)
{
	int err = ftl_geom_write(&f->geom, f->media, eb, off, buf, len);

	lock_acquire(&f->lock);
	if (err)
		ftl_fail(f, err, "write", f->geom.first_eb + (uint64_t)eb * f->geom.eb_bytes + off);
	else
		f->c.flash_write_bytes += len;
	lock_release(&f->lock);
	return err ? -EIO : 0;
}

uint64_t ftl_hash2(uint64_t a, uint64_t b)
{
	return hash_mix64(hash_mix64(a) + b);
}

void ftl_changed(struct ftl *f)
{
	if (!f->changed_since) {
		f->changed_since = clock_mono_ns();
		ftl_kick(f);
	}
}

void ftl_kick(struct ftl *f)
{
	if (f->running && !f->kick) {
		f->kick = true;
		lock_cond_signal(&f->wake);
	}
}
