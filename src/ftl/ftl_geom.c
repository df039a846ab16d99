/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Geometry: the choice of erase block and slice sizes, and logical offsets in an erase block (EB).
 *
 * An EB is rows of `dies` slices. With parity off a logical offset is the physical one. With parity
 * on, row r keeps its parity in die (r % dies), and logical offsets count the other slices only:
 *
 *     row 0:  [P][0][1][2]      row 1:  [3][P][4][5]      row 2:  [6][7][P][8]   (4 dies)
 */
#include <errno.h>

#include "ftl/ftl_priv.h"

#define GEOM_EB_MIN (256u << 10)
#define GEOM_EB_MAX (256u << 20)
#define GEOM_SLICE (64u << 10)
#define GEOM_DIES 32u
#define GEOM_EBS_MIN 32u    /* chosen */
#define GEOM_EBS_LEAST 16u  /* accepted */

static bool geom_power2(uint64_t x)
{
	return x && !(x & (x - 1));
}

static uint64_t geom_first_eb(uint32_t slice)
{
	uint64_t supers = 2 * FTL_BLOCK;

	return slice > supers ? slice : supers;
}

int ftl_choose_geometry(uint64_t raw_bytes, struct ftl_geometry *out)
{
	uint32_t eb = GEOM_EB_MIN;

	while (eb < GEOM_EB_MAX && (uint64_t)eb * 2 <= raw_bytes / 256)
		eb *= 2;
	out->erase_block = eb;
	out->dies = GEOM_DIES;
	out->slice = eb / GEOM_DIES < GEOM_SLICE ? eb / GEOM_DIES : GEOM_SLICE;
	out->parity = false;
	if (raw_bytes < geom_first_eb(out->slice) + (uint64_t)eb * GEOM_EBS_MIN)
		return -ENOSPC;
	return 0;
}

int ftl_geom_init(struct ftl_geom *g, uint64_t raw_bytes, const struct ftl_geometry *in)
{
	uint64_t first, ebs;

	if (!geom_power2(in->erase_block) || in->erase_block < GEOM_EB_MIN ||
	    in->erase_block > GEOM_EB_MAX)
		return -EINVAL;
	if (!geom_power2(in->slice) || in->slice < FTL_BLOCK || in->dies < 2 || in->dies > 64)
		return -EINVAL;
	if (in->erase_block % ((uint64_t)in->slice * in->dies))
		return -EINVAL;
	first = geom_first_eb(in->slice);
	ebs = raw_bytes > first ? (raw_bytes - first) / in->erase_block : 0;
	if (ebs < GEOM_EBS_LEAST)
		return -ENOSPC;
	if (ebs > UINT32_MAX)
		return -EINVAL;
	g->raw_bytes = raw_bytes;
	g->first_eb = first;
	g->eb_bytes = in->erase_block;
	g->ebs = (uint32_t)ebs;
	g->dies = in->dies;
	g->slice = in->slice;
	g->parity = in->parity;
	g->logical = in->parity ? in->erase_block / in->dies * (in->dies - 1) : in->erase_block;
	return 0;
}

uint64_t ftl_geom_map(const struct ftl_geom *g, uint32_t eb, uint32_t off, uint32_t *run)
{
	uint64_t base = g->first_eb + (uint64_t)eb * g->eb_bytes;
	uint32_t within = off % g->slice;
	uint32_t n, row, die;

	if (!g->parity) {
		*run = g->logical - off;
		return base + off;
	}
	n = off / g->slice;
	row = n / (g->dies - 1);
	die = n % (g->dies - 1);
	if (die >= row % g->dies)
		die++;
	*run = g->slice - within;
	return base + ((uint64_t)row * g->dies + die) * g->slice + within;
}

uint64_t ftl_geom_parity(const struct ftl_geom *g, uint32_t eb, uint32_t row)
{
	return g->first_eb + (uint64_t)eb * g->eb_bytes +
	       ((uint64_t)row * g->dies + row % g->dies) * g->slice;
}

int ftl_geom_read(const struct ftl_geom *g, struct media *m, uint32_t eb, uint32_t off, void *buf,
		  uint32_t len)
{
	uint8_t *p = buf;

	while (len) {
		uint32_t run;
		uint64_t at = ftl_geom_map(g, eb, off, &run);
		int err;

		if (run > len)
			run = len;
		err = media_read(m, p, run, at);
		if (err)
			return err;
		p += run;
		off += run;
		len -= run;
	}
	return 0;
}

int ftl_geom_write(const struct ftl_geom *g, struct media *m, uint32_t eb, uint32_t off,
		   const void *buf, uint32_t len)
{
	const uint8_t *p = buf;

	while (len) {
		uint32_t run;
		uint64_t at = ftl_geom_map(g, eb, off, &run);
		int err;

		if (run > len)
			run = len;
		err = media_write(m, p, run, at);
		if (err)
			return err;
		p += run;
		off += run;
		len -= run;
	}
	return 0;
}
