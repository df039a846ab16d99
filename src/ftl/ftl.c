/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One controller: opening, closing, and the table of operations.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ftl/ftl_priv.h"

#define CHUNK_BYTES (512u << 10)
#define CHUNK_LEAST (128u << 10) /* an EB header and the largest record */
#define RATED_ERASES 10000u

static int op_read(struct flash *fl, uint64_t file, uint64_t sector, uint32_t count,
		   uint32_t min_epoch, void *buf, struct flash_sector *state)
{
	return ftl_read(ftl_of(fl), file, sector, count, min_epoch, buf, state);
}

static int op_write(struct flash *fl, const struct flash_write *w)
{
	return ftl_write(ftl_of(fl), w);
}

static int op_mark_clean(struct flash *fl, uint64_t file, uint64_t sector, uint64_t count,
			 uint64_t stamp)
{
	return ftl_range_log(ftl_of(fl), FTL_REC_CLEAN, file, sector, count, stamp);
}

static int op_trim(struct flash *fl, uint64_t file, uint64_t sector, uint64_t count, uint64_t stamp)
{
	return ftl_range_log(ftl_of(fl), FTL_REC_TRIM, file, sector, count, stamp);
}

static int op_flush(struct flash *fl)
{
	return ftl_log_flush(ftl_of(fl));
}

static int op_ctl_put(struct flash *fl, enum flash_ctl kind, const uint8_t key[FLASH_CTL_KEY],
		      const void *value, size_t len, uint64_t stamp)
{
	return ftl_ctl_put(ftl_of(fl), kind, key, value, len, stamp);
}

static int op_ctl_get(struct flash *fl, enum flash_ctl kind, const uint8_t key[FLASH_CTL_KEY],
		      void *value, size_t *len, uint64_t *stamp)
{
	return ftl_ctl_get(ftl_of(fl), kind, key, value, len, stamp);
}

static int op_ctl_walk(struct flash *fl, enum flash_ctl kind,
		       int (*fn)(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value,
				 size_t len, uint64_t stamp),
		       void *arg)
{
	return ftl_ctl_walk(ftl_of(fl), kind, fn, arg);
}

static int op_walk(struct flash *fl, enum flash_kind kind, uint64_t file, uint64_t sector,
		   int (*fn)(void *arg, const struct flash_extent *e), void *arg)
{
	return ftl_walk(ftl_of(fl), kind, file, sector, fn, arg);
}

static void op_set_reclaim(struct flash *fl, flash_reclaim_fn fn, void *arg)
{
	struct ftl *f = ftl_of(fl);

	/* The upcall runs under gc_lock: after this returns the old one is not running. */
	lock_acquire(&f->gc_lock);
	lock_acquire(&f->lock);
	f->reclaim = fn;
	f->reclaim_arg = arg;
	ftl_gc_unstick(f);
	ftl_kick(f);
	lock_release(&f->lock);
	lock_release(&f->gc_lock);
}

static void stats_now(struct ftl *f, struct flash_stats *out)
{
	out->raw_bytes = f->geom.raw_bytes;
	out->usable_bytes = f->space.usable;
	out->live_bytes = f->live_bytes;
	out->live_sectors = f->live_sectors;
	out->dirty_sectors = f->dirty_sectors;
	out->free_bytes = (uint64_t)f->nfree * f->geom.eb_bytes;
	out->ctl_records = f->ctl_records;
	out->erase_blocks = f->geom.ebs;
	out->erase_block_bytes = f->geom.eb_bytes;
	for (uint32_t i = 0; i < f->geom.ebs; i++) {
		out->total_erase_count += f->ebs[i].erase_count;
		if (f->ebs[i].erase_count > out->max_erase_count)
			out->max_erase_count = f->ebs[i].erase_count;
	}
	out->max_stamp = f->max_stamp;
	out->unclean = f->unclean;
}

static void op_stats(struct flash *fl, struct flash_stats *out)
{
	struct ftl *f = ftl_of(fl);
	struct ftl_counters *c = &f->c;
	uint64_t meta;

	memset(out, 0, sizeof(*out));
	lock_acquire(&f->lock);
	meta = meta_bytes_written(f->meta) - f->meta_base;
	*out = (struct flash_stats){
		.host_reads = c->host_reads + atomic_load(&f->a_reads),
		.host_read_bytes = c->host_read_bytes + atomic_load(&f->a_read_bytes),
		.host_writes = c->host_writes, .host_write_bytes = c->host_write_bytes,
		.stored_bytes = c->stored_bytes, .flash_write_bytes = c->flash_write_bytes + meta,
		.flash_read_bytes = c->flash_read_bytes + atomic_load(&f->a_flash_read),
		.gc_copied_bytes = c->gc_copied_bytes, .gc_dropped_bytes = c->gc_dropped_bytes,
		.pad_bytes = c->pad_bytes, .footer_bytes = c->footer_bytes,
		.meta_bytes = c->meta_bytes + meta, .gc_runs = c->gc_runs,
		.checkpoints = c->checkpoints, .flushes = c->flushes, .trims = c->trims,
		.erases = c->erases,
		.corrupt_sectors = c->corrupt_sectors + atomic_load(&f->a_corrupt),
		.media_errors = c->media_errors, .replayed_records = c->replayed_records,
		.unsafe_shutdowns = c->unsafe_shutdowns,
	};
	stats_now(f, out);
	lock_release(&f->lock);
}

static void op_health(struct flash *fl, struct flash_health *out)
{
	struct ftl *f = ftl_of(fl);
	struct flash_stats s;
	uint64_t used;

	op_stats(fl, &s);
	memset(out, 0, sizeof(*out));
	used = s.total_erase_count / f->geom.ebs * 100 / RATED_ERASES;
	out->life_left_percent = used > 99 ? 1 : 100 - (unsigned)used;
	out->spare_percent = 100;
	out->media_errors = s.media_errors;
	out->corrupt_sectors = s.corrupt_sectors;
	lock_acquire(&f->lock);
	out->state = f->health;
	lock_release(&f->lock);
}

void ftl_free(struct ftl *f)
{
	struct ftl_scratch *s;

	ftl_log_destroy(f);
	ftl_gc_destroy(f);
	ftl_overlay_free(f->cur);
	ftl_overlay_free(f->frozen);
	ftl_tomb_destroy(f);
	ftl_eb_destroy(f);
	while ((s = f->scratch)) {
		f->scratch = s->next;
		ftl_scratch_free(s);
	}
	lock_cond_destroy(&f->cond);
	lock_cond_destroy(&f->wake);
	lock_destroy(&f->gc_lock);
	lock_destroy(&f->ckpt_lock);
	lock_destroy(&f->lock);
	lock_destroy(&f->pool_lock);
	free(f);
}

int ftl_settle(struct ftl *f, bool clean)
{
	int err, ckpt;

	lock_acquire(&f->lock);
	for (int s = 0; s < FTL_STREAMS; s++)
		ftl_log_close_head(f, s);
	lock_release(&f->lock);
	err = ftl_log_flush(f);
	if (err)
		return err;
	/* Everything is durable in the log now; what follows only spares the next open a replay. */
	lock_acquire(&f->gc_lock);
	ckpt = ftl_log_footers(f);
	lock_release(&f->gc_lock);
	if (!ckpt)
		ckpt = ftl_ckpt_run(f, clean);
	if (ckpt)
		log_warning(FTL_MODULE, "controller %u: no checkpoint (%s): the next open replays the log",
			    f->super.controller, strerror(-ckpt));
	return f->failed ? -EIO : 0;
}

static int op_close(struct flash *fl)
{
	struct ftl *f = ftl_of(fl);
	int err = 0;

	ftl_thread_stop(f);
	if (!f->opt.readonly)
		err = ftl_settle(f, true);
	ftl_free(f);
	return err;
}

static const struct flash_ops ftl_ops = {
	.read = op_read, .write = op_write, .mark_clean = op_mark_clean, .trim = op_trim,
	.flush = op_flush, .ctl_put = op_ctl_put, .ctl_get = op_ctl_get, .ctl_walk = op_ctl_walk,
	.walk = op_walk, .set_reclaim = op_set_reclaim, .stats = op_stats, .health = op_health,
	.close = op_close,
};

/* Everything but what is on the medium and in the environment. */
int ftl_new(struct ftl **out, struct media *m, struct meta *meta, const struct ftl_options *o)
{
	struct ftl *f = calloc(1, sizeof(*f));
	int err;

	if (!f)
		return -ENOMEM;
	f->base.ops = &ftl_ops;
	f->media = m;
	f->meta = meta;
	f->opt = *o;
	f->health = FLASH_OK;
	lock_init(&f->gc_lock, "ftl gc", RANK_FTL_GC);
	lock_init(&f->ckpt_lock, "ftl ckpt", RANK_FTL_CKPT);
	lock_init(&f->lock, "ftl", RANK_FTL);
	lock_init(&f->pool_lock, "ftl pool", RANK_FTL_IO);
	lock_cond_init(&f->cond);
	lock_cond_init(&f->wake);
	err = ftl_super_read(m, &f->super, &f->super_slot);
	if (err) {
		log_error(FTL_MODULE, "no usable superblock on the medium: %s", strerror(-err));
		goto out;
	}
	err = ftl_super_geom(&f->super, m, &f->geom);
	if (err)
		goto out;
	if (f->geom.parity) {
		log_error(FTL_MODULE, "controller %u: formatted with parity, which this version lacks",
			  f->super.controller);
		err = -EPROTO;
		goto out;
	}
	ftl_space(&f->geom, f->super.op_percent, &f->space);
	f->chunk_bytes = f->geom.logical / 4;
	if (f->chunk_bytes < CHUNK_LEAST)
		f->chunk_bytes = CHUNK_LEAST;
	if (f->chunk_bytes > CHUNK_BYTES)
		f->chunk_bytes = CHUNK_BYTES;
	f->meta_base = meta_bytes_written(meta);
	err = ftl_eb_init(f);
	if (!err)
		err = ftl_overlay_new(&f->cur);
	if (!err)
		err = htab_init(&f->tombs, 64);
	if (!err)
		err = htab_init(&f->tombfiles, 64);
	if (!err)
		err = htab_init(&f->dropped, 64);
out:
	if (err)
		ftl_free(f);
	else
		*out = f;
	return err;
}

static int open_unclean(struct ftl *f)
{
	int err;

	f->unclean = true;
	f->c.unsafe_shutdowns++;
	err = ftl_replay_tail(f);
	if (err || f->opt.readonly)
		return err;
	/* If the stop was between a commit and its superblock, that comes before the next commit. */
	lock_acquire(&f->ckpt_lock);
	err = ftl_ckpt_super(f, f->super.checkpoint, false);
	lock_release(&f->ckpt_lock);
	if (err)
		return err;
	/* What replay read may be in the kernel's cache only: it becomes durable before anything
	 * builds on it. Its EBs get their footers: they are never appended to. */
	err = ftl_media_flush(f);
	if (err)
		return err;
	lock_acquire(&f->lock);
	f->durable_lsn = f->next_lsn;
	lock_release(&f->lock);
	lock_acquire(&f->gc_lock);
	err = ftl_log_footers(f);
	lock_release(&f->gc_lock);
	return err ? err : ftl_ckpt_run(f, false);
}

static int open_clean(struct ftl *f)
{
	int err;

	if (f->opt.readonly)
		return 0;
	lock_acquire(&f->ckpt_lock);
	err = ftl_ckpt_super(f, f->super.checkpoint, false);
	/* Both: if one rots, the other must not say clean. */
	if (!err)
		err = ftl_ckpt_super(f, f->super.checkpoint, false);
	if (!err)
		err = ftl_ckpt_erase(f);
	lock_release(&f->ckpt_lock);
	return err;
}

int ftl_open(struct flash **out, struct media *m, struct meta *meta, const struct ftl_options *o)
{
	struct ftl *f;
	int err = ftl_new(&f, m, meta, o);

	if (err)
		return err;
	err = ftl_ckpt_load(f);
	if (!err)
		err = f->super.clean ? open_clean(f) : open_unclean(f);
	if (!err && o->background && !o->readonly)
		err = ftl_thread_start(f);
	if (err) {
		ftl_free(f);
		return err;
	}
	*out = &f->base;
	return 0;
}

int ftl_step(struct flash *fl)
{
	int err = ftl_thread_round(ftl_of(fl));

	return err > 0 ? 0 : err;
}

int ftl_checkpoint(struct flash *fl)
{
	struct ftl *f = ftl_of(fl);
	int err = ftl_log_flush(f);

	if (err)
		return err;
	lock_acquire(&f->gc_lock);
	err = ftl_log_footers(f);
	lock_release(&f->gc_lock);
	return err ? err : ftl_ckpt_run(f, false);
}
