/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Ranked locks: a mutex that knows its name, its rank and (in debug builds) its owner.
 *
 * A thread takes locks in rising rank; with --enable-debug, taking one of lower or equal rank
 * aborts. The enum is the lock-order document: a layer's locks rank below those of the layers it
 * calls. No lock is held over a call into the layer below unless that layer's header says so.
 */
#ifndef GILD_BASE_LOCK_H
#define GILD_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum lock_rank {
	RANK_TOOLS = 10,      /* daemon start and stop, control socket */
	RANK_FS_TABLE = 20,   /* inode table */
	RANK_FS_INODE = 24,   /* one inode */
	RANK_CACHE_ROUND = 28, /* publisher rounds */
	RANK_CACHE_FILE = 30, /* one cached file: versions, write generation; held over flash writes */
	RANK_CACHE_TABLE = 34, /* table of cached files */
	RANK_CACHE_FILL = 36, /* fill queue, single flight */
	RANK_CACHE_POLICY = 38,
	RANK_BACKING_IO = 40, /* file position of one descriptor: appends */
	RANK_BACKING_NAMES = 42, /* one rename at a time */
	RANK_BACKING = 44,    /* node table and descriptors */
	RANK_ARRAY = 50,
	RANK_CARD = 54,
	RANK_FTL_GC = 58,     /* one GC step at a time */
	RANK_FTL_CKPT = 60,   /* one checkpoint at a time */
	RANK_FTL = 64,        /* one controller: map overlay, log heads, erase blocks */
	RANK_FTL_IO = 66,     /* chunk writes in flight */
	RANK_META = 70,
	RANK_MEDIA = 74,
	RANK_WORKQ = 80,
	RANK_STATS = 84,
	RANK_LOG = 90,
};

struct lock {
	pthread_mutex_t mutex;
	const char *name;
	int rank;
	struct lock *below; /* debug: the lock this thread took before this one */
	uint64_t owner;     /* debug: thread id of the holder, 0 when free */
};

struct lock_cond {
	pthread_cond_t cond;
};

void lock_init(struct lock *l, const char *name, enum lock_rank rank);
void lock_destroy(struct lock *l);
void lock_acquire(struct lock *l);
void lock_release(struct lock *l);
/* Aborts unless the caller holds `l` (debug builds; nothing otherwise). */
void lock_assert_held(const struct lock *l);

void lock_cond_init(struct lock_cond *c); /* waits are on CLOCK_MONOTONIC */
void lock_cond_destroy(struct lock_cond *c);
void lock_cond_wait(struct lock_cond *c, struct lock *l);
/* Waits until signalled or clock_mono_ns() reaches `deadline_ns`; false on time-out. */
bool lock_cond_wait_until(struct lock_cond *c, struct lock *l, uint64_t deadline_ns);
void lock_cond_signal(struct lock_cond *c);
void lock_cond_broadcast(struct lock_cond *c);

#endif
