/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A tree in RAM behind cache.h and the reading half of backing.h: what src/fs is tested over. It is
 * complete enough to be mounted, and has switches for what a real cache does only now and then.
 */
#ifndef GILD_TESTS_WIRE_RAM_CACHE_H
#define GILD_TESTS_WIRE_RAM_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "cache/cache.h"

struct ram_switches {
	atomic_bool cold;    /* with CACHE_NOWAIT everything answers -EAGAIN */
	atomic_bool hang;    /* without CACHE_NOWAIT everything waits until this is false again */
	atomic_bool changed; /* the next lookup, getattr or read says `changed` */
	atomic_bool seen;    /* such a change shows in size or mtime */
	atomic_uint waiting; /* threads held up by `hang` */
	atomic_uint asked_capability; /* questions for security.capability that came this far */
};

struct cache *ram_cache_open(enum cache_coherence coherence);
/* Frees everything. True if no object is referenced any more. */
bool ram_cache_close(struct cache *c);
struct ram_switches *ram_switches(struct cache *c);
uint64_t ram_references(struct cache *c); /* all that lookups gave out and forgets did not return */
/* A file of `len` bytes as if made behind the mount; or an append there. */
struct cnode *ram_file(struct cache *c, struct cnode *dir, const char *name, const void *data,
		       size_t len);
void ram_append(struct cache *c, struct cnode *n, const void *data, size_t len);

#endif
