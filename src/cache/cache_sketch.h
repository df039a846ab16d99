/* SPDX-License-Identifier: BSD-2-Clause
 *
 * How often was it asked for? A count-min sketch of 4-bit counters with ageing.
 *
 * The four counters of a key lie in one 64-byte block, so a touch costs one cache miss. Only the
 * lowest of the four are raised (conservative update). There are 16 counters a line that flash may
 * hold, since many more lines are asked for than fit. Ageing is continuous: every SKETCH_AGE touches
 * a hand halves the 16 counters of the next word, so that each counter is halved once in 16 touches
 * for each line, without a pause. Relaxed atomics: a lost count is no harm.
 */
#ifndef GILD_CACHE_SKETCH_H
#define GILD_CACHE_SKETCH_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SKETCH_MAX 15u
#define SKETCH_AGE 16u

struct sketch {
	_Atomic uint64_t *words; /* 16 counters each */
	size_t blocks;           /* of 8 words; a power of two */
	_Atomic uint64_t touches;
};

int sketch_init(struct sketch *s, uint64_t keys); /* -ENOMEM */
void sketch_destroy(struct sketch *s);
void sketch_touch(struct sketch *s, uint64_t key);
unsigned sketch_count(const struct sketch *s, uint64_t key); /* 0 .. SKETCH_MAX */

#endif
