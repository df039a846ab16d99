/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Raw counters come from stats.tbl and from the flash; this is where ratios are made. */
#include <config.h>

#include "tools/mount_status.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

void mount_status_init(struct mount_status *m, struct stack *s, struct fs *fs,
		       const struct gildfs_options *o)
{
	*m = (struct mount_status){
		.stack = s, .fs = fs, .options = o, .started_ns = clock_mono_ns()};
}

/* NaN is not JSON: a ratio over nothing is 0. */
static json_t *ratio(double part, double whole)
{
	return json_real(whole > 0 ? part / whole : 0.0);
}

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)n);
}

static json_t *status_requests(const struct stats *s)
{
	uint64_t hits = stats_get(s, read_hits), partial = stats_get(s, read_partial);
	uint64_t misses = stats_get(s, read_misses), bypass = stats_get(s, read_bypass);
	uint64_t total = hits + partial + misses + bypass;

	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "hits", number(hits), "partial",
			 number(partial), "misses", number(misses), "bypass", number(bypass),
			 "total", number(total), "hit_ratio", ratio((double)hits, (double)total),
			 "writes", number(stats_get(s, write_requests)));
}

static json_t *status_bytes(const struct stats *s)
{
	uint64_t hit = stats_get(s, read_hit_bytes), backing = stats_get(s, read_backing_bytes);

	return json_pack("{s:o, s:o, s:o, s:o, s:o}", "hit", number(hit), "backing", number(backing),
			 "total", number(hit + backing), "hit_ratio",
			 ratio((double)hit, (double)(hit + backing)), "written",
			 number(stats_get(s, write_bytes)));
}

static json_t *status_latency(const struct hist *h)
{
	return json_pack("{s:o, s:f, s:o, s:o, s:o, s:o, s:o}", "count",
			 number(atomic_load(&h->count)), "mean", hist_mean(h), "p50",
			 number(hist_percentile(h, 50)), "p90", number(hist_percentile(h, 90)),
			 "p99", number(hist_percentile(h, 99)), "p999",
			 number(hist_percentile(h, 99.9)), "max", number(hist_percentile(h, 100)));
}

static json_t *status_flash(struct flash *flash)
{
	static const char *const states[] = {"ok", "degraded", "readonly", "failed"};
	struct flash_stats f;
	struct flash_health h;

	if (!flash)
		return json_null();
	flash->ops->stats(flash, &f);
	flash->ops->health(flash, &h);
	return json_pack(
		"{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}",
		"state", states[h.state], "host_write_bytes", number(f.host_write_bytes),
		"host_read_bytes", number(f.host_read_bytes), "stored_bytes",
		number(f.stored_bytes), "flash_write_bytes", number(f.flash_write_bytes),
		"flash_read_bytes", number(f.flash_read_bytes), "gc_copied_bytes",
		number(f.gc_copied_bytes), "gc_dropped_bytes", number(f.gc_dropped_bytes),
		"write_amplification", ratio((double)f.flash_write_bytes, (double)f.host_write_bytes),
		"compression_ratio", ratio((double)f.host_write_bytes, (double)f.stored_bytes),
		"raw_bytes", number(f.raw_bytes), "usable_bytes", number(f.usable_bytes),
		"live_bytes", number(f.live_bytes), "live_sectors", number(f.live_sectors),
		"free_bytes", number(f.free_bytes), "corrupt_sectors", number(f.corrupt_sectors),
		"unclean_start", f.unclean);
}

static json_t *mount_status_full(struct mount_status *m)
{
	static const char *const modes[] = {"write-through", "write-around", "read-only"};
	static const char *const rules[] = {"ttl", "strict", "exclusive"};
	static const char *const policies[] = {"freq", "always", "lru"};
	const struct stats *s = &m->stack->stats;
	struct cache_options o;

	cache_options_get(m->stack->cache, &o);
	return json_pack("{s:s, s:s, s:i, s:f, s:s, s:s, s:s, s:o, s:o, s:{s:o, s:o, s:o, s:o}, "
			 "s:o, s:o}",
			 "mountpoint", m->options->mountpoint, "backing", m->options->backing, "pid",
			 (int)getpid(), "uptime_s",
			 (double)(clock_mono_ns() - m->started_ns) / (double)NS_PER_S, "mode",
			 modes[o.mode], "coherence", rules[o.coherence], "policy",
			 policies[o.policy], "requests", status_requests(s), "bytes",
			 status_bytes(s), "latency_ns", "hit", status_latency(&s->latency_hit),
			 "partial", status_latency(&s->latency_partial), "miss",
			 status_latency(&s->latency_miss), "write",
			 status_latency(&s->latency_write), "flash",
			 status_flash(m->stack->flash), "stats", stats_to_json(s));
}

static json_t *mount_status_text(void (*print)(FILE *to, const void *arg), const void *arg)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	json_t *reply = NULL;

	if (!f)
		return NULL;
	print(f, arg);
	fclose(f);
	reply = json_pack("{s:s%}", "text", text, len);
	free(text);
	return reply;
}

static void print_prometheus(FILE *to, const void *stats)
{
	stats_print_prometheus(stats, to);
}

static void print_stats(FILE *to, const void *stats)
{
	stats_print_text(stats, to);
}

static void print_log(FILE *to, const void *unused)
{
	(void)unused;
	log_dump_ring(to);
}

static json_t *mount_done(int rc, const char *what)
{
	return rc < 0 ? json_pack("{s:s}", "error", strerror(-rc)) : json_pack("{s:b}", what, 1);
}

static json_t *mount_invalidate(struct mount_status *m, const json_t *args)
{
	char path[PATH_MAX];

	if (!control_path(args, path, sizeof(path)))
		return json_pack("{s:s}", "error", "invalidate needs a path below the mount");
	return mount_done(fs_invalidate(m->fs, path), "invalidated");
}

json_t *mount_status_answer(void *arg, const char *command, const json_t *args)
{
	struct mount_status *m = arg;
	const struct stats *s = &m->stack->stats;

	if (strcmp(command, "status") == 0)
		return mount_status_full(m);
	if (strcmp(command, "stats") == 0)
		return stats_to_json(s);
	if (strcmp(command, "stats-text") == 0)
		return mount_status_text(print_stats, s);
	if (strcmp(command, "prometheus") == 0)
		return mount_status_text(print_prometheus, s);
	if (strcmp(command, "log") == 0)
		return mount_status_text(print_log, NULL);
	if (strcmp(command, "flush") == 0)
		return mount_done(cache_flush(m->stack->cache), "flushed");
	if (strcmp(command, "invalidate") == 0)
		return mount_invalidate(m, args);
	return json_pack("{s:s+}", "error", "this gildfs knows no command ", command);
}
