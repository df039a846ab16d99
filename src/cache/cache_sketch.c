/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache_sketch.h"

#define SKETCH_BLOCK_WORDS 8u
#define SKETCH_ROWS 4u

int sketch_init(struct sketch *s, uint64_t keys)
{
	size_t blocks = 64, bytes;
	void *p;

	/* 128 counters in a block; at most 32 MiB */
	while (blocks * 8 < keys && blocks < (size_t)1 << 19)
		blocks <<= 1;
	bytes = blocks * SKETCH_BLOCK_WORDS * sizeof(uint64_t);
	p = aligned_alloc(64, bytes);
	if (!p)
		return -ENOMEM;
	memset(p, 0, bytes);
	s->words = p;
	s->blocks = blocks;
	atomic_init(&s->touches, 0);
	return 0;
}

void sketch_destroy(struct sketch *s)
{
	free((void *)s->words);
	s->words = NULL;
}

static _Atomic uint64_t *sketch_block(const struct sketch *s, uint64_t key)
{
	return s->words + (key & (s->blocks - 1)) * SKETCH_BLOCK_WORDS;
}

/* Row r has two words of the block: 32 counters, chosen by 5 bits of the key above the block's. */
static unsigned sketch_slot(uint64_t key, unsigned row)
{
	return (key >> (32 + row * 8)) & 31;
}

static unsigned sketch_get(const _Atomic uint64_t *block, unsigned row, unsigned slot)
{
	uint64_t w = atomic_load_explicit(&block[row * 2 + slot / 16], memory_order_relaxed);

	return (w >> (slot % 16 * 4)) & 15;
}

unsigned sketch_count(const struct sketch *s, uint64_t key)
{
	const _Atomic uint64_t *block = sketch_block(s, key);
	unsigned row, least = SKETCH_MAX;

	for (row = 0; row < SKETCH_ROWS; row++) {
		unsigned v = sketch_get(block, row, sketch_slot(key, row));

		if (v < least)
			least = v;
	}
	return least;
}

static void sketch_age(struct sketch *s, uint64_t turn)
{
	_Atomic uint64_t *w = &s->words[turn % (s->blocks * SKETCH_BLOCK_WORDS)];
	uint64_t old = atomic_load_explicit(w, memory_order_relaxed);

	while (!atomic_compare_exchange_weak_explicit(w, &old, old >> 1 & 0x7777777777777777ULL,
						      memory_order_relaxed, memory_order_relaxed))
		;
}

void sketch_touch(struct sketch *s, uint64_t key)
{
	_Atomic uint64_t *block = sketch_block(s, key);
	unsigned row, least = sketch_count(s, key);
	uint64_t touches;

	for (row = 0; row < SKETCH_ROWS && least < SKETCH_MAX; row++) {
		unsigned slot = sketch_slot(key, row), shift = slot % 16 * 4;
		_Atomic uint64_t *w = &block[row * 2 + slot / 16];
		uint64_t old = atomic_load_explicit(w, memory_order_relaxed);

		while ((old >> shift & 15) == least &&
		       !atomic_compare_exchange_weak_explicit(w, &old, old + (1ULL << shift),
							      memory_order_relaxed,
							      memory_order_relaxed))
			;
	}
	touches = atomic_fetch_add_explicit(&s->touches, 1, memory_order_relaxed);
	if (touches % SKETCH_AGE == SKETCH_AGE - 1)
		sketch_age(s, touches / SKETCH_AGE);
}
