/* SPDX-License-Identifier: BSD-2-Clause
 * What one kind of medium gives to media.c, which checks, counts and dispatches. */
#ifndef GILD_MEDIA_MEDIA_PRIV_H
#define GILD_MEDIA_MEDIA_PRIV_H

#include <stdatomic.h>

#include "media/media.h"

/* All required. Ranges are inside the medium, never empty, and for write and discard aligned. */
struct media_ops {
	int (*read)(struct media *m, void *buf, size_t len, uint64_t off);
	int (*write)(struct media *m, const void *buf, size_t len, uint64_t off);
	int (*flush)(struct media *m);
	int (*discard)(struct media *m, uint64_t off, uint64_t len);
	void (*close)(struct media *m); /* frees m */
};

/* The first member of each kind's own struct. */
struct media {
	/* constant after open */
	const struct media_ops *ops;
	uint64_t size;
	bool readonly;

	_Atomic uint64_t reads, read_bytes, writes, write_bytes, flushes, discards, errors;
};

static inline uint64_t media_align_down(uint64_t x)
{
	return x & ~(uint64_t)(MEDIA_ALIGN - 1);
}

static inline uint64_t media_align_up(uint64_t x)
{
	return media_align_down(x + MEDIA_ALIGN - 1);
}

static inline bool media_is_aligned(const void *buf, size_t len, uint64_t off)
{
	return (((uintptr_t)buf | len | off) & (MEDIA_ALIGN - 1)) == 0;
}

#endif
