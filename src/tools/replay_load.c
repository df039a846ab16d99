/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Load generator.
 *
 * Every client owns its buffers, counters and histograms, so nothing is shared on the way of a
 * request but the ticket of the next view. The caller's thread wakes once a second, adds the
 * clients' counters up and takes the difference to the second before; the 99th percentile of a
 * second comes from the difference of two sums of histograms. A counter is written by one thread
 * only, hence plain relaxed stores.
 *
 * 1. The phase goes from warm-up to measured once and never back; a page counts in the phase in
 *    which it ends.
 * 2. Every view number below the bound is taken by exactly one client.
 * 3. A view cut off by the end of the run is no page; its files read are hits.
 */
#include <config.h>

#include "tools/replay_load.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "tools/replay_log.h"

#define LOAD_STACK (256 * 1024)

enum load_phase { PHASE_WARMUP, PHASE_MEASURED, PHASES };

struct load_client {
	struct load *load;
	pthread_t thread;
	unsigned char *buf;
	struct replay_log log;
	_Atomic uint64_t n[PHASES][REPLAY_COUNTERS];
	struct hist page[PHASES];
	struct hist first, file; /* measured phase only */
};

/* What all clients have counted so far. */
struct load_sum {
	uint64_t n[PHASES][REPLAY_COUNTERS];
	bool cache_known;
	uint64_t cache_hits, cache_requests;
};

struct load {
	/* constant while running */
	const struct replay_config *config;
	int done_fd;
	struct load_client *clients;
	uint64_t start_ns;
	/* shared by the clients */
	_Atomic uint64_t next_view;
	_Atomic unsigned running;
	atomic_bool stop;
	_Atomic int phase;
	struct lock error_lock;
	bool error_known;  /* under error_lock */
	char *first_error; /* under error_lock */
	/* the caller's thread */
	struct load_sum last;       /* at the end of the previous interval */
	struct hist *pages_before;  /* all page times until then */
	struct hist *pages_now, *interval;
	double last_at;
	struct load_sum measured_from;
	uint64_t measured_ns;       /* when measuring began; 0: not yet */
};

static void load_count(struct load_client *c, int phase, enum replay_counter which, uint64_t n)
{
	_Atomic uint64_t *v = &c->n[phase][which];

	atomic_store_explicit(v, atomic_load_explicit(v, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static const char *load_reason(int err)
{
	switch (err) {
	case -EFBIG:
		return "larger than 2 GiB";
	case -ENODATA:
		return "ended before its size";
	case -EISDIR:
		return "not a regular file";
	default:
		return strerror(-err);
	}
}

static void load_note_error(struct load *l, const char *path, int err)
{
	lock_acquire(&l->error_lock);
	if (!l->error_known) {
		l->error_known = true;
		if (asprintf(&l->first_error, "%s: %s", path, load_reason(err)) < 0)
			l->first_error = NULL;
	}
	lock_release(&l->error_lock);
}

/* Reads one file wholly. *first_ns: when its first bytes, or its end, came. */
static int load_read_file(struct load_client *c, const char *path, uint64_t *bytes,
			  uint64_t *first_ns)
{
	const struct replay_config *cfg = c->load->config;
	/* O_NONBLOCK, as web servers do: a FIFO that took a file's place must not hang a client. */
	int fd = openat(cfg->root_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	uint64_t done = 0;
	int err = 0;

	*first_ns = 0;
	*bytes = 0;
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode))
		err = -EISDIR;
	else if ((uint64_t)st.st_size > REPLAY_MAX_FILE)
		err = -EFBIG;
	while (!err && done < (uint64_t)st.st_size) {
		uint64_t left = (uint64_t)st.st_size - done;
		ssize_t n = read(fd, c->buf, left < cfg->piece ? left : cfg->piece);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			err = n ? -errno : -ENODATA;
		else if (!done)
			*first_ns = clock_mono_ns();
		done += n > 0 ? (uint64_t)n : 0;
	}
	close(fd);
	if (!*first_ns)
		*first_ns = clock_mono_ns();
	*bytes = done;
	return err;
}

/* One request of a view: reads, counts, times. `html` is the page's own file. */
static int load_hit(struct load_client *c, const char *path, bool html, uint64_t view_ns,
		    uint64_t *bytes)
{
	uint64_t begin = html ? view_ns : clock_mono_ns(), first, end;
	int err = load_read_file(c, path, bytes, &first);
	int phase = atomic_load_explicit(&c->load->phase, memory_order_relaxed);

	end = clock_mono_ns();
	if (err) {
		load_count(c, phase, REPLAY_ERRORS, 1);
		load_note_error(c->load, path, err);
		return err;
	}
	load_count(c, phase, REPLAY_HITS, 1);
	load_count(c, phase, REPLAY_BYTES, *bytes);
	if (phase == PHASE_MEASURED)
		hist_add(&c->file, end - begin);
	if (html) {
		load_count(c, phase, REPLAY_HTML_BYTES, *bytes);
		load_count(c, phase, REPLAY_FIRSTS, 1);
		load_count(c, phase, REPLAY_FIRST_NS, first - begin);
		if (phase == PHASE_MEASURED)
			hist_add(&c->first, first - begin);
	}
	return 0;
}

/* The access log is written when the page's time has been taken: a server logs after its answer. */
static void load_log_view(struct load_client *c, const struct replay_view *v, const int *errs,
			  const uint64_t *bytes, int n)
{
	int phase = atomic_load_explicit(&c->load->phase, memory_order_relaxed);

	for (int i = 0; i < n; i++) {
		const char *path = i ? v->images[i - 1] : v->page;
		int err = replay_log_hit(&c->log, path, i ? v->page : NULL, errs[i], bytes[i]);

		if (!err)
			continue;
		load_count(c, phase, REPLAY_ERRORS, 1);
		load_note_error(c->load, "access log", err);
	}
}

static void load_view(struct load_client *c, uint64_t number)
{
	const struct replay_config *cfg = c->load->config;
	struct replay_view v;
	uint64_t begin, end, bytes[1 + REPLAY_IMAGES];
	int errs[1 + REPLAY_IMAGES], failed = 0, phase, i = 0;

	replay_content_pick(cfg->content, cfg->seed, number, &v);
	begin = clock_mono_ns();
	do {
		errs[i] = load_hit(c, i ? v.images[i - 1] : v.page, !i, begin, &bytes[i]);
		failed |= errs[i];
		i++;
	} while (i <= REPLAY_IMAGES &&
		 !atomic_load_explicit(&c->load->stop, memory_order_relaxed));
	end = clock_mono_ns();
	if (i > REPLAY_IMAGES && !failed) {
		phase = atomic_load_explicit(&c->load->phase, memory_order_relaxed);
		load_count(c, phase, REPLAY_PAGES, 1);
		load_count(c, phase, REPLAY_PAGE_NS, end - begin);
		hist_add(&c->page[phase], end - begin);
	}
	if (cfg->log_fd >= 0)
		load_log_view(c, &v, errs, bytes, i);
}

static void *load_client_main(void *arg)
{
	struct load_client *c = arg;
	struct load *l = c->load;
	uint64_t bound = l->config->pages, one = 1;

	while (!atomic_load_explicit(&l->stop, memory_order_relaxed)) {
		uint64_t number = atomic_fetch_add_explicit(&l->next_view, 1, memory_order_relaxed);

		if (bound && number >= bound)
			break;
		load_view(c, number);
	}
	if (atomic_fetch_sub(&l->running, 1) == 1 && write(l->done_fd, &one, sizeof(one)) < 0)
		atomic_store(&l->stop, true); /* the caller then sees it a second later */
	return NULL;
}

static void load_sum_up(struct load *l, struct load_sum *s)
{
	const struct replay_config *cfg = l->config;

	memset(s, 0, sizeof(*s));
	for (unsigned i = 0; i < cfg->clients; i++)
		for (int phase = 0; phase < PHASES; phase++)
			for (int k = 0; k < REPLAY_COUNTERS; k++)
				s->n[phase][k] += atomic_load_explicit(&l->clients[i].n[phase][k],
								       memory_order_relaxed);
	s->cache_known = cfg->probe && !cfg->probe(cfg->arg, &s->cache_hits, &s->cache_requests);
}

/* What the cache answered between two sums; false when either is unknown or it started anew. */
static bool load_cache_between(const struct load_sum *from, const struct load_sum *to,
			       uint64_t *hits, uint64_t *requests)
{
	*hits = *requests = 0;
	if (!from->cache_known || !to->cache_known || to->cache_hits < from->cache_hits ||
	    to->cache_requests < from->cache_requests)
		return false;
	*hits = to->cache_hits - from->cache_hits;
	*requests = to->cache_requests - from->cache_requests;
	return true;
}

static void load_subtract(struct hist *into, const struct hist *now, const struct hist *before)
{
	hist_init(into);
	for (unsigned i = 0; i < HIST_BUCKETS; i++)
		into->bucket[i] = now->bucket[i] - before->bucket[i];
	into->count = now->count - before->count;
	into->max = now->max;
}

static uint64_t load_interval_p99(struct load *l)
{
	struct hist *swap = l->pages_before;
	uint64_t p99;

	hist_init(l->pages_now);
	for (unsigned i = 0; i < l->config->clients; i++)
		for (int phase = 0; phase < PHASES; phase++)
			hist_merge(l->pages_now, &l->clients[i].page[phase]);
	load_subtract(l->interval, l->pages_now, l->pages_before);
	p99 = hist_percentile(l->interval, 99);
	l->pages_before = l->pages_now;
	l->pages_now = swap;
	return p99;
}

/* Closes the interval that ends now. */
static void load_take_second(struct load *l, struct replay_second *s)
{
	struct load_sum now;

	memset(s, 0, sizeof(*s));
	load_sum_up(l, &now);
	s->at = (double)(clock_mono_ns() - l->start_ns) / (double)NS_PER_S;
	s->span = s->at - l->last_at;
	for (int k = 0; k < REPLAY_COUNTERS; k++)
		for (int phase = 0; phase < PHASES; phase++)
			s->n[k] += now.n[phase][k] - l->last.n[phase][k];
	s->cache_known = load_cache_between(&l->last, &now, &s->cache_hits, &s->cache_requests);
	s->page_p99_ns = s->n[REPLAY_PAGES] ? load_interval_p99(l) : 0;
	l->last = now;
	l->last_at = s->at;
}

static int load_add_second(struct load *l, struct replay_result *r)
{
	struct replay_second s;
	int err;

	load_take_second(l, &s);
	err = replay_result_add(r, &s);
	if (!err && l->config->second)
		l->config->second(l->config->arg, &s);
	return err;
}

static void load_begin_measuring(struct load *l, uint64_t now)
{
	load_sum_up(l, &l->measured_from);
	l->measured_ns = now;
	atomic_store(&l->phase, PHASE_MEASURED);
}

/* Sleeps until `deadline`, the end of the load, or a wish to stop. Returns what happened. */
enum load_event { EVENT_TIME, EVENT_DONE, EVENT_STOP };

static enum load_event load_wait(struct load *l, uint64_t deadline)
{
	struct pollfd fds[2] = {{.fd = l->done_fd, .events = POLLIN},
				{.fd = l->config->stop_fd, .events = POLLIN}};

	for (;;) {
		uint64_t now = clock_mono_ns();
		uint64_t left = deadline > now ? deadline - now : 0;
		struct timespec ts = {.tv_sec = (time_t)(left / NS_PER_S),
				      .tv_nsec = (long)(left % NS_PER_S)};
		int n = ppoll(fds, 2, &ts, NULL);

		if (n > 0 && fds[0].revents)
			return EVENT_DONE;
		if (n > 0)
			return EVENT_STOP;
		if (!left)
			return EVENT_TIME;
	}
}

/* One row a second until the run ends. */
static int load_watch(struct load *l, struct replay_result *r)
{
	const struct replay_config *cfg = l->config;
	uint64_t end = cfg->duration_ns ? l->start_ns + cfg->duration_ns : UINT64_MAX;
	uint64_t warm = l->start_ns + cfg->warmup_ns, tick = l->start_ns + NS_PER_S;
	int err = 0;

	while (!err) {
		uint64_t next = tick < end ? tick : end;
		enum load_event event = load_wait(l, l->measured_ns || next < warm ? next : warm);
		uint64_t now = clock_mono_ns();

		if (event != EVENT_TIME || now >= end) {
			r->interrupted = event == EVENT_STOP;
			break;
		}
		if (!l->measured_ns && now >= warm)
			load_begin_measuring(l, now);
		if (now < tick)
			continue;
		err = load_add_second(l, r);
		tick += NS_PER_S * ((now - tick) / NS_PER_S + 1);
	}
	return err;
}

static int load_start(struct load *l, unsigned *started)
{
	pthread_attr_t attr;
	int err = 0;

	atomic_store(&l->running, l->config->clients);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, LOAD_STACK);
	for (*started = 0; !err && *started < l->config->clients; ++*started) {
		struct load_client *c = &l->clients[*started];

		err = -pthread_create(&c->thread, &attr, load_client_main, c);
		if (err)
			break;
	}
	pthread_attr_destroy(&attr);
	return err;
}

static void load_finish(struct load *l, struct replay_result *r)
{
	const struct replay_config *cfg = l->config;
	struct replay_totals *whole = &r->whole, *measured = &r->measured;
	uint64_t hits, requests;

	whole->seconds = l->last_at;
	for (size_t i = 0; i < r->count; i++) {
		whole->cache_known |= r->seconds[i].cache_known;
		whole->cache_hits += r->seconds[i].cache_hits;
		whole->cache_requests += r->seconds[i].cache_requests;
	}
	for (int k = 0; k < REPLAY_COUNTERS; k++) {
		whole->n[k] = l->last.n[PHASE_WARMUP][k] + l->last.n[PHASE_MEASURED][k];
		measured->n[k] = l->last.n[PHASE_MEASURED][k];
	}
	if (l->measured_ns) {
		measured->seconds = l->last_at -
				    (double)(l->measured_ns - l->start_ns) / (double)NS_PER_S;
		measured->cache_known = load_cache_between(&l->measured_from, &l->last, &hits,
							   &requests);
		measured->cache_hits = hits;
		measured->cache_requests = requests;
	}
	for (unsigned i = 0; i < cfg->clients; i++) {
		hist_merge(r->page, &l->clients[i].page[PHASE_MEASURED]);
		hist_merge(r->first, &l->clients[i].first);
		hist_merge(r->file, &l->clients[i].file);
	}
	r->first_error = l->first_error;
	l->first_error = NULL;
}

static int load_create(struct load *l, const struct replay_config *cfg)
{
	l->config = cfg;
	l->done_fd = eventfd(0, EFD_CLOEXEC);
	if (l->done_fd < 0)
		return -errno;
	lock_init(&l->error_lock, "replay-error", RANK_TOOLS);
	l->pages_before = calloc(1, sizeof(struct hist));
	l->pages_now = calloc(1, sizeof(struct hist));
	l->interval = calloc(1, sizeof(struct hist));
	l->clients = calloc(cfg->clients, sizeof(*l->clients));
	if (!l->pages_before || !l->pages_now || !l->interval || !l->clients)
		return -ENOMEM;
	for (unsigned i = 0; i < cfg->clients; i++) {
		struct load_client *c = &l->clients[i];

		c->load = l;
		c->buf = aligned_alloc(4096, (cfg->piece + 4095) & ~(size_t)4095);
		if (!c->buf)
			return -ENOMEM;
		/* Touched now: the first pages must not pay for their buffer. */
		memset(c->buf, 0, cfg->piece);
		replay_log_init(&c->log, cfg->log_fd);
	}
	return 0;
}

static void load_destroy(struct load *l)
{
	for (unsigned i = 0; l->clients && i < l->config->clients; i++)
		free(l->clients[i].buf);
	free(l->clients);
	free(l->pages_before);
	free(l->pages_now);
	free(l->interval);
	free(l->first_error);
	if (l->done_fd >= 0) {
		lock_destroy(&l->error_lock);
		close(l->done_fd);
	}
}

int replay_load_run(const struct replay_config *cfg, struct replay_result *r)
{
	struct load l = {0};
	unsigned started = 0;
	int err = load_create(&l, cfg);

	if (err)
		goto out;
	load_sum_up(&l, &l.last);
	l.start_ns = clock_mono_ns();
	if (!cfg->warmup_ns)
		load_begin_measuring(&l, l.start_ns);
	err = load_start(&l, &started);
	if (!err)
		err = load_watch(&l, r);
	atomic_store(&l.stop, true);
	for (unsigned i = 0; i < started; i++)
		pthread_join(l.clients[i].thread, NULL);
	if (!err)
		err = load_add_second(&l, r);
	if (!err)
		load_finish(&l, r);
out:
	load_destroy(&l);
	return err;
}
