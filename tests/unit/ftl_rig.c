/* SPDX-License-Identifier: BSD-2-Clause */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "ftl_rig.h"

#define RIG_MAP (256u << 20)

void rig_remove(const char *dir)
{
	char path[512];
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		unlink(path);
	}
	if (d)
		closedir(d);
	rmdir(dir);
}

void rig_meta_open(struct rig *r)
{
	ck_assert_int_eq(meta_open(&r->meta, r->dir, ftl_tables, RIG_MAP, true), 0);
}

void rig_meta_lose(struct rig *r)
{
	meta_close(r->meta);
	rig_remove(r->dir);
	rig_meta_open(r);
}

void rig_init_format(struct rig *r, unsigned ebs, bool fault, const struct ftl_format *f)
{
	const char *tmp = getenv("TMPDIR");

	memset(r, 0, sizeof(*r));
	/* LMDB syncs at every checkpoint: memory where there is some. */
	if (!tmp)
		tmp = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
	snprintf(r->dir, sizeof(r->dir), "%.40s/ftl-XXXXXX", tmp);
	ck_assert_ptr_nonnull(mkdtemp(r->dir));
	rig_meta_open(r);
	ck_assert_int_eq(media_open_ram(&r->media, 8192 + (uint64_t)ebs * RIG_EB), 0);
	if (fault) {
		struct media *ram = r->media;

		ck_assert_int_eq(media_open_fault(&r->media, &r->fault, ram, 1), 0);
	}
	ck_assert_int_eq(ftl_format(r->media, r->meta, f), 0);
	r->stamp = 1;
	rig_open(r);
}

void rig_init(struct rig *r, unsigned ebs, bool fault)
{
	struct ftl_format f = {
		.uuid = "unit test card", .controllers = 1, .op_percent = 28,
		.geometry = {.erase_block = RIG_EB, .dies = 32, .slice = 8192},
	};

	rig_init_format(r, ebs, fault, &f);
}

void rig_open(struct rig *r)
{
	ck_assert_int_eq(ftl_open(&r->f, r->media, r->meta, &r->opt), 0);
}

void rig_reopen(struct rig *r)
{
	ck_assert_int_eq(r->f->ops->close(r->f), 0);
	rig_open(r);
}

void rig_audit(struct rig *r)
{
	ck_assert_int_eq(ftl_audit(r->f), 0);
}

void rig_done(struct rig *r)
{
	if (r->f) {
		rig_audit(r);
		ck_assert_int_eq(r->f->ops->close(r->f), 0);
	}
	media_close(r->media);
	meta_close(r->meta);
	rig_remove(r->dir);
}

void rig_fill(void *sector, uint64_t seed)
{
	uint64_t *p = sector;

	for (unsigned i = 0; i < FLASH_SECTOR / 8; i++) {
		switch (seed % 4) {
		case 0:
			p[i] = seed;
			break;
		case 2:
		case 3:
			p[i] = hash_mix64(seed * 512 + i);
			break;
		default:
			p[i] = i % 4 ? seed : hash_mix64(seed * 512 + i);
		}
	}
}

int rig_write(struct rig *r, uint64_t file, uint64_t sector, uint32_t count, uint64_t seed,
	      bool dirty)
{
	uint8_t *buf = malloc((size_t)count * FLASH_SECTOR);
	struct flash_write w = {
		.file = file, .sector = sector, .count = count, .len = count * FLASH_SECTOR,
		.data = buf, .stamp = r->stamp++, .epoch = 1, .dirty = dirty,
	};
	int err;

	for (uint32_t i = 0; i < count; i++)
		rig_fill(buf + (size_t)i * FLASH_SECTOR, seed + sector + i);
	err = r->f->ops->write(r->f, &w);
	free(buf);
	return err;
}

void rig_expect(struct rig *r, uint64_t file, uint64_t sector, uint32_t count, uint64_t seed)
{
	uint8_t *buf = malloc((size_t)count * FLASH_SECTOR), want[FLASH_SECTOR];
	struct flash_sector *st = calloc(count, sizeof(*st));

	ck_assert_int_eq(r->f->ops->read(r->f, file, sector, count, 0, buf, st), 0);
	for (uint32_t i = 0; i < count; i++) {
		rig_fill(want, seed + sector + i);
		ck_assert_msg((st[i].flags & FLASH_PRESENT) && !(st[i].flags & FLASH_CORRUPT),
			      "file %lu sector %lu: flags %x", (unsigned long)file,
			      (unsigned long)sector + i, st[i].flags);
		ck_assert_msg(!memcmp(want, buf + (size_t)i * FLASH_SECTOR, FLASH_SECTOR),
			      "file %lu sector %lu differs", (unsigned long)file,
			      (unsigned long)sector + i);
	}
	free(buf);
	free(st);
}

void rig_expect_absent(struct rig *r, uint64_t file, uint64_t sector, uint32_t count)
{
	uint8_t *buf = malloc((size_t)count * FLASH_SECTOR);
	struct flash_sector *st = calloc(count, sizeof(*st));

	ck_assert_int_eq(r->f->ops->read(r->f, file, sector, count, 0, buf, st), 0);
	for (uint32_t i = 0; i < count; i++)
		ck_assert_int_eq(st[i].flags, 0);
	free(buf);
	free(st);
}
