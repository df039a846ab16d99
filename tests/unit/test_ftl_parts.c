/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The parts of a controller that need no medium: geometry, media format, compression.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ftl/ftl_priv.h"

static struct ftl_geom geom_make(bool parity, uint32_t eb, uint32_t dies, uint32_t slice)
{
	struct ftl_geometry in = {.erase_block = eb, .dies = dies, .slice = slice, .parity = parity};
	struct ftl_geom g;

	ck_assert_int_eq(ftl_geom_init(&g, (uint64_t)eb * 20, &in), 0);
	return g;
}

/* Every byte of the logical space has its own place, none of it in a parity slice. */
static void geom_check(const struct ftl_geom *g)
{
	uint64_t base = g->first_eb + (uint64_t)3 * g->eb_bytes;
	uint32_t blocks = g->eb_bytes / FTL_BLOCK, used = 0;
	uint8_t *seen = calloc(blocks, 1);

	for (uint32_t row = 0; g->parity && row < g->eb_bytes / g->slice / g->dies; row++)
		for (uint32_t o = 0; o < g->slice; o += FTL_BLOCK)
			seen[(ftl_geom_parity(g, 3, row) - base + o) / FTL_BLOCK] = 2;
	for (uint32_t off = 0; off < g->logical; off += FTL_BLOCK) {
		uint32_t run;
		uint64_t at = ftl_geom_map(g, 3, off, &run);

		ck_assert(at >= base && at + run <= base + g->eb_bytes);
		ck_assert_uint_ge(run, FTL_BLOCK);
		ck_assert_uint_eq(seen[(at - base) / FTL_BLOCK], 0);
		seen[(at - base) / FTL_BLOCK] = 1;
	}
	for (uint32_t i = 0; i < blocks; i++)
		used += seen[i] != 0;
	ck_assert_uint_eq(used, blocks);
	free(seen);
}

START_TEST(test_geometry_map)
{
	struct ftl_geom g = geom_make(false, 1 << 20, 32, 8192);

	ck_assert_uint_eq(g.logical, 1 << 20);
	geom_check(&g);
	g = geom_make(true, 1 << 20, 32, 8192);
	ck_assert_uint_eq(g.logical, (1 << 20) / 32 * 31);
	geom_check(&g);
	g = geom_make(true, 256 << 10, 4, 16384);
	/* Row 0's parity is die 0, row 1's die 1: logical slice 3 is die 0 of row 1. */
	uint32_t run;

	ck_assert_uint_eq(ftl_geom_map(&g, 0, 0, &run), g.first_eb + 16384);
	ck_assert_uint_eq(ftl_geom_map(&g, 0, 3 * 16384, &run), g.first_eb + 4 * 16384);
	ck_assert_uint_eq(ftl_geom_map(&g, 0, 4 * 16384 + 100, &run), g.first_eb + 6 * 16384 + 100);
	ck_assert_uint_eq(run, 16384 - 100);
	geom_check(&g);
}
END_TEST

START_TEST(test_geometry_io)
{
	struct ftl_geom g = geom_make(true, 256 << 10, 4, 16384);
	uint8_t *out = aligned_alloc(FTL_BLOCK, g.logical), *in = malloc(g.logical);
	struct media *m;

	ck_assert_int_eq(media_open_ram(&m, g.raw_bytes), 0);
	for (uint32_t i = 0; i < g.logical; i++)
		out[i] = (uint8_t)hash_mix64(i);
	ck_assert_int_eq(ftl_geom_write(&g, m, 5, 0, out, g.logical), 0);
	ck_assert_int_eq(ftl_geom_read(&g, m, 5, 0, in, g.logical), 0);
	ck_assert_mem_eq(in, out, g.logical);
	ck_assert_int_eq(ftl_geom_read(&g, m, 5, 12345, in, 70000), 0);
	ck_assert_mem_eq(in, out + 12345, 70000);
	media_close(m);
	free(out);
	free(in);
}
END_TEST

START_TEST(test_geometry_choice)
{
	struct ftl_geometry g;
	struct ftl_geom full;

	ck_assert_int_eq(ftl_choose_geometry(4 << 20, &g), -ENOSPC);
	for (uint64_t raw = 9 << 20; raw < 1ULL << 43; raw += raw / 3) {
		ck_assert_int_eq(ftl_choose_geometry(raw, &g), 0);
		ck_assert_int_eq(ftl_geom_init(&full, raw, &g), 0);
		ck_assert_uint_ge(full.ebs, 32);
		ck_assert(!g.parity);
		ck_assert(full.first_eb + (uint64_t)full.ebs * full.eb_bytes <= raw);
	}
	g = (struct ftl_geometry){.erase_block = 300000, .dies = 4, .slice = 8192};
	ck_assert_int_eq(ftl_geom_init(&full, 1 << 30, &g), -EINVAL);
	g = (struct ftl_geometry){.erase_block = 1 << 20, .dies = 3, .slice = 8192};
	ck_assert_int_eq(ftl_geom_init(&full, 1 << 30, &g), -EINVAL);
	g = (struct ftl_geometry){.erase_block = 1 << 20, .dies = 4, .slice = 8192};
	ck_assert_int_eq(ftl_geom_init(&full, 10 << 20, &g), -ENOSPC);
}
END_TEST

START_TEST(test_media_blocks)
{
	struct ftl_media_super s = {.magic = FTL_MAGIC_SUPER, .version = FTL_VERSION, .checkpoint = 9};
	struct ftl_media_eb e = {.magic = FTL_MAGIC_EB, .version = FTL_VERSION, .uuid = "card",
				 .state = FTL_EB_OPEN, .seq = 77, .index = 5, .controller = 2};
	uint8_t block[FTL_BLOCK];
	struct ftl_media_super s2;
	struct ftl_media_eb e2;

	ftl_media_put_super(block, &s);
	ck_assert_int_eq(ftl_media_get_super(block, &s2), 0);
	ck_assert_uint_eq(s2.checkpoint, 9);
	for (unsigned bit = 64; bit < FTL_BLOCK * 8; bit += 61) {
		block[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_int_eq(ftl_media_get_super(block, &s2), -EUCLEAN);
		block[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	s.version = FTL_VERSION + 1;
	ftl_media_put_super(block, &s);
	ck_assert_int_eq(ftl_media_get_super(block, &s2), -EPROTO);
	memset(block, 0, sizeof(block));
	ck_assert_int_eq(ftl_media_get_super(block, &s2), -ENODATA);

	/* An EB header survives any one flipped bit, as a full scan depends on it. */
	for (unsigned bit = 0; bit < FTL_BLOCK * 8; bit += bit < 640 ? 1 : 97) {
		ftl_media_put_eb(block, &e);
		block[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_int_eq(ftl_media_get_eb(block, e.uuid, 2, 5, &e2), 0);
		ck_assert_uint_eq(e2.seq, 77);
	}
	ftl_media_put_eb(block, &e);
	block[100] ^= 1;
	block[20] ^= 3;
	ck_assert_int_eq(ftl_media_get_eb(block, e.uuid, 2, 5, &e2), -EUCLEAN);
	ftl_media_put_eb(block, &e);
	ck_assert_int_eq(ftl_media_get_eb(block, e.uuid, 1, 5, &e2), -ENODATA);
	ck_assert_int_eq(ftl_media_get_eb(block, e.uuid, 2, 6, &e2), -ENODATA);
}
END_TEST

START_TEST(test_media_record)
{
	uint8_t uuid[16] = "some card", payload[100] = "payload", at[FTL_RECORD_HEADER];
	struct ftl_media_record h = {
		.type = FTL_REC_DATA, .lsn = 5, .stamp = 6, .file = 7, .addr = FTL_ADDR(9, 3, 2),
		.raw_len = 8192, .stored_len = 100, .valid = 0x18, .dirty = 0x8,
		.flags = FTL_F_ZSTD, .payload_crc = hash_crc32c(0, payload, 100),
	}, back;
	uint32_t seed = ftl_media_seed(uuid, 1, 10);

	ftl_media_put_record(at, &h, seed, 4096);
	ck_assert_int_eq(ftl_media_get_record(at, seed, 4096, &back), 0);
	ck_assert_mem_eq(&h, &back, sizeof(h));
	ck_assert(ftl_media_payload_ok(&back, payload));
	payload[50] ^= 4;
	ck_assert(!ftl_media_payload_ok(&back, payload));
	/* Elsewhere, in another lifetime, on another card or controller it is nothing. */
	ck_assert_int_eq(ftl_media_get_record(at, seed, 4104, &back), -EUCLEAN);
	ck_assert_int_eq(ftl_media_get_record(at, ftl_media_seed(uuid, 1, 11), 4096, &back), -EUCLEAN);
	ck_assert_int_eq(ftl_media_get_record(at, ftl_media_seed(uuid, 0, 10), 4096, &back), -EUCLEAN);
	uuid[0] ^= 1;
	ck_assert_int_eq(ftl_media_get_record(at, ftl_media_seed(uuid, 1, 10), 4096, &back), -EUCLEAN);
	for (unsigned bit = 0; bit < sizeof(at) * 8; bit++) {
		at[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_int_ne(ftl_media_get_record(at, seed, 4096, &back), 0);
		at[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	/* A right CRC over nonsense. */
	h.valid = 0x8000;
	ftl_media_put_record(at, &h, seed, 4096);
	ck_assert_int_eq(ftl_media_get_record(at, seed, 4096, &back), -EUCLEAN);
	h.valid = 0x18;
	h.stored_len = 1u << 30;
	ftl_media_put_record(at, &h, seed, 4096);
	ck_assert_int_eq(ftl_media_get_record(at, seed, 4096, &back), -EUCLEAN);
}
END_TEST

static void zip_turn(struct ftl_scratch *s, const uint8_t *data, uint32_t len, unsigned flags)
{
	uint8_t *back = malloc(len + 64), *stored;
	struct ftl_packed z;

	memset(back, 0xee, len + 64);
	ftl_zip_pack(s, data, len, &z);
	ck_assert_uint_eq(z.flags, flags);
	ck_assert_uint_le(z.len, len < 8 ? 8 : len);
	ck_assert_uint_eq(z.crc, hash_crc32c(0, z.data, z.len));
	stored = malloc(z.len);
	memcpy(stored, z.data, z.len);
	ck_assert_int_eq(ftl_zip_unpack(s, z.flags, stored, z.len, back, len), 0);
	ck_assert_mem_eq(back, data, len);
	ck_assert_uint_eq(back[len], 0xee);
	if (flags == FTL_F_ZSTD) {
		ck_assert_int_eq(ftl_zip_unpack(s, z.flags, stored, z.len, back, len - 1), -EUCLEAN);
		ck_assert_int_eq(ftl_zip_unpack(s, z.flags, stored, z.len - 1, back, len), -EUCLEAN);
	}
	free(stored);
	free(back);
}

START_TEST(test_zip)
{
	uint8_t *data = malloc(FLASH_LINE);
	struct ftl_scratch *s;

	ck_assert_int_eq(ftl_scratch_new(&s, 1), 0);
	memset(data, 0, FLASH_LINE);
	zip_turn(s, data, FLASH_LINE, FTL_F_CONST);
	zip_turn(s, data, 4097, FTL_F_CONST);
	for (unsigned i = 0; i < FLASH_LINE; i++)
		data[i] = (uint8_t)"abcdefgh"[i % 8];
	zip_turn(s, data, FLASH_LINE - 3, FTL_F_CONST);
	for (unsigned i = 0; i < FLASH_LINE; i++)
		data[i] = (uint8_t)(hash_mix64(i / 13) % 7 + 'a');
	zip_turn(s, data, FLASH_LINE, FTL_F_ZSTD);
	zip_turn(s, data, 1000, FTL_F_ZSTD);
	for (unsigned i = 0; i < FLASH_LINE; i++)
		data[i] = (uint8_t)hash_mix64(i);
	zip_turn(s, data, FLASH_LINE, 0);
	zip_turn(s, data, 1, 0);
	/* 3 % saved is not enough, 12 % is. */
	memset(data, 0, FLASH_LINE * 3 / 100);
	zip_turn(s, data, FLASH_LINE, 0);
	memset(data, 0, FLASH_LINE * 12 / 100);
	zip_turn(s, data, FLASH_LINE, FTL_F_ZSTD);
	ftl_scratch_free(s);
	free(data);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ftl parts");
	TCase *t = tcase_create("parts");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_test(t, test_geometry_map);
	tcase_add_test(t, test_geometry_io);
	tcase_add_test(t, test_geometry_choice);
	tcase_add_test(t, test_media_blocks);
	tcase_add_test(t, test_media_record);
	tcase_add_test(t, test_zip);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
