/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The frame around every change of an object through the mount.
 *
 *   begin   enter the section; ask the backing, so that what somebody else changed is not taken for
 *           ours; make n->gen odd (fills and shared reads of before end here); load the record;
 *           if bytes will change: no trusted record may be durable from here on (CN_SAFE)
 *   ...     the change on the backing, then trims (or new bytes) for the range on flash
 *   end     ask the backing again: that is the new version, if only what we changed has moved;
 *           n->gen even again; leave
 *
 * The backing's file cannot be locked against others. A change made behind the mount between the two
 * questions shows in size or mtime, unless it hides in the same timestamp granule as ours (a stated
 * limit).
 */
#include <config.h>

#include <errno.h>
#include <sys/stat.h>

#include "base/log.h"
#include "cache/cache_priv.h"

/* Makes sure that a later mount will not trust what is on flash now. Once per quiet period; the
 * flush is shared with other writers. */
static int cmodify_open_record(struct cache *c, struct cnode *n)
{
	struct cversion v;
	bool record, open;
	uint64_t number;
	int err = 0;

	cnode_lock(c, n);
	record = n->flags & CN_RECORD;
	open = n->flags & CN_OPEN;
	number = n->number;
	cnode_version(n, &v);
	if (record && !open)
		n->epoch++;
	cnode_unlock(c, n);
	if (record && !open)
		err = cpublish_watch(c, n);
	if (!err) /* also where it says so already: publishing may have failed half way */
		err = record ? cfile_put(c, n, number, &v, true) : cfile_delete(c, n);
	cnode_lock(c, n);
	if (record && n->open)
		n->open->indexed = true;
	cnode_unlock(c, n);
	if (!err)
		err = cache_commit(c);
	cnode_lock(c, n);
	if (!err)
		n->flags |= CN_SAFE | (record ? CN_OPEN : 0);
	else
		cnode_drop_lines(c, n);
	cnode_unlock(c, n);
	return err;
}

/* Flash cannot note it, but may be back after a power cut that leaves the backing with new bytes and
 * old times. So the ctime moves first, durably: no record there is of a later version then. */
static int cmodify_outdate(struct cmodify *m)
{
	const struct stat none = {0};
	struct cache *c = m->c;
	struct cnode *n = m->n;
	uint64_t start = clock_mono_ns();
	struct cversion v;
	struct battr a;
	int err = backing_setattr(c->backing, n->bnode, BSET_ATIME_NOW, &none, &a);

	if (!err)
		err = backing_fsync(c->backing, n->bnode, false);
	if (err)
		return err;
	cversion_of(&a, &v);
	cnode_lock(c, n);
	n->flags |= CN_SAFE;
	if (v.size == m->before.size && v.msec == m->before.msec && v.mnsec == m->before.mnsec) {
		cnode_set_attr(n, &a, start); /* ours */
		m->before = v;
	}
	cnode_unlock(c, n);
	return 0;
}

/* Waiting for flash took a while: what somebody else has changed meanwhile is not taken for ours. */
static void cmodify_look_again(struct cmodify *m)
{
	struct cache *c = m->c;
	struct cnode *n = m->n;
	uint64_t start = clock_mono_ns();
	struct cversion v;
	struct battr a;

	if (!m->before_known || backing_getattr(c->backing, n->bnode, &a))
		return;
	cversion_of(&a, &v);
	if (cversion_same(&v, &m->before))
		return;
	cnode_lock(c, n);
	cnode_drop_lines(c, n);
	cnode_mark_changed(c, n, &m->before, &v);
	cnode_set_attr(n, &a, start);
	m->before = v;
	m->old_size = n->size;
	cnode_unlock(c, n);
	stats_inc(c->stats, file_changed);
}

static void cmodify_make_safe(struct cmodify *m)
{
	struct cache *c = m->c;
	struct cnode *n = m->n;
	bool safe;
	int err;

	cnode_lock(c, n);
	safe = (n->flags & CN_SAFE) && (!(n->flags & CN_RECORD) || (n->flags & CN_OPEN));
	cnode_unlock(c, n);
	if (safe)
		return;
	err = cmodify_open_record(c, n);
	if (err)
		err = cmodify_outdate(m);
	if (err && cache_may_warn(c))
		log_warning("cache", "flash cannot note that a file is being written; should the power "
				     "fail now, drop this card's content (gild format)");
	cmodify_look_again(m);
}

void cmodify_begin(struct cmodify *m, struct cache *c, struct cnode *n, bool data)
{
	struct battr a;
	uint64_t start;

	*m = (struct cmodify){.c = c, .n = n, .data = data};
	m->regular = S_ISREG(backing_type(n->bnode));
	cnode_enter(c, n);
	if (m->regular) {
		start = clock_mono_ns();
		m->before_known = !backing_getattr(c->backing, n->bnode, &a);
		m->append_only = m->before_known && a.append_only;
		if (m->before_known)
			cnode_learn(c, n, &a, start);
		if (c->flash)
			cfile_load(c, n);
	}
	cnode_lock(c, n);
	n->gen++;
	gild_assert(n->gen & 1);
	cnode_version(n, &m->before);
	m->old_size = n->size;
	if (!m->before_known && m->regular)
		cnode_drop_lines(c, n);
	cnode_unlock(c, n);
	if (!m->regular || !c->flash)
		return;
	if (data)
		cmodify_make_safe(m);
	cnode_lock(c, n);
	m->record = n->flags & CN_RECORD;
	m->number = n->number;
	m->epoch = n->epoch;
	cnode_unlock(c, n);
}

void cmodify_lose(struct cmodify *m)
{
	cnode_lock(m->c, m->n);
	cnode_drop_lines(m->c, m->n);
	cnode_unlock(m->c, m->n);
	m->record = false;
	m->number = 0;
}

void cmodify_drop(struct cmodify *m, uint64_t off, uint64_t len)
{
	struct flash *f = m->c->flash;
	uint64_t first = off / FLASH_SECTOR, count = FLASH_TO_END;
	int err;

	if (!m->record || !len)
		return;
	if (len != UINT64_MAX)
		count = (off + len + FLASH_SECTOR - 1) / FLASH_SECTOR - first;
	err = f->ops->trim(f, m->number, first, count, cache_stamp(m->c));
	if (err) {
		cache_flash_failed(m->c, "trim", err);
		cmodify_lose(m);
	}
}

static bool cmodify_expected(const struct cmodify *m, enum cmodify_how how, uint64_t expect_size,
			     const struct cversion *v)
{
	const struct cversion *b = &m->before;
	bool mtime = v->msec == b->msec && v->mnsec == b->mnsec;

	switch (how) {
	case CMODIFY_META:
		return v->size == b->size && mtime;
	case CMODIFY_TIMES:
		return v->size == b->size;
	case CMODIFY_DATA:
		return expect_size == UINT64_MAX || v->size == expect_size;
	case CMODIFY_LOST:
		break;
	}
	return false;
}

/* The stripe is held. True: the record on flash is to be put again, with the new ctime. */
static bool cmodify_take(struct cmodify *m, enum cmodify_how how, uint64_t expect_size,
			 const struct battr *a, uint64_t start)
{
	struct cnode *n = m->n;
	struct cversion v;

	if (!a) {
		n->verified = clock_mono_ns();
		n->flags |= CN_UNSURE;
		if (m->regular)
			cnode_drop_lines(m->c, n);
		return false;
	}
	cversion_of(a, &v);
	if (m->regular && !cmodify_expected(m, how, expect_size, &v)) {
		cnode_drop_lines(m->c, n);
		cnode_mark_changed(m->c, n, &m->before, &v);
		if (how != CMODIFY_LOST)
			stats_inc(m->c->stats, file_changed);
	} else if (m->data) {
		n->flags |= CN_OWN | CN_UNTOLD;
	}
	cnode_set_attr(n, a, start);
	if (n->open)
		n->open->touched = clock_mono_ns();
	return m->regular && !cversion_same(&v, &m->before) && (n->flags & CN_RECORD) &&
	       !(n->flags & CN_OPEN);
}

int cmodify_end(struct cmodify *m, enum cmodify_how how, uint64_t expect_size,
		const struct battr *a, uint64_t start, struct cache_attr *out)
{
	struct cache *c = m->c;
	struct cnode *n = m->n;
	struct cversion v;
	struct battr own;
	bool restamp;
	int err = 0;

	if (!a) {
		start = clock_mono_ns();
		err = backing_getattr(c->backing, n->bnode, &own);
		a = err ? NULL : &own;
	}
	cnode_lock(c, n);
	restamp = cmodify_take(m, how, expect_size, a, start);
	cnode_version(n, &v);
	cnode_unlock(c, n);
	if (restamp)
		cfile_put(c, n, m->number, &v, false); /* else the file starts anew one day */
	cnode_lock(c, n);
	if (out) {
		cnode_fill_attr(c, n, clock_mono_ns(), out);
		cnode_tell_changed(c, n, out);
	}
	n->gen++;
	cnode_leave_locked(c, n);
	cnode_unlock(c, n);
	return err;
}
