/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Control records: keyed values in the log, in the overlays and in LMDB, looked up like lines
 * (ftl_map.c). A deletion stays in the table as long as its record must hold back older ones.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "ftl/ftl_priv.h"

static uint64_t ctl_hash(const struct ftl_ctlkey *k)
{
	return hash_64(k, sizeof(*k));
}

static struct ftl_ctlent *ctl_overlay_find(struct ftl_overlay *o, const struct ftl_ctlkey *k)
{
	struct htab_node *n;

	for (n = o ? htab_find(&o->ctl, ctl_hash(k)) : NULL; n; n = htab_next(n)) {
		struct ftl_ctlent *e = container_of(n, struct ftl_ctlent, node);

		if (!memcmp(&e->key, k, sizeof(*k)))
			return e;
	}
	return NULL;
}

static int ctl_read_table(struct ftl *f, const struct ftl_ctlkey *k, struct ftl_ctlmeta *m,
			  void *value)
{
	struct {
		struct ftl_ctlmeta m;
		uint8_t value[FLASH_CTL_VALUE];
	} v;
	size_t len = sizeof(v);
	int err = meta_get(f->meta, FTL_T_CTL, k, sizeof(*k), &v, &len);

	if (err == -ENOENT)
		return err;
	if (!err && len >= sizeof(*m) && v.m.len == len - sizeof(*m)) {
		uint32_t crc = v.m.crc;

		if (ftl_ckpt_crc_key(k, sizeof(*k), &v, len, &v.m.crc) == crc) {
			*m = v.m;
			m->crc = 0;
			if (value)
				memcpy(value, v.value, m->len);
			return 0;
		}
	}
	log_error(FTL_MODULE, "controller %u: control record of kind %u unreadable; run recover",
		  f->super.controller, k->kind);
	return -EUCLEAN;
}

int ftl_ctl_find(struct ftl *f, const struct ftl_ctlkey *k, struct ftl_ctlmeta *m, void *value)
{
	lock_assert_held(&f->lock);
	for (;;) {
		struct ftl_ctlent *e = ctl_overlay_find(f->cur, k);
		unsigned long drops = f->drops_of_frozen;
		int err;

		if (!e)
			e = ctl_overlay_find(f->frozen, k);
		if (e) {
			*m = e->m;
			if (value)
				memcpy(value, e->value, e->m.len);
			return e->gone ? -ENOENT : 0;
		}
		lock_release(&f->lock);
		err = ctl_read_table(f, k, m, value);
		lock_acquire(&f->lock);
		if (drops == f->drops_of_frozen && !ctl_overlay_find(f->cur, k) &&
		    !ctl_overlay_find(f->frozen, k))
			return err;
	}
}

static void ctl_account_old(struct ftl *f, const struct ftl_ctlmeta *old)
{
	uint32_t bytes = ftl_ctl_bytes(old->len);

	if (old->deleted) {
		ftl_eb_sub_tomb(f, old->pos, bytes);
		f->ctl_deletions--;
		return;
	}
	ftl_eb_sub(f, old->pos, bytes, old->stamp);
	f->ctl_records--;
}

int ftl_ctl_set(struct ftl *f, const struct ftl_ctlkey *k, const struct ftl_ctlmeta *old,
		const struct ftl_ctlmeta *m, const void *value, bool gone)
{
	struct ftl_ctlent *was = ctl_overlay_find(f->cur, k);
	struct ftl_ctlent *e = calloc(1, sizeof(*e) + m->len);

	if (!e)
		return -ENOMEM;
	e->key = *k;
	e->m = *m;
	e->gone = gone;
	if (m->len)
		memcpy(e->value, value, m->len);
	if (was) {
		htab_remove(&f->cur->ctl, &was->node);
		free(was);
	}
	htab_insert(&f->cur->ctl, &e->node, ctl_hash(k));
	if (old)
		ctl_account_old(f, old);
	if (!gone) {
		ftl_eb_add(f, m->pos, ftl_ctl_bytes(m->len));
		if (m->deleted) {
			f->ctl_deletions++;
			ftl_tomb_pressure(f, m->stamp);
		} else {
			f->ctl_records++;
		}
	}
	ftl_changed(f);
	return 0;
}

static void ctl_thaw_one(struct htab_node *n, void *arg)
{
	struct ftl_ctlent *e = container_of(n, struct ftl_ctlent, node);
	struct ftl *f = arg;

	if (ctl_overlay_find(f->cur, &e->key))
		return;
	htab_remove(&f->frozen->ctl, n);
	htab_insert(&f->cur->ctl, n, ctl_hash(&e->key));
}

void ftl_ctl_thaw(struct ftl *f)
{
	htab_each(&f->frozen->ctl, ctl_thaw_one, f);
}

int ftl_ctl_append(struct ftl *f, enum ftl_class cls, const struct ftl_ctlkey *k,
		   const struct ftl_ctlmeta *old, struct ftl_ctlmeta *m, const void *value,
		   ftl_pos source)
{
	uint8_t buf[sizeof(struct ftl_media_ctl) + FLASH_CTL_VALUE];
	struct ftl_media_ctl c = {.kind = k->kind, .len = m->len};
	uint32_t len = (uint32_t)sizeof(c) + m->len;
	struct ftl_media_record h = {
		.type = m->deleted ? FTL_REC_CTL_DEL : FTL_REC_CTL, .stamp = m->stamp,
		.raw_len = len, .stored_len = len, .source = source,
		.flags = source ? FTL_F_RELOCATED : 0,
	};
	int err;

	memcpy(c.key, k->key, sizeof(c.key));
	memcpy(buf, &c, sizeof(c));
	if (m->len)
		memcpy(buf + sizeof(c), value, m->len);
	h.payload_crc = hash_crc32c(0, buf, len);
	h.payload_hash = hash_64(buf, len);
	err = ftl_log_append(f, source ? FTL_RELOCATED : FTL_HOST_HOT, cls, &h, buf, &m->pos);
	if (!source)
		m->lsn = f->next_lsn;
	return err ? err : ftl_ctl_set(f, k, old, m, value, false);
}

/* Lock held. Below this an EB that is open was opened for what makes space. */
static bool ctl_may_put(const struct ftl *f, enum ftl_class cls)
{
	return cls == FTL_FOR_CTL || f->nfree >= f->space.reserve_gc + f->space.reserve_ctl / 2;
}

int ftl_ctl_put(struct ftl *f, unsigned kind, const uint8_t *key, const void *value, size_t len,
		uint64_t stamp)
{
	struct ftl_ctlkey k = {.kind = (uint8_t)kind};
	struct ftl_ctlmeta old, m = {.stamp = stamp, .len = (uint32_t)len, .deleted = !len};
	bool marks = kind == FLASH_CTL_CARD || kind == FLASH_CTL_MEMBER; /* a handful */
	enum ftl_class cls = len && !marks ? FTL_FOR_PUT : FTL_FOR_CTL;
	int err;

	if (!kind || kind >= FLASH_CTL_KINDS || len > FLASH_CTL_VALUE)
		return -EINVAL;
	memcpy(k.key, key, sizeof(k.key));
	lock_acquire(&f->lock);
	do {
		ftl_log_throttle(f);
		err = ftl_ctl_find(f, &k, &old, NULL);
		if (!err && old.stamp > stamp)
			break;
		if ((!err || err == -ENOENT) && !ctl_may_put(f, cls))
			err = -ENOSPC;
		else if (!err || err == -ENOENT)
			err = ftl_ctl_append(f, cls, &k, err ? NULL : &old, &m, value,
					     FTL_POS_NONE);
	} while (err == -ENOSPC && ftl_gc_wait(f));
	ftl_log_write_ready(f);
	lock_release(&f->lock);
	return err;
}

int ftl_ctl_get(struct ftl *f, unsigned kind, const uint8_t *key, void *value, size_t *len,
		uint64_t *stamp)
{
	struct ftl_ctlkey k = {.kind = (uint8_t)kind};
	uint8_t buf[FLASH_CTL_VALUE];
	struct ftl_ctlmeta m;
	int err;

	if (!kind || kind >= FLASH_CTL_KINDS)
		return -EINVAL;
	memcpy(k.key, key, sizeof(k.key));
	lock_acquire(&f->lock);
	err = ftl_ctl_find(f, &k, &m, buf);
	lock_release(&f->lock);
	if (stamp)
		*stamp = err ? 0 : m.stamp;
	if (err)
		return err;
	if (m.deleted)
		return -ENOENT;
	if (m.len > *len)
		err = -EOVERFLOW;
	else
		memcpy(value, buf, m.len);
	*len = m.len;
	return err;
}

struct ctl_keys {
	struct ftl_ctlkey *v;
	size_t n, cap;
	uint8_t kind;
	int err;
};

static void ctl_keys_add(struct ctl_keys *g, const struct ftl_ctlkey *k)
{
	if (g->err || k->kind != g->kind)
		return;
	if (g->n == g->cap) {
		size_t cap = g->cap ? g->cap * 2 : 64;
		struct ftl_ctlkey *p = realloc(g->v, cap * sizeof(*p));

		if (!p) {
			g->err = -ENOMEM;
			return;
		}
		g->v = p;
		g->cap = cap;
	}
	g->v[g->n++] = *k;
}

static void ctl_keys_overlay(struct htab_node *n, void *arg)
{
	ctl_keys_add(arg, &container_of(n, struct ftl_ctlent, node)->key);
}

static int ctl_keys_table(void *arg, const struct meta_buf *key, const struct meta_buf *value)
{
	struct ctl_keys *g = arg;
	struct ftl_ctlkey k;

	(void)value;
	if (key->len != sizeof(k))
		return -EUCLEAN;
	memcpy(&k, key->data, sizeof(k));
	if (k.kind != g->kind)
		return 1;
	ctl_keys_add(g, &k);
	return g->err;
}

static int ctl_key_cmp(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct ftl_ctlkey));
}

static int ctl_keys(struct ftl *f, struct ctl_keys *g)
{
	struct ftl_ctlkey from = {.kind = g->kind};
	size_t out = 0;
	int err;

	lock_acquire(&f->lock);
	htab_each(&f->cur->ctl, ctl_keys_overlay, g);
	if (f->frozen)
		htab_each(&f->frozen->ctl, ctl_keys_overlay, g);
	lock_release(&f->lock);
	err = g->err;
	if (!err)
		err = meta_walk(f->meta, FTL_T_CTL, &from, sizeof(from), ctl_keys_table, g);
	if (err < 0)
		return err;
	if (g->n)
		qsort(g->v, g->n, sizeof(*g->v), ctl_key_cmp);
	for (size_t i = 0; i < g->n; i++)
		if (!i || ctl_key_cmp(&g->v[i], &g->v[i - 1]))
			g->v[out++] = g->v[i];
	g->n = out;
	return 0;
}

int ftl_ctl_walk(struct ftl *f, unsigned kind,
		 int (*fn)(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value,
			   size_t len, uint64_t stamp),
		 void *arg)
{
	struct ctl_keys g = {.kind = (uint8_t)kind};
	uint8_t value[FLASH_CTL_VALUE];
	struct ftl_ctlmeta m;
	int err;

	if (!kind || kind >= FLASH_CTL_KINDS)
		return -EINVAL;
	err = ctl_keys(f, &g);
	for (size_t i = 0; i < g.n && !err; i++) {
		lock_acquire(&f->lock);
		err = ftl_ctl_find(f, &g.v[i], &m, value);
		lock_release(&f->lock);
		if (!err && !m.deleted)
			err = fn(arg, g.v[i].key, value, m.len, m.stamp);
		else if (err == -ENOENT)
			err = 0;
	}
	free(g.v);
	return err;
}

int ftl_ctl_each(struct ftl *f,
		 int (*fn)(void *arg, const struct ftl_ctlkey *k, const struct ftl_ctlmeta *m),
		 void *arg)
{
	int err = 0;

	for (unsigned kind = 1; kind < FLASH_CTL_KINDS && !err; kind++) {
		struct ctl_keys g = {.kind = (uint8_t)kind};

		err = ctl_keys(f, &g);
		for (size_t i = 0; i < g.n && !err; i++) {
			struct ftl_ctlmeta m;

			lock_acquire(&f->lock);
			err = ftl_ctl_find(f, &g.v[i], &m, NULL);
			lock_release(&f->lock);
			if (!err)
				err = fn(arg, &g.v[i], &m);
			else if (err == -ENOENT)
				err = 0;
		}
		free(g.v);
	}
	return err;
}

static int ctl_retire_one(void *arg, const struct ftl_ctlkey *k, const struct ftl_ctlmeta *was)
{
	struct ftl_ctlmeta old, m;
	struct ftl *f = arg;
	int err;

	if (!was->deleted)
		return 0;
	lock_acquire(&f->lock);
	err = ftl_ctl_find(f, k, &old, NULL);
	m = old;
	if (!err && old.deleted && !ftl_eb_guarded(f, old.stamp, old.lsn))
		err = ftl_ctl_set(f, k, &old, &m, NULL, true);
	lock_release(&f->lock);
	return err == -ENOENT ? 0 : err;
}

int ftl_ctl_retire(struct ftl *f)
{
	return ftl_ctl_each(f, ctl_retire_one, f);
}

struct ctl_rescue {
	struct ftl *f;
	uint64_t seq;
};

static int ctl_rescue_one(void *arg, const struct ftl_ctlkey *k, const struct ftl_ctlmeta *was)
{
	struct ctl_rescue *r = arg;
	uint8_t value[FLASH_CTL_VALUE];
	struct ftl_ctlmeta old, m;
	int err;

	if (FTL_POS_SEQ(was->pos) != r->seq)
		return 0;
	lock_acquire(&r->f->lock);
	err = ftl_ctl_find(r->f, k, &old, value);
	m = old;
	if (!err && FTL_POS_SEQ(old.pos) == r->seq)
		err = ftl_ctl_append(r->f, FTL_FOR_GC, k, &old, &m, value, old.pos);
	lock_release(&r->f->lock);
	return err == -ENOENT ? 0 : err;
}

int ftl_ctl_rescue(struct ftl *f, uint64_t seq)
{
	struct ctl_rescue r = {.f = f, .seq = seq};

	return ftl_ctl_each(f, ctl_rescue_one, &r);
}
