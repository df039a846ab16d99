/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "fuzz/fuzz_image.h"

#define IMAGE_BYTES (2 * FTL_BLOCK + (uint64_t)FUZZ_EBS * FUZZ_EB)
#define IMAGE_MAP (8u << 20)
#define IMAGE_ROUNDS 24u /* enough for GC to have run */
#define IMAGE_VERSIONS 8192
#define IMAGE_RECORDS 4096
#define IMAGE_LINES 256

static struct image_version { /* what was written to a sector, once */
	uint64_t file, sector, hash;
} image_versions[IMAGE_VERSIONS];
static unsigned image_nversions;
static struct ftl_linekey image_lines[IMAGE_LINES];
static unsigned image_nlines;
static uint64_t image_stamp = 1;

struct image_record {
	uint32_t eb, off, len; /* off: in the EB */
};

static struct image_base { /* [0]: power lost, [1]: closed */
	uint8_t *medium, *map;
	size_t map_bytes;
	struct image_record records[IMAGE_RECORDS];
	unsigned nrecords;
} image_bases[2], *image_now;

static void image_fill(uint8_t *p, uint64_t seed)
{
	for (unsigned i = 0; i < FLASH_SECTOR; i += 8) {
		uint64_t v = seed % 3 == 0 ? seed : seed % 3 == 1 && i % 64 ? 0
								: hash_mix64(seed * 4096 + i);

		memcpy(p + i, &v, 8);
	}
}

static void image_note_line(uint64_t file, uint64_t line)
{
	for (unsigned i = 0; i < image_nlines; i++)
		if (image_lines[i].file == file && image_lines[i].line == line)
			return;
	fuzz_assert(image_nlines < IMAGE_LINES);
	image_lines[image_nlines++] = (struct ftl_linekey){file, line};
}

static void image_write(struct flash *f, uint64_t file, uint64_t sector, uint32_t count, bool dirty)
{
	uint8_t *buf = malloc((size_t)count * FLASH_SECTOR);
	struct flash_write w = {.file = file, .sector = sector, .count = count, .data = buf,
				.len = count * FLASH_SECTOR, .stamp = image_stamp++, .epoch = 1,
				.dirty = dirty, .cold = file % 3 == 2};

	for (uint32_t i = 0; i < count; i++) {
		struct image_version *v = &image_versions[image_nversions++];

		fuzz_assert(image_nversions < IMAGE_VERSIONS);
		image_fill(buf + (size_t)i * FLASH_SECTOR, hash_mix64(w.stamp * 64 + i));
		*v = (struct image_version){file, sector + i,
					    hash_64(buf + (size_t)i * FLASH_SECTOR, FLASH_SECTOR)};
	}
	for (uint64_t line = sector / 16; line <= (sector + count - 1) / 16; line++)
		image_note_line(file, line);
	fuzz_assert(f->ops->write(f, &w) == 0);
	free(buf);
}

static int image_cmp(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct image_version));
}

bool fuzz_image_knows(uint64_t file, uint64_t sector, const void *bytes)
{
	struct image_version v = {file, sector, hash_64(bytes, FLASH_SECTOR)};

	return bsearch(&v, image_versions, image_nversions, sizeof(v), image_cmp);
}

bool fuzz_image_line(unsigned i, uint64_t *file, uint64_t *line)
{
	if (i >= image_nlines)
		return false;
	*file = image_lines[i].file;
	*line = image_lines[i].line;
	return true;
}

static void image_ctl(struct flash *f, unsigned kind, uint8_t key, size_t len)
{
	uint8_t k[FLASH_CTL_KEY] = {key}, value[FLASH_CTL_VALUE];

	memset(value, key, sizeof(value));
	fuzz_assert(f->ops->ctl_put(f, kind, k, value, len, image_stamp++) == 0);
}

/* Every kind of record and both kinds of erase block, before and after the last checkpoint. */
static void image_round(struct flash *f, unsigned round)
{
	for (unsigned i = 0; i < 6; i++)
		image_write(f, 1 + (round + i) % 3, i * 16 + round % 4, 16 - round % 4, i % 3 == 0);
	image_write(f, 6, round, 1, false);
	image_write(f, 7, round * 8ULL, 2, round % 2); /* stays: GC has to move it */
	image_ctl(f, FLASH_CTL_FILE, (uint8_t)(round % 7), 100 + round);
	image_ctl(f, FLASH_CTL_OPEN, (uint8_t)(round % 5), round % 2 ? 20 : 0);
	fuzz_assert(f->ops->trim(f, 1 + round % 5, 32, 8, image_stamp++) == 0);
	fuzz_assert(f->ops->mark_clean(f, 1 + round % 3, 0, 64, image_stamp++) == 0);
	if (round % 4 == 3)
		fuzz_assert(f->ops->trim(f, 6, 0, UINT64_MAX, image_stamp++) == 0);
}

static uint64_t image_at(uint32_t eb, uint32_t off)
{
	return 2 * FTL_BLOCK + (uint64_t)eb * FUZZ_EB + off;
}

static void image_get(struct fuzz_image *im, void *buf, size_t len, uint64_t at)
{
	fuzz_assert(media_read(im->media, buf, len, at) == 0);
}

/* media_write wants whole blocks. */
static void image_put(struct fuzz_image *im, const void *buf, size_t len, uint64_t at)
{
	static _Alignas(FTL_BLOCK) uint8_t block[FLASH_LINE + 4 * FTL_BLOCK];
	uint64_t from = at / FTL_BLOCK * FTL_BLOCK;
	size_t span = (size_t)((at + len + FTL_BLOCK - 1) / FTL_BLOCK * FTL_BLOCK - from);

	image_get(im, block, span, from);
	memcpy(block + (at - from), buf, len);
	fuzz_assert(media_write(im->media, block, span, from) == 0);
}

static uint32_t image_seed(struct fuzz_image *im, uint32_t eb)
{
	struct ftl_media_eb h;

	image_get(im, &h, sizeof(h), image_at(eb, 0));
	return ftl_media_seed(h.uuid, h.controller, h.seq);
}

static void image_list(struct fuzz_image *im, struct image_base *b)
{
	for (uint32_t eb = 0; eb < FUZZ_EBS; eb++) {
		uint32_t seed = image_seed(im, eb), off = FTL_BLOCK;
		struct ftl_media_record h;

		while (off + 2 * FTL_BLOCK < FUZZ_EB && b->nrecords < IMAGE_RECORDS) {
			image_get(im, &h, sizeof(h), image_at(eb, off));
			if (ftl_media_get_record(&h, seed, off, &h)) {
				off = ftl_round(off + 1, FTL_BLOCK);
				continue;
			}
			b->records[b->nrecords++] =
				(struct image_record){eb, off, ftl_record_bytes(h.stored_len)};
			off += ftl_record_bytes(h.stored_len);
		}
	}
}

static void image_keep(struct fuzz_image *im, struct image_base *b)
{
	char path[128];
	struct stat st;
	int fd;

	b->medium = aligned_alloc(FTL_BLOCK, IMAGE_BYTES);
	fuzz_assert(b->medium && media_read(im->media, b->medium, IMAGE_BYTES, 0) == 0);
	snprintf(path, sizeof(path), "%s/data.mdb", im->dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	fuzz_assert(fd >= 0 && fstat(fd, &st) == 0);
	b->map_bytes = (size_t)st.st_size;
	b->map = malloc(b->map_bytes);
	fuzz_assert(b->map && read(fd, b->map, b->map_bytes) == st.st_size);
	close(fd);
	image_list(im, b);
	fuzz_assert(b->nrecords);
}

static void image_make(struct fuzz_image *im)
{
	struct ftl_format format = {
		.uuid = "fuzzed card", .controllers = 1, .op_percent = 28,
		.geometry = {.erase_block = FUZZ_EB, .dies = 32, .slice = 8192},
	};
	struct ftl_options o = {.background = false};
	struct flash_stats s;
	struct meta *meta;
	struct flash *f;

	snprintf(im->dir, sizeof(im->dir), "%s/map", fuzz_scratch());
	fuzz_assert(media_open_ram(&im->media, IMAGE_BYTES) == 0);
	fuzz_assert(meta_open(&meta, im->dir, ftl_tables, IMAGE_MAP, true) == 0);
	fuzz_assert(ftl_format(im->media, meta, &format) == 0);
	fuzz_assert(ftl_open(&f, im->media, meta, &o) == 0);
	for (unsigned round = 0; round < IMAGE_ROUNDS; round++) {
		image_round(f, round);
		for (unsigned i = 0; i < 8; i++)
			fuzz_assert(ftl_step(f) == 0);
		if (round == IMAGE_ROUNDS - 4)
			fuzz_assert(ftl_checkpoint(f) == 0);
	}
	fuzz_assert(f->ops->flush(f) == 0);
	f->ops->stats(f, &s);
	fuzz_assert(s.gc_runs && s.gc_copied_bytes);
	image_keep(im, &image_bases[0]);
	fuzz_assert(f->ops->close(f) == 0);
	image_keep(im, &image_bases[1]);
	qsort(image_versions, image_nversions, sizeof(image_versions[0]), image_cmp);
	meta_close(meta);
}

void fuzz_image_restore(struct fuzz_image *im, bool clean)
{
	struct image_base *b = &image_bases[clean];
	char path[128];
	int fd;

	if (!im->media)
		image_make(im);
	fuzz_assert(media_write(im->media, b->medium, IMAGE_BYTES, 0) == 0);
	snprintf(path, sizeof(path), "%s/data.mdb", im->dir);
	fd = open(path, O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC, 0600);
	fuzz_assert(fd >= 0 && write(fd, b->map, b->map_bytes) == (ssize_t)b->map_bytes);
	close(fd);
	im->forged = false;
	image_now = b;
}

/* ---- patches ---- */

enum patch_op { PATCH_RAW, PATCH_TEAR, PATCH_SUPER, PATCH_EB, PATCH_RECORD, PATCH_PAYLOAD,
		PATCH_TRAILER, PATCH_INDEX, PATCH_COPY, PATCH_CLONE, PATCH_MAP_VALUE, PATCH_MAP_KEY,
		PATCH_MAP_LENGTH, PATCH_MAP_DELETE, PATCH_OPS };

struct patch {
	enum patch_op op;
	unsigned which, off, mode;
	uint64_t value;
};

static void patch_bytes(const struct patch *p, void *at, size_t len)
{
	unsigned width = 1u << (p->mode & 3);
	size_t off = len > width ? p->off % (len - width + 1) : 0;
	uint64_t old = 0, v = p->value;

	if (width > len)
		width = (unsigned)len;
	memcpy(&old, (uint8_t *)at + off, width);
	if (p->mode & 4) {
		v += old;
	} else if (p->mode & 8) {
		const struct image_record *r = &image_now->records[p->value % image_now->nrecords];

		v = old ^ (1ULL << (p->value % 64));
		if (width == 8) /* where the record is, by the sequence its EB had */
			v = FTL_POS(p->value >> 32, r->off);
	}
	memcpy((uint8_t *)at + off, &v, width);
}

static void patch_record(struct fuzz_image *im, const struct patch *p, bool payload)
{
	static uint8_t buf[FTL_RECORD_MAX + FTL_ALIGN];
	const struct image_record *r = &image_now->records[p->which % image_now->nrecords];
	struct ftl_media_record h;

	image_get(im, buf, r->len, image_at(r->eb, r->off));
	memcpy(&h, buf, sizeof(h));
	if (payload && h.stored_len && h.stored_len <= FLASH_LINE) {
		patch_bytes(p, buf + FTL_RECORD_HEADER, h.stored_len);
		h.payload_crc = hash_crc32c(0, buf + FTL_RECORD_HEADER, h.stored_len);
	} else if (!payload) {
		patch_bytes(p, &h, sizeof(h));
	}
	ftl_media_put_record(buf, &h, image_seed(im, r->eb), r->off);
	image_put(im, buf, r->len, image_at(r->eb, r->off));
}

/* One record's bytes at another's place; `clone`: as a good record there. */
static void patch_copy(struct fuzz_image *im, const struct patch *p, bool clone)
{
	static uint8_t buf[FTL_RECORD_MAX + FTL_ALIGN];
	const struct image_record *from = &image_now->records[p->which % image_now->nrecords];
	const struct image_record *to = &image_now->records[p->value % image_now->nrecords];
	uint32_t room = FUZZ_EB - to->off, len = from->len < room ? from->len : room;
	struct ftl_media_record h, old;

	image_get(im, buf, from->len, image_at(from->eb, from->off));
	if (clone) {
		image_get(im, &old, sizeof(old), image_at(to->eb, to->off));
		memcpy(&h, buf, sizeof(h));
		h.lsn = old.lsn;
		ftl_media_put_record(buf, &h, image_seed(im, to->eb), to->off);
	}
	image_put(im, buf, len, image_at(to->eb, to->off));
}

static void patch_footer(struct fuzz_image *im, const struct patch *p)
{
	uint32_t eb = p->which % FUZZ_EBS, records;
	uint8_t *block = aligned_alloc(FTL_BLOCK, FTL_BLOCK), *idx;
	struct ftl_media_trailer t;

	image_get(im, &t, sizeof(t), image_at(eb, FUZZ_EB - FTL_BLOCK));
	if (p->op == PATCH_TRAILER) {
		patch_bytes(p, &t, sizeof(t));
	} else if (t.magic == FTL_MAGIC_TRAILER && t.records && t.records < 2048 &&
		   t.index_offset < FUZZ_EB - FTL_BLOCK) {
		records = t.records;
		idx = calloc(records, sizeof(struct ftl_media_index));
		image_get(im, idx, records * sizeof(struct ftl_media_index),
			  image_at(eb, t.index_offset));
		patch_bytes(p, idx + p->off % records * sizeof(struct ftl_media_index),
			    sizeof(struct ftl_media_index));
		t.index_crc = ftl_index_crc(idx, records);
		image_put(im, idx, records * sizeof(struct ftl_media_index),
			  image_at(eb, t.index_offset));
		free(idx);
	}
	ftl_media_put_trailer(block, &t);
	image_put(im, block, FTL_BLOCK, image_at(eb, FUZZ_EB - FTL_BLOCK));
	free(block);
}

static void patch_head(struct fuzz_image *im, const struct patch *p)
{
	uint64_t at = p->op == PATCH_SUPER ? p->which % 2 * (uint64_t)FTL_BLOCK
					   : image_at(p->which % FUZZ_EBS, 0);
	uint8_t *block = aligned_alloc(FTL_BLOCK, FTL_BLOCK);
	struct ftl_media_super s;
	struct ftl_media_eb h;

	if (p->op == PATCH_SUPER) {
		image_get(im, &s, sizeof(s), at);
		patch_bytes(p, &s, sizeof(s));
		ftl_media_put_super(block, &s);
	} else {
		image_get(im, &h, sizeof(h), at);
		patch_bytes(p, &h, sizeof(h));
		ftl_media_put_eb(block, &h);
	}
	image_put(im, block, FTL_BLOCK, at);
	free(block);
}

static void patch_raw(struct fuzz_image *im, const struct patch *p)
{
	uint64_t at = p->op == PATCH_TEAR ? p->value % (IMAGE_BYTES / 512) * 512
					  : p->value % (IMAGE_BYTES - 8);
	uint8_t buf[512] = {0};

	if (p->op == PATCH_RAW) {
		image_get(im, buf, 8, at);
		patch_bytes(p, buf, 8);
		image_put(im, buf, 8, at);
		return;
	}
	memset(buf, (int)(p->mode & 1 ? 0xff : 0), sizeof(buf));
	image_put(im, buf, sizeof(buf), at);
}

struct patch_found {
	unsigned left;
	uint8_t key[64], value[2048];
	size_t key_len, len;
};

static int patch_find(void *arg, const struct meta_buf *key, const struct meta_buf *value)
{
	struct patch_found *f = arg;

	if (f->left--)
		return 0;
	if (key->len > sizeof(f->key) || value->len > sizeof(f->value))
		return 1;
	memcpy(f->key, key->data, f->key_len = key->len);
	memcpy(f->value, value->data, f->len = value->len);
	return 1;
}

static void patch_seal(unsigned table, struct patch_found *f)
{
	static const struct {
		size_t off;
		bool keyed;
	} crc[] = {
		[FTL_T_MAP] = {offsetof(struct ftl_extent, crc), true},
		[FTL_T_CTL] = {offsetof(struct ftl_ctlmeta, crc), true},
		[FTL_T_TOMBS] = {offsetof(struct ftl_tombvalue, crc), true},
		[FTL_T_EBS] = {offsetof(struct ftl_ebmeta, crc), false},
		[FTL_T_STATE] = {offsetof(struct ftl_state, crc), false},
	};
	_Alignas(8) uint8_t value[sizeof(f->value)];
	uint32_t *field = (uint32_t *)(void *)(value + crc[table].off);

	if (f->len < crc[table].off + sizeof(*field))
		return;
	memcpy(value, f->value, f->len);
	if (crc[table].keyed)
		ftl_ckpt_crc_key(f->key, f->key_len, value, f->len, field);
	else
		ftl_ckpt_crc(value, f->len, field);
	memcpy(f->value, value, f->len);
}

static void patch_map(struct fuzz_image *im, const struct patch *p)
{
	unsigned table = p->mode >> 4 & 7;
	struct patch_found f = {0};
	struct meta_txn *t;
	struct meta *meta;
	uint64_t n;

	if (table > FTL_T_STATE || meta_open(&meta, im->dir, ftl_tables, IMAGE_MAP, false))
		return;
	n = meta_count(meta, table);
	f.left = n ? p->which % (unsigned)n : 0;
	meta_walk(meta, table, NULL, 0, patch_find, &f);
	if (f.key_len && meta_begin_write(meta, &t) == 0) {
		if (p->op == PATCH_MAP_DELETE)
			meta_del(t, table, f.key, f.key_len);
		if (p->op == PATCH_MAP_KEY)
			patch_bytes(p, f.key, f.key_len);
		else if (p->op == PATCH_MAP_LENGTH)
			f.len = p->value % 4 ? f.len + p->value % 1024 : f.len / 2;
		else
			patch_bytes(p, f.value, f.len);
		f.len = f.len < sizeof(f.value) ? f.len : sizeof(f.value);
		if (!(p->mode & 0x80))
			patch_seal(table, &f);
		if (p->op != PATCH_MAP_DELETE)
			meta_put(t, table, f.key, f.key_len, f.value, f.len);
		fuzz_assert(meta_commit(t) == 0);
	}
	meta_close(meta);
}

static void patch_one(struct fuzz_image *im, const struct patch *p)
{
	switch (p->op) {
	case PATCH_RAW:
	case PATCH_TEAR:
		patch_raw(im, p);
		return;
	case PATCH_COPY:
		patch_copy(im, p, false);
		return;
	case PATCH_MAP_VALUE:
	case PATCH_MAP_KEY:
	case PATCH_MAP_LENGTH:
	case PATCH_MAP_DELETE:
		patch_map(im, p);
		return;
	default:
		break;
	}
	im->forged = true;
	switch (p->op) {
	case PATCH_SUPER:
	case PATCH_EB:
		patch_head(im, p);
		break;
	case PATCH_TRAILER:
	case PATCH_INDEX:
		patch_footer(im, p);
		break;
	case PATCH_CLONE:
		patch_copy(im, p, true);
		break;
	default:
		patch_record(im, p, p->op == PATCH_PAYLOAD);
	}
}

void fuzz_image_patch(struct fuzz_image *im, struct fuzz_in *in)
{
	while (in->left) {
		struct patch p = {.op = fuzz_take(in, 1) % PATCH_OPS};

		p.which = (unsigned)fuzz_take(in, 2);
		p.off = (unsigned)fuzz_take(in, 2);
		p.mode = (unsigned)fuzz_take(in, 1);
		p.value = fuzz_take(in, 8);
		patch_one(im, &p);
	}
}
