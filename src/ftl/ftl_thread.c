/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Background work: one thread does GC when space is short, the flush every second when something is
 * unflushed, footers, and checkpoints when due. With nothing to do it sleeps without a time-out.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/log.h"
#include "ftl/ftl_priv.h"

#define FLUSH_NS NS_PER_S
#define CHANGE_NS (30 * NS_PER_S)

static int thread_footers(struct ftl *f)
{
	int err;

	lock_acquire(&f->gc_lock);
	err = ftl_log_footers(f);
	lock_release(&f->gc_lock);
	return err;
}

/* 1: something was done and there may be more. */
int ftl_thread_round(struct ftl *f)
{
	bool gc, due, ctl;
	int err = 0, done = 0;

	do {
		lock_acquire(&f->lock);
		if (!f->running)
			ftl_gc_retry(f, true);
		/* Not on to the last EB: what is pending comes first. */
		gc = ftl_gc_wanted(f) &&
		     !(done && f->npending && f->nfree <= f->space.reserve_gc + f->space.reserve_ctl);
		lock_release(&f->lock);
		if (gc)
			err = ftl_gc_round(f);
		done |= gc && err > 0;
		/* Several victims share a checkpoint. */
	} while (gc && err > 0 && f->running);
	/* GC met the end of its room: the checkpoint makes more. */
	if (err >= 0 || err == -ENOSPC)
		err = thread_footers(f);
	if (err)
		return err;
	lock_acquire(&f->lock);
	due = ftl_ckpt_due(f, clock_mono_ns());
	lock_release(&f->lock);
	if (due) {
		err = ftl_ckpt_run(f, false);
		done = 1;
	}
	lock_acquire(&f->lock);
	ctl = !err && f->ctl_due;
	f->ctl_due &= !ctl;
	lock_release(&f->lock);
	if (ctl)
		err = ftl_ctl_retire(f);
	return err ? err : done;
}

/* Lock held: when to look again though nobody calls; 0: never. */
static uint64_t thread_deadline(const struct ftl *f)
{
	uint64_t at = 0;

	if (f->failed)
		return 0;
	if (f->unflushed_since)
		at = f->unflushed_since + FLUSH_NS;
	if (f->changed_since && (!at || f->changed_since + CHANGE_NS < at))
		at = f->changed_since + CHANGE_NS;
	if (f->ckpt_retry && (!at || f->ckpt_retry < at))
		at = f->ckpt_retry;
	return at;
}

static void thread_wait(struct ftl *f)
{
	uint64_t at = thread_deadline(f);

	if (f->stop || f->kick)
		return;
	if (at)
		lock_cond_wait_until(&f->wake, &f->lock, at);
	else
		lock_cond_wait(&f->wake, &f->lock);
}

static void *thread_main(void *arg)
{
	struct ftl *f = arg;

	for (;;) {
		bool flush, stop;
		int more = 0;

		lock_acquire(&f->lock);
		thread_wait(f);
		f->kick = false;
		ftl_gc_retry(f, false);
		stop = f->stop;
		flush = !f->failed && f->unflushed_since &&
			clock_mono_ns() >= f->unflushed_since + FLUSH_NS;
		lock_release(&f->lock);
		if (stop)
			return NULL;
		if (flush)
			ftl_log_flush(f);
		do {
			more = ftl_thread_round(f);
			lock_acquire(&f->lock);
			stop = f->stop;
			lock_release(&f->lock);
		} while (more > 0 && !stop);
	}
}

int ftl_thread_start(struct ftl *f)
{
	char name[16];
	int err;

	f->running = true;
	err = pthread_create(&f->thread, NULL, thread_main, f);
	if (err) {
		f->running = false;
		return -err;
	}
	snprintf(name, sizeof(name), "ftl-%u", f->super.controller % 100);
	pthread_setname_np(f->thread, name);
	return 0;
}

void ftl_thread_stop(struct ftl *f)
{
	if (!f->running)
		return;
	lock_acquire(&f->lock);
	f->stop = true;
	lock_cond_signal(&f->wake);
	lock_release(&f->lock);
	pthread_join(f->thread, NULL);
	lock_acquire(&f->lock);
	f->running = false;
	lock_release(&f->lock);
}
