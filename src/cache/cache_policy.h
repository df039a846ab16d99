/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which lines are worth flash: admission, and what GC keeps. A policy is one table of operations;
 * every one is required. Keys are hashes of (file number, line).
 *
 * Pressure: flash answers -ENOSPC when GC finds nothing it may drop. Each such answer raises the
 * level, writes that succeed lower it; at POLICY_PRESSURE_MAX a policy must drop whatever it is
 * asked about. That guarantees progress for every policy.
 *
 * Visits: a line is read in several requests (read-ahead, pages), which are one use of it. Requests
 * less than POLICY_VISIT_NS apart belong to one visit, and only its first one is a touch.
 *
 * Thread safe, never blocks, takes no lock: reclaim runs inside GC.
 */
#ifndef GILD_CACHE_POLICY_H
#define GILD_CACHE_POLICY_H

#include "base/clock.h"
#include "cache/cache.h"

#define POLICY_PRESSURE_MAX 16u
#define POLICY_EAGER_PERCENT 85u /* below this use of flash everything is admitted */

struct policy;

struct policy_ops {
	const char *name;
	/* `lines`: how many flash may hold. -ENOMEM. */
	int (*create)(struct policy **out, uint64_t lines);
	void (*destroy)(struct policy *p);
	void (*touch)(struct policy *p, uint64_t key); /* the line was read or written */
	/* Asked before the touch of the same request. `visits`: touches, of those counted, that
	 * belong to the visit which asks (0 or 1). */
	bool (*admit)(struct policy *p, uint64_t key, unsigned used_percent, unsigned visits);
	bool (*hot)(struct policy *p, uint64_t key); /* worth new bytes when it is written to */
	enum flash_verdict (*reclaim)(struct policy *p, uint64_t key, uint64_t stamp,
				      unsigned pressure);
};

#define POLICY_VISIT_NS (200 * NS_PER_MS)
#define POLICY_VISITS 4096u /* remembered at once; a power of two */

struct policy { /* first member of every implementation */
	const struct policy_ops *ops;
	_Atomic unsigned pressure;
	_Atomic uint64_t raised_ns; /* when it was raised last */
	_Atomic uint64_t written;   /* successful writes, for relaxing */
	_Atomic uint64_t visit[POLICY_VISITS]; /* high bits of a key, time of its last request */
};

extern const struct policy_ops policy_always, policy_lru, policy_freq;

/* Falls back to `always`, with a warning, when the wanted one cannot be made. */
int policy_create(struct policy **out, enum cache_policy which, uint64_t flash_bytes);
void policy_destroy(struct policy *p); /* NULL-safe */
uint64_t policy_key(uint64_t file, uint64_t line);
/* `now` is monotonic. */
bool policy_admit(struct policy *p, uint64_t key, unsigned used_percent, uint64_t now);
void policy_touch(struct policy *p, uint64_t key, uint64_t now);
void policy_no_space(struct policy *p);
void policy_wrote(struct policy *p);
enum flash_verdict policy_reclaim(struct policy *p, uint64_t key, uint64_t stamp);

#endif
