/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Opening and closing, stamps, group commit, and standing aside when flash fails.
 *
 * When flash answers errors, CACHE_ERRORS_MAX of them within a row open a pause of CACHE_PAUSE_NS in
 * which it is neither read nor filled; then it is tried again, so a passing fault does not disable
 * the cache for ever. What makes lines untrue (trims, open records) is tried in the pause, too, and
 * where it fails the file loses its number: correctness never waits for flash to recover.
 */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "cache/cache_priv.h"

#define CACHE_ERRORS_MAX 16u
#define CACHE_PAUSE_NS (30 * NS_PER_S)
#define CACHE_WARN_NS (10 * NS_PER_S)
#define CACHE_STAMP_GAP (1ULL << 32)

uint64_t cache_stamp(struct cache *c)
{
	return atomic_fetch_add_explicit(&c->stamp, 1, memory_order_relaxed) + 1;
}

bool cache_may_warn(struct cache *c)
{
	uint64_t now = clock_mono_ns();
	uint64_t last = atomic_load_explicit(&c->warned, memory_order_relaxed);

	if (last && now - last < CACHE_WARN_NS)
		return false;
	return atomic_compare_exchange_strong_explicit(&c->warned, &last, now, memory_order_relaxed,
						       memory_order_relaxed);
}

void cache_flash_failed(struct cache *c, const char *what, int error)
{
	uint64_t now = clock_mono_ns(), errors;

	if (error == -ENOSPC)
		return;
	if (cache_may_warn(c))
		log_warning("cache", "flash failed to %s: %s; going on with the backing alone", what,
			    strerror(-error));
	errors = atomic_fetch_add_explicit(&c->flash_errors, 1, memory_order_relaxed) + 1;
	if (errors < CACHE_ERRORS_MAX)
		return;
	atomic_store_explicit(&c->flash_errors, 0, memory_order_relaxed);
	if (atomic_load_explicit(&c->bypass_until, memory_order_relaxed) < now)
		log_warning("cache", "flash keeps failing; leaving it alone for %u seconds",
			    (unsigned)(CACHE_PAUSE_NS / NS_PER_S));
	atomic_store_explicit(&c->bypass_until, now + CACHE_PAUSE_NS, memory_order_relaxed);
}

void cache_flash_worked(struct cache *c)
{
	if (atomic_load_explicit(&c->flash_errors, memory_order_relaxed))
		atomic_store_explicit(&c->flash_errors, 0, memory_order_relaxed);
}

bool cache_flash_usable(struct cache *c)
{
	uint64_t until = atomic_load_explicit(&c->bypass_until, memory_order_relaxed);

	return c->flash && (!until || clock_mono_ns() >= until);
}

void cache_note_usage(struct cache *c)
{
	struct flash_stats st;

	c->flash->ops->stats(c->flash, &st);
	if (st.usable_bytes)
		atomic_store_explicit(&c->used_percent,
				      (unsigned)(st.live_bytes * 100 / st.usable_bytes),
				      memory_order_relaxed);
	csweep_note(c, &st);
}

int cache_commit(struct cache *c)
{
	uint64_t mine, upto, untrusts;
	int err;

	lock_acquire(&c->commit_lock);
	mine = ++c->commit_asked;
	while (c->commit_done < mine) {
		if (c->commit_running) {
			lock_cond_wait(&c->commit_cond, &c->commit_lock);
			continue;
		}
		c->commit_running = true;
		upto = c->commit_asked;
		lock_release(&c->commit_lock);
		untrusts = atomic_load(&c->untrusts);
		err = c->flash->ops->flush(c->flash);
		if (!err)
			atomic_store(&c->untrusts_durable, untrusts);
		lock_acquire(&c->commit_lock);
		c->commit_running = false;
		c->commit_done = upto;
		c->commit_error = err;
		lock_cond_broadcast(&c->commit_cond);
	}
	/* A later flush may have replaced the error by its own; flash that failed once keeps failing
	 * flushes, so a success that follows a failure covers both. */
	err = c->commit_error;
	lock_release(&c->commit_lock);
	if (err)
		cache_flash_failed(c, "flush", err);
	return err;
}

static enum flash_verdict cache_reclaim(void *arg, uint64_t file, uint64_t line, uint64_t stamp,
					uint32_t epoch)
{
	struct cache *c = arg;
	enum flash_verdict v = policy_reclaim(c->policy, policy_key(file, line), stamp);

	(void)epoch;
	if (v == FLASH_DROP)
		stats_inc(c->stats, evict_dropped);
	else
		stats_inc(c->stats, evict_kept);
	return v;
}

static void cache_set_options(struct cache *c, const struct cache_options *o)
{
	c->o = *o;
	if (c->o.coherence == CACHE_TTL && !c->o.ttl_ns)
		c->o.ttl_ns = NS_PER_S;
	if (c->o.coherence == CACHE_STRICT)
		c->o.ttl_ns = 0;
	if (!c->o.fill_threads)
		c->o.fill_threads = 2;
	if (!c->o.fill_bytes)
		c->o.fill_bytes = 32u << 20;
	if (!c->o.publish_after_ns)
		c->o.publish_after_ns = 2 * NS_PER_S;
	if (!c->o.settle_ns)
		c->o.settle_ns = CACHE_SETTLE_NS;
}

static int cache_init_locks(struct cache *c)
{
	unsigned i;

	lock_init(&c->table_lock, "cache table", RANK_CACHE_TABLE);
	for (i = 0; i < CACHE_RECORD_LOCKS; i++)
		lock_init(&c->record_locks[i], "cache file records", RANK_CACHE_POLICY);
	lock_init(&c->number_lock, "cache file numbers", RANK_CACHE_POLICY);
	lock_init(&c->commit_lock, "cache commit", RANK_CACHE_POLICY);
	lock_cond_init(&c->commit_cond);
	lock_init(&c->stream_lock, "cache streams", RANK_CACHE_POLICY);
	lock_init(&c->round_lock, "cache round", RANK_CACHE_ROUND);
	lock_init(&c->open_lock, "cache open files", RANK_CACHE_POLICY);
	lock_cond_init(&c->open_cond);
	c->stripes = aligned_alloc(128, CACHE_STRIPES * sizeof(*c->stripes));
	if (!c->stripes)
		return -ENOMEM;
	for (i = 0; i < CACHE_STRIPES; i++) {
		lock_init(&c->stripes[i].lock, "cache file", RANK_CACHE_FILE);
		lock_cond_init(&c->stripes[i].cond);
	}
	return htab_init(&c->nodes, 1024);
}

static void cache_free_node(struct htab_node *h, void *arg)
{
	struct cache *c = arg;
	struct cnode *n = container_of(h, struct cnode, node);

	if (n->bnode != backing_root(c->backing))
		backing_put(c->backing, n->bnode);
	free(n);
}

static void cache_free(struct cache *c)
{
	unsigned i;

	cknown_stop(c);
	cstream_stop(c);
	cflight_stop(c);
	if (c->nodes.buckets) {
		htab_each(&c->nodes, cache_free_node, c);
		htab_destroy(&c->nodes);
	}
	policy_destroy(c->policy);
	for (i = 0; c->stripes && i < CACHE_STRIPES; i++) {
		lock_destroy(&c->stripes[i].lock);
		lock_cond_destroy(&c->stripes[i].cond);
	}
	free(c->stripes);
	lock_destroy(&c->table_lock);
	for (i = 0; i < CACHE_RECORD_LOCKS; i++)
		lock_destroy(&c->record_locks[i]);
	lock_destroy(&c->number_lock);
	lock_destroy(&c->commit_lock);
	lock_cond_destroy(&c->commit_cond);
	lock_destroy(&c->stream_lock);
	lock_destroy(&c->round_lock);
	lock_destroy(&c->open_lock);
	lock_cond_destroy(&c->open_cond);
	free(c);
}

static int cache_open_flash(struct cache *c)
{
	struct flash_stats st;
	int err;

	if (getrandom(&c->mount, sizeof(c->mount), 0) != (ssize_t)sizeof(c->mount))
		c->mount = clock_mono_ns() ^ clock_file_ns() << 20;
	c->flash->ops->stats(c->flash, &st);
	atomic_store(&c->stamp, st.max_stamp + (st.unclean ? CACHE_STAMP_GAP : 0));
	err = policy_create(&c->policy, c->o.policy, st.usable_bytes);
	if (err)
		return err;
	cache_note_usage(c);
	err = cfile_start(c, st.unclean);
	if (err)
		return err;
	err = workq_create(&c->fills, "fill", c->o.fill_threads, 0);
	if (err)
		return err;
	c->flash->ops->set_reclaim(c->flash, cache_reclaim, c);
	return 0;
}

static int cache_open_root(struct cache *c)
{
	struct bnode *b = backing_root(c->backing);
	struct battr a;
	uint64_t start = clock_mono_ns();
	int err = backing_getattr(c->backing, b, &a);

	if (err)
		return err;
	err = cnode_get(c, b, &c->root);
	if (!err)
		cnode_learn(c, c->root, &a, start);
	return err;
}

/* Stops the threads, fills first: they may still open records that the publisher must see. */
static int cache_stop(struct cache *c)
{
	int err;

	workq_destroy(c->fills);
	err = cpublish_stop(c);
	if (c->flash) {
		int e = cfile_stop(c);

		c->flash->ops->set_reclaim(c->flash, NULL, NULL);
		err = err ? err : e;
	}
	return err;
}

int cache_open(struct cache **out, struct flash *flash, struct backing *backing, struct stats *stats,
	       const struct cache_options *o)
{
	struct cache *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return -ENOMEM;
	c->flash = flash;
	c->backing = backing;
	c->stats = stats;
	cache_set_options(c, o);
	err = cache_init_locks(c);
	if (!err)
		err = cflight_start(c);
	if (!err)
		err = cstream_start(c);
	if (!err)
		err = cknown_start(c);
	if (!err && flash)
		err = cache_open_flash(c);
	if (!err)
		err = cache_open_root(c);
	if (!err)
		err = cpublish_start(c);
	if (err) {
		if (c->fills)
			cache_stop(c);
		cache_free(c);
		return err;
	}
	*out = c;
	return 0;
}

int cache_close(struct cache *c)
{
	int err = cache_stop(c);

	cache_free(c);
	return err;
}

void cache_options_get(struct cache *c, struct cache_options *out)
{
	*out = c->o;
}

struct cnode *cache_root(struct cache *c)
{
	return c->root;
}

struct backing *cache_backing(struct cache *c)
{
	return c->backing;
}
