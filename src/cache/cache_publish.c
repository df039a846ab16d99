/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The publisher: makes versions of files that were written (or found very young) trustworthy for
 * later mounts, and clears away dead numbers.
 *
 * A round, for all files quiet for publish_after (or all, for a barrier):
 *
 *   1. take version and generation of each, no change under way
 *   2. sync the backing: each file, or the filesystem when there are many
 *   3. ask the backing again: only a version that did not move is published
 *   4. flush flash: lines and trims of these files are durable
 *   5. in the file's section, if its generation did not move: put the record, state `published`,
 *      drop it from the index of open ones
 *
 * The record of step 5 needs no flush of its own: if it is lost the older one says `open`, and the
 * file starts cold. Entries belong to the list; a file that lost its number (n->open is not the
 * entry any more) is let go at the next round.
 *
 * The thread sleeps without a time-out while nothing is open and nothing is dead.
 */
#include <config.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/signals.h"
#include "cache/cache_priv.h"

#define CPUBLISH_ROUND 4096u  /* files a round */
#define CPUBLISH_SYNCFS 16u   /* more than this: the whole filesystem is synced */

struct cpublish_one {
	struct copen *o;
	struct cversion v;
	uint32_t gen;
	bool ok;
};

struct cpublish_round {
	struct cache *c;
	struct copen *kept; /* go back to the list */
	struct cpublish_one one[CPUBLISH_ROUND];
	unsigned count;
	bool all, progress;
};

int cpublish_watch(struct cache *c, struct cnode *n)
{
	struct copen *o = malloc(sizeof(*o));

	if (!o)
		return -ENOMEM;
	cnode_lock(c, n);
	*o = (struct copen){.n = n, .number = n->number, .touched = clock_mono_ns()};
	n->open = o;
	cnode_unlock(c, n);
	cache_hold(n);
	lock_acquire(&c->open_lock);
	o->next = c->opens;
	c->opens = o;
	stats_add(c->stats, file_open, 1);
	lock_cond_signal(&c->open_cond);
	lock_release(&c->open_lock);
	return 0;
}

void cpublish_bury(struct cache *c, struct cdead *d)
{
	lock_acquire(&c->open_lock);
	d->next = c->deads;
	c->deads = d;
	lock_cond_signal(&c->open_cond);
	lock_release(&c->open_lock);
}

void cpublish_want_sweep(struct cache *c)
{
	lock_acquire(&c->open_lock);
	c->sweep_wanted = true;
	lock_cond_signal(&c->open_cond);
	lock_release(&c->open_lock);
}

static void cpublish_let_go(struct cache *c, struct copen *o)
{
	if (o->indexed) /* its number is dead: nobody else writes this record */
		cfile_delete_open(c, o->number);
	atomic_fetch_sub_explicit(&c->stats->file_open, 1, memory_order_relaxed);
	cache_forget(c, o->n, 1);
	free(o);
}

static void cpublish_bury_all(struct cache *c)
{
	struct cdead *d, *next;

	lock_acquire(&c->open_lock);
	d = c->deads;
	c->deads = NULL;
	lock_release(&c->open_lock);
	for (; d; d = next) {
		next = d->next;
		cfile_bury_dead(c, d);
	}
}

/* Step 1 for one entry: a candidate, kept for later, or let go. */
static void cpublish_sort(struct cpublish_round *r, struct copen *o, uint64_t now)
{
	struct cache *c = r->c;
	struct cnode *n = o->n;
	struct cpublish_one *p = &r->one[r->count];
	bool owned, due = false;

	cnode_lock(c, n);
	if (n->open == o && (n->flags & CN_GONE) && atomic_load(&n->refs) == 1)
		n->open = NULL; /* nobody can reach it any more: no need to sync it */
	owned = n->open == o;
	if (owned && (n->flags & CN_OPEN) && !(n->gen & 1) && r->count < CPUBLISH_ROUND) {
		due = r->all || now - o->touched >= c->o.publish_after_ns;
		if (due) {
			*p = (struct cpublish_one){.o = o, .gen = n->gen};
			cnode_version(n, &p->v);
		}
	}
	cnode_unlock(c, n);
	if (!owned) {
		cpublish_let_go(c, o);
		return;
	}
	o->next = r->kept;
	r->kept = o;
	if (due)
		r->count++;
}

static void cpublish_collect(struct cpublish_round *r)
{
	struct cache *c = r->c;
	uint64_t now = clock_mono_ns();
	struct copen *o, *next;

	lock_acquire(&c->open_lock);
	o = c->opens;
	c->opens = NULL;
	lock_release(&c->open_lock);
	for (; o; o = next) {
		next = o->next;
		cpublish_sort(r, o, now);
	}
}

static int cpublish_sync(struct cpublish_round *r)
{
	struct cache *c = r->c;
	bool whole = r->count > CPUBLISH_SYNCFS;
	unsigned i;
	int err = 0;

	if (whole)
		err = backing_syncfs(c->backing);
	for (i = 0; i < r->count; i++) {
		struct cpublish_one *p = &r->one[i];
		int e = 0;

		if (!whole || !backing_same_fs(p->o->n->bnode))
			e = backing_fsync(c->backing, p->o->n->bnode, false);
		p->ok = !e && !err;
	}
	if (err && cache_may_warn(c))
		log_warning("cache", "cannot sync the backing: %s", strerror(-err));
	return err;
}

static void cpublish_check(struct cache *c, struct cpublish_one *p)
{
	uint64_t start = clock_mono_ns();
	struct cversion v;
	struct battr a;

	if (!p->ok)
		return;
	p->ok = !backing_getattr(c->backing, p->o->n->bnode, &a);
	if (!p->ok)
		return;
	cversion_of(&a, &v);
	p->ok = cversion_same(&v, &p->v);
	if (!p->ok)
		cnode_learn(c, p->o->n, &a, start);
}

static void cpublish_put(struct cpublish_round *r, struct cpublish_one *p)
{
	struct cache *c = r->c;
	struct cnode *n = p->o->n;
	int err;

	if (!p->ok || !cnode_enter_gen(c, n, p->gen))
		return;
	err = cfile_put(c, n, p->o->number, &p->v, false);
	if (!err && p->o->indexed) {
		cfile_delete_open(c, p->o->number);
		p->o->indexed = false;
	}
	cnode_lock(c, n);
	if (!err && n->open == p->o) {
		n->open = NULL;
		n->flags &= ~CN_OPEN;
		stats_inc(c->stats, file_published);
		r->progress = true;
	}
	cnode_leave_locked(c, n);
	cnode_unlock(c, n);
}

static void cpublish_put_back(struct cpublish_round *r)
{
	struct cache *c = r->c;
	struct copen *o = r->kept, *next;

	for (; o; o = next) {
		bool owned;

		next = o->next;
		cnode_lock(c, o->n);
		owned = o->n->open == o;
		cnode_unlock(c, o->n);
		if (!owned) {
			cpublish_let_go(c, o);
			continue;
		}
		lock_acquire(&c->open_lock);
		o->next = c->opens;
		c->opens = o;
		lock_release(&c->open_lock);
	}
}

/* *more: the round was full, there may be others. */
static int cpublish_round(struct cache *c, bool all, bool *more)
{
	struct cpublish_round *r = calloc(1, sizeof(*r));
	unsigned i;
	int err = 0;

	*more = false;
	if (!r)
		return -ENOMEM;
	lock_acquire(&c->round_lock);
	r->c = c;
	r->all = all;
	cpublish_bury_all(c);
	cpublish_collect(r);
	if (r->count) {
		err = cpublish_sync(r);
		for (i = 0; i < r->count; i++)
			cpublish_check(c, &r->one[i]);
		if (!err)
			err = cache_commit(c);
		for (i = 0; !err && i < r->count; i++)
			cpublish_put(r, &r->one[i]);
	}
	*more = r->count == CPUBLISH_ROUND && r->progress;
	cpublish_put_back(r);
	cpublish_bury_all(c); /* those who were held by this round only */
	lock_release(&c->round_lock);
	free(r);
	return err;
}

/* Publishes what is open now. Files that are being written all the time stay open, but what was
 * written to them before is on the backing's disk when this returns. */
static int cpublish_barrier(struct cache *c)
{
	bool more = true;
	int err = backing_syncfs(c->backing), e = 0;

	if (!c->flash)
		return err;
	while (more && !e)
		e = cpublish_round(c, true, &more);
	if (!e)
		e = cache_commit(c);
	return err ? err : e;
}

int cache_flush(struct cache *c)
{
	int err;

	if (c->o.mode == CACHE_READ_ONLY && !c->flash)
		return 0;
	if (c->flash)
		workq_drain(c->fills);
	err = cpublish_barrier(c);
	backing_close_idle(c->backing);
	return err;
}

static void *cpublish_main(void *arg)
{
	struct cache *c = arg;
	bool more = false, work, sweep;
	uint64_t pause;

	lock_acquire(&c->open_lock);
	pause = c->o.publish_after_ns / 2 + NS_PER_MS;
	while (!c->stopping) {
		if (!c->opens && !c->deads && !c->sweep_wanted)
			lock_cond_wait(&c->open_cond, &c->open_lock);
		else if (!c->deads && !c->sweep_wanted && !more)
			lock_cond_wait_until(&c->open_cond, &c->open_lock, clock_mono_ns() + pause);
		work = !c->stopping && (c->opens || c->deads);
		sweep = !c->stopping && c->sweep_wanted;
		c->sweep_wanted = false;
		lock_release(&c->open_lock);
		if (sweep)
			csweep_run(c);
		more = false;
		if (work)
			cpublish_round(c, false, &more);
		lock_acquire(&c->open_lock);
	}
	lock_release(&c->open_lock);
	return NULL;
}

int cpublish_start(struct cache *c)
{
	sigset_t old;
	int err;

	if (!c->flash)
		return 0;
	signals_block(&old);
	err = -pthread_create(&c->publisher, NULL, cpublish_main, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return err;
	pthread_setname_np(c->publisher, "publish");
	c->publisher_started = true;
	return 0;
}

int cpublish_stop(struct cache *c)
{
	struct copen *o, *next;
	int err = 0;

	if (!c->flash)
		return c->publisher_started ? 0 : backing_syncfs(c->backing);
	lock_acquire(&c->open_lock);
	c->stopping = true;
	lock_cond_signal(&c->open_cond);
	lock_release(&c->open_lock);
	if (c->publisher_started) {
		pthread_join(c->publisher, NULL);
		err = cpublish_barrier(c);
	}
	cpublish_bury_all(c);
	for (o = c->opens; o; o = next) { /* could not be published: they start cold */
		next = o->next;
		o->indexed = false; /* the next start finds them by it */
		cpublish_let_go(c, o);
	}
	c->opens = NULL;
	return err;
}
