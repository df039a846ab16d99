/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Checkpoints: the map's changes, in one LMDB transaction with the log position they stand for.
 *
 *  1. freeze    the current overlay becomes `frozen`; position (next lsn, next block sequence, fill
 *               of the open EBs), EB table and counters are copied. Under the lock, no range
 *               operation half done.
 *  2. flush     everything up to the position is durable.
 *  3. commit    number n, in key order. LMDB syncs.
 *  4. super     superblock n, alternating A/B, flushed. From here an LMDB older than n is refused.
 *  5. erase     EBs that were PENDING at 1: ERASED header, flush, discard; then they are FREE.
 *
 * A crash before 3 leaves checkpoint n-1 and a longer tail; between 3 and 4 the superblock says n-1
 * and LMDB n, which open accepts; within 5 the EBs are PENDING in n and erased again at open.
 * A failed 2 or 3 thaws: what was frozen becomes current again.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "ftl/ftl_priv.h"

#define CKPT_SECONDS 30
#define CKPT_LINES 65536

struct ckpt_row {
	uint32_t key; /* big endian index */
	struct ftl_ebmeta m;
};

struct ckpt {
	struct ftl_state state;
	struct ckpt_row *rows;
	size_t nrows;
	struct ftl_line **lines;
	struct ftl_ctlent **ctls;
	size_t nlines, nctls;
};

uint32_t ftl_ckpt_crc(void *s, size_t len, uint32_t *field)
{
	uint32_t crc;

	*field = 0;
	crc = hash_crc32c(0, s, len);
	*field = crc;
	return crc;
}

uint32_t ftl_ckpt_crc_key(const void *key, size_t key_len, void *s, size_t len, uint32_t *field)
{
	uint32_t crc;

	*field = 0;
	crc = hash_crc32c(hash_crc32c(0, key, key_len), s, len);
	*field = crc;
	return crc;
}

static void ckpt_row(const struct ftl_eb *eb, struct ckpt_row *r)
{
	memset(r, 0, sizeof(*r));
	r->key = htobe32(eb->index);
	r->m.seq = eb->seq;
	r->m.live = eb->live;
	r->m.waste = eb->waste;
	r->m.min_dead = eb->min_dead;
	r->m.first_lsn = eb->first_lsn;
	r->m.end_lsn = eb->end_lsn;
	r->m.age = eb->age;
	r->m.max_stamp = eb->max_stamp;
	r->m.erase_count = eb->erase_count;
	r->m.stream = eb->stream;
	r->m.used = eb->used;
	r->m.records = eb->records;
	r->m.state = eb->state == EB_ERASING ? EB_PENDING : eb->state;
	r->m.footer = eb->footer;
	r->m.drops = eb->drops;
	ftl_ckpt_crc(&r->m, sizeof(r->m), &r->m.crc);
}

static void ckpt_state(struct ftl *f, struct ftl_state *s)
{
	uint64_t now = meta_bytes_written(f->meta);

	f->c.meta_bytes += now - f->meta_base;
	f->c.flash_write_bytes += now - f->meta_base;
	f->meta_base = now;
	memset(s, 0, sizeof(*s));
	s->version = FTL_STATE_VERSION;
	memcpy(s->uuid, f->super.uuid, sizeof(s->uuid));
	s->controller = f->super.controller;
	s->ebs = f->geom.ebs;
	s->checkpoint = f->super.checkpoint + 1;
	s->next_lsn = f->next_lsn;
	s->next_seq = f->next_seq;
	s->max_stamp = f->max_stamp;
	s->clock = f->clock;
	s->live_sectors = f->live_sectors;
	s->dirty_sectors = f->dirty_sectors;
	s->volume_sectors = f->volume_sectors;
	s->volume_dirty = f->volume_dirty;
	s->ctl_records = f->ctl_records;
	s->ctl_deletions = f->ctl_deletions;
	s->c = f->c;
	s->c.checkpoints++;
	s->c.host_reads += atomic_load(&f->a_reads);
	s->c.host_read_bytes += atomic_load(&f->a_read_bytes);
	s->c.flash_read_bytes += atomic_load(&f->a_flash_read);
	s->c.corrupt_sectors += atomic_load(&f->a_corrupt);
	ftl_ckpt_crc(s, sizeof(*s), &s->crc);
}

static int ckpt_freeze(struct ftl *f, struct ckpt *k)
{
	struct ftl_overlay *next;
	int err = ftl_overlay_new(&next);

	k->rows = malloc(f->geom.ebs * sizeof(*k->rows));
	if (err || !k->rows) {
		ftl_overlay_free(err ? NULL : next);
		return -ENOMEM;
	}
	lock_acquire(&f->lock);
	f->freezing = true;
	while (f->busy)
		lock_cond_wait(&f->cond, &f->lock);
	ftl_log_pad(f);
	for (uint32_t i = 0; i < f->geom.ebs; i++) {
		struct ftl_eb *eb = &f->ebs[i];

		if (eb->state == EB_PENDING && !eb->pending_ckpt)
			eb->pending_ckpt = f->super.checkpoint + 1;
		/* Open ones always: where replay starts in them depends on it. */
		if (eb->changed || eb->state == EB_OPEN) {
			/* The position is after the padding. */
			if (eb->state == EB_OPEN)
				eb->used = f->heads[eb->stream].off;
			ckpt_row(eb, &k->rows[k->nrows++]);
		}
		eb->changed = false;
	}
	ckpt_state(f, &k->state);
	f->frozen = f->cur;
	f->cur = next;
	f->changed_since = 0;
	f->log_bytes = 0;
	f->freezing = false;
	lock_cond_broadcast(&f->cond);
	lock_release(&f->lock);
	return 0;
}

/* The frozen overlay does not change: no lock. */
static void ckpt_gather_line(struct htab_node *n, void *arg)
{
	struct ckpt *k = arg;

	k->lines[k->nlines++] = container_of(n, struct ftl_line, node);
}

static void ckpt_gather_ctl(struct htab_node *n, void *arg)
{
	struct ckpt *k = arg;

	k->ctls[k->nctls++] = container_of(n, struct ftl_ctlent, node);
}

static int ckpt_cmp_line(const void *a, const void *b)
{
	const struct ftl_line *x = *(struct ftl_line *const *)a, *y = *(struct ftl_line *const *)b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->line < y->line ? -1 : x->line > y->line;
}

static int ckpt_cmp_ctl(const void *a, const void *b)
{
	const struct ftl_ctlent *x = *(struct ftl_ctlent *const *)a;
	const struct ftl_ctlent *y = *(struct ftl_ctlent *const *)b;

	return memcmp(&x->key, &y->key, sizeof(x->key));
}

static int ckpt_gather(struct ftl_overlay *o, struct ckpt *k)
{
	k->lines = malloc((o->lines.count + 1) * sizeof(*k->lines));
	k->ctls = malloc((o->ctl.count + 1) * sizeof(*k->ctls));
	if (!k->lines || !k->ctls)
		return -ENOMEM;
	htab_each(&o->lines, ckpt_gather_line, k);
	htab_each(&o->ctl, ckpt_gather_ctl, k);
	qsort(k->lines, k->nlines, sizeof(*k->lines), ckpt_cmp_line);
	qsort(k->ctls, k->nctls, sizeof(*k->ctls), ckpt_cmp_ctl);
	return 0;
}

static int ckpt_del(struct meta_txn *t, unsigned table, const void *key, size_t len)
{
	int err = meta_del(t, table, key, len);

	return err == -ENOENT ? 0 : err;
}

static int ckpt_put_lines(struct meta_txn *t, const struct ckpt *k)
{
	struct ftl_extent x[FLASH_LINE_SECTORS];
	int err = 0;

	for (size_t i = 0; i < k->nlines && !err; i++) {
		const struct ftl_line *l = k->lines[i];
		uint64_t key[2] = {htobe64(l->file), htobe64(l->line)};
		size_t len = l->n * sizeof(*x);

		if (!l->n) {
			err = ckpt_del(t, FTL_T_MAP, key, sizeof(key));
			continue;
		}
		memcpy(x, l->x, len);
		ftl_ckpt_crc_key(key, sizeof(key), x, len, &x[0].crc);
		err = meta_put(t, FTL_T_MAP, key, sizeof(key), x, len);
	}
	return err;
}

static int ckpt_put_ctls(struct meta_txn *t, const struct ckpt *k)
{
	struct {
		struct ftl_ctlmeta m;
		uint8_t value[FLASH_CTL_VALUE];
	} v;
	int err = 0;

	for (size_t i = 0; i < k->nctls && !err; i++) {
		const struct ftl_ctlent *e = k->ctls[i];

		if (e->gone) {
			err = ckpt_del(t, FTL_T_CTL, &e->key, sizeof(e->key));
			continue;
		}
		v.m = e->m;
		memcpy(v.value, e->value, e->m.len);
		ftl_ckpt_crc_key(&e->key, sizeof(e->key), &v, sizeof(v.m) + v.m.len, &v.m.crc);
		err = meta_put(t, FTL_T_CTL, &e->key, sizeof(e->key), &v, sizeof(v.m) + v.m.len);
	}
	return err;
}

static int ckpt_put_tombs(struct meta_txn *t, const struct ftl_overlay *o)
{
	int err = 0;

	for (size_t i = 0; i < o->ntombs && !err; i++) {
		struct ftl_tombvalue v = {
			.pos = o->tombs[i].pos, .stamp = o->tombs[i].stamp, .lsn = o->tombs[i].lsn,
		};
		uint8_t key[25];

		ftl_tomb_key(&o->tombs[i].key, key);
		ftl_ckpt_crc_key(key, sizeof(key), &v, sizeof(v), &v.crc);
		if (v.pos == FTL_POS_NONE)
			err = ckpt_del(t, FTL_T_TOMBS, key, sizeof(key));
		else
			err = meta_put(t, FTL_T_TOMBS, key, sizeof(key), &v, sizeof(v));
	}
	return err;
}

static int ckpt_commit(struct ftl *f, const struct ckpt *k, bool state)
{
	struct meta_txn *t;
	int err = meta_begin_write(f->meta, &t);

	if (err)
		return err;
	err = ckpt_put_lines(t, k);
	if (!err)
		err = ckpt_put_ctls(t, k);
	if (!err)
		err = ckpt_put_tombs(t, f->frozen);
	for (size_t i = 0; i < k->nrows && !err; i++)
		err = meta_put(t, FTL_T_EBS, &k->rows[i].key, sizeof(k->rows[i].key), &k->rows[i].m,
			       sizeof(k->rows[i].m));
	if (!err && state)
		err = meta_put(t, FTL_T_STATE, "state", 5, &k->state, sizeof(k->state));
	if (err) {
		meta_abort(t);
		return err;
	}
	return meta_commit(t);
}

int ftl_ckpt_super(struct ftl *f, uint64_t checkpoint, bool clean)
{
	struct ftl_media_super s = f->super;
	uint8_t *block = aligned_alloc(FTL_BLOCK, FTL_BLOCK);
	int err;

	if (!block)
		return -ENOMEM;
	s.checkpoint = checkpoint;
	s.clean = clean;
	ftl_media_put_super(block, &s);
	err = media_write(f->media, block, FTL_BLOCK, (uint64_t)!f->super_slot * FTL_BLOCK);
	free(block);
	lock_acquire(&f->lock);
	if (err) {
		ftl_fail(f, err, "superblock write", (uint64_t)!f->super_slot * FTL_BLOCK);
	} else {
		f->c.meta_bytes += FTL_BLOCK;
		f->c.flash_write_bytes += FTL_BLOCK;
	}
	lock_release(&f->lock);
	if (!err)
		err = ftl_media_flush(f);
	if (err)
		return -EIO;
	lock_acquire(&f->lock);
	f->super.checkpoint = checkpoint;
	f->super.clean = clean;
	lock_release(&f->lock);
	f->super_slot = !f->super_slot;
	return 0;
}

void ftl_ckpt_bounds(struct ftl *f, const struct ftl_state *s)
{
	f->super.lsn = s->next_lsn;
	f->super.seq = s->next_seq;
	f->super.stamp = s->max_stamp;
}

static void ckpt_thaw(struct ftl *f)
{
	struct ftl_overlay *o;
	size_t n;
	int err;

	lock_acquire(&f->lock);
	o = f->frozen;
	err = ftl_map_thaw(f);
	ftl_ctl_thaw(f);
	n = o->ntombs + f->cur->ntombs;
	if (!err && o->ntombs) {
		struct ftl_tombchange *p = realloc(o->tombs, (n + 1) * sizeof(*p));

		if (p) {
			if (f->cur->ntombs)
				memcpy(p + o->ntombs, f->cur->tombs, f->cur->ntombs * sizeof(*p));
			free(f->cur->tombs);
			f->cur->tombs = p;
			f->cur->ntombs = n;
			f->cur->tombs_cap = n + 1;
			o->tombs = NULL;
			o->ntombs = 0;
		} else {
			err = -ENOMEM;
		}
	}
	if (err)
		ftl_fail(f, err, "taking back a checkpoint", f->super.checkpoint + 1);
	for (uint32_t i = 0; i < f->geom.ebs; i++) {
		struct ftl_eb *eb = &f->ebs[i];

		eb->changed = true;
		if (eb->state == EB_PENDING && eb->pending_ckpt > f->super.checkpoint)
			eb->pending_ckpt = 0;
	}
	f->frozen = NULL;
	f->ckpt_retry = clock_mono_ns() + NS_PER_S;
	lock_cond_broadcast(&f->cond);
	ftl_changed(f);
	lock_release(&f->lock);
	ftl_overlay_free(o);
}

static void ckpt_drop_frozen(struct ftl *f)
{
	struct ftl_overlay *o;

	lock_acquire(&f->lock);
	o = f->frozen;
	f->frozen = NULL;
	f->drops_of_frozen++;
	f->ckpt_retry = 0;
	f->c.checkpoints++;
	lock_release(&f->lock);
	ftl_overlay_free(o);
}

/* The log up to the position, and the footers the EB table speaks of: after a replay they are what
 * keeps the records that were cut off from coming back. */
static int ckpt_flush(struct ftl *f)
{
	bool footers;
	int err = ftl_log_flush(f);

	lock_acquire(&f->lock);
	footers = f->footers_unflushed;
	f->footers_unflushed = false;
	lock_release(&f->lock);
	return !err && footers ? ftl_media_flush(f) : err;
}

static int ckpt_run_locked(struct ftl *f, bool clean)
{
	struct ckpt k = {.rows = NULL};
	int err = f->opt.readonly ? -EROFS : ckpt_freeze(f, &k);

	if (err)
		goto out;
	err = ckpt_flush(f);
	if (!err)
		err = ckpt_gather(f->frozen, &k);
	if (!err) {
		err = ckpt_commit(f, &k, true);
		if (err)
			log_error(FTL_MODULE, "controller %u: checkpoint %" PRIu64 " failed: %s",
				  f->super.controller, k.state.checkpoint, strerror(-err));
	}
	if (err) {
		ckpt_thaw(f);
		goto out;
	}
	ckpt_drop_frozen(f);
	ftl_ckpt_bounds(f, &k.state);
	err = ftl_ckpt_super(f, k.state.checkpoint, clean);
	if (!err)
		err = ftl_ckpt_erase(f);
out:
	free(k.rows);
	free(k.lines);
	free(k.ctls);
	return err;
}

int ftl_ckpt_run(struct ftl *f, bool clean)
{
	int err;

	lock_acquire(&f->ckpt_lock);
	err = ckpt_run_locked(f, clean);
	lock_release(&f->ckpt_lock);
	return err;
}

int ftl_ckpt_spill(struct ftl *f)
{
	struct ckpt k = {.rows = NULL};
	int err;

	lock_acquire(&f->ckpt_lock);
	err = ckpt_freeze(f, &k);
	if (err)
		goto out;
	k.nrows = 0;
	err = ckpt_gather(f->frozen, &k);
	if (!err)
		err = ckpt_commit(f, &k, false);
	if (err)
		ckpt_thaw(f);
	else
		ckpt_drop_frozen(f);
	for (uint32_t i = 0; i < f->geom.ebs; i++)
		f->ebs[i].changed = true;
out:
	lock_release(&f->ckpt_lock);
	free(k.rows);
	free(k.lines);
	free(k.ctls);
	return err;
}

bool ftl_ckpt_due(struct ftl *f, uint64_t now)
{
	uint64_t lines = f->opt.checkpoint_lines ? f->opt.checkpoint_lines : CKPT_LINES;
	uint64_t bytes = f->opt.checkpoint_bytes;

	if (!bytes) {
		bytes = f->geom.raw_bytes / 16;
		if (bytes < 8u << 20)
			bytes = 8u << 20;
		if (bytes > 1u << 30)
			bytes = 1u << 30;
	}
	if (f->failed || f->opt.readonly || now < f->ckpt_retry)
		return false;
	f->ckpt_retry = 0;
	return f->log_bytes >= bytes || f->tombs_due ||
	       f->cur->lines.count + f->cur->ctl.count + f->cur->ntombs >= lines ||
	       (f->npending && f->nfree < f->space.low_water &&
		(!ftl_gc_wanted(f) || f->nfree <= f->space.reserve_gc + f->space.reserve_ctl)) ||
	       (f->changed_since && now >= f->changed_since + CKPT_SECONDS * NS_PER_S);
}

static int ckpt_erase_one(struct ftl *f, struct ftl_eb *eb)
{
	struct ftl_media_eb m = {
		.magic = FTL_MAGIC_EB, .version = FTL_VERSION, .controller = f->super.controller,
		.state = FTL_EB_ERASED, .seq = eb->seq, .index = eb->index,
		.erase_count = eb->erase_count + 1, .checkpoint = f->super.checkpoint,
	};
	uint8_t *block = aligned_alloc(FTL_BLOCK, FTL_BLOCK);
	int err;

	if (!block)
		return -ENOMEM;
	memcpy(m.uuid, f->super.uuid, sizeof(m.uuid));
	ftl_media_put_eb(block, &m);
	err = ftl_media_write(f, eb->index, 0, block, FTL_BLOCK);
	free(block);
	return err;
}

/* After the header is durable: a scan must never meet an EB that says OPEN and has lost its records. */
static void ckpt_discard(struct ftl *f, const struct ftl_eb *eb)
{
	uint64_t base = f->geom.first_eb + (uint64_t)eb->index * f->geom.eb_bytes;

	if (!f->geom.parity)
		media_discard(f->media, base + FTL_BLOCK, f->geom.eb_bytes - FTL_BLOCK);
}

/* No lock: only ftl_ckpt_erase(), under ckpt_lock, moves EBs into and out of ERASING. */
static bool ckpt_erasing(const struct ftl_eb *eb)
{
	return __atomic_load_n(&eb->state, __ATOMIC_RELAXED) == EB_ERASING;
}

int ftl_ckpt_erase(struct ftl *f)
{
	unsigned n = 0;
	int err = 0;

	lock_assert_held(&f->ckpt_lock);
	lock_acquire(&f->lock);
	for (uint32_t i = 0; i < f->geom.ebs; i++) {
		struct ftl_eb *eb = &f->ebs[i];

		if (eb->state != EB_PENDING || !eb->pending_ckpt ||
		    eb->pending_ckpt > f->super.checkpoint)
			continue;
		gild_assert(!eb->live && !eb->chunks);
		ftl_eb_set_state(f, eb, EB_ERASING);
		n++;
	}
	lock_release(&f->lock);
	for (uint32_t i = 0; n && i < f->geom.ebs && !err; i++)
		if (ckpt_erasing(&f->ebs[i]))
			err = ckpt_erase_one(f, &f->ebs[i]);
	if (n && !err)
		err = ftl_media_flush(f);
	for (uint32_t i = 0; n && i < f->geom.ebs && !err; i++)
		if (ckpt_erasing(&f->ebs[i]))
			ckpt_discard(f, &f->ebs[i]);
	lock_acquire(&f->lock);
	for (uint32_t i = 0; n && i < f->geom.ebs; i++) {
		struct ftl_eb *eb = &f->ebs[i];

		if (eb->state != EB_ERASING)
			continue;
		if (err) {
			ftl_eb_set_state(f, eb, EB_PENDING);
			continue;
		}
		f->c.erases++;
		f->c.footer_bytes += FTL_BLOCK;
		eb->erase_count++;
		ftl_eb_free_index(eb);
		ftl_gc_forget(f, eb);
		ftl_eb_clear_seq(f, eb);
		eb->min_dead = UINT64_MAX;
		eb->pending_ckpt = 0;
		eb->drops = false;
		eb->barren = 0;
		eb->used = eb->records = 0;
		ftl_eb_set_state(f, eb, EB_FREE);
		ftl_gc_unstick(f);
	}
	if (!err && (n || f->tombs_due))
		ftl_tomb_retire(f);
	if (!err && f->tombs_due) {
		f->tombs_due = false;
		f->ctl_due = f->ctl_deletions > 0;
	}
	lock_cond_broadcast(&f->cond);
	lock_release(&f->lock);
	return err;
}
