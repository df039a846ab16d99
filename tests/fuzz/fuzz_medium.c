/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A medium and an environment that somebody spoilt: opening and recovery must not crash, hang or
 * take memory without bound, and neither must what is done with the controller afterwards. While the
 * log itself was only damaged, not forged, every byte served must once have been written there,
 * whatever the map says.
 *
 * Input: { how, patches }.
 */
#include <config.h>

#include <string.h>

#include "base/hash.h"
#include "fuzz/fuzz_image.h"

enum how { HOW_CLEAN = 1, HOW_RECOVER = 2, HOW_READONLY = 4, HOW_WORK = 8, HOW_AGAIN = 16 };

static struct fuzz_image medium_image;

static void medium_read(struct flash *f, bool forged)
{
	static uint8_t buf[FLASH_LINE];
	struct flash_sector st[FLASH_LINE_SECTORS];
	uint64_t file, line;

	for (unsigned i = 0; fuzz_image_line(i, &file, &line); i++) {
		uint64_t sector = line * FLASH_LINE_SECTORS;

		if (f->ops->read(f, file, sector, FLASH_LINE_SECTORS, 0, buf, st))
			continue;
		for (unsigned k = 0; k < FLASH_LINE_SECTORS; k++) {
			if (!(st[k].flags & FLASH_PRESENT) || (st[k].flags & FLASH_CORRUPT))
				continue;
			fuzz_assert(forged ||
				    fuzz_image_knows(file, sector + k, buf + k * FLASH_SECTOR));
		}
	}
}

static int medium_seen(void *arg, const struct flash_extent *e)
{
	(void)e;
	return ++*(unsigned *)arg > 100000;
}

static int medium_ctl(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value, size_t len,
		      uint64_t stamp)
{
	(void)key;
	(void)stamp;
	fuzz_assert(len <= FLASH_CTL_VALUE);
	*(unsigned *)arg += len ? ((const uint8_t *)value)[len - 1] : 0;
	return 0;
}

static void medium_look(struct flash *f, bool forged)
{
	struct flash_stats stats;
	struct flash_health health;
	unsigned n = 0;

	medium_read(f, forged);
	f->ops->walk(f, FLASH_WALK_DATA, 0, 0, medium_seen, &n);
	f->ops->walk(f, FLASH_WALK_TRIM, 0, 0, medium_seen, &n);
	for (unsigned kind = 1; kind < FLASH_CTL_KINDS; kind++)
		f->ops->ctl_walk(f, kind, medium_ctl, &n);
	f->ops->stats(f, &stats);
	f->ops->health(f, &health);
}

/* Changes, GC and checkpoints on top of whatever is there. New files only, and stamps above. */
static void medium_work(struct flash *f)
{
	static uint8_t data[FLASH_LINE]; /* nothing that zstd could make smaller */
	uint8_t key[FLASH_CTL_KEY] = {200};
	struct flash_stats s;
	uint64_t stamp;

	for (unsigned k = 0; !data[0] && k < sizeof(data); k += 8)
		memcpy(data + k, &(uint64_t){hash_mix64(k + 1)}, 8);
	f->ops->stats(f, &s);
	stamp = s.max_stamp + 1;
	for (unsigned i = 0; i < 24; i++) {
		struct flash_write w = {.file = 1000 + i % 3, .sector = i * 16, .count = 16,
					.len = FLASH_LINE, .data = data, .stamp = stamp++,
					.epoch = 1, .dirty = i % 4 == 0};

		f->ops->write(f, &w);
		ftl_step(f);
	}
	f->ops->trim(f, 1, 0, UINT64_MAX, stamp++);
	f->ops->mark_clean(f, 2, 0, UINT64_MAX, stamp++);
	f->ops->ctl_put(f, FLASH_CTL_FILE, key, data, 100, stamp++);
	f->ops->flush(f);
	for (unsigned i = 0; i < 16; i++)
		ftl_step(f);
	ftl_checkpoint(f);
}

static void medium_run(unsigned how)
{
	struct ftl_options o = {.readonly = how & HOW_READONLY};
	struct meta *meta;
	struct flash *f;

	if (meta_open(&meta, medium_image.dir, ftl_tables, 8 << 20, false))
		return;
	if ((how & HOW_RECOVER) && ftl_recover(medium_image.media, meta))
		goto out;
	if (ftl_open(&f, medium_image.media, meta, &o))
		goto out;
	medium_look(f, medium_image.forged);
	if ((how & HOW_WORK) && !(how & HOW_READONLY)) {
		medium_work(f);
		medium_look(f, medium_image.forged);
	}
	ftl_audit(f);
	f->ops->close(f);
out:
	meta_close(meta);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	unsigned how = (unsigned)fuzz_take(&in, 1);

	fuzz_quiet();
	fuzz_image_restore(&medium_image, how & HOW_CLEAN);
	fuzz_image_patch(&medium_image, &in);
	medium_run(how);
	if (how & HOW_AGAIN)
		medium_run(how & ~HOW_RECOVER);
	return 0;
}
