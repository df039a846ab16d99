/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The work queue: a FIFO list and a fixed set of threads.
 *
 * Items are numbered from 1 in the order they are submitted, which is the order they start in. Each
 * thread shows the number of the item it runs (0: none). So everything submitted before a moment has
 * run when `started` has passed the last number given out by then and no thread shows a number up
 * to it: workq_drain() waits for that and is not held up by later items.
 *
 * Threads start with all signals blocked: signals are for the main thread.
 */
#include <config.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/workq.h"

struct workq_thread {
	struct workq *q;
	pthread_t id;
	uint64_t running; /* number of the item being run, 0: none; protected by q->lock */
};

struct workq {
	/* constant after creation */
	char name[16];
	size_t limit;
	unsigned threads;

	struct lock lock; /* protects the members below */
	struct lock_cond more;
	struct lock_cond done;
	struct work *head, **tail;
	_Atomic size_t depth; /* written under the lock, read without */
	uint64_t submitted, started;
	unsigned drainers;
	bool stopping;
	struct workq_thread thread[];
};

static void *workq_main(void *arg)
{
	struct workq_thread *t = arg;
	struct workq *q = t->q;
	struct work *w;

	lock_acquire(&q->lock);
	for (;;) {
		while (!q->head && !q->stopping)
			lock_cond_wait(&q->more, &q->lock);
		w = q->head;
		if (!w)
			break;
		q->head = w->next;
		if (!q->head)
			q->tail = &q->head;
		q->depth--;
		t->running = ++q->started;
		lock_release(&q->lock);
		w->run(w);
		lock_acquire(&q->lock);
		t->running = 0;
		if (q->drainers)
			lock_cond_broadcast(&q->done);
	}
	lock_release(&q->lock);
	return NULL;
}

static int workq_start(struct workq *q, unsigned threads)
{
	sigset_t old;
	int rc = 0;

	signals_block(&old);
	while (q->threads < threads && rc == 0) {
		struct workq_thread *t = &q->thread[q->threads];

		t->q = q;
		rc = -pthread_create(&t->id, NULL, workq_main, t);
		if (rc == 0) {
			pthread_setname_np(t->id, q->name);
			q->threads++;
		}
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

int workq_create(struct workq **out, const char *name, unsigned threads, size_t limit)
{
	struct workq *q = calloc(1, sizeof(*q) + threads * sizeof(q->thread[0]));
	int rc;

	*out = NULL;
	gild_assert(threads > 0);
	if (!q)
		return -ENOMEM;
	snprintf(q->name, sizeof(q->name), "%s", name);
	q->limit = limit;
	q->tail = &q->head;
	lock_init(&q->lock, "workq", RANK_WORKQ);
	lock_cond_init(&q->more);
	lock_cond_init(&q->done);
	rc = workq_start(q, threads);
	if (rc < 0) {
		log_error("workq", "cannot start thread %u of %u of queue %s: raise the limit on "
				   "processes (ulimit -u)",
			  q->threads + 1, threads, q->name);
		workq_destroy(q);
		return rc;
	}
	*out = q;
	return 0;
}

int workq_submit(struct workq *q, struct work *w)
{
	int rc = 0;

	lock_acquire(&q->lock);
	if (q->stopping) {
		rc = -ESHUTDOWN;
	} else if (q->limit && q->depth >= q->limit) {
		rc = -EAGAIN;
	} else {
		w->next = NULL;
		*q->tail = w;
		q->tail = &w->next;
		q->depth++;
		q->submitted++;
		lock_cond_signal(&q->more);
	}
	lock_release(&q->lock);
	return rc;
}

size_t workq_depth(const struct workq *q)
{
	return q->depth;
}

static bool workq_has_run(const struct workq *q, uint64_t number)
{
	unsigned i;

	if (q->started < number)
		return false;
	for (i = 0; i < q->threads; i++)
		if (q->thread[i].running && q->thread[i].running <= number)
			return false;
	return true;
}

void workq_drain(struct workq *q)
{
	uint64_t last;

	lock_acquire(&q->lock);
	last = q->submitted;
	q->drainers++;
	while (!workq_has_run(q, last))
		lock_cond_wait(&q->done, &q->lock);
	q->drainers--;
	lock_release(&q->lock);
}

void workq_destroy(struct workq *q)
{
	unsigned i;

	if (!q)
		return;
	lock_acquire(&q->lock);
	q->stopping = true;
	lock_cond_broadcast(&q->more);
	lock_release(&q->lock);
	for (i = 0; i < q->threads; i++)
		pthread_join(q->thread[i].id, NULL);
	lock_cond_destroy(&q->done);
	lock_cond_destroy(&q->more);
	lock_destroy(&q->lock);
	free(q);
}
