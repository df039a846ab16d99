/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The first checkpoint, and loading the last one: does the environment belong to the medium, is it
 * whole, is it new enough.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "ftl/ftl_priv.h"

int ftl_ckpt_init(struct meta *meta, const struct ftl_media_super *s, const struct ftl_geom *g)
{
	struct ftl_state state = {
		.version = FTL_STATE_VERSION, .controller = s->controller, .ebs = g->ebs,
		.checkpoint = s->checkpoint, .next_lsn = s->lsn, .next_seq = s->seq,
	};
	struct ftl_ebmeta m = {.min_dead = UINT64_MAX, .state = EB_FREE};
	struct meta_txn *t;
	int err = ftl_meta_clear(meta);

	if (err)
		return err;
	memcpy(state.uuid, s->uuid, sizeof(state.uuid));
	ftl_ckpt_crc(&state, sizeof(state), &state.crc);
	ftl_ckpt_crc(&m, sizeof(m), &m.crc);
	err = meta_begin_write(meta, &t);
	if (err)
		return err;
	for (uint32_t i = 0; i < g->ebs && !err; i++) {
		uint32_t key = htobe32(i);

		err = meta_put(t, FTL_T_EBS, &key, sizeof(key), &m, sizeof(m));
	}
	if (!err)
		err = meta_put(t, FTL_T_STATE, "state", 5, &state, sizeof(state));
	if (err) {
		meta_abort(t);
		return err;
	}
	return meta_commit(t);
}

/* The CRC is right: a bug, or somebody's doing. What GC and the log assert of an EB is held here. */
static bool load_eb_sane(const struct ftl *f, const struct ftl_ebmeta *m)
{
	if (m->state > EB_PENDING || m->stream >= FTL_STREAMS || m->seq > FTL_SEQ_MAX ||
	    m->used > f->geom.logical || m->live > f->geom.logical || m->waste > f->geom.logical)
		return false;
	if (m->state == EB_FREE || m->state == EB_PENDING)
		return !m->live;
	return m->seq != 0;
}

static int load_eb(void *arg, const struct meta_buf *key, const struct meta_buf *value)
{
	struct ftl *f = arg;
	struct ftl_ebmeta m;
	struct ftl_eb *eb;
	uint32_t index, crc;

	if (key->len != sizeof(index) || value->len != sizeof(m))
		return -EUCLEAN;
	memcpy(&index, key->data, sizeof(index));
	memcpy(&m, value->data, sizeof(m));
	index = be32toh(index);
	crc = m.crc;
	if (index >= f->geom.ebs || ftl_ckpt_crc(&m, sizeof(m), &m.crc) != crc ||
	    !load_eb_sane(f, &m))
		return -EUCLEAN;
	eb = &f->ebs[index];
	if (m.state != EB_FREE) {
		if (ftl_eb_find(f, FTL_POS(m.seq, 0)))
			return -EUCLEAN;
		ftl_eb_set_seq(f, eb, m.seq);
	} else {
		eb->seq = m.seq;
	}
	ftl_eb_set_state(f, eb, m.state);
	eb->live = m.live;
	eb->waste = m.waste;
	f->live_bytes += m.live;
	eb->min_dead = m.min_dead;
	eb->first_lsn = m.first_lsn;
	eb->end_lsn = m.end_lsn;
	eb->age = m.age;
	eb->max_stamp = m.max_stamp;
	eb->erase_count = m.erase_count;
	eb->stream = m.stream;
	eb->used = m.used;
	eb->records = m.records;
	eb->footer = m.footer;
	eb->drops = m.drops;
	eb->changed = false;
	eb->drops_old = eb->drops && m.state != EB_FREE;
	f->drops_unknown |= eb->drops_old;
	if (m.state == EB_PENDING)
		eb->pending_ckpt = f->super.checkpoint;
	return 0;
}

static int load_state(struct ftl *f, struct ftl_state *s)
{
	size_t len = sizeof(*s);
	int err = meta_get(f->meta, FTL_T_STATE, "state", 5, s, &len);
	uint32_t crc;

	if (err == -ENOENT) {
		log_error(FTL_MODULE, "controller %u: its map is empty: run recover",
			  f->super.controller);
		return -ESTALE;
	}
	crc = s->crc;
	if (err || len != sizeof(*s) || s->version != FTL_STATE_VERSION ||
	    ftl_ckpt_crc(s, sizeof(*s), &s->crc) != crc || s->next_seq > FTL_SEQ_MAX ||
	    s->next_lsn > FTL_LSN_MAX) {
		log_error(FTL_MODULE, "controller %u: its map is damaged: run recover",
			  f->super.controller);
		return -EUCLEAN;
	}
	if (memcmp(s->uuid, f->super.uuid, sizeof(s->uuid)) ||
	    s->controller != f->super.controller || s->ebs != f->geom.ebs) {
		log_error(FTL_MODULE, "controller %u: the map belongs to another medium",
			  f->super.controller);
		return -ESTALE;
	}
	if (s->checkpoint != f->super.checkpoint && s->checkpoint != f->super.checkpoint + 1) {
		log_error(FTL_MODULE, "controller %u: the map is of checkpoint %" PRIu64
			  ", the medium of %" PRIu64 ": run recover", f->super.controller,
			  s->checkpoint, f->super.checkpoint);
		return s->checkpoint < f->super.checkpoint ? -ESTALE : -EUCLEAN;
	}
	return 0;
}

int ftl_ckpt_load(struct ftl *f)
{
	struct ftl_state s;
	int err = load_state(f, &s);

	if (err)
		return err;
	/* The clean mark is written after the commit it stands for. */
	if (s.checkpoint != f->super.checkpoint)
		f->super.clean = 0;
	f->super.checkpoint = s.checkpoint;
	ftl_ckpt_bounds(f, &s);
	f->next_lsn = f->durable_lsn = s.next_lsn;
	f->next_seq = s.next_seq;
	f->max_stamp = s.max_stamp;
	f->clock = s.clock;
	f->live_sectors = s.live_sectors;
	f->dirty_sectors = s.dirty_sectors;
	f->volume_sectors = s.volume_sectors;
	f->volume_dirty = s.volume_dirty;
	f->ctl_records = s.ctl_records;
	f->ctl_deletions = s.ctl_deletions;
	f->c = s.c;
	err = meta_count(f->meta, FTL_T_EBS) == f->geom.ebs ? 0 : -EUCLEAN;
	if (!err)
		err = meta_walk(f->meta, FTL_T_EBS, NULL, 0, load_eb, f);
	if (!err)
		err = ftl_tomb_load(f);
	if (err)
		log_error(FTL_MODULE, "controller %u: its map is damaged: run recover",
			  f->super.controller);
	return err;
}
