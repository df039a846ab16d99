/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/hash.h"
#include "cache/cache_priv.h"
#include "cache_env.h"

void env_make(struct env *e, uint64_t capacity_sectors)
{
	memset(e, 0, sizeof(*e));
	scratch_make(e->dir);
	e->ram = ram_flash_new(capacity_sectors);
	e->flash = ram_flash_ops(e->ram);
	e->stats = calloc(1, sizeof(*e->stats));
	ck_assert_ptr_nonnull(e->stats);
	stats_init(e->stats);
	e->o = (struct cache_options){
		.mode = CACHE_WRITE_THROUGH,
		.coherence = CACHE_TTL,
		.ttl_ns = ENV_HOUR,
		.policy = CACHE_POLICY_ALWAYS,
		.fill_threads = 1,
		.publish_after_ns = ENV_HOUR,
		.settle_ns = 3 * NS_PER_MS,
	};
}

void env_start(struct env *e)
{
	struct backing_options b = {.fsid = "test"};

	ck_assert_ok(backing_open(&e->backing, e->dir, &b));
	ck_assert_ok(cache_open(&e->c, e->flash, e->backing, e->stats, &e->o));
}

void env_stop(struct env *e)
{
	ck_assert_ok(cache_close(e->c));
	if (e->flash == ram_flash_ops(e->ram))
		ram_flash_closed_cleanly(e->ram);
	backing_close(e->backing);
	e->c = NULL;
}

void env_restart(struct env *e)
{
	env_stop(e);
	env_start(e);
}

void env_crash(struct env *e, uint64_t seed)
{
	/* From here on nothing reaches flash, so closing is only for the memory. */
	ram_flash_fail_at(e->ram, 1);
	cache_close(e->c);
	backing_close(e->backing);
	ram_flash_cut(e->ram, seed);
	e->c = NULL;
}

void env_free(struct env *e)
{
	if (e->c)
		env_stop(e);
	ram_flash_free(e->ram);
	scratch_remove(e->dir);
	free(e->stats);
}

char *env_path(struct env *e, const char *name)
{
	static char paths[4][600];
	static unsigned i;
	char *p = paths[i++ % 4];

	snprintf(p, sizeof(paths[0]), "%s/%s", e->dir, name);
	return p;
}

void env_pattern(void *buf, size_t len, uint64_t seed)
{
	uint64_t x = hash_mix64(seed + 1);
	unsigned char *p = buf;
	size_t i;

	for (i = 0; i < len; i++) {
		if (i % 8 == 0)
			x = hash_mix64(x + i);
		p[i] = (unsigned char)(x >> (i % 8 * 8));
	}
}

void env_put(struct env *e, const char *name, const void *data, size_t len)
{
	int fd = open(env_path(e, name), O_WRONLY | O_CREAT | O_TRUNC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, data, len), (ssize_t)len);
	close(fd);
}

void env_age(struct env *e, const char *name)
{
	struct stat st;

	ck_assert_ok(lstat(env_path(e, name), &st));
	while (clock_file_ns() <= (uint64_t)st.st_ctim.tv_sec * NS_PER_S +
					  (uint64_t)st.st_ctim.tv_nsec + 4 * e->o.settle_ns + NS_PER_MS)
		sched_yield();
}

struct cnode *env_lookup(struct env *e, const char *name)
{
	struct cache_attr a;
	struct cnode *n;

	ck_assert_ok(cache_lookup(e->c, cache_root(e->c), name, &n, &a, 0));
	return n;
}

void env_forget(struct env *e, struct cnode *n)
{
	cache_forget(e->c, n, 1);
}

ssize_t env_read(struct env *e, struct cnode *n, void *buf, size_t len, uint64_t off)
{
	bool changed;

	return cache_read(e->c, n, buf, len, off, 0, &changed);
}

void env_drain(struct env *e)
{
	workq_drain(e->c->fills);
}

void env_warm(struct env *e, struct cnode *n)
{
	size_t room = 4u << 20;
	char *buf = malloc(room);
	uint64_t hits;
	unsigned tries;
	ssize_t got;

	ck_assert_ptr_nonnull(buf);
	for (tries = 0; tries < 100000; tries++) {
		hits = env_stat(e, read_hits);
		got = env_read(e, n, buf, room, 0);
		ck_assert_int_ge(got, 0);
		if (env_stat(e, read_hits) > hits)
			break;
		env_drain(e);
	}
	ck_assert_msg(tries < 100000, "the file does not get warm");
	free(buf);
}

static size_t env_slurp(int fd, char *buf, size_t room)
{
	size_t len = 0;
	ssize_t n;

	while ((n = pread(fd, buf + len, room - len, (off_t)len)) > 0)
		len += (size_t)n;
	ck_assert_int_eq(n, 0);
	return len;
}

void env_same(struct env *e, const char *name, const char *why)
{
	size_t room = 8u << 20, want, i;
	char *a = malloc(room), *b = malloc(room);
	int fd = open(env_path(e, name), O_RDONLY);
	struct cnode *n = env_lookup(e, name);
	ssize_t got;

	ck_assert(a && b && fd >= 0);
	want = env_slurp(fd, a, room);
	close(fd);
	got = env_read(e, n, b, room, 0);
	ck_assert_msg(got == (ssize_t)want, "%s: %s has %zd bytes, not %zu", why, name, got, want);
	for (i = 0; i < want && a[i] == b[i]; i++)
		;
	ck_assert_msg(i == want, "%s: %s differs at byte %zu", why, name, i);
	env_forget(e, n);
	free(a);
	free(b);
}

uint64_t env_rand(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15ULL;
	return hash_mix64(*state);
}

uint64_t env_seed(uint64_t fallback)
{
	const char *s = getenv("GILD_SEED");
	uint64_t seed = s && *s ? strtoull(s, NULL, 0) : fallback;

	printf("seed %" PRIu64 "\n", seed);
	return seed;
}
