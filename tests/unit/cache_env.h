/* SPDX-License-Identifier: BSD-2-Clause
 * A cache over a RAM flash and a directory, for the tests of the cache. */
#ifndef GILD_TESTS_CACHE_ENV_H
#define GILD_TESTS_CACHE_ENV_H

#include "cache/cache.h"
#include "ram_flash.h"
#include "unit_util.h"

#define ENV_HOUR (3600ULL * 1000000000ULL)

struct env {
	char dir[256]; /* of the backing */
	struct ram_flash *ram;
	struct flash *flash;
	struct backing *backing;
	struct stats *stats;
	struct cache *c;
	struct cache_options o;
};

/* ttl one hour, write-through, policy always, one fill thread, changes settle in 3 ms, nothing is
 * published but by a barrier. */
void env_make(struct env *e, uint64_t capacity_sectors);
void env_start(struct env *e); /* opens backing and cache with e->o */
void env_stop(struct env *e);  /* closes both; flash is closed cleanly */
void env_crash(struct env *e, uint64_t seed); /* the power fails: see ram_flash_cut */
void env_free(struct env *e);
void env_restart(struct env *e);

/* On the backing, behind the mount. */
void env_put(struct env *e, const char *name, const void *data, size_t len);
void env_pattern(void *buf, size_t len, uint64_t seed);
char *env_path(struct env *e, const char *name); /* one of a few static buffers */
void env_age(struct env *e, const char *name); /* waits until its ctime is settled */

/* Through the cache. */
struct cnode *env_lookup(struct env *e, const char *name);
void env_forget(struct env *e, struct cnode *n);
ssize_t env_read(struct env *e, struct cnode *n, void *buf, size_t len, uint64_t off);
void env_drain(struct env *e); /* fills that are queued have been done */
/* Reads the file whole until that is a hit. */
void env_warm(struct env *e, struct cnode *n);
/* The file through the cache is the file on the backing. */
void env_same(struct env *e, const char *name, const char *why);
uint64_t env_rand(uint64_t *state);
uint64_t env_seed(uint64_t fallback); /* $GILD_SEED or this; printed */

#define env_stat(e, field) stats_get((e)->stats, field)

#endif
