/* SPDX-License-Identifier: BSD-2-Clause
 * What test_stack.c does to a stack: random operations through the cache and behind it. */
#ifndef GILD_TESTS_STACK_OPS_H
#define GILD_TESTS_STACK_OPS_H

struct whole {
	struct rig rig;
	struct env env;
	uint64_t seed, at; /* the round: cut at this call */
	uint64_t compares; /* randomness of its own */
	unsigned lost;     /* files that a sync did not sync */
	bool both;         /* the backing loses its power, too */
	bool later;        /* some time after the card */
	bool strict, full;
};

void ops_patterns(uint64_t seed); /* once a process */
void ops_init(struct whole *w, uint64_t seed); /* the files to begin with */
void ops_step(struct whole *w, uint64_t *rng);
/* What the cache does by itself has been done. */
void ops_settle(struct whole *w);
/* A change of one file made behind the mount; it is durable. */
void ops_behind(struct whole *w, uint64_t *rng);
/* How many files differ, by pieces of some, or the whole of each. */
unsigned ops_compare(struct whole *w, uint64_t *rng, bool whole);
unsigned ops_files(struct whole *w);
/* All files become old enough; how many are on flash then (`must`: all that are not empty). */
unsigned ops_warm(struct whole *w, bool must);

#endif
