/* SPDX-License-Identifier: BSD-2-Clause
 *
 * gild replay: a web server's load over a directory, with a line a second and a summary.
 */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/options.h"
#include "tools/gild.h"
#include "tools/replay_content.h"
#include "tools/replay_format.h"
#include "tools/replay_load.h"
#include "tools/replay_mount.h"
#include "tools/replay_result.h"

#define REPLAY_DEFAULT_NS (60 * NS_PER_S)
#define REPLAY_HEADING_EVERY 20

struct replay_options {
	uint64_t clients, duration_ns, pages, warmup_ns, seed, piece;
	const char *list, *access_log, *json, *label;
	bool quiet;
};

#define AT(member) offsetof(struct replay_options, member)
static const struct option_spec replay_specs[] = {
	{.name = "clients", .letter = 'c', .kind = OPTION_UINT, .offset = AT(clients), .arg = "N",
	 .fallback = "16", .help = "clients that ask for pages at the same time", .min = 1,
	 .max = REPLAY_MAX_CLIENTS},
	{.name = "duration", .letter = 'd', .kind = OPTION_DURATION, .offset = AT(duration_ns),
	 .arg = "TIME", .help = "end after this time, warm-up included; 60s if --pages is not given"},
	{.name = "pages", .letter = 'n', .kind = OPTION_UINT, .offset = AT(pages), .arg = "N",
	 .help = "end after this many page views, warm-up included", .max = 1e15},
	{.name = "warmup", .letter = 'w', .kind = OPTION_DURATION, .offset = AT(warmup_ns),
	 .arg = "TIME", .help = "leave the first part of the run out of the averages"},
	{.name = "seed", .letter = 's', .kind = OPTION_UINT, .offset = AT(seed), .arg = "N",
	 .help = "number of the random sequence; 0 or none: chosen and printed", .max = 1e15},
	{.name = "list", .letter = 'l', .kind = OPTION_STRING, .offset = AT(list), .arg = "FILE",
	 .help = "read the content's paths from FILE; without such a file scan ROOT and write it"},
	{.name = "piece", .kind = OPTION_SIZE, .offset = AT(piece), .arg = "SIZE",
	 .fallback = "128K", .help = "bytes a read asks for at most, 4K to 1M", .min = 4096,
	 .max = 1048576},
	{.name = "access-log", .kind = OPTION_STRING, .offset = AT(access_log), .arg = "FILE",
	 .help = "append a line in the combined format for each hit"},
	{.name = "json", .letter = 'j', .kind = OPTION_STRING, .offset = AT(json), .arg = "FILE",
	 .help = "write the result for gild report; - is standard output"},
	{.name = "label", .kind = OPTION_STRING, .offset = AT(label), .arg = "TEXT",
	 .help = "the run's name in the report; else ROOT"},
	{.name = "quiet", .letter = 'q', .kind = OPTION_FLAG, .offset = AT(quiet),
	 .help = "print the summary only"},
	{.name = NULL},
};
#undef AT

static const struct option_usage replay_usage = {
	.program = "gild replay",
	.synopsis = "ROOT [OPTION...]",
	.summary = "Reads the files below ROOT as a busy web server would and reports how fast that was.",
	.notes = "A page view is one HTML page and three different images of those below ROOT, all chosen\n"
		 "evenly at random, each read wholly. Pages are .html .htm .xhtml, images are .png .jpg\n"
		 ".jpeg .gif .svg .webp. Ctrl-C ends the run with its summary.",
	.specs = replay_specs,
};

/* Where SIGINT and SIGTERM write; set before the handler is. */
static int replay_stop_fd = -1;

static void replay_on_signal(int sig)
{
	uint64_t one = 1;
	int keep = errno;

	(void)sig;
	/* Nothing can be done if it fails; the second signal then kills, as its action was reset. */
	if (write(replay_stop_fd, &one, sizeof(one)) < 0)
		errno = keep;
	errno = keep;
}

struct replay_run {
	struct replay_options opt;
	const char *root;
	int root_fd, log_fd;
	FILE *text; /* lines for people */
	FILE *json;
	struct replay_content *content;
	struct replay_result *result;
	uint64_t lines;
};

static int replay_fail(const char *what, int err)
{
	fprintf(stderr, "gild replay: %s: %s\n", what, strerror(-err));
	return 1;
}

static int replay_probe(void *arg, uint64_t *hits, uint64_t *requests)
{
	struct replay_run *run = arg;
	json_t *stats;
	int err = replay_mount_stats(run->result->mountpoint, &stats);

	if (err)
		return err;
	err = replay_mount_hits(stats, hits, requests);
	json_decref(stats);
	return err;
}

static void replay_heading(struct replay_run *run)
{
	fprintf(run->text, "%8s %9s %9s %9s %10s %10s %10s %7s\n", "elapsed", "pages/s", "hits/s",
		"MB/s", "page ms", "p99 ms", "first ms", "hit %");
}

/* A number of a column, or "-" where there is none. */
static const char *replay_cell(bool known, double value, int digits, char *buf, size_t len)
{
	if (known)
		snprintf(buf, len, "%.*f", digits, value);
	else
		snprintf(buf, len, "-");
	return buf;
}

static void replay_print_second(void *arg, const struct replay_second *s)
{
	struct replay_run *run = arg;
	double span = s->span > 0 ? s->span : 1;
	bool pages = s->n[REPLAY_PAGES], firsts = s->n[REPLAY_FIRSTS];
	char mean[24], p99[24], first[24], rate[24];

	if (run->opt.quiet)
		return;
	if (run->lines++ % REPLAY_HEADING_EVERY == 0 &&
	    (run->lines == 1 || isatty(fileno(run->text))))
		replay_heading(run);
	replay_cell(pages, (double)s->n[REPLAY_PAGE_NS] / (double)s->n[REPLAY_PAGES] / 1e6, 3, mean,
		    sizeof(mean));
	replay_cell(pages, (double)s->page_p99_ns / 1e6, 3, p99, sizeof(p99));
	replay_cell(firsts, (double)s->n[REPLAY_FIRST_NS] / (double)s->n[REPLAY_FIRSTS] / 1e6, 3,
		    first, sizeof(first));
	replay_cell(s->cache_known && s->cache_requests,
		    100.0 * (double)s->cache_hits / (double)s->cache_requests, 1, rate,
		    sizeof(rate));
	fprintf(run->text, "%7.1fs %9.1f %9.0f %9.2f %10s %10s %10s %7s", s->at,
		(double)s->n[REPLAY_PAGES] / span, (double)s->n[REPLAY_HITS] / span,
		(double)s->n[REPLAY_BYTES] / 1e6 / span, mean, p99, first, rate);
	if (s->n[REPLAY_ERRORS])
		fprintf(run->text, "  %llu errors", (unsigned long long)s->n[REPLAY_ERRORS]);
	fputc('\n', run->text);
	fflush(run->text);
}

static void replay_print_latency(FILE *to, const char *name, const struct replay_latency *l)
{
	char b[6][REPLAY_FORMAT_LEN];

	if (!l->count)
		return;
	fprintf(to, "  %-14s mean %-9s p50 %-9s p90 %-9s p99 %-9s p99.9 %-9s max %s\n", name,
		replay_format_ns(l->mean, "u", b[0], sizeof(b[0])),
		replay_format_ns((double)l->p50, "u", b[1], sizeof(b[1])),
		replay_format_ns((double)l->p90, "u", b[2], sizeof(b[2])),
		replay_format_ns((double)l->p99, "u", b[3], sizeof(b[3])),
		replay_format_ns((double)l->p999, "u", b[4], sizeof(b[4])),
		replay_format_ns((double)l->max, "u", b[5], sizeof(b[5])));
}

static void replay_print_latencies(FILE *to, const struct replay_result *r)
{
	const struct hist *hists[] = {r->page, r->first, r->file};
	static const char *const names[] = {"page response", "first byte", "file"};
	static const char *const mount_names[] = {"hit", "miss"};
	static const char *const titles[] = {"mount's hits", "mount's misses"};
	struct replay_latency l;

	for (int i = 0; i < 3; i++) {
		replay_latency_of(hists[i], &l);
		replay_print_latency(to, names[i], &l);
	}
	for (int i = 0; i < 2; i++)
		if (!replay_latency_from_json(replay_result_mount_latency(r, mount_names[i]), &l, NULL))
			replay_print_latency(to, titles[i], &l);
}

static void replay_print_summary(const struct replay_run *run)
{
	const struct replay_result *r = run->result;
	const struct replay_totals *t = &r->measured;
	char a[REPLAY_FORMAT_LEN], b[REPLAY_FORMAT_LEN];
	FILE *to = run->text;

	if (!(t->seconds > 0)) {
		fprintf(to, "\nThe run ended in its warm-up: there is nothing to average.\n");
		t = &r->whole;
	}
	fprintf(to, "\n%s%.*f s measured", r->interrupted ? "Interrupted. " : "",
		t->seconds < 10 ? 2 : 1, t->seconds);
	if (r->whole.seconds > t->seconds)
		fprintf(to, " after %.1f s of warm-up", r->whole.seconds - t->seconds);
	fprintf(to, ", seed %llu\n", (unsigned long long)r->settings.seed);
	if (t->seconds > 0) {
		fprintf(to, "  %-14s %s/s (%s)\n", "pages",
			replay_format_number((double)t->n[REPLAY_PAGES] / t->seconds, a, sizeof(a)),
			replay_format_count(t->n[REPLAY_PAGES], b, sizeof(b)));
		fprintf(to, "  %-14s %s/s (%s)\n", "hits",
			replay_format_number((double)t->n[REPLAY_HITS] / t->seconds, a, sizeof(a)),
			replay_format_count(t->n[REPLAY_HITS], b, sizeof(b)));
		fprintf(to, "  %-14s %s/s (%s)\n", "data",
			replay_format_bytes((double)t->n[REPLAY_BYTES] / t->seconds, a, sizeof(a)),
			replay_format_bytes((double)t->n[REPLAY_BYTES], b, sizeof(b)));
	}
	replay_print_latencies(to, r);
	if (t->cache_known && t->cache_requests)
		fprintf(to, "  %-14s %.1f %% of %s reads that reached gildfs\n", "hit rate",
			100.0 * (double)t->cache_hits / (double)t->cache_requests,
			replay_format_count(t->cache_requests, a, sizeof(a)));
	if (r->whole.n[REPLAY_ERRORS] || r->first_error)
		fprintf(to, "  %-14s %s, the first: %s\n", "errors",
			replay_format_count(r->whole.n[REPLAY_ERRORS], a, sizeof(a)),
			r->first_error ? r->first_error : "unknown");
	fflush(to);
}

/* The list if there is one, else a scan, kept in the list if one was asked for. */
static int replay_find_content(struct replay_run *run)
{
	const char *list = run->opt.list;
	int err;

	if (list) {
		err = replay_content_load(&run->content, list);
		if (!err)
			return 0;
		if (err == -EINVAL) {
			fprintf(stderr, "gild replay: %s: not a list of paths, one a line\n", list);
			return 1;
		}
		if (err != -ENOENT)
			return replay_fail(list, err);
	}
	err = replay_content_scan(&run->content, run->root_fd);
	if (err)
		return replay_fail(run->root, err);
	err = list ? replay_content_save(run->content, list) : 0;
	return err ? replay_fail(list, err) : 0;
}

static int replay_check_content(struct replay_run *run)
{
	const struct replay_counts *n;
	int rc = replay_find_content(run);

	if (rc)
		return rc;
	n = replay_content_counts(run->content);
	if (n->pages >= 1 && n->images >= REPLAY_IMAGES)
		return 0;
	fprintf(stderr, "gild replay: %s holds %llu HTML pages and %llu images; a page view needs one "
			"page and three images\n",
		run->opt.list ? run->opt.list : run->root, (unsigned long long)n->pages,
		(unsigned long long)n->images);
	return 1;
}

static int replay_prepare_result(struct replay_run *run)
{
	struct replay_settings *s;
	const struct replay_options *o = &run->opt;
	char host[256] = "";

	if (replay_result_create(&run->result))
		return replay_fail(run->root, -ENOMEM);
	s = &run->result->settings;
	gethostname(host, sizeof(host) - 1);
	s->root = strdup(run->root);
	s->label = strdup(o->label ? o->label : run->root);
	s->list = o->list ? strdup(o->list) : NULL;
	s->access_log = o->access_log ? strdup(o->access_log) : NULL;
	s->host = strdup(host);
	s->started = (double)time(NULL);
	s->clients = o->clients;
	s->duration_ns = o->duration_ns;
	s->warmup_ns = o->warmup_ns;
	s->pages = o->pages;
	s->seed = o->seed;
	s->piece = o->piece;
	run->result->content = *replay_content_counts(run->content);
	if (replay_mount_find(run->root, &run->result->mountpoint))
		run->result->mountpoint = NULL;
	return 0;
}

static int replay_open_root(struct replay_run *run)
{
	run->root_fd = open(run->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return run->root_fd < 0 ? replay_fail(run->root, -errno) : 0;
}

static int replay_open_outputs(struct replay_run *run)
{
	const struct replay_options *o = &run->opt;

	if (o->access_log) {
		run->log_fd = open(o->access_log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
		if (run->log_fd < 0)
			return replay_fail(o->access_log, -errno);
	}
	run->text = stdout;
	if (o->json && !strcmp(o->json, "-")) {
		run->json = stdout;
		run->text = stderr;
	} else if (o->json) {
		/* Before the run: an hour's result must not be lost to a wrong name. */
		run->json = fopen(o->json, "we");
		if (!run->json)
			return replay_fail(o->json, -errno);
	}
	return 0;
}

static int replay_catch_signals(void)
{
	struct sigaction sa = {.sa_handler = replay_on_signal, .sa_flags = SA_RESTART};

	replay_stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (replay_stop_fd < 0)
		return -errno;
	sa.sa_flags |= (int)SA_RESETHAND;
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	return 0;
}

/* Each client holds one descriptor open. */
static void replay_raise_limit(uint64_t clients)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) || lim.rlim_cur >= clients + 32)
		return;
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
}

static int replay_write_json(struct replay_run *run)
{
	json_t *json;
	int rc = 0;

	if (!run->json)
		return 0;
	json = replay_result_to_json(run->result);
	if (!json || json_dumpf(json, run->json, 0) || fputc('\n', run->json) == EOF ||
	    fflush(run->json))
		rc = replay_fail(run->opt.json, errno ? -errno : -ENOMEM);
	json_decref(json);
	return rc;
}

static void replay_print_start(const struct replay_run *run)
{
	const struct replay_counts *n = &run->result->content;
	char a[REPLAY_FORMAT_LEN], b[REPLAY_FORMAT_LEN];

	fprintf(run->text, "%s: %s pages, %s images; %llu clients, seed %llu\n", run->root,
		replay_format_count(n->pages, a, sizeof(a)),
		replay_format_count(n->images, b, sizeof(b)), (unsigned long long)run->opt.clients,
		(unsigned long long)run->opt.seed);
	if (n->unreadable)
		fprintf(run->text, "%s directories could not be read and are left out\n",
			replay_format_count(n->unreadable, a, sizeof(a)));
	fflush(run->text);
}

static int replay_execute(struct replay_run *run)
{
	struct replay_config cfg = {
		.content = run->content, .root_fd = run->root_fd,
		.clients = (unsigned)run->opt.clients, .piece = run->opt.piece,
		.seed = run->opt.seed, .duration_ns = run->opt.duration_ns, .pages = run->opt.pages,
		.warmup_ns = run->opt.warmup_ns, .log_fd = run->log_fd,
		.second = replay_print_second, .arg = run,
	};
	int err = replay_catch_signals(), rc;

	if (err)
		return replay_fail(run->root, err);
	cfg.stop_fd = replay_stop_fd;
	if (run->result->mountpoint)
		cfg.probe = replay_probe;
	replay_raise_limit(cfg.clients);
	replay_print_start(run);
	err = replay_load_run(&cfg, run->result);
	if (err)
		return replay_fail(run->root, err);
	if (run->result->mountpoint && replay_mount_stats(run->result->mountpoint, &run->result->stats))
		run->result->stats = NULL;
	replay_print_summary(run);
	rc = replay_write_json(run);
	if (!run->result->whole.n[REPLAY_HITS] && !run->result->interrupted) {
		fprintf(stderr, "gild replay: %s: no file could be read\n", run->root);
		rc = 1;
	}
	return rc;
}

static int replay_check_options(struct replay_run *run, int words, char **argv)
{
	struct replay_options *o = &run->opt;
	uint32_t random = 0;

	if (words != 1) {
		fprintf(stderr, "gild replay: give one directory to read, ROOT; see gild replay --help\n");
		return 2;
	}
	run->root = argv[0];
	if (!o->duration_ns && !o->pages)
		o->duration_ns = REPLAY_DEFAULT_NS;
	if (o->duration_ns && o->warmup_ns >= o->duration_ns) {
		fprintf(stderr, "gild replay: --warmup must be shorter than --duration, "
				"which includes it\n");
		return 2;
	}
	while (!o->seed) {
		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			random = (uint32_t)clock_mono_ns();
		o->seed = random;
	}
	return 0;
}

static void replay_close(struct replay_run *run)
{
	if (run->json && run->json != stdout)
		fclose(run->json);
	if (run->log_fd >= 0)
		close(run->log_fd);
	if (run->root_fd >= 0)
		close(run->root_fd);
	replay_content_destroy(run->content);
	replay_result_destroy(run->result);
}

int cmd_replay(int argc, char **argv)
{
	struct replay_run run = {.root_fd = -1, .log_fd = -1};
	int words, rc;

	options_defaults(&replay_usage, &run.opt);
	rc = options_parse(&replay_usage, &run.opt, argc, argv, &words);
	if (rc)
		return rc > 0 ? 0 : 2;
	rc = replay_check_options(&run, words, argv);
	if (!rc)
		rc = replay_open_root(&run);
	if (!rc)
		rc = replay_check_content(&run);
	if (!rc)
		rc = replay_open_outputs(&run);
	if (!rc)
		rc = replay_prepare_result(&run);
	if (!rc)
		rc = replay_execute(&run);
	replay_close(&run);
	return rc;
}
