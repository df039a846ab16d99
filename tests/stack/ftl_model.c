/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ftl_model.h"

uint64_t model_seed(uint64_t stamp)
{
	return stamp * 65536 + stamp % 4;
}

void model_ctl_value(uint64_t stamp, uint8_t *buf, size_t *len)
{
	*len = 8 + hash_mix64(stamp) % 192;
	for (size_t i = 0; i < *len; i++)
		buf[i] = (uint8_t)(hash_mix64(stamp + i) & 255);
}

static struct model_state model_now(const struct model *m, unsigned cell)
{
	const struct model_cell *c = &m->cell[cell];

	return c->n ? c->v[c->n - 1].s : (struct model_state){.stamp = 0};
}

static void model_set(struct model *m, unsigned cell, struct model_state s)
{
	struct model_cell *c = &m->cell[cell];

	if (c->n == c->cap) {
		c->cap = c->cap ? c->cap * 2 : 8;
		c->v = realloc(c->v, c->cap * sizeof(*c->v));
	}
	c->v[c->n].unit = m->units;
	c->v[c->n++].s = s;
}

bool model_allows(const struct model *m, unsigned cell, unsigned count, uint64_t stamp, bool dirty)
{
	for (; count--; cell++)
		if (m->cell[cell].trimmed > stamp || (dirty && m->cell[cell].cleaned > stamp))
			return false;
	return true;
}

void model_init(struct model *m, bool drops)
{
	memset(m, 0, sizeof(*m));
	m->drops = drops;
}

void model_free(struct model *m)
{
	for (unsigned i = 0; i < MODEL_CELLS; i++)
		free(m->cell[i].v);
}

void model_write(struct model *m, unsigned file, unsigned sector, unsigned count, uint64_t stamp,
		 bool dirty)
{
	for (unsigned i = 0; i < count; i++) {
		unsigned cell = file * MODEL_SECTORS + sector + i;

		if (i && (sector + i) % FLASH_LINE_SECTORS == 0)
			m->units++;
		if (model_now(m, cell).stamp < stamp)
			model_set(m, cell, (struct model_state){.stamp = stamp, .dirty = dirty});
	}
	m->units++;
}

void model_trim(struct model *m, unsigned file, unsigned sector, unsigned count, uint64_t stamp)
{
	for (unsigned i = 0; i < count && sector + i < MODEL_SECTORS; i++) {
		unsigned cell = file * MODEL_SECTORS + sector + i;

		if (m->cell[cell].trimmed < stamp)
			m->cell[cell].trimmed = stamp;
		if (model_now(m, cell).stamp < stamp)
			model_set(m, cell, (struct model_state){.stamp = 0});
	}
	m->units++;
}

void model_clean(struct model *m, unsigned file, unsigned sector, unsigned count, uint64_t stamp)
{
	for (unsigned i = 0; i < count && sector + i < MODEL_SECTORS; i++) {
		unsigned cell = file * MODEL_SECTORS + sector + i;
		struct model_state now = model_now(m, cell);

		if (m->cell[cell].cleaned < stamp)
			m->cell[cell].cleaned = stamp;
		if (now.dirty && now.stamp < stamp)
			model_set(m, cell, (struct model_state){.stamp = now.stamp});
	}
	m->units++;
}

void model_ctl(struct model *m, unsigned key, uint64_t stamp, bool deletion)
{
	unsigned cell = MODEL_FILES * MODEL_SECTORS + key;

	if (deletion && m->cell[cell].trimmed < stamp)
		m->cell[cell].trimmed = stamp;
	if (model_now(m, cell).stamp < stamp)
		model_set(m, cell, (struct model_state){.stamp = deletion ? 0 : stamp});
	m->units++;
}

void model_flushed(struct model *m)
{
	m->flushed = m->units;
}

static bool model_read_file(struct rig *r, unsigned file, struct model_state *out)
{
	unsigned count = file ? MODEL_SECTORS : MODEL_SECTORS / 2;
	uint8_t *buf = malloc(MODEL_SECTORS * FLASH_SECTOR), want[FLASH_SECTOR];
	struct flash_sector st[MODEL_SECTORS];
	int err = r->f->ops->read(r->f, file, 0, count, 0, buf, st);
	bool ok = !err;

	memset(out, 0, MODEL_SECTORS * sizeof(*out));
	for (unsigned i = 0; i < count && ok; i++) {
		if (!st[i].flags)
			continue;
		rig_fill(want, model_seed(st[i].stamp) + i);
		if (st[i].flags & FLASH_CORRUPT || memcmp(want, buf + i * FLASH_SECTOR, FLASH_SECTOR))
			ok = false;
		if (!ok)
			printf("file %u sector %u: stamp %lu flags %x: wrong bytes\n", file, i,
			       (unsigned long)st[i].stamp, st[i].flags);
		out[i].stamp = st[i].stamp;
		out[i].dirty = st[i].flags & FLASH_DIRTY;
	}
	free(buf);
	return ok;
}

static bool model_read_ctl(struct rig *r, unsigned key, struct model_state *out)
{
	uint8_t k[FLASH_CTL_KEY] = {(uint8_t)key}, v[FLASH_CTL_VALUE], want[FLASH_CTL_VALUE];
	size_t len = sizeof(v), want_len;
	uint64_t stamp;
	int err = r->f->ops->ctl_get(r->f, FLASH_CTL_FILE, k, v, &len, &stamp);

	memset(out, 0, sizeof(*out));
	if (err == -ENOENT)
		return true;
	out->stamp = stamp;
	model_ctl_value(stamp, want, &want_len);
	if (!err && len == want_len && !memcmp(v, want, len))
		return true;
	printf("control record %u: error %d or wrong value\n", key, err);
	return false;
}

static bool model_may_drop(const struct model *m, unsigned cell)
{
	return m->drops && cell >= MODEL_SECTORS && cell < MODEL_FILES * MODEL_SECTORS;
}

static bool model_same(const struct model *m, unsigned cell, const struct model_state *want,
		       const struct model_state *got)
{
	if (want->stamp == got->stamp && want->dirty == got->dirty)
		return true;
	return model_may_drop(m, cell) && !got->stamp && want->stamp && !want->dirty;
}

static bool model_ghost(const struct model_cell *c, const struct model_state *got)
{
	for (unsigned i = 0; i < c->nghosts; i++)
		if (c->ghosts[i] == got->stamp && !got->dirty)
			return true;
	return false;
}

/* Takes the prefixes off `ok` after which the cell is not what was found. */
static void model_prefixes(const struct model *m, unsigned cell, const struct model_state *got,
			   uint8_t *ok)
{
	const struct model_cell *c = &m->cell[cell];
	struct model_state s = {.stamp = 0};
	unsigned k = 0;

	for (unsigned p = 0; p <= m->units; p++) {
		while (k < c->n && c->v[k].unit < p)
			s = c->v[k++].s;
		if (!model_same(m, cell, &s, got) && !(k == 0 && model_ghost(c, got)))
			ok[p] = 0;
	}
}

/* What was found is the only state from now on, but for dropped versions that may come back. */
static void model_collapse(struct model *m, unsigned cell, const struct model_state *got,
			   const uint8_t *ok)
{
	struct model_cell *c = &m->cell[cell];
	struct model_state s = {.stamp = 0};
	unsigned k = 0, keep = 0, n = 0;
	uint64_t ghosts[16];

	for (unsigned p = 0; p <= m->units && model_may_drop(m, cell) && !got->stamp; p++) {
		while (k < c->n && c->v[k].unit < p)
			s = c->v[k++].s;
		if (p < m->flushed || !ok[p])
			continue;
		keep |= k == 0;
		if (s.stamp && !s.dirty && n < 15 && (!n || ghosts[n - 1] != s.stamp))
			ghosts[n++] = s.stamp;
	}
	for (unsigned i = 0; keep && i < c->nghosts && n < 16; i++)
		ghosts[n++] = c->ghosts[i];
	memcpy(c->ghosts, ghosts, n * sizeof(*ghosts));
	c->nghosts = n;
	c->n = 0;
	if (!got->stamp)
		return;
	c->v[0].unit = 0;
	c->v[0].s = *got;
	c->n = 1;
}

static void model_complain(const struct model *m, unsigned cell, const struct model_state *got)
{
	const struct model_cell *c = &m->cell[cell];

	printf("cell %u (file %u sector %u): found stamp %lu%s; flushed %u of %u units; history:",
	       cell, cell / MODEL_SECTORS, cell % MODEL_SECTORS, (unsigned long)got->stamp,
	       got->dirty ? " dirty" : "", m->flushed, m->units);
	for (unsigned i = 0; i < c->n; i++)
		printf(" %u:%lu%s", c->v[i].unit, (unsigned long)c->v[i].s.stamp,
		       c->v[i].s.dirty ? "d" : "");
	printf("\n");
}

static bool model_any(const struct model *m, const uint8_t *ok)
{
	for (unsigned p = m->flushed; p <= m->units; p++)
		if (ok[p])
			return true;
	return false;
}

bool model_check(struct model *m, struct rig *r)
{
	struct model_state got[MODEL_CELLS];
	uint8_t *ok = malloc(m->units + 1);
	bool good = true;

	for (unsigned f = 0; f < MODEL_FILES && good; f++)
		good = model_read_file(r, f, &got[f * MODEL_SECTORS]);
	for (unsigned k = 0; k < MODEL_CTL && good; k++)
		good = model_read_ctl(r, k, &got[MODEL_FILES * MODEL_SECTORS + k]);
	memset(ok, 1, m->units + 1);
	for (unsigned i = 0; i < MODEL_CELLS && good; i++) {
		model_prefixes(m, i, &got[i], ok);
		good = model_any(m, ok);
		if (!good)
			model_complain(m, i, &got[i]);
	}
	for (unsigned i = 0; i < MODEL_CELLS && good; i++)
		model_collapse(m, i, &got[i], ok);
	free(ok);
	m->units = m->flushed = 1;
	return good;
}
