/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The toy mirror: what RAID1 over flash.h has to do, without threads and without care for speed.
 *
 * Members and generations, per leg:
 *
 *   live   its record has the highest generation and names it live
 *   stale  its generation is lower, or the highest does not name it live: it missed something that
 *          was acknowledged
 *
 * 1. Before anything is acknowledged that a leg did not get, the other's record has a higher
 *    generation without it, durably (mirror_lost).
 * 2. Live legs differ only in what was never flushed on both. After an unclean stop they are made
 *    equal by stamp (mirror_reconcile): all tombstones both ways first, for a write does not look at
 *    tombstones; then data, dirty marks and control records both ways.
 * 3. A stale leg is made equal to the live one (mirror_resync). Stamps decide where the live leg is
 *    ahead. Where the stale leg is ahead, it has what was never acknowledged as durable while the
 *    live leg's older state was served: that state gets a new stamp on both legs. Only then the
 *    record names it live again.
 * 4. One leg alone is used only if its record does not name the other live, or by the user's word;
 *    then its record is changed so first.
 * 5. Stamps start above all that either leg has seen, plus a gap; the first one is durable on every
 *    leg in use before the second is drawn (a membership record). Else a session of which nothing
 *    survives on one leg is followed by one that draws the same stamps again, while the other leg
 *    still has something with those stamps.
 */
#include <config.h>

#include "stack/toy_mirror.h"

static uint64_t mirror_stamp(struct mirror *m)
{
	return ++m->stamp;
}

/* The power of both goes together, wherever it went first. */
static void mirror_power(struct mirror *m)
{
	unsigned i;

	for (i = 0; i < 2; i++) {
		if (m->together && media_fault_is_cut(m->rig[i].fault[0]) &&
		    !media_fault_is_cut(m->rig[!i].fault[0]))
			media_fault_cut_at(m->rig[!i].fault[0],
					   media_fault_calls(m->rig[!i].fault[0]) + 1);
	}
}

/* No space just now: gives the leg's GC a turn. */
static bool mirror_room(struct mirror *m, struct flash *leg)
{
	struct flash_stats before, after;

	leg->ops->stats(leg, &before);
	rig_step(&m->rig[leg == m->leg[1]]);
	leg->ops->stats(leg, &after);
	return before.gc_runs != after.gc_runs || before.checkpoints != after.checkpoints ||
	       before.erases != after.erases;
}

static int mirror_member_put(struct mirror *m, unsigned i, const struct array_member *member,
			     uint64_t stamp)
{
	int r;

	while ((r = array_member_put(m->leg[i], member, stamp)) == -ENOSPC &&
	       mirror_room(m, m->leg[i]))
		;
	mirror_power(m);
	return r;
}

static int mirror_raise(struct mirror *m, uint32_t live)
{
	unsigned i;
	int r = 0;

	m->member.generation++;
	m->member.live = live;
	for (i = 0; i < 2 && r == 0; i++) {
		m->member.index = i;
		if (m->leg[i])
			r = mirror_member_put(m, i, &m->member, mirror_stamp(m));
	}
	return r;
}

static void mirror_drop(struct mirror *m, unsigned i)
{
	m->leg[i] = NULL;
	rig_close(&m->rig[i]);
}

/* Invariant 1. */
static int mirror_lost(struct mirror *m, unsigned i)
{
	mirror_drop(m, i);
	return m->leg[!i] ? mirror_raise(m, 1U << !i) : -EIO;
}

typedef int (*mirror_fn)(struct flash *leg, void *arg);

static int mirror_each(struct mirror *m, mirror_fn fn, void *arg)
{
	bool failed[2] = {false, false};
	unsigned i, done = 0;
	int r = 0, result = 0;

	for (i = 0; i < 2; i++) {
		if (!m->leg[i])
			continue;
		while ((r = fn(m->leg[i], arg)) == -ENOSPC && mirror_room(m, m->leg[i]))
			;
		mirror_power(m);
		failed[i] = r == -EIO;
		done += r == 0;
		if (r < 0 && r != -EIO && !result)
			result = r;
	}
	if (!done)
		return result ? result : -EIO;
	for (i = 0; i < 2; i++) {
		r = failed[i] ? mirror_lost(m, i) : 0;
		if (r < 0 && !result)
			result = r;
	}
	return result;
}

struct mirror_call {
	uint64_t file, sector, count, stamp;
	size_t len;
	bool dirty;
};

static int call_write(struct flash *leg, void *arg)
{
	struct mirror_call *c = arg;

	return rig_write(leg, c->file, c->sector, (uint32_t)c->count, c->stamp, c->dirty);
}

static int call_trim(struct flash *leg, void *arg)
{
	struct mirror_call *c = arg;

	return leg->ops->trim(leg, c->file, c->sector, c->count, c->stamp);
}

static int call_clean(struct flash *leg, void *arg)
{
	struct mirror_call *c = arg;

	return leg->ops->mark_clean(leg, c->file, c->sector, c->count, c->stamp);
}

static int call_put(struct flash *leg, void *arg)
{
	struct mirror_call *c = arg;

	return rig_put(leg, c->file, c->stamp, c->len);
}

static int call_flush(struct flash *leg, void *arg)
{
	(void)arg;
	return leg->ops->flush(leg);
}

int mirror_write(struct mirror *m, uint64_t file, uint64_t sector, uint32_t count, bool dirty)
{
	struct mirror_call c = {file, sector, count, mirror_stamp(m), 0, dirty};

	return mirror_each(m, call_write, &c);
}

int mirror_trim(struct mirror *m, uint64_t file, uint64_t sector, uint64_t count)
{
	struct mirror_call c = {file, sector, count, mirror_stamp(m), 0, false};

	return mirror_each(m, call_trim, &c);
}

int mirror_mark_clean(struct mirror *m, uint64_t file, uint64_t sector, uint64_t count,
		      uint64_t stamp)
{
	struct mirror_call c = {file, sector, count, stamp, 0, false};

	return mirror_each(m, call_clean, &c);
}

int mirror_put(struct mirror *m, uint64_t key, size_t len)
{
	struct mirror_call c = {key, 0, 0, mirror_stamp(m), len, false};

	return mirror_each(m, call_put, &c);
}

int mirror_flush(struct mirror *m)
{
	return mirror_each(m, call_flush, NULL);
}

void mirror_step(struct mirror *m)
{
	unsigned i;

	for (i = 0; i < 2; i++) {
		if (m->leg[i])
			rig_step(&m->rig[i]);
		mirror_power(m);
	}
}

int64_t mirror_read(struct mirror *m, uint64_t file, uint64_t sector)
{
	int64_t r = 0;
	unsigned i;

	for (i = 0; i < 2 && r <= 0; i++) {
		if (m->leg[i])
			r = rig_read(m->leg[i], file, sector);
	}
	return r;
}

int64_t mirror_get(struct mirror *m, uint64_t key)
{
	return rig_get(m->leg[0] ? m->leg[0] : m->leg[1], key);
}

static int mirror_leg_trim(struct mirror *m, struct flash *leg, uint64_t file, uint64_t sector,
			   uint64_t count, uint64_t stamp)
{
	int r;

	while ((r = leg->ops->trim(leg, file, sector, count, stamp)) == -ENOSPC &&
	       mirror_room(m, leg))
		;
	mirror_power(m);
	return r;
}

static int mirror_leg_put(struct mirror *m, struct flash *leg, enum flash_ctl kind,
			  const uint8_t key[FLASH_CTL_KEY], const void *value, size_t len,
			  uint64_t stamp)
{
	int r;

	while ((r = leg->ops->ctl_put(leg, kind, key, value, len, stamp)) == -ENOSPC &&
	       mirror_room(m, leg))
		;
	mirror_power(m);
	return r;
}

static int mirror_leg_clean(struct mirror *m, struct flash *leg, uint64_t file, uint64_t sector,
			    uint64_t stamp)
{
	int r;

	while ((r = leg->ops->mark_clean(leg, file, sector, 1, stamp)) == -ENOSPC &&
	       mirror_room(m, leg))
		;
	mirror_power(m);
	return r;
}

struct mirror_pass { /* from one leg to the other */
	struct mirror *m;
	struct flash *from, *to;
	enum flash_ctl kind;
	bool resync; /* `from` is live and `to` stale: what is ahead there is not followed */
};

/* One sector of `f`: its bytes and state. */
static int mirror_sector(struct flash *f, uint64_t file, uint64_t sector, char *buf,
			 struct flash_sector *s)
{
	int r = f->ops->read(f, file, sector, 1, 0, buf, s);

	if (r == 0 && s->flags & FLASH_CORRUPT)
		r = -EIO;
	if (r == 0 && !(s->flags & FLASH_PRESENT))
		memset(s, 0, sizeof(*s));
	return r;
}

static int mirror_copy(struct mirror *m, struct flash *to, uint64_t file, uint64_t sector,
		       const char *buf, const struct flash_sector *s, uint64_t stamp)
{
	struct flash_write w = {.file = file, .sector = sector, .count = 1, .len = FLASH_SECTOR,
				.data = buf, .stamp = stamp, .epoch = s->epoch,
				.dirty = s->flags & FLASH_DIRTY};
	int r;

	while ((r = to->ops->write(to, &w)) == -ENOSPC && mirror_room(m, to))
		;
	m->copied++;
	mirror_power(m);
	return r;
}

static int mirror_pass_trim(void *arg, const struct flash_extent *e)
{
	struct mirror_pass *p = arg;

	return mirror_leg_trim(p->m, p->to, e->file, e->sector, e->count, e->stamp);
}

/* Brings what `from` has of these sectors to `to`, where it is newer. Of the same bytes, clean ones
 * are so on both: whoever marked them had brought them to the backing. */
static int mirror_pass_data(void *arg, const struct flash_extent *e)
{
	struct mirror_pass *p = arg;
	struct flash_sector a, b;
	char buf[FLASH_SECTOR], other[FLASH_SECTOR];
	uint64_t s;
	int r = 0;

	for (s = e->sector; s < e->sector + e->count && r == 0; s++) {
		r = mirror_sector(p->from, e->file, s, buf, &a);
		if (r == 0)
			r = mirror_sector(p->to, e->file, s, other, &b);
		if (r < 0 || !a.flags || b.stamp > a.stamp)
			continue;
		if (b.stamp < a.stamp)
			r = mirror_copy(p->m, p->to, e->file, s, buf, &a, a.stamp);
		else if (b.flags & FLASH_DIRTY && !(a.flags & FLASH_DIRTY))
			r = mirror_leg_clean(p->m, p->to, e->file, s, a.stamp);
		else if (a.flags & FLASH_DIRTY && !(b.flags & FLASH_DIRTY))
			r = mirror_leg_clean(p->m, p->from, e->file, s, a.stamp);
	}
	return r;
}

static int mirror_pass_ctl(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value,
			   size_t len, uint64_t stamp)
{
	struct mirror_pass *p = arg;
	uint8_t other[FLASH_CTL_VALUE];
	size_t room = sizeof(other);
	uint64_t there = 0;
	int r;

	r = p->to->ops->ctl_get(p->to, p->kind, key, other, &room, &there);
	if (r < 0 && r != -ENOENT)
		return r;
	if (there < stamp)
		return mirror_leg_put(p->m, p->to, p->kind, key, value, len, stamp);
	if (r == -ENOENT) /* a deletion, newer */
		return mirror_leg_put(p->m, p->from, p->kind, key, NULL, 0, there);
	return 0;
}

static int mirror_walks(struct mirror_pass *p, enum flash_kind kind,
			int (*fn)(void *arg, const struct flash_extent *e))
{
	return p->from->ops->walk(p->from, kind, 0, 0, fn, p);
}

static int mirror_ctl_walks(struct mirror_pass *p,
			    int (*fn)(void *arg, const uint8_t key[FLASH_CTL_KEY],
				      const void *value, size_t len, uint64_t stamp))
{
	int kind, r = 0;

	for (kind = 1; kind < MIRROR_KINDS && r == 0; kind++) {
		if (kind == FLASH_CTL_MEMBER)
			continue;
		p->kind = (enum flash_ctl)kind;
		r = p->from->ops->ctl_walk(p->from, p->kind, fn, p);
	}
	return r;
}

/* Invariant 2. */
static int mirror_reconcile(struct mirror *m)
{
	struct mirror_pass ab = {.m = m, .from = m->leg[0], .to = m->leg[1]};
	struct mirror_pass ba = {.m = m, .from = m->leg[1], .to = m->leg[0]};
	int r;

	if ((r = mirror_walks(&ab, FLASH_WALK_TRIM, mirror_pass_trim)) < 0 ||
	    (r = mirror_walks(&ba, FLASH_WALK_TRIM, mirror_pass_trim)) < 0 ||
	    (r = mirror_walks(&ab, FLASH_WALK_DATA, mirror_pass_data)) < 0 ||
	    (r = mirror_walks(&ba, FLASH_WALK_DATA, mirror_pass_data)) < 0 ||
	    (r = mirror_ctl_walks(&ab, mirror_pass_ctl)) < 0 ||
	    (r = mirror_ctl_walks(&ba, mirror_pass_ctl)) < 0)
		return r;
	return mirror_flush(m);
}

/* The live leg's state of a sector, with a new stamp on both. */
static int mirror_restamp(struct mirror_pass *p, uint64_t file, uint64_t sector)
{
	struct mirror *m = p->m;
	struct flash *live = p->from, *stale = p->to;
	uint64_t stamp = mirror_stamp(m);
	struct flash_sector a;
	char buf[FLASH_SECTOR];
	int r;

	m->restamped++;
	r = mirror_sector(live, file, sector, buf, &a);
	if (r < 0)
		return r;
	if (!a.flags) {
		r = mirror_leg_trim(m, stale, file, sector, 1, stamp);
		return r < 0 ? r : mirror_leg_trim(m, live, file, sector, 1, stamp);
	}
	/* The stale leg first: were the live one first and the power went, the stale leg could not
	 * tell this state from a newer one. It is not live yet, so either order is safe. */
	r = mirror_copy(m, stale, file, sector, buf, &a, stamp);
	return r < 0 ? r : mirror_copy(m, live, file, sector, buf, &a, stamp);
}

/* A tombstone of the stale leg: live sectors under it that are older need a new stamp. */
static int mirror_stale_trim(void *arg, const struct flash_extent *e)
{
	struct mirror_pass *p = arg;
	struct flash_sector a;
	char buf[FLASH_SECTOR];
	uint64_t s, end = e->count > 4096 ? 4096 : e->sector + e->count; /* a toy's files are small */
	int r = 0;

	for (s = e->sector; s < end && r == 0; s++) {
		r = mirror_sector(p->from, e->file, s, buf, &a);
		if (r == 0 && a.flags && a.stamp < e->stamp)
			r = mirror_restamp(p, e->file, s);
	}
	return r;
}

/* Data of the stale leg: gone if the live one has none, overruled if it is ahead. */
static int mirror_stale_data(void *arg, const struct flash_extent *e)
{
	struct mirror_pass *p = arg;
	struct flash_sector a;
	char buf[FLASH_SECTOR];
	uint64_t s;
	int r = 0;

	for (s = e->sector; s < e->sector + e->count && r == 0; s++) {
		r = mirror_sector(p->from, e->file, s, buf, &a);
		if (r == 0 && !a.flags)
			r = mirror_leg_trim(p->m, p->to, e->file, s, 1, mirror_stamp(p->m));
		else if (r == 0 && a.stamp < e->stamp)
			r = mirror_restamp(p, e->file, s);
	}
	return r;
}

static int mirror_both_put(struct mirror_pass *p, const uint8_t key[FLASH_CTL_KEY],
			   const void *value, size_t len)
{
	uint64_t stamp = mirror_stamp(p->m);
	int r;

	p->m->restamped++;
	r = mirror_leg_put(p->m, p->to, p->kind, key, value, len, stamp);
	return r < 0 ? r : mirror_leg_put(p->m, p->from, p->kind, key, value, len, stamp);
}

/* A record of the stale leg. Here `from` is the stale one. */
static int mirror_stale_ctl(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value,
			    size_t len, uint64_t stamp)
{
	struct mirror_pass *p = arg, q = {.m = p->m, .from = p->to, .to = p->from, .kind = p->kind};
	uint8_t other[FLASH_CTL_VALUE];
	size_t room = sizeof(other);
	uint64_t there = 0;
	int r;

	(void)value;
	(void)len;
	r = p->to->ops->ctl_get(p->to, p->kind, key, other, &room, &there);
	if (r == -ENOENT)
		return mirror_both_put(&q, key, NULL, 0);
	if (r == 0 && there < stamp)
		return mirror_both_put(&q, key, other, room);
	return r;
}

/* A record of the live leg: the stale one may have a newer deletion. */
static int mirror_live_ctl(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value,
			   size_t len, uint64_t stamp)
{
	struct mirror_pass *p = arg;
	uint8_t other[FLASH_CTL_VALUE];
	size_t room = sizeof(other);
	uint64_t there = 0;
	int r;

	r = p->to->ops->ctl_get(p->to, p->kind, key, other, &room, &there);
	if (r == -ENOENT && there > stamp)
		return mirror_both_put(p, key, value, len);
	if (r < 0 && r != -ENOENT)
		return r;
	return there < stamp ? mirror_leg_put(p->m, p->to, p->kind, key, value, len, stamp) : 0;
}

/* Invariant 3. */
static int mirror_resync(struct mirror *m, unsigned stale)
{
	struct mirror_pass p = {.m = m, .from = m->leg[!stale], .to = m->leg[stale]};
	struct mirror_pass back = {.m = m, .from = m->leg[stale], .to = m->leg[!stale]};
	int r;

	if ((r = p.to->ops->walk(p.to, FLASH_WALK_TRIM, 0, 0, mirror_stale_trim, &p)) < 0 ||
	    (r = p.to->ops->walk(p.to, FLASH_WALK_DATA, 0, 0, mirror_stale_data, &p)) < 0 ||
	    (r = mirror_walks(&p, FLASH_WALK_TRIM, mirror_pass_trim)) < 0 ||
	    (r = mirror_walks(&p, FLASH_WALK_DATA, mirror_pass_data)) < 0 ||
	    (r = mirror_ctl_walks(&back, mirror_stale_ctl)) < 0 ||
	    (r = mirror_ctl_walks(&p, mirror_live_ctl)) < 0)
		return r;
	r = p.to->ops->flush(p.to);
	mirror_power(m);
	if (r == 0)
		r = p.from->ops->flush(p.from);
	mirror_power(m);
	if (r < 0)
		return r;
	/* The live leg's record first: with only the other's raised, the wrong one would be stale. */
	m->member.generation++;
	m->member.live = 3;
	m->member.index = !stale;
	r = mirror_member_put(m, !stale, &m->member, mirror_stamp(m));
	m->member.index = stale;
	return r < 0 ? r : mirror_member_put(m, stale, &m->member, mirror_stamp(m));
}

void mirror_make(struct mirror *m, uint64_t seed)
{
	struct array_member member = {.set = {7}, .members = 2, .mode = ARRAY_MIRROR, .live = 3,
				      .generation = 1};
	unsigned i;

	memset(m, 0, sizeof(*m));
	for (i = 0; i < 2; i++) {
		rig_make(&m->rig[i], 2, true, seed + 10 * i);
		ck_assert_ok(rig_open(&m->rig[i]));
		member.index = i;
		ck_assert_ok(array_member_put(m->rig[i].card, &member, 1));
		ck_assert_ok(rig_close(&m->rig[i]));
	}
}

void mirror_destroy(struct mirror *m)
{
	rig_destroy(&m->rig[0]);
	rig_destroy(&m->rig[1]);
}

int mirror_close(struct mirror *m)
{
	unsigned i;
	int r, result = 0;

	for (i = 0; i < 2; i++) {
		if (!m->leg[i])
			continue;
		m->leg[i] = NULL;
		r = rig_close(&m->rig[i]);
		mirror_power(m);
		if (r < 0 && !result)
			result = r;
	}
	return result;
}

/* Invariant 5, the first half. */
static bool mirror_seen(struct mirror *m, unsigned i)
{
	struct flash_stats s;

	m->leg[i]->ops->stats(m->leg[i], &s);
	if (s.max_stamp > m->stamp)
		m->stamp = s.max_stamp;
	return s.unclean;
}

/* The second half. */
static int mirror_begin_stamps(struct mirror *m, const struct array_member member[2])
{
	uint64_t first;
	unsigned i;
	int r = 0;

	m->stamp += MIRROR_STAMP_GAP;
	first = mirror_stamp(m);
	for (i = 0; i < 2 && r == 0; i++) {
		if (m->leg[i])
			r = mirror_member_put(m, i, &member[i], first);
	}
	return r;
}

static int mirror_open_leg(struct mirror *m, unsigned i, struct array_member *member)
{
	int r = rig_open(&m->rig[i]);

	mirror_power(m);
	if (r < 0)
		return r;
	m->leg[i] = m->rig[i].card;
	r = array_member_get(m->leg[i], member);
	if (r == 0 && member->index != i)
		r = -ESTALE;
	return r;
}

static int mirror_judge(struct mirror *m, const struct array_member member[2], bool unclean)
{
	unsigned i, newest;

	if (!m->leg[0] || !m->leg[1]) {
		i = m->leg[1] != NULL;
		m->member = member[i];
		if (member[i].live == 1U << i)
			return 0;
		return m->forced ? mirror_raise(m, 1U << i) : -ESTALE; /* invariant 4 */
	}
	newest = member[1].generation > member[0].generation;
	m->member = member[newest];
	if (!(m->member.live & 1U << newest))
		return -ESTALE; /* cannot be: nobody leaves itself out */
	if (member[0].generation != member[1].generation || !(m->member.live & 1U << !newest))
		return mirror_resync(m, !newest);
	return unclean ? mirror_reconcile(m) : 0;
}

int mirror_open(struct mirror *m)
{
	struct array_member member[2] = {0};
	bool unclean = false;
	unsigned i;
	int r = 0;

	m->stamp = 0;
	for (i = 0; i < 2 && r == 0; i++) {
		if (m->unplugged[i])
			continue;
		r = mirror_open_leg(m, i, &member[i]);
		if (r == 0)
			unclean = mirror_seen(m, i) || unclean;
	}
	if (r == 0)
		r = mirror_begin_stamps(m, member);
	if (r == 0)
		r = mirror_judge(m, member, unclean);
	if (r < 0)
		mirror_close(m);
	return r;
}

int mirror_attach(struct mirror *m, unsigned i)
{
	struct array_member member[2];
	int r;

	member[!i] = m->member;
	member[!i].index = !i;
	r = mirror_open_leg(m, i, &member[i]);
	if (r == 0) {
		mirror_seen(m, i);
		r = mirror_begin_stamps(m, member);
	}
	return r < 0 ? r : mirror_resync(m, i);
}
