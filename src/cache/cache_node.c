/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The table of cnodes, their attributes, and sections.
 *
 * Attributes are true as of `verified`, the time *before* the backing was asked; a change of our own
 * sets it to a time after the change was made. An answer is taken over only if it was asked for
 * after `verified` and no change of our own is under way (n->gen is even): else it may be older than
 * what we know. An answer that is not taken over is lost; whoever needs attributes asks again.
 */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/log.h"
#include "cache/cache_priv.h"

struct cstripe *cnode_stripe(struct cache *c, const struct cnode *n)
{
	return &c->stripes[((uintptr_t)n >> 4) * 0x9e3779b97f4a7c15ULL >> 54];
}

_Static_assert(CACHE_STRIPES == 1u << (64 - 54), "the shift in cnode_stripe");

void cnode_lock(struct cache *c, struct cnode *n)
{
	lock_acquire(&cnode_stripe(c, n)->lock);
}

void cnode_unlock(struct cache *c, struct cnode *n)
{
	lock_release(&cnode_stripe(c, n)->lock);
}

/* ---- the table ---- */

static uint64_t cnode_hash(const struct bnode *b)
{
	return hash_mix64((uint64_t)(uintptr_t)b);
}

static struct cnode *cnode_find_locked(struct cache *c, const struct bnode *b)
{
	struct htab_node *h;

	for (h = htab_find(&c->nodes, cnode_hash(b)); h; h = htab_next(h)) {
		struct cnode *n = container_of(h, struct cnode, node);

		if (n->bnode == b) {
			atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed);
			return n;
		}
	}
	return NULL;
}

struct cnode *cnode_find(struct cache *c, struct bnode *b)
{
	struct cnode *n;

	lock_acquire(&c->table_lock);
	n = cnode_find_locked(c, b);
	lock_release(&c->table_lock);
	return n;
}

int cache_home(struct cache *c, struct cnode *n, struct cnode **dir, char name[NAME_MAX + 1])
{
	struct bnode *b;
	int err = backing_home(c->backing, n->bnode, &b, name);

	if (err)
		return err;
	*dir = cnode_find(c, b);
	backing_put(c->backing, b);
	return *dir ? 0 : -ENOENT;
}

int cnode_get(struct cache *c, struct bnode *b, struct cnode **out)
{
	struct cnode *n = cnode_find(c, b), *made;
	bool root = b == backing_root(c->backing);

	if (!n) {
		made = calloc(1, sizeof(*made));
		if (!made) {
			if (!root)
				backing_put(c->backing, b);
			return -ENOMEM;
		}
		made->bnode = b;
		made->mode = backing_type(b);
		atomic_init(&made->refs, 1);
		lock_acquire(&c->table_lock);
		n = cnode_find_locked(c, b);
		if (!n) {
			htab_insert(&c->nodes, &made->node, cnode_hash(b));
			stats_set(c->stats, file_known, c->nodes.count);
			lock_release(&c->table_lock);
			*out = made;
			return 0;
		}
		lock_release(&c->table_lock);
		free(made);
	}
	if (!root)
		backing_put(c->backing, b);
	*out = n;
	return 0;
}

struct bnode *cache_bnode(struct cnode *n)
{
	return n->bnode;
}

void cache_hold(struct cnode *n)
{
	atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed);
}

/* The object is gone for good: so are its lines and its record. */
static void cnode_free_gone(struct cache *c, struct cnode *n)
{
	bool none = (n->flags & (CN_LOADED | CN_SAFE)) == (CN_LOADED | CN_SAFE);
	struct hash128 key;
	bool stable;

	if (n->flags & CN_RECORD) {
		key = backing_identity(n->bnode, &stable);
		cfile_bury(c, NULL, n->number, &key, true);
	} else if (!none) {
		cfile_forget(c, n->bnode);
	}
}

static void cnode_free(struct cache *c, struct cnode *n)
{
	if ((n->flags & CN_GONE) && c->flash)
		cnode_free_gone(c, n);
	backing_put(c->backing, n->bnode);
	free(n);
}

void cache_forget(struct cache *c, struct cnode *n, uint64_t count)
{
	uint64_t refs = atomic_load_explicit(&n->refs, memory_order_relaxed);

	while (refs > count)
		if (atomic_compare_exchange_weak_explicit(&n->refs, &refs, refs - count,
							  memory_order_release,
							  memory_order_relaxed))
			return;
	lock_acquire(&c->table_lock);
	refs = atomic_fetch_sub_explicit(&n->refs, count, memory_order_acq_rel);
	gild_assert(refs >= count);
	if (refs > count) {
		lock_release(&c->table_lock);
		return;
	}
	gild_assert(n != c->root);
	htab_remove(&c->nodes, &n->node);
	stats_set(c->stats, file_known, c->nodes.count);
	lock_release(&c->table_lock);
	cnode_free(c, n);
}

/* ---- sections ---- */

void cnode_enter(struct cache *c, struct cnode *n)
{
	struct cstripe *s = cnode_stripe(c, n);

	lock_acquire(&s->lock);
	while (n->flags & CN_BUSY) {
		n->flags |= CN_WAITED;
		lock_cond_wait(&s->cond, &s->lock);
	}
	n->flags |= CN_BUSY;
	lock_release(&s->lock);
}

bool cnode_enter_gen(struct cache *c, struct cnode *n, uint32_t gen)
{
	struct cstripe *s = cnode_stripe(c, n);
	bool same;

	lock_acquire(&s->lock);
	while (n->gen == gen && (n->flags & CN_BUSY)) {
		n->flags |= CN_WAITED;
		lock_cond_wait(&s->cond, &s->lock);
	}
	same = n->gen == gen;
	if (same)
		n->flags |= CN_BUSY;
	lock_release(&s->lock);
	return same;
}

void cnode_leave_locked(struct cache *c, struct cnode *n)
{
	gild_assert(n->flags & CN_BUSY);
	n->flags &= ~CN_BUSY;
	if (n->flags & CN_WAITED) {
		n->flags &= ~CN_WAITED;
		lock_cond_broadcast(&cnode_stripe(c, n)->cond);
	}
}

void cnode_leave(struct cache *c, struct cnode *n)
{
	cnode_lock(c, n);
	cnode_leave_locked(c, n);
	cnode_unlock(c, n);
}

/* ---- attributes ---- */

static void cversion_of_stat(const struct stat *st, struct cversion *v)
{
	*v = (struct cversion){
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.msec = st->st_mtim.tv_sec,
		.mnsec = (uint32_t)st->st_mtim.tv_nsec,
		.csec = st->st_ctim.tv_sec,
		.cnsec = (uint32_t)st->st_ctim.tv_nsec,
	};
}

void cversion_of(const struct battr *a, struct cversion *out)
{
	cversion_of_stat(&a->st, out);
}

bool cversion_same(const struct cversion *a, const struct cversion *b)
{
	return a->ino == b->ino && a->size == b->size && a->msec == b->msec &&
	       a->mnsec == b->mnsec && a->csec == b->csec && a->cnsec == b->cnsec;
}

uint64_t cversion_ns(int64_t sec, uint32_t nsec)
{
	return sec < 0 ? 0 : (uint64_t)sec * NS_PER_S + nsec;
}

uint64_t cversion_settles(const struct cache *c, const struct cversion *v, bool own)
{
	uint64_t wait = c->o.settle_ns;

	if (!v->cnsec && !v->mnsec)
		wait = 2 * NS_PER_S; /* a filesystem that stamps in whole seconds, or in two */
	else if (own)
		wait = CACHE_GRANULE_NS;
	else if (v->size > CACHE_SMALL_FILE)
		wait *= 4; /* one write of many megabytes can take that long */
	return cversion_ns(v->csec, v->cnsec) + wait;
}

void cnode_version(const struct cnode *n, struct cversion *out)
{
	*out = (struct cversion){
		.ino = n->ino,
		.size = n->size,
		.msec = n->msec,
		.mnsec = n->mnsec,
		.csec = n->csec,
		.cnsec = n->cnsec,
	};
}

void cnode_set_attr(struct cnode *n, const struct battr *a, uint64_t start)
{
	const struct stat *st = &a->st;
	bool device = S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode);

	n->ino = st->st_ino;
	n->size = (uint64_t)st->st_size;
	n->blocks = device ? (uint64_t)st->st_rdev : (uint64_t)st->st_blocks;
	n->asec = st->st_atim.tv_sec;
	n->ansec = (uint32_t)st->st_atim.tv_nsec;
	n->msec = st->st_mtim.tv_sec;
	n->mnsec = (uint32_t)st->st_mtim.tv_nsec;
	n->csec = st->st_ctim.tv_sec;
	n->cnsec = (uint32_t)st->st_ctim.tv_nsec;
	n->mode = st->st_mode;
	n->nlink = (uint32_t)st->st_nlink;
	n->uid = st->st_uid;
	n->gid = st->st_gid;
	n->blksize = (uint32_t)st->st_blksize;
	n->verified = start;
	n->flags = (n->flags | CN_ATTR) & ~CN_UNSURE;
	if (st->st_nlink)
		n->flags &= ~CN_GONE;
}

static uint64_t cnode_remaining(const struct cache *c, const struct cnode *n, uint64_t now)
{
	if (!(n->flags & CN_ATTR) || (n->flags & CN_UNSURE))
		return 0;
	if (c->o.coherence == CACHE_EXCLUSIVE)
		return CACHE_FOREVER_NS;
	return now - n->verified < c->o.ttl_ns ? c->o.ttl_ns - (now - n->verified) : 0;
}

bool cnode_fresh(const struct cache *c, const struct cnode *n, uint64_t now)
{
	return cnode_remaining(c, n, now) != 0;
}

void cnode_fill_attr(const struct cache *c, const struct cnode *n, uint64_t now,
		     struct cache_attr *out)
{
	struct stat *st = &out->attr.st;
	bool device = S_ISCHR(n->mode) || S_ISBLK(n->mode);

	memset(out, 0, sizeof(*out));
	st->st_ino = n->ino;
	st->st_size = (off_t)n->size;
	if (device)
		st->st_rdev = n->blocks;
	else
		st->st_blocks = (blkcnt_t)n->blocks;
	st->st_atim = (struct timespec){n->asec, n->ansec};
	st->st_mtim = (struct timespec){n->msec, n->mnsec};
	st->st_ctim = (struct timespec){n->csec, n->cnsec};
	st->st_mode = n->mode;
	st->st_nlink = n->nlink;
	st->st_uid = n->uid;
	st->st_gid = n->gid;
	st->st_blksize = (blksize_t)n->blksize;
	out->valid_ns = cnode_remaining(c, n, now);
}

bool cnode_take_changed(struct cnode *n)
{
	bool changed = (n->flags & CN_CHANGED) && !(n->flags & CN_TOLD);

	n->flags |= changed ? CN_TOLD : 0;
	return changed;
}

void cnode_tell_changed(const struct cache *c, struct cnode *n, struct cache_attr *out)
{
	out->unseen = n->flags & CN_UNSEEN;
	out->changed = n->flags & CN_CHANGED;
	out->told = n->gen;
	n->flags &= ~CN_UNTOLD;
	/* Else until the pages are gone, which others who ask now must wait for, too. */
	if (!out->unseen && c->o.coherence != CACHE_EXCLUSIVE)
		n->flags &= ~(CN_CHANGED | CN_TOLD);
}

void cache_told(struct cache *c, struct cnode *n, uint32_t told)
{
	cnode_lock(c, n);
	if (n->gen == told)
		n->flags &= ~(CN_CHANGED | CN_UNSEEN | CN_TOLD);
	cnode_unlock(c, n);
}

void cnode_mark_changed(const struct cache *c, struct cnode *n, const struct cversion *was,
			const struct cversion *is)
{
	bool same = was->size == is->size && was->msec == is->msec && was->mnsec == is->mnsec;

	/* The kernel passes over attributes if others, which may be older, arrived since it asked.
	 * With a ttl it then believes those for what remains of theirs; strict allows nothing. */
	if (c->o.coherence == CACHE_STRICT && was->size == is->size)
		same = true;

	/* Two changes of which the kernel did not hear in between may cancel out. Where it must see
	 * this one, it drops all pages by itself, whatever else was wrong with them; and to be told by
	 * an invalidation besides would make it pass over the new size. */
	if (same || (n->flags & CN_UNTOLD))
		n->flags |= CN_UNSEEN;
	else
		n->flags &= ~CN_UNSEEN;
	n->flags |= CN_CHANGED | CN_UNTOLD;
	n->flags &= ~CN_TOLD;
}

/* The stripe is held; the version is as before, but pages that were read when it was young may hold
 * older bytes, and nobody who compares attributes would see it. READs need not say so: each would
 * drop the pages that the one before has brought. */
static void cnode_drop_young(struct cnode *n)
{
	n->gen += 2; /* not told by who told an earlier change */
	if (!(n->flags & CN_CHANGED))
		n->flags |= CN_TOLD;
	n->flags |= CN_CHANGED | CN_UNSEEN;
}

void cnode_drop_lines(struct cache *c, struct cnode *n)
{
	if (n->number && (n->flags & CN_RECORD))
		cfile_bury(c, n, n->number, NULL, false);
	n->number = 0;
	n->open = NULL; /* the publisher's entry finds itself disowned and goes */
	n->flags &= ~(CN_RECORD | CN_OPEN);
}

bool cnode_learn(struct cache *c, struct cnode *n, const struct battr *a, uint64_t start)
{
	struct cversion was, is;

	cversion_of(a, &is);
	cnode_lock(c, n);
	/* Who never had attributes takes any: to answer without would be an error to the kernel. */
	cnode_version(n, &was);
	if (((n->gen & 1) && (n->flags & CN_ATTR)) || start <= n->verified) {
		bool same = cversion_same(&was, &is);

		cnode_unlock(c, n);
		return same;
	}
	if ((n->flags & CN_ATTR) && S_ISREG(n->mode) && !cversion_same(&was, &is)) {
		cnode_drop_lines(c, n);
		n->gen += 2;
		n->flags &= ~CN_OWN;
		if (!(n->flags & CN_DROPPED))
			cnode_mark_changed(c, n, &was, &is);
		stats_inc(c->stats, file_changed);
	} else if ((n->flags & CN_YOUNG) && !(n->flags & CN_DROPPED)) {
		cnode_drop_young(n);
	}
	n->flags &= ~(CN_YOUNG | CN_DROPPED);
	cnode_set_attr(n, a, start);
	cnode_unlock(c, n);
	return true;
}

void cnode_unverify(struct cache *c, struct cnode *n)
{
	cnode_lock(c, n);
	n->verified = clock_mono_ns();
	n->flags |= CN_UNSURE;
	cnode_unlock(c, n);
}

void cache_untold(struct cache *c, struct cnode *n)
{
	cnode_lock(c, n);
	n->flags |= CN_CHANGED | CN_UNSEEN | CN_UNTOLD;
	cnode_unlock(c, n);
}

void cache_invalidate(struct cache *c, struct cnode *n)
{
	cnode_lock(c, n);
	n->verified = clock_mono_ns();
	n->flags |= CN_UNSURE;
	n->gen += 2; /* reads under way are not shared with those that begin now */
	/* Told, it would be dropped once more, and the answer that brings a new size not believed. */
	if (c->o.coherence == CACHE_EXCLUSIVE)
		n->flags = (n->flags & ~(CN_CHANGED | CN_UNSEEN | CN_TOLD)) | CN_DROPPED;
	cnode_unlock(c, n);
}

struct cnode_list {
	struct cnode **n;
	size_t count, room;
};

static void cnode_list_add(struct htab_node *h, void *arg)
{
	struct cnode_list *l = arg;
	struct cnode *n = container_of(h, struct cnode, node);

	if (l->count < l->room) {
		cache_hold(n);
		l->n[l->count++] = n;
	}
}

static bool cnode_several_links(struct cache *c, struct cnode *n)
{
	bool several;

	cnode_lock(c, n);
	several = n->nlink > 1 && !S_ISDIR(n->mode);
	cnode_unlock(c, n);
	return several;
}

void cache_each_below(struct cache *c, struct cnode *top, void (*fn)(void *arg, struct cnode *n),
		      void *arg)
{
	struct cnode_list l = {0};

	lock_acquire(&c->table_lock);
	l.room = c->nodes.count;
	l.n = malloc(l.room * sizeof(struct cnode *));
	if (l.n)
		htab_each(&c->nodes, cnode_list_add, &l);
	lock_release(&c->table_lock);
	if (!l.n)
		log_warning("cache", "no memory to invalidate a directory");
	for (size_t i = 0; i < l.count; i++) {
		if (backing_below(c->backing, l.n[i]->bnode, top->bnode) ||
		    cnode_several_links(c, l.n[i]))
			fn(arg, l.n[i]);
		cache_forget(c, l.n[i], 1);
	}
	free(l.n);
}

bool cache_is_transport_error(int error)
{
	switch (-error) {
	case EIO:
	case ETIMEDOUT:
	case ENOTCONN:
	case ECONNREFUSED:
	case ECONNRESET:
	case ECONNABORTED:
	case EHOSTDOWN:
	case EHOSTUNREACH:
	case ENETDOWN:
	case ENETUNREACH:
	case EREMOTEIO:
	case ENOMEDIUM:
		return true;
	default:
		return false;
	}
}

/* The check could not be made. In ttl mode the version verified last is served for another ttl:
 * asking again for every request would make each wait for a time-out. */
int cnode_check_failed(struct cache *c, struct cnode *n, int err)
{
	bool known;

	if (!cache_is_transport_error(err))
		return err;
	stats_inc(c->stats, backing_errors);
	if (c->o.coherence == CACHE_STRICT)
		return err;
	cnode_lock(c, n);
	known = n->flags & CN_ATTR;
	if (known) {
		n->verified = clock_mono_ns();
		n->flags &= ~CN_UNSURE;
	}
	cnode_unlock(c, n);
	if (known && cache_may_warn(c))
		log_warning("cache", "the backing does not answer (%s): serving files as they were "
				     "when last checked",
			    strerror(-err));
	return known ? 0 : err;
}

int cnode_revalidate(struct cache *c, struct cnode *n, bool nowait)
{
	uint64_t start = clock_mono_ns();
	struct battr a;
	bool fresh;
	int err;

	cnode_lock(c, n);
	fresh = cnode_fresh(c, n, start);
	cnode_unlock(c, n);
	if (fresh)
		return 0;
	err = nowait ? backing_getattr_cached(c->backing, n->bnode, &a)
		     : backing_getattr(c->backing, n->bnode, &a);
	if (err == -EAGAIN && nowait)
		return err;
	stats_inc(c->stats, file_checks);
	if (err)
		return cnode_check_failed(c, n, err);
	cnode_learn(c, n, &a, start);
	return 0;
}

int cache_getattr(struct cache *c, struct cnode *n, struct cache_attr *out, unsigned flags)
{
	uint64_t now = clock_mono_ns();
	bool fresh;
	int err;

	cnode_lock(c, n);
	fresh = cnode_fresh(c, n, now);
	if (fresh) {
		cnode_fill_attr(c, n, now, out);
		cnode_tell_changed(c, n, out);
	}
	cnode_unlock(c, n);
	if (fresh)
		return 0;
	err = cnode_revalidate(c, n, flags & CACHE_NOWAIT);
	if (err)
		return err;
	cnode_lock(c, n);
	cnode_fill_attr(c, n, clock_mono_ns(), out);
	cnode_tell_changed(c, n, out);
	cnode_unlock(c, n);
	return 0;
}
