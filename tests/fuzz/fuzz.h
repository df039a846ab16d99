/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Fuzzers: one program each, with libFuzzer's entry point. `make fuzz` links them with libFuzzer
 * and lets them search; everywhere else fuzz_main.c replays the corpus, which `make check` does.
 *
 * A harness must be repeatable: nothing of one input may be left for the next one.
 */
#ifndef GILD_TESTS_FUZZ_H
#define GILD_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* On in every build, and a crash for the fuzzer. */
#define fuzz_assert(cond) \
	((cond) ? (void)0 : (dprintf(2, "%s:%d: %s\n", __FILE__, __LINE__, #cond), abort()))

/* A directory of this process's own, in memory where there is some; removed at exit. */
const char *fuzz_scratch(void);
/* From here on nothing is printed or logged, but with FUZZ_LOUD in the environment; reports of
 * sanitizers and of fuzz_assert are. */
void fuzz_quiet(void);
/* A path that reads as these bytes, until the next call. */
const char *fuzz_file(const void *data, size_t size);

/* The input as a stream of numbers: zeros after its end. */
struct fuzz_in {
	const uint8_t *p;
	size_t left;
};

static inline uint64_t fuzz_take(struct fuzz_in *in, unsigned bytes)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < bytes && in->left; i++, in->left--)
		v |= (uint64_t)*in->p++ << (8 * i);
	return v;
}

#endif
