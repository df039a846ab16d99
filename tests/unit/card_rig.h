/* SPDX-License-Identifier: BSD-2-Clause
 * A card whose power can be cut: controllers (real ones) over the fault injector and LMDB in a
 * scratch directory. Shared: all over regions of one medium, one power switch. Else a medium each,
 * so that one can fail alone. */
#ifndef GILD_TESTS_CARD_RIG_H
#define GILD_TESTS_CARD_RIG_H

#include <errno.h>
#include <sys/statvfs.h>

#include "card/card.h"
#include "card/card_priv.h"
#include "unit_util.h"

#define RIG_MAX 4
#ifndef RIG_REGION
#define RIG_REGION (12u << 20)
#endif

struct rig {
	char dir[256];
	unsigned n;
	bool shared;
	struct media *medium[RIG_MAX];     /* over RAM; shared: only [0] */
	struct media_fault *fault[RIG_MAX]; /* a controller's; shared: all the same */
	struct ftl_options opt; /* of the controllers; zero */
	struct flash *card;
	void (*opened)(struct rig *r, struct card *card); /* controllers open, the card not yet */
};

/* Scratch files in memory where there is room: power cuts are simulated, so real syncs prove nothing
 * and cost most of the time. $TMPDIR overrides it. */
static inline void rig_fast_scratch(void)
{
	struct statvfs fs;

	if (statvfs("/dev/shm", &fs) == 0 && access("/dev/shm", W_OK) == 0 &&
	    (uint64_t)fs.f_bavail * fs.f_frsize >= 512ULL << 20)
		setenv("TMPDIR", "/dev/shm", 0);
}

static inline int rig_hook(void *arg)
{
	return media_fault_event(arg);
}

static inline void rig_region(struct rig *r, unsigned i, struct media **out)
{
	unsigned m = r->shared ? 0 : i;

	ck_assert_ok(media_open_region(out, r->medium[m], r->shared ? i * (uint64_t)RIG_REGION : 0,
				       RIG_REGION));
}

static inline int rig_meta(struct rig *r, unsigned i, struct meta **out)
{
	struct meta_hook hook = {rig_hook, rig_hook, r->fault[i]};
	char path[300];
	int rc;

	snprintf(path, sizeof(path), "%s/%u", r->dir, i);
	rc = meta_open(out, path, ftl_tables, 64 << 20, true);
	if (rc == 0)
		meta_set_hook(*out, &hook);
	return rc;
}

static inline void rig_format_one(struct rig *r, unsigned i)
{
	struct ftl_format f = {.uuid = {1, 2, 3}, .controller = i, .controllers = r->n,
			       .op_percent = 28};
	struct media *region;
	struct meta *meta;

	rig_region(r, i, &region);
	ck_assert_ok(rig_meta(r, i, &meta));
	ck_assert_ok(ftl_format(region, meta, &f));
	meta_close(meta);
	media_close(region);
}

static inline void rig_make(struct rig *r, unsigned n, bool shared, uint64_t seed)
{
	struct media *ram;
	unsigned i;

	memset(r, 0, sizeof(*r));
	r->n = n;
	r->shared = shared;
	rig_fast_scratch();
	scratch_make(r->dir);
	for (i = 0; i < n; i++) {
		if (i == 0 || !shared) {
			ck_assert_ok(media_open_ram(&ram, (uint64_t)RIG_REGION * (shared ? n : 1)));
			ck_assert_ok(media_open_fault(&r->medium[i], &r->fault[i], ram, seed + i));
		} else {
			r->fault[i] = r->fault[0];
		}
	}
	for (i = 0; i < n; i++)
		rig_format_one(r, i);
}

/* As card_open does, without a directory. Shared: the card flushes the one medium. */
static inline int rig_open(struct rig *r)
{
	struct card *card;
	unsigned i;
	int rc = 0;

	ck_assert_ok(card_alloc(&card, r->n));
	if (r->shared)
		ck_assert_ok(media_open_region(&card->medium, r->medium[0], 0,
					       media_size(r->medium[0])));
	for (i = 0; i < r->n && rc == 0; i++) {
		rig_region(r, i, &card->c[i].region);
		rc = rig_meta(r, i, &card->c[i].meta);
		if (rc == 0)
			rc = ftl_open(&card->c[i].flash, card->c[i].region, card->c[i].meta, &r->opt);
		if (rc < 0)
			card->c[i].flash = NULL;
		if (rc == -EIO && !r->shared)
			rc = 0;
	}
	if (rc == 0 && r->opened)
		r->opened(r, card);
	if (rc == 0)
		rc = card_start(card, false);
	r->card = &card->flash;
	if (rc < 0) {
		atomic_store(&card->uneven, false);
		r->card->ops->close(r->card);
		r->card = NULL;
	}
	return rc;
}

/* All LMDB files are lost and made anew; the power may go meanwhile. */
static inline int rig_recover(struct rig *r)
{
	struct media *region;
	struct meta *meta;
	char path[300];
	unsigned i;
	int rc = 0;

	for (i = 0; i < r->n && rc == 0; i++) {
		snprintf(path, sizeof(path), "%s/%u", r->dir, i);
		scratch_remove(path);
		rc = rig_meta(r, i, &meta);
		if (rc < 0)
			break;
		rig_region(r, i, &region);
		rc = ftl_recover(region, meta);
		meta_close(meta);
		media_close(region);
	}
	return rc;
}

/* Background work of the controllers, which have no thread of their own here. */
static inline void rig_step(struct rig *r)
{
	struct card *card = card_of(r->card);
	unsigned i;

	for (i = 0; i < r->n; i++) {
		if (card->c[i].flash && card_is_live(card, i))
			ftl_step(card->c[i].flash); /* its error is found by the next call */
	}
}

static inline int rig_close(struct rig *r)
{
	int rc = r->card->ops->close(r->card);

	r->card = NULL;
	return rc;
}

static inline void rig_destroy(struct rig *r)
{
	unsigned i;

	for (i = 0; i < r->n; i++)
		media_close(r->medium[i]);
	scratch_remove(r->dir);
}

static inline struct flash *rig_controller(struct rig *r, unsigned i)
{
	return card_of(r->card)->c[i].flash;
}

static inline uint64_t rig_random(uint64_t *state) /* splitmix64 */
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

/* Sector contents that name themselves. */
static inline void rig_fill(void *buf, uint64_t file, uint64_t sector, uint64_t stamp)
{
	uint64_t *w = buf, seed = file * 31 + sector * 7 + stamp * 1000003;
	unsigned i;

	w[0] = file;
	w[1] = sector;
	w[2] = stamp;
	for (i = 3; i < FLASH_SECTOR / 8; i++)
		w[i] = i % 2 ? rig_random(&seed) : 0;
}

static inline bool rig_is_filled(const void *buf, uint64_t file, uint64_t sector, uint64_t stamp)
{
	char want[FLASH_SECTOR];

	rig_fill(want, file, sector, stamp);
	return memcmp(buf, want, sizeof(want)) == 0;
}

static inline int rig_write(struct flash *f, uint64_t file, uint64_t sector, uint32_t count,
			    uint64_t stamp, bool dirty)
{
	struct flash_write w = {.file = file, .sector = sector, .count = count,
				.len = count * FLASH_SECTOR, .stamp = stamp, .dirty = dirty};
	char *buf = malloc(w.len);
	uint32_t i;
	int rc;

	for (i = 0; i < count; i++)
		rig_fill(buf + (size_t)i * FLASH_SECTOR, file, sector + i, stamp);
	w.data = buf;
	rc = f->ops->write(f, &w);
	free(buf);
	return rc;
}

/* 0: absent; else the stamp its bytes were written with, which may be below that of its record when
 * a mirror wrote them again; -1: corrupt or wrong bytes. */
static inline int64_t rig_read(struct flash *f, uint64_t file, uint64_t sector)
{
	struct flash_sector state;
	uint64_t buf[FLASH_SECTOR / 8];

	ck_assert_ok(f->ops->read(f, file, sector, 1, 0, buf, &state));
	if (!(state.flags & FLASH_PRESENT))
		return 0;
	if (state.flags & FLASH_CORRUPT || !rig_is_filled(buf, file, sector, buf[2]) ||
	    buf[2] > state.stamp)
		return -1;
	return (int64_t)buf[2];
}

static inline void rig_key(uint8_t key[FLASH_CTL_KEY], uint64_t k)
{
	memset(key, 0, FLASH_CTL_KEY);
	memcpy(key, &k, sizeof(k));
}

/* A value that names its key and stamp, of 16 bytes or more; deleted when `len` is 0. */
static inline int rig_put(struct flash *f, uint64_t k, uint64_t stamp, size_t len)
{
	uint8_t key[FLASH_CTL_KEY], value[FLASH_CTL_VALUE];

	rig_key(key, k);
	memset(value, (int)(stamp * 7 + k), sizeof(value));
	memcpy(value, &stamp, sizeof(stamp));
	return f->ops->ctl_put(f, FLASH_CTL_FILE, key, len ? value : NULL, len, stamp);
}

/* 0: none; else the stamp it was written with, as rig_read; -1: wrong value or error. */
static inline int64_t rig_get(struct flash *f, uint64_t k)
{
	uint8_t key[FLASH_CTL_KEY], value[FLASH_CTL_VALUE];
	size_t len = sizeof(value), i;
	uint64_t stamp = 0, first;
	int rc;

	rig_key(key, k);
	rc = f->ops->ctl_get(f, FLASH_CTL_FILE, key, value, &len, &stamp);
	if (rc == -ENOENT)
		return 0;
	if (rc < 0 || len < 16)
		return -1;
	memcpy(&first, value, sizeof(first));
	for (i = sizeof(first); i < len; i++) {
		if (value[i] != (uint8_t)(first * 7 + k))
			return -1;
	}
	return first > stamp ? -1 : (int64_t)first;
}

#endif
