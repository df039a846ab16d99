/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Ranked locks.
 *
 * With GILD_DEBUG every thread has a stack of the locks it holds, linked through lock.below:
 *
 * 1. ranks fall from the top of the stack to its bottom, so the top is the highest held;
 * 2. a lock is taken only above the top, so no two threads can wait for each other;
 * 3. a lock is on exactly one stack while it is held, and owner names that thread;
 * 4. a wait gives up and takes again the top lock only: taking again another one would break 2.
 *
 * owner and below are written by the holder alone, so the mutex itself protects them.
 */
#include <config.h>

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"

#ifdef GILD_DEBUG
static _Thread_local struct lock *lock_top;

static uint64_t lock_self(void)
{
	return (uint64_t)(uintptr_t)&lock_top;
}

static bool lock_is_held(const struct lock *l)
{
	const struct lock *h;

	for (h = lock_top; h; h = h->below)
		if (h == l)
			return true;
	return false;
}

static void lock_check_order(const struct lock *l)
{
	bool lock_order_is_kept = !lock_top || l->rank > lock_top->rank;

	if (!lock_order_is_kept)
		log_error("lock", "%s (rank %d) is taken while %s (rank %d) is held; take locks in "
				  "rising rank",
			  l->name, l->rank, lock_top->name, lock_top->rank);
	gild_assert(lock_order_is_kept);
}

static void lock_push(struct lock *l)
{
	l->owner = lock_self();
	l->below = lock_top;
	lock_top = l;
}

static void lock_pop(struct lock *l)
{
	struct lock **p = &lock_top;
	bool lock_is_held_here = lock_is_held(l);

	if (!lock_is_held_here)
		log_error("lock", "%s is released by a thread that does not hold it", l->name);
	gild_assert(lock_is_held_here);
	gild_assert(l->owner == lock_self());
	while (*p != l)
		p = &(*p)->below;
	*p = l->below;
	l->below = NULL;
	l->owner = 0;
}

static void lock_check_wait(const struct lock *l)
{
	bool waiting_lock_is_held_and_last_taken = lock_top == l;

	if (!waiting_lock_is_held_and_last_taken)
		log_error("lock", "a wait gives up %s, but the last lock taken is %s", l->name,
			  lock_top ? lock_top->name : "none");
	gild_assert(waiting_lock_is_held_and_last_taken);
}
#else
static inline void lock_check_order(const struct lock *l)
{
	(void)l;
}

static inline void lock_push(struct lock *l)
{
	(void)l;
}

static inline void lock_pop(struct lock *l)
{
	(void)l;
}

static inline void lock_check_wait(const struct lock *l)
{
	(void)l;
}
#endif

void lock_init(struct lock *l, const char *name, enum lock_rank rank)
{
	*l = (struct lock){.name = name, .rank = (int)rank};
	gild_assert(pthread_mutex_init(&l->mutex, NULL) == 0);
}

void lock_destroy(struct lock *l)
{
	gild_assert(pthread_mutex_destroy(&l->mutex) == 0);
}

void lock_acquire(struct lock *l)
{
	lock_check_order(l);
	gild_assert(pthread_mutex_lock(&l->mutex) == 0);
	lock_push(l);
}

void lock_release(struct lock *l)
{
	lock_pop(l);
	gild_assert(pthread_mutex_unlock(&l->mutex) == 0);
}

void lock_assert_held(const struct lock *l)
{
#ifdef GILD_DEBUG
	gild_assert(lock_is_held(l));
#else
	(void)l;
#endif
}

void lock_cond_init(struct lock_cond *c)
{
	pthread_condattr_t attr;

	gild_assert(pthread_condattr_init(&attr) == 0);
	gild_assert(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
	gild_assert(pthread_cond_init(&c->cond, &attr) == 0);
	pthread_condattr_destroy(&attr);
}

void lock_cond_destroy(struct lock_cond *c)
{
	gild_assert(pthread_cond_destroy(&c->cond) == 0);
}

void lock_cond_wait(struct lock_cond *c, struct lock *l)
{
	lock_check_wait(l);
	lock_pop(l);
	gild_assert(pthread_cond_wait(&c->cond, &l->mutex) == 0);
	lock_push(l);
}

bool lock_cond_wait_until(struct lock_cond *c, struct lock *l, uint64_t deadline_ns)
{
	struct timespec ts = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
			      .tv_nsec = (long)(deadline_ns % NS_PER_S)};
	int rc;

	lock_check_wait(l);
	lock_pop(l);
	rc = pthread_cond_timedwait(&c->cond, &l->mutex, &ts);
	lock_push(l);
	gild_assert(rc == 0 || rc == ETIMEDOUT);
	return rc == 0;
}

void lock_cond_signal(struct lock_cond *c)
{
	pthread_cond_signal(&c->cond);
}

void lock_cond_broadcast(struct lock_cond *c)
{
	pthread_cond_broadcast(&c->cond);
}
