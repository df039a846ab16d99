/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Media: the checks that are the same for every kind, so that a caller that breaks the contract
 * fails over RAM in a test just as it would on a device.
 */
#include <config.h>

#include <errno.h>

#include "media/media_priv.h"

static int media_count_error(struct media *m, int rc)
{
	if (rc < 0)
		m->errors++;
	return rc;
}

static bool media_contains(const struct media *m, uint64_t off, uint64_t len)
{
	return off <= m->size && len <= m->size - off;
}

int media_read(struct media *m, void *buf, size_t len, uint64_t off)
{
	if (!media_contains(m, off, len))
		return media_count_error(m, -EINVAL);
	if (len == 0)
		return 0;
	atomic_fetch_add_explicit(&m->reads, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->read_bytes, len, memory_order_relaxed);
	return media_count_error(m, m->ops->read(m, buf, len, off));
}

int media_write(struct media *m, const void *buf, size_t len, uint64_t off)
{
	if (m->readonly)
		return media_count_error(m, -EROFS);
	if (!media_contains(m, off, len) || !media_is_aligned(buf, len, off))
		return media_count_error(m, -EINVAL);
	if (len == 0)
		return 0;
	atomic_fetch_add_explicit(&m->writes, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->write_bytes, len, memory_order_relaxed);
	return media_count_error(m, m->ops->write(m, buf, len, off));
}

int media_flush(struct media *m)
{
	if (m->readonly)
		return 0;
	atomic_fetch_add_explicit(&m->flushes, 1, memory_order_relaxed);
	return media_count_error(m, m->ops->flush(m));
}

/* Only whole aligned pieces are passed on: a discard is a hint, and its edges may hold data. */
int media_discard(struct media *m, uint64_t off, uint64_t len)
{
	uint64_t end;

	if (m->readonly)
		return media_count_error(m, -EROFS);
	if (!media_contains(m, off, len))
		return media_count_error(m, -EINVAL);
	end = media_align_down(off + len);
	off = media_align_up(off);
	if (off >= end)
		return 0;
	atomic_fetch_add_explicit(&m->discards, 1, memory_order_relaxed);
	return media_count_error(m, m->ops->discard(m, off, end - off));
}

uint64_t media_size(const struct media *m)
{
	return m->size;
}

void media_get_stats(const struct media *m, struct media_stats *out)
{
	*out = (struct media_stats){
		.reads = m->reads,
		.read_bytes = m->read_bytes,
		.writes = m->writes,
		.write_bytes = m->write_bytes,
		.flushes = m->flushes,
		.discards = m->discards,
		.errors = m->errors,
	};
}

void media_close(struct media *m)
{
	if (m)
		m->ops->close(m);
}
