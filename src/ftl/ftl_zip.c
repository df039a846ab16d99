/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Compression of an extent: zstd frames, raw where that saves too little, 8 bytes where the data
 * repeats. Contexts live in scratch areas, which are pooled: one a concurrent operation.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "base/hash.h"
#include "base/log.h"
#include "ftl/ftl_priv.h"

#define ZIP_SAVE_PERCENT 6 /* less is not worth the decompression */

int ftl_scratch_new(struct ftl_scratch **out, int level)
{
	struct ftl_scratch *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->cctx = ZSTD_createCCtx();
	s->dctx = ZSTD_createDCtx();
	s->io = aligned_alloc(FTL_BLOCK, FTL_IO_BYTES);
	s->raw = aligned_alloc(FTL_BLOCK, FLASH_LINE);
	s->zip = aligned_alloc(FTL_BLOCK, FTL_ZIP_BYTES);
	if (!s->cctx || !s->dctx || !s->io || !s->raw || !s->zip) {
		ftl_scratch_free(s);
		return -ENOMEM;
	}
	/* The record's header has both lengths and a checksum. */
	ZSTD_CCtx_setParameter(s->cctx, ZSTD_c_compressionLevel, level);
	ZSTD_CCtx_setParameter(s->cctx, ZSTD_c_contentSizeFlag, 0);
	ZSTD_CCtx_setParameter(s->cctx, ZSTD_c_checksumFlag, 0);
	ZSTD_CCtx_setParameter(s->cctx, ZSTD_c_dictIDFlag, 0);
	*out = s;
	return 0;
}

void ftl_scratch_free(struct ftl_scratch *s)
{
	if (!s)
		return;
	ZSTD_freeCCtx(s->cctx);
	ZSTD_freeDCtx(s->dctx);
	free(s->io);
	free(s->raw);
	free(s->zip);
	free(s);
}

static bool zip_repeats(const uint8_t *p, uint32_t len)
{
	if (len < 8)
		return false;
	return !memcmp(p, p + 8, len - 8);
}

void ftl_zip_pack(struct ftl_scratch *s, const void *data, uint32_t len, struct ftl_packed *out)
{
	uint32_t most = len - (len * ZIP_SAVE_PERCENT + 99) / 100;
	size_t n;

	out->raw_len = len;
	if (zip_repeats(data, len)) {
		out->data = data;
		out->len = 8;
		out->flags = FTL_F_CONST;
	} else {
		n = most < 16 ? 0 : ZSTD_compress2(s->cctx, s->zip, most, data, len);
		if (n && !ZSTD_isError(n)) {
			out->data = s->zip;
			out->len = (uint32_t)n;
			out->flags = FTL_F_ZSTD;
		} else {
			out->data = data;
			out->len = len;
			out->flags = 0;
		}
	}
	out->crc = hash_crc32c(0, out->data, out->len);
	out->hash = hash_64(out->data, out->len);
}

int ftl_zip_unpack(struct ftl_scratch *s, unsigned flags, const void *stored, uint32_t stored_len,
		   void *dst, uint32_t raw_len)
{
	size_t n;

	if (flags & FTL_F_CONST) {
		uint8_t *p = dst;

		if (stored_len != 8)
			return -EUCLEAN;
		for (uint32_t i = 0; i < raw_len; i += 8)
			memcpy(p + i, stored, raw_len - i < 8 ? raw_len - i : 8);
		return 0;
	}
	if (!(flags & FTL_F_ZSTD)) {
		if (stored_len != raw_len)
			return -EUCLEAN;
		memcpy(dst, stored, raw_len);
		return 0;
	}
	n = ZSTD_decompressDCtx(s->dctx, dst, raw_len, stored, stored_len);
	return ZSTD_isError(n) || n != raw_len ? -EUCLEAN : 0;
}
