/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Encoding, decoding and checking of everything on the media (format: ftl_media.h). Nothing read
 * from the media is used before a function here has accepted it.
 */
#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "ftl/ftl_priv.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the media is little endian: a big endian host needs byte swaps in this file"
#endif

/* CRC of a block with its 4-byte crc field taken as zero. */
static uint32_t media_crc_skip(uint32_t seed, const void *buf, size_t len, size_t crc_off)
{
	static const uint8_t zero[4];
	const uint8_t *p = buf;
	uint32_t crc = hash_crc32c(seed, p, crc_off);

	crc = hash_crc32c(crc, zero, sizeof(zero));
	return hash_crc32c(crc, p + crc_off + 4, len - crc_off - 4);
}

static void media_encode_block(void *block, const void *s, size_t len, size_t crc_off)
{
	uint32_t crc;

	memset(block, 0, FTL_BLOCK);
	memcpy(block, s, len);
	crc = media_crc_skip(0, block, FTL_BLOCK, crc_off);
	memcpy((uint8_t *)block + crc_off, &crc, sizeof(crc));
}

static bool media_block_ok(const void *block, size_t crc_off)
{
	uint32_t crc;

	memcpy(&crc, (const uint8_t *)block + crc_off, sizeof(crc));
	return crc == media_crc_skip(0, block, FTL_BLOCK, crc_off);
}

void ftl_media_put_super(void *block, const struct ftl_media_super *s)
{
	media_encode_block(block, s, sizeof(*s), offsetof(struct ftl_media_super, crc));
}

int ftl_media_get_super(const void *block, struct ftl_media_super *s)
{
	memcpy(s, block, sizeof(*s));
	if (s->magic != FTL_MAGIC_SUPER)
		return -ENODATA;
	if (!media_block_ok(block, offsetof(struct ftl_media_super, crc)))
		return -EUCLEAN;
	if (s->version != FTL_VERSION)
		return -EPROTO;
	return 0;
}

void ftl_media_put_eb(void *block, const struct ftl_media_eb *h)
{
	media_encode_block(block, h, sizeof(*h), offsetof(struct ftl_media_eb, crc));
}

static int media_check_eb(const void *block, struct ftl_media_eb *h)
{
	if (!media_block_ok(block, offsetof(struct ftl_media_eb, crc)))
		return -EUCLEAN;
	memcpy(h, block, sizeof(*h));
	if (h->magic != FTL_MAGIC_EB || h->version != FTL_VERSION ||
	    (h->state != FTL_EB_ERASED && h->state != FTL_EB_OPEN) || h->stream >= 256 ||
	    h->seq > FTL_SEQ_MAX)
		return -EUCLEAN;
	return 0;
}

/* A header block with one flipped bit: its lifetime may hold the newest data there is, so a full
 * scan must not skip it. CRC-32C at this length tells every single flip from all others. The records
 * then confirm it: their own CRCs are seeded with the sequence found here. */
static int media_repair_eb(void *block, struct ftl_media_eb *h)
{
	uint8_t *p = block;

	for (size_t i = sizeof(*h); i < FTL_BLOCK; i++)
		p[i] = 0;
	if (!media_check_eb(block, h))
		return 0;
	for (size_t bit = 0; bit < sizeof(*h) * 8; bit++) {
		p[bit / 8] ^= (uint8_t)(1u << bit % 8);
		if (!media_check_eb(block, h))
			return 0;
		p[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	return -EUCLEAN;
}

int ftl_media_get_eb(void *block, const uint8_t uuid[16], uint32_t controller, uint32_t index,
		     struct ftl_media_eb *h)
{
	int err = media_check_eb(block, h);

	if (err) {
		/* Never formatted, or not ours: most of it does not even look like a header. */
		memcpy(h, block, sizeof(*h));
		if (h->magic != FTL_MAGIC_EB && memcmp(h->uuid, uuid, 16))
			return -ENODATA;
		err = media_repair_eb(block, h);
		if (err)
			return err;
	}
	if (memcmp(h->uuid, uuid, 16) || h->controller != controller || h->index != index)
		return -ENODATA;
	return 0;
}

void ftl_media_put_trailer(void *block, const struct ftl_media_trailer *t)
{
	media_encode_block(block, t, sizeof(*t), offsetof(struct ftl_media_trailer, crc));
}

int ftl_media_get_trailer(const void *block, uint64_t seq, uint32_t logical,
			  struct ftl_media_trailer *t)
{
	uint64_t bytes;

	memcpy(t, block, sizeof(*t));
	if (t->magic != FTL_MAGIC_TRAILER || t->seq != seq)
		return -ENODATA;
	if (!media_block_ok(block, offsetof(struct ftl_media_trailer, crc)))
		return -EUCLEAN;
	bytes = ftl_index_bytes(t->records);
	if (t->index_offset % FTL_BLOCK || t->index_offset < FTL_BLOCK ||
	    t->index_offset + bytes + FTL_BLOCK != logical || t->used > t->index_offset)
		return -EUCLEAN;
	return 0;
}

uint32_t ftl_media_seed(const uint8_t uuid[16], uint32_t controller, uint64_t seq)
{
	uint32_t crc = hash_crc32c(0, uuid, 16);

	crc = hash_crc32c(crc, &controller, sizeof(controller));
	return hash_crc32c(crc, &seq, sizeof(seq));
}

static uint32_t media_record_crc(uint32_t seed, uint32_t off, const void *header)
{
	uint64_t off64 = off;

	seed = hash_crc32c(seed, &off64, sizeof(off64));
	return media_crc_skip(seed, header, FTL_RECORD_HEADER,
			      offsetof(struct ftl_media_record, header_crc));
}

void ftl_media_put_record(void *at, struct ftl_media_record *h, uint32_t seed, uint32_t off)
{
	h->magic = FTL_MAGIC_RECORD;
	h->header_crc = media_record_crc(seed, off, h);
	memcpy(at, h, sizeof(*h));
}

static bool media_data_sane(const struct ftl_media_record *h)
{
	unsigned first = FTL_ADDR_FIRST(h->addr), count = FTL_ADDR_COUNT(h->addr);
	uint16_t mask;

	if (first + count > FLASH_LINE_SECTORS)
		return false;
	mask = ftl_mask(first, count);
	if ((h->valid & ~mask) || (h->dirty & ~h->valid))
		return false;
	if (!h->raw_len || h->raw_len > count * FLASH_SECTOR ||
	    h->raw_len <= (count - 1) * FLASH_SECTOR)
		return false;
	if (h->flags & FTL_F_LOST)
		return !h->stored_len;
	if (h->flags & FTL_F_CONST)
		return h->stored_len == 8;
	if (h->flags & FTL_F_ZSTD)
		return h->stored_len && h->stored_len < h->raw_len;
	return h->stored_len == h->raw_len;
}

static bool media_record_sane(const struct ftl_media_record *h)
{
	if (h->lsn > FTL_LSN_MAX)
		return false;
	switch (h->type) {
	case FTL_REC_DATA:
		return media_data_sane(h);
	case FTL_REC_TRIM:
	case FTL_REC_CLEAN:
		return h->stored_len == sizeof(struct ftl_media_range);
	case FTL_REC_CTL:
	case FTL_REC_CTL_DEL:
		return h->stored_len >= sizeof(struct ftl_media_ctl) &&
		       h->stored_len <= sizeof(struct ftl_media_ctl) + FLASH_CTL_VALUE;
	default:
		return false;
	}
}

int ftl_media_get_record(const void *at, uint32_t seed, uint32_t off, struct ftl_media_record *h)
{
	memcpy(h, at, sizeof(*h));
	if (h->magic != FTL_MAGIC_RECORD)
		return -ENODATA;
	if (h->header_crc != media_record_crc(seed, off, at))
		return -EUCLEAN;
	/* A correct CRC over nonsense would be a bug or an attack; either way not to be used. */
	return media_record_sane(h) ? 0 : -EUCLEAN;
}

bool ftl_media_payload_ok(const struct ftl_media_record *h, const void *payload)
{
	return hash_crc32c(0, payload, h->stored_len) == h->payload_crc;
}

void ftl_media_index_of(const struct ftl_media_record *h, uint32_t off, struct ftl_media_index *x)
{
	memset(x, 0, sizeof(*x));
	x->lsn = h->lsn;
	x->stamp = h->stamp;
	x->file = h->file;
	x->addr = h->addr;
	x->source = h->source;
	x->offset = off;
	x->raw_len = h->raw_len;
	x->stored_len = h->stored_len;
	x->epoch = h->epoch;
	x->valid = h->valid;
	x->dirty = h->dirty;
	x->type = h->type;
	x->flags = h->flags;
}

uint32_t ftl_index_crc(const void *idx, uint32_t records)
{
	return hash_crc32c(0, idx, (size_t)records * sizeof(struct ftl_media_index));
}

bool ftl_media_index_sane(const struct ftl_media_index *x, uint32_t used)
{
	struct ftl_media_record h = {
		.type = x->type, .flags = x->flags, .lsn = x->lsn, .file = x->file, .addr = x->addr,
		.raw_len = x->raw_len, .stored_len = x->stored_len, .valid = x->valid,
		.dirty = x->dirty,
	};

	return media_record_sane(&h) && x->offset >= FTL_BLOCK && x->offset % FTL_ALIGN == 0 &&
	       (uint64_t)x->offset + ftl_record_bytes(x->stored_len) <= used;
}

int ftl_media_get_range(const void *payload, struct ftl_media_range *r)
{
	memcpy(r, payload, sizeof(*r));
	if (!r->count || r->first > FLASH_SECTOR_MAX)
		return -EUCLEAN;
	return 0;
}

int ftl_media_get_ctl(const void *payload, uint32_t stored_len, struct ftl_media_ctl *c)
{
	memcpy(c, payload, sizeof(*c));
	if (c->len != stored_len - sizeof(*c) || c->kind >= FLASH_CTL_KINDS)
		return -EUCLEAN;
	return 0;
}
