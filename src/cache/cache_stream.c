/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which reads are a long run in order? Those bypass: a disk is good at them, and flash is not for
 * what is read once from end to end.
 *
 * A small table of runs, the least recently moved one replaced. Only reads that flash did not serve
 * alone are noted, so hits pay nothing. The kernel's read-ahead arrives in pieces that may overtake
 * each other: a piece within CSTREAM_SLACK of the run's end belongs to it, and only progress of the
 * end counts, so random reads of one neighbourhood are no run. Files not longer than the cutoff
 * never bypass.
 */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "cache/cache_priv.h"

#define CSTREAMS 64u
#define CSTREAM_SLACK (512u << 10)

struct cstream {
	const struct cnode *n; /* compared only */
	uint64_t end, bytes, moved;
};

int cstream_start(struct cache *c)
{
	lock_init(&c->stream_lock, "cache streams", RANK_CACHE_POLICY);
	c->streams = calloc(CSTREAMS + 1, sizeof(*c->streams));
	return c->streams ? 0 : -ENOMEM;
}

void cstream_stop(struct cache *c)
{
	if (c->stream_lock.name)
		lock_destroy(&c->stream_lock);
	free(c->streams);
}

static struct cstream *cstream_find(struct cache *c, const struct cnode *n, uint64_t off)
{
	struct cstream *oldest = c->streams, *s;
	unsigned i;

	for (i = 0; i < CSTREAMS; i++) {
		s = &c->streams[i];
		if (s->n == n && off <= s->end + CSTREAM_SLACK && s->end <= off + CSTREAM_SLACK)
			return s;
		if (s->moved < oldest->moved)
			oldest = s;
	}
	*oldest = (struct cstream){.n = n, .end = off};
	return oldest;
}

bool cstream_note(struct cache *c, const struct cnode *n, uint64_t size, uint64_t off, size_t len)
{
	struct cstream *s;
	bool bypass;

	if (!c->o.seq_cutoff || size <= c->o.seq_cutoff)
		return false;
	lock_acquire(&c->stream_lock);
	s = cstream_find(c, n, off);
	if (off + len > s->end) {
		s->bytes += off + len - s->end;
		s->end = off + len;
	}
	s->moved = clock_mono_ns();
	bypass = s->bytes > c->o.seq_cutoff;
	lock_release(&c->stream_lock);
	return bypass;
}
