/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <check.h>

#include "base/clock.h"
#include "tools/gild.h"
#include "tools/replay_content.h"
#include "tools/replay_format.h"
#include "tools/replay_load.h"
#include "tools/replay_log.h"
#include "tools/replay_mount.h"
#include "tools/replay_result.h"
#include "unit_util.h"

#define PAGES 20
#define IMAGES 12
#define VIEWS 60000

static char scratch[256];

static void put_file(const char *name, size_t size)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", scratch, name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	for (size_t i = 0; i < size; i++)
		fputc('a' + (int)(i % 23), f);
	ck_assert_int_eq(fclose(f), 0);
}

static size_t page_size(unsigned i)
{
	return 100 + i * 37;
}

static size_t image_size(unsigned i)
{
	return i ? 5000 + i * 20011 : 0; /* one is empty, the largest needs two reads of 128 KiB */
}

/* A tree d/p0.html ... i0.png ..., of known sizes. */
static void tree_make(void)
{
	char name[64];

	scratch_make(scratch);
	for (unsigned i = 0; i < 3; i++) {
		char path[300];

		snprintf(path, sizeof(path), "%s/d%u", scratch, i);
		ck_assert_int_eq(mkdir(path, 0755), 0);
	}
	for (unsigned i = 0; i < PAGES; i++) {
		snprintf(name, sizeof(name), "d%u/p%u.html", i % 2, i);
		put_file(name, page_size(i));
	}
	for (unsigned i = 0; i < IMAGES; i++) {
		snprintf(name, sizeof(name), "d2/i%u.png", i);
		put_file(name, image_size(i));
	}
}

static void tree_remove(void)
{
	scratch_remove(scratch);
}

static int open_root(void)
{
	int fd = open(scratch, O_RDONLY | O_DIRECTORY);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static struct replay_content *scan(void)
{
	struct replay_content *c;
	int fd = open_root();

	ck_assert_ok(replay_content_scan(&c, fd));
	close(fd);
	return c;
}

static uint64_t size_of_path(const char *path)
{
	unsigned n;

	if (sscanf(path, "d%*u/p%u.html", &n) == 1)
		return page_size(n);
	ck_assert_int_eq(sscanf(path, "d2/i%u.png", &n), 1);
	return image_size(n);
}

static unsigned index_of(const struct replay_content *c, bool image, const char *path)
{
	unsigned n = image ? IMAGES : PAGES;

	for (unsigned i = 0; i < n; i++)
		if (path == (image ? replay_content_image(c, i) : replay_content_page(c, i)))
			return i;
	ck_abort_msg("%s is not of this content", path);
	return 0;
}

/* Pearson's statistic, normalised: beyond 5 the counts are not even. */
static double unevenness(const unsigned *counts, unsigned n, double total)
{
	double expected = total / n, sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += (counts[i] - expected) * (counts[i] - expected) / expected;
	return (sum - (n - 1)) / sqrt(2.0 * (n - 1));
}

START_TEST(views_are_even_and_unique)
{
	static unsigned pages[PAGES], images[IMAGES], sets[1 << IMAGES];
	uint64_t seed = 20261130 + (uint64_t)_i;
	struct replay_content *c = scan();
	unsigned n = 0;

	printf("views_are_even_and_unique: seed %llu\n", (unsigned long long)seed);
	memset(pages, 0, sizeof(pages));
	memset(images, 0, sizeof(images));
	memset(sets, 0, sizeof(sets));
	for (uint64_t view = 0; view < VIEWS; view++) {
		struct replay_view v;
		unsigned set = 0;

		replay_content_pick(c, seed, view, &v);
		pages[index_of(c, false, v.page)]++;
		for (int k = 0; k < REPLAY_IMAGES; k++) {
			unsigned i = index_of(c, true, v.images[k]);

			images[i]++;
			ck_assert_msg(!(set & 1u << i), "view %llu has an image twice",
				      (unsigned long long)view);
			set |= 1u << i;
		}
		sets[set]++;
	}
	ck_assert_double_lt(unevenness(pages, PAGES, VIEWS), 5);
	ck_assert_double_lt(unevenness(images, IMAGES, 3.0 * VIEWS), 5);
	/* And every set of three of the twelve: 220 of them. */
	for (unsigned i = 0; i < 1u << IMAGES; i++)
		if (__builtin_popcount(i) == REPLAY_IMAGES)
			sets[n++] = sets[i];
	ck_assert_uint_eq(n, 220);
	ck_assert_double_lt(unevenness(sets, n, VIEWS), 5);
	replay_content_destroy(c);
}
END_TEST

START_TEST(views_depend_on_seed_and_number_alone)
{
	struct replay_content *a = scan(), *b = scan();
	unsigned same = 0;

	for (uint64_t i = 0; i < 1000; i++) {
		struct replay_view v, w, x;

		replay_content_pick(a, 7, i, &v);
		replay_content_pick(b, 7, 999 - i, &w);
		replay_content_pick(b, 7, i, &w);
		replay_content_pick(a, 8, i, &x);
		ck_assert_str_eq(v.page, w.page);
		for (int k = 0; k < REPLAY_IMAGES; k++)
			ck_assert_str_eq(v.images[k], w.images[k]);
		same += !strcmp(v.page, x.page) && !strcmp(v.images[0], x.images[0]);
	}
	/* One in 240 agrees by chance. */
	ck_assert_uint_lt(same, 30);
	replay_content_destroy(a);
	replay_content_destroy(b);
}
END_TEST

START_TEST(three_images_are_enough)
{
	struct replay_content *c;
	struct replay_view v;
	char list[512];
	FILE *f;

	snprintf(list, sizeof(list), "%s/list", scratch);
	f = fopen(list, "w");
	fputs("b.GIF\na.htm\nc.svg\nc.svg\nx.txt\n/abs/d.webp\nno.html/noext\n", f);
	fclose(f);
	ck_assert_ok(replay_content_load(&c, list));
	ck_assert_uint_eq(replay_content_counts(c)->pages, 1);
	ck_assert_uint_eq(replay_content_counts(c)->images, 3); /* the double is one */
	ck_assert_uint_eq(replay_content_counts(c)->others, 2);
	for (uint64_t i = 0; i < 100; i++) {
		replay_content_pick(c, 1, i, &v);
		ck_assert_str_eq(v.page, "a.htm");
		ck_assert_ptr_ne(v.images[0], v.images[1]);
		ck_assert_ptr_ne(v.images[0], v.images[2]);
		ck_assert_ptr_ne(v.images[1], v.images[2]);
	}
	replay_content_destroy(c);
}
END_TEST

START_TEST(scan_takes_files_only_and_sorts)
{
	char path[512];
	struct replay_content *c;
	const struct replay_counts *n;

	put_file("README", 5);
	put_file("up.HTML", 5);
	put_file("two\nlines.png", 5);
	snprintf(path, sizeof(path), "%s/link.html", scratch);
	ck_assert_int_eq(symlink("up.HTML", path), 0);
	snprintf(path, sizeof(path), "%s/pipe.png", scratch);
	ck_assert_int_eq(mkfifo(path, 0644), 0);
	snprintf(path, sizeof(path), "%s/dir.png", scratch);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/loop", scratch);
	ck_assert_int_eq(symlink(".", path), 0);
	c = scan();
	n = replay_content_counts(c);
	ck_assert_uint_eq(n->pages, PAGES + 1);
	ck_assert_uint_eq(n->images, IMAGES);
	ck_assert_uint_eq(n->others, 1);
	ck_assert_uint_eq(n->skipped, 4);
	ck_assert_uint_eq(n->unreadable, 0);
	for (uint64_t i = 1; i < n->pages; i++)
		ck_assert_int_lt(strcmp(replay_content_page(c, i - 1), replay_content_page(c, i)), 0);
	ck_assert_str_eq(replay_content_page(c, 0), "d0/p0.html");
	replay_content_destroy(c);
}
END_TEST

START_TEST(list_round_trip)
{
	struct replay_content *a = scan(), *b;
	char list[512];
	struct stat st;

	snprintf(list, sizeof(list), "%s/list", scratch);
	ck_assert_int_eq(replay_content_load(&b, list), -ENOENT);
	ck_assert_ok(replay_content_save(a, list));
	ck_assert_ok(replay_content_load(&b, list));
	ck_assert_uint_eq(replay_content_counts(b)->pages, PAGES);
	ck_assert_uint_eq(replay_content_counts(b)->images, IMAGES);
	for (uint64_t i = 0; i < PAGES; i++)
		ck_assert_str_eq(replay_content_page(a, i), replay_content_page(b, i));
	for (uint64_t i = 0; i < IMAGES; i++)
		ck_assert_str_eq(replay_content_image(a, i), replay_content_image(b, i));
	ck_assert_int_eq(stat(list, &st), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0644);
	replay_content_destroy(b);
	replay_content_destroy(a);
	/* Not a list: binary, a directory, nowhere to write. */
	a = scan();
	put_file("bin", 10);
	ck_assert_int_eq(truncate(list, 5000), 0);
	ck_assert_int_eq(replay_content_load(&b, list), -EINVAL);
	ck_assert_int_eq(replay_content_load(&b, scratch), -EISDIR);
	snprintf(list, sizeof(list), "%s/none/list", scratch);
	ck_assert_int_eq(replay_content_save(a, list), -ENOENT);
	replay_content_destroy(a);
}
END_TEST

static struct replay_config config_for(const struct replay_content *c, int root_fd)
{
	return (struct replay_config){.content = c, .root_fd = root_fd, .clients = 4,
				      .piece = 131072, .seed = 5, .log_fd = -1, .stop_fd = -1};
}

static void check_sums(const struct replay_result *r)
{
	uint64_t n[REPLAY_COUNTERS] = {0};

	for (size_t i = 0; i < r->count; i++)
		for (int k = 0; k < REPLAY_COUNTERS; k++)
			n[k] += r->seconds[i].n[k];
	for (int k = 0; k < REPLAY_COUNTERS; k++)
		ck_assert_uint_eq(n[k], r->whole.n[k]);
	ck_assert_uint_eq(r->page->count, r->measured.n[REPLAY_PAGES]);
	ck_assert_uint_eq(r->page->sum, r->measured.n[REPLAY_PAGE_NS]);
	ck_assert_uint_eq(r->first->count, r->measured.n[REPLAY_FIRSTS]);
	ck_assert_uint_eq(r->file->count, r->measured.n[REPLAY_HITS]);
}

/* Lines and bytes of the access log. */
static void check_log(const char *path, uint64_t lines, uint64_t bytes)
{
	FILE *f = fopen(path, "r");
	char line[1024];
	uint64_t n = 0, sum = 0;

	while (fgets(line, sizeof(line), f)) {
		unsigned long long b;

		ck_assert_int_eq(sscanf(line, "127.0.0.1 - - [%*[^]]] \"GET %*s HTTP/1.1\" 200 %llu \"",
					&b), 1);
		sum += b;
		n++;
	}
	fclose(f);
	ck_assert_uint_eq(n, lines);
	ck_assert_uint_eq(sum, bytes);
}

START_TEST(every_page_of_a_bounded_run_counts)
{
	struct replay_content *c = scan();
	struct replay_result *r;
	struct replay_config cfg = config_for(c, open_root());
	uint64_t bytes = 0, html = 0;
	char log[512];

	snprintf(log, sizeof(log), "%s/access.log", scratch);
	cfg.log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
	cfg.pages = 500;
	cfg.piece = 4096;
	for (uint64_t i = 0; i < cfg.pages; i++) {
		struct replay_view v;

		replay_content_pick(c, cfg.seed, i, &v);
		html += size_of_path(v.page);
		bytes += size_of_path(v.page);
		for (int k = 0; k < REPLAY_IMAGES; k++)
			bytes += size_of_path(v.images[k]);
	}
	ck_assert_ok(replay_result_create(&r));
	ck_assert_ok(replay_load_run(&cfg, r));
	ck_assert_uint_eq(r->whole.n[REPLAY_PAGES], 500);
	ck_assert_uint_eq(r->whole.n[REPLAY_HITS], 2000);
	ck_assert_uint_eq(r->whole.n[REPLAY_ERRORS], 0);
	ck_assert_uint_eq(r->whole.n[REPLAY_BYTES], bytes);
	ck_assert_uint_eq(r->whole.n[REPLAY_HTML_BYTES], html);
	ck_assert_uint_eq(r->measured.n[REPLAY_PAGES], 500);
	ck_assert(r->measured.seconds == r->whole.seconds);
	ck_assert(!r->interrupted);
	ck_assert_ptr_null(r->first_error);
	ck_assert_uint_ge(r->page->max, r->file->max);
	check_sums(r);
	check_log(log, 2000, bytes);
	close(cfg.log_fd);
	close(cfg.root_fd);
	replay_result_destroy(r);
	replay_content_destroy(c);
}
END_TEST

/* i1 vanishes, i2 becomes a directory, i3 too large, i4 a FIFO, which must not hang a client. */
START_TEST(bad_files_are_counted_and_the_run_goes_on)
{
	struct replay_content *c = scan();
	struct replay_result *r;
	struct replay_config cfg = config_for(c, open_root());
	uint64_t errors = 0, pages = 0;
	char path[512];

	for (int i = 1; i <= 4; i++) {
		snprintf(path, sizeof(path), "%s/d2/i%d.png", scratch, i);
		ck_assert_int_eq(i == 3 ? truncate(path, (off_t)3 << 30) : unlink(path), 0);
		if (i == 2)
			ck_assert_int_eq(mkdir(path, 0755), 0);
		if (i == 4)
			ck_assert_int_eq(mkfifo(path, 0644), 0);
	}
	cfg.pages = 300;
	for (uint64_t i = 0; i < cfg.pages; i++) {
		struct replay_view v;
		unsigned bad = 0, n;

		replay_content_pick(c, cfg.seed, i, &v);
		for (int k = 0; k < REPLAY_IMAGES; k++)
			if (sscanf(v.images[k], "d2/i%u", &n) == 1 && n >= 1 && n <= 4)
				bad++;
		errors += bad;
		pages += !bad;
	}
	ck_assert_ok(replay_result_create(&r));
	ck_assert_ok(replay_load_run(&cfg, r));
	ck_assert_uint_eq(r->whole.n[REPLAY_ERRORS], errors);
	ck_assert_uint_eq(r->whole.n[REPLAY_HITS], 1200 - errors);
	ck_assert_uint_eq(r->whole.n[REPLAY_PAGES], pages);
	ck_assert_ptr_nonnull(r->first_error);
	ck_assert_int_eq(strncmp(r->first_error, "d2/i", 4), 0);
	check_sums(r);
	close(cfg.root_fd);
	replay_result_destroy(r);
	replay_content_destroy(c);
}
END_TEST

START_TEST(a_wish_to_stop_ends_the_run)
{
	struct replay_content *c = scan();
	struct replay_result *r;
	struct replay_config cfg = config_for(c, open_root());

	cfg.stop_fd = eventfd(1, 0);
	cfg.duration_ns = 3600 * NS_PER_S;
	ck_assert_ok(replay_result_create(&r));
	ck_assert_ok(replay_load_run(&cfg, r));
	ck_assert(r->interrupted);
	ck_assert_uint_eq(r->count, 1);
	ck_assert_uint_ge(r->whole.n[REPLAY_HITS], 4 * r->whole.n[REPLAY_PAGES]);
	check_sums(r);
	close(cfg.stop_fd);
	close(cfg.root_fd);
	replay_result_destroy(r);
	replay_content_destroy(c);
}
END_TEST

struct fake_cache {
	uint64_t asked;
	unsigned seconds;
};

/* Every second question fails: those intervals are unknown, not zero. */
static int fake_probe(void *arg, uint64_t *hits, uint64_t *requests)
{
	struct fake_cache *f = arg;

	f->asked++;
	*hits = f->asked * 3;
	*requests = f->asked * 4;
	return f->asked == 3 ? -ECONNREFUSED : 0;
}

static void fake_second(void *arg, const struct replay_second *s)
{
	struct fake_cache *f = arg;

	f->seconds++;
	ck_assert_double_gt(s->span, 0);
}

START_TEST(warmup_is_left_out)
{
	struct replay_content *c = scan();
	struct replay_result *r;
	struct replay_config cfg = config_for(c, open_root());
	struct fake_cache fake = {0};

	cfg.duration_ns = 2000 * NS_PER_MS;
	cfg.warmup_ns = 200 * NS_PER_MS;
	cfg.probe = fake_probe;
	cfg.second = fake_second;
	cfg.arg = &fake;
	ck_assert_ok(replay_result_create(&r));
	ck_assert_ok(replay_load_run(&cfg, r));
	ck_assert_uint_eq(fake.seconds, r->count);
	ck_assert_uint_ge(r->count, 1);
	ck_assert_double_ge(r->whole.seconds, 2.0);
	ck_assert_double_ge(r->whole.seconds - r->measured.seconds, 0.2);
	ck_assert_double_gt(r->measured.seconds, 0);
	ck_assert_uint_gt(r->whole.n[REPLAY_PAGES], r->measured.n[REPLAY_PAGES]);
	ck_assert_uint_gt(r->measured.n[REPLAY_PAGES], 0);
	check_sums(r);
	/* Asked at the start, at the end of the warm-up, at each second; the third failed. */
	ck_assert(!r->seconds[0].cache_known);
	ck_assert(r->measured.cache_known);
	ck_assert_uint_eq(r->measured.cache_hits, 3 * (fake.asked - 2));
	ck_assert_uint_eq(r->measured.cache_requests, 4 * (fake.asked - 2));
	close(cfg.root_fd);
	replay_result_destroy(r);
	replay_content_destroy(c);
}
END_TEST

static struct replay_result *make_result(void)
{
	struct replay_result *r;

	ck_assert_ok(replay_result_create(&r));
	r->settings = (struct replay_settings){
		.root = strdup("/srv/w\xff\"w"), .label = strdup("caf\xc3\xa9 <1>"),
		.host = strdup("h"), .list = strdup("/tmp/list"), .started = 1.75e9, .clients = 16,
		.duration_ns = 60 * NS_PER_S, .warmup_ns = NS_PER_S, .seed = 1234567890123ULL,
		.piece = 131072};
	r->content = (struct replay_counts){10, 20, 30, 40, 50};
	for (unsigned i = 0; i < 3; i++) {
		struct replay_second s = {.at = i + 1.0 / 3, .span = 1, .page_p99_ns = 123456789 + i,
					  .cache_known = i != 1, .cache_hits = i == 1 ? 0 : 7,
					  .cache_requests = i == 1 ? 0 : 9};

		for (unsigned k = 0; k < REPLAY_COUNTERS; k++)
			s.n[k] = (uint64_t)1 << (k * 7 + i);
		ck_assert_ok(replay_result_add(r, &s));
	}
	for (unsigned i = 0; i < 500; i++) {
		hist_add(r->page, (uint64_t)i * i * 1000);
		hist_add(r->file, i);
	}
	r->whole = (struct replay_totals){.seconds = 60.5, .n = {1, 2, 3, 4, 5, 6, 7, 8},
					  .cache_known = true, .cache_hits = 3, .cache_requests = 4};
	r->measured = (struct replay_totals){.seconds = 59.5, .n = {8, 7, 6, 5, 4, 3, 2, 1}};
	r->first_error = strdup("a: b");
	r->interrupted = true;
	r->mountpoint = strdup("/srv");
	r->stats = json_pack("{s:{s:i}}", "read", "hits", 5);
	return r;
}

START_TEST(result_round_trip)
{
	struct replay_result *a = make_result(), *b;
	json_t *ja = replay_result_to_json(a), *jb, *read_back;
	char why[128] = "", *text;
	json_error_t e;

	ck_assert_ptr_nonnull(ja);
	text = json_dumps(ja, 0);
	read_back = json_loads(text, 0, &e);
	ck_assert_msg(!replay_result_from_json(&b, read_back, why, sizeof(why)), "%s", why);
	jb = replay_result_to_json(b);
	ck_assert(json_equal(ja, jb));
	ck_assert_str_eq(b->settings.root, "/srv/w?\"w"); /* JSON has no place for the byte */
	ck_assert_str_eq(b->settings.label, "caf\xc3\xa9 <1>");
	ck_assert_ptr_null(b->settings.access_log);
	ck_assert_uint_eq(b->settings.seed, 1234567890123ULL);
	ck_assert_uint_eq(b->count, 3);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert(!memcmp(b->seconds[i].n, a->seconds[i].n, sizeof(a->seconds[i].n)));
		ck_assert(b->seconds[i].at == a->seconds[i].at);
		ck_assert(b->seconds[i].cache_known == a->seconds[i].cache_known);
	}
	ck_assert(!memcmp(b->whole.n, a->whole.n, sizeof(a->whole.n)));
	ck_assert(!memcmp(&b->content, &a->content, sizeof(a->content)));
	ck_assert(!memcmp((void *)b->page->bucket, (void *)a->page->bucket, sizeof(a->page->bucket)));
	ck_assert_uint_eq(b->page->max, a->page->max);
	ck_assert_uint_eq(b->first->count, 0);
	ck_assert_uint_eq(hist_percentile(b->file, 50), hist_percentile(a->file, 50));
	ck_assert(b->interrupted);
	free(text);
	json_decref(ja);
	json_decref(jb);
	json_decref(read_back);
	replay_result_destroy(a);
	replay_result_destroy(b);
}
END_TEST

/* Where to put which wrong value (JSON pointer without arrays' members, value), and the complaint. */
static const struct {
	const char *path, *value, *complaint;
} wrong[] = {
	{"format", "\"fio\"", "not a result of gild replay"},
	{"version", "2", "version"},
	{"settings", "[]", "\"settings\""},
	{"settings/clients", "-1", "\"clients\""},
	{"settings/label", "7", "\"label\""},
	{"settings/started", "1e300", "\"started\""},
	{"content/images", "\"many\"", "\"images\""},
	{"totals/measured", "null", "\"measured\""},
	{"totals/whole/seconds", "-0.5", "\"seconds\""},
	{"totals/whole/cache_hits", "1.5", "\"cache_hits\""},
	{"histograms/page", "{}", "\"page\""},
	{"histograms/page/mean", "-1", "\"page\""},
	{"histograms/file/buckets", "[[1,-1]]", "\"file\""},
	{"histograms/file/buckets", "[[1,9223372036854775807],[2,9223372036854775807]]", "\"file\""},
	{"series/columns", "[\"at\"]", "\"series\""},
	{"series/rows", "7", "\"series\""},
	{"series/rows", "[[1,2,3]]", "row 0"},
	{"series/rows", "[[1,1,0,0,0,0,0,0,0,0,0,null,null],[0.5,1,0,0,0,0,0,0,0,0,0,null,null]]",
	 "row 1"},
	{"series/rows", "[[1,1,0,0,0,0,0,0,-3,0,0,null,null]]", "row 0"},
	{"series/rows", "[[1,1,0,0,0,0,0,0,0,0,0,null,4]]", "row 0"},
};

START_TEST(wrong_results_are_refused)
{
	struct replay_result *a = make_result(), *b;
	json_t *json = replay_result_to_json(a), *at = json, *value;
	char path[64], why[128] = "", *save = NULL, *name, *next;

	snprintf(path, sizeof(path), "%s", wrong[_i].path);
	value = json_loads(wrong[_i].value, JSON_DECODE_ANY, NULL);
	ck_assert_ptr_nonnull(value);
	for (name = strtok_r(path, "/", &save); (next = strtok_r(NULL, "/", &save)); name = next)
		at = json_object_get(at, name);
	ck_assert_ptr_nonnull(json_object_get(at, name));
	json_object_set_new(at, name, value);
	ck_assert_int_eq(replay_result_from_json(&b, json, why, sizeof(why)), -EINVAL);
	ck_assert_ptr_null(b);
	ck_assert_has(why, wrong[_i].complaint);
	json_decref(json);
	replay_result_destroy(a);
}
END_TEST

START_TEST(access_log_lines)
{
	static struct replay_log log;
	static char path[4096];
	size_t len;

	setenv("TZ", "UTC", 1);
	tzset();
	replay_log_init(&log, -1);
	len = replay_log_format(&log, 971211336, "a b/\"x\xe9.png", NULL, 0, 2326);
	log.line[len] = '\0';
	ck_assert_str_eq(log.line,
			 "127.0.0.1 - - [10/Oct/2000:20:55:36 +0000] \"GET /a%20b/%22x%E9.png "
			 "HTTP/1.1\" 200 2326 \"-\" \"gild-replay\"\n");
	len = replay_log_format(&log, 971211336, "x.png", "p.html", -ENOENT, 77);
	log.line[len] = '\0';
	ck_assert_has(log.line, " 404 0 \"http://localhost/p.html\"");
	memset(path, 0xff, sizeof(path) - 1);
	ck_assert_uint_lt(replay_log_format(&log, 0, path, path, 0, UINT64_MAX), sizeof(log.line));
	ck_assert_int_eq(replay_log_hit(&log, "a", NULL, 0, 1), -EBADF);
}
END_TEST

START_TEST(mounts_are_found)
{
	static const char info[] =
		"22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
		"40 22 0:40 / /srv/www rw - fuse.gildfs /srv/hdd rw\n"
		"41 22 0:41 / /srv/a\\040b rw shared:7 master:1 - fuse.gildfs x rw\n"
		"42 40 0:42 / /srv/www/tmp rw - tmpfs tmpfs rw\n"
		"43 22 0:43 / /mnt rw - fuse.gildfs y rw\n"
		"44 22 0:44 / /mnt rw - ext4 /dev/vdb rw\n";
	char *at;

	ck_assert_ok(replay_mount_find_in(info, "/srv/www/docs", &at));
	ck_assert_str_eq(at, "/srv/www");
	free(at);
	ck_assert_ok(replay_mount_find_in(info, "/srv/www", &at));
	free(at);
	ck_assert_ok(replay_mount_find_in(info, "/srv/a b/c", &at));
	ck_assert_str_eq(at, "/srv/a b");
	free(at);
	ck_assert_int_eq(replay_mount_find_in(info, "/srv/wwwx", &at), -ENOENT);
	ck_assert_int_eq(replay_mount_find_in(info, "/srv/www/tmp/x", &at), -ENOENT);
	ck_assert_int_eq(replay_mount_find_in(info, "/mnt/x", &at), -ENOENT); /* covered */
	ck_assert_int_eq(replay_mount_find_in("garbage\n\n1 2 3 - x\n", "/", &at), -ENOENT);
	ck_assert_int_eq(replay_mount_find("/proc", &at), -ENOENT);
	ck_assert_int_eq(replay_mount_find("/no/such", &at), -ENOENT);
}
END_TEST

START_TEST(mount_hits_come_from_stats)
{
	json_t *j = json_loads("{\"read\":{\"hits\":5,\"partial\":1,\"misses\":2,\"bypass\":0}}", 0,
			       NULL);
	uint64_t hits, requests;

	ck_assert_ok(replay_mount_hits(j, &hits, &requests));
	ck_assert_uint_eq(hits, 5);
	ck_assert_uint_eq(requests, 8);
	json_object_del(json_object_get(j, "read"), "misses");
	ck_assert_int_eq(replay_mount_hits(j, &hits, &requests), -EPROTO);
	json_decref(j);
}
END_TEST

START_TEST(numbers_for_people)
{
	char b[REPLAY_FORMAT_LEN];
	static const struct {
		double x;
		const char *number, *ns;
	} cases[] = {
		{0, "0", "0 ns"}, {0.01234, "0.0123", "0.01 ns"}, {1.5, "1.500", "1.50 ns"},
		{999.94, "999.9", "1.00 us"}, {4863.9, "4,864", "4.86 us"},
		{1234567, "1,234,567", "1.23 ms"}, {104816357, "104,816,357", "105 ms"},
		{5.4e12, "5,400,000,000,000", "90 min"}, {NAN, "-", "-"}, {INFINITY, "-", "-"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_assert_str_eq(replay_format_number(cases[i].x, b, sizeof(b)), cases[i].number);
		ck_assert_str_eq(replay_format_ns(cases[i].x, "u", b, sizeof(b)), cases[i].ns);
	}
	ck_assert_str_eq(replay_format_count(UINT64_MAX, b, sizeof(b)),
			 "18,446,744,073,709,551,615");
	ck_assert_str_eq(replay_format_bytes(1.48e9, b, sizeof(b)), "1.48 GB");
	ck_assert_str_eq(replay_format_bytes(999, b, sizeof(b)), "999 B");
}
END_TEST

struct command {
	int argc;
	char *argv[16];
};

static void run_command(void *arg)
{
	struct command *c = arg;

	int rc = cmd_replay(c->argc, c->argv);

	fflush(NULL);
	_exit(rc);
}

static void check_command(struct command c, int rc, const char *part)
{
	char out[8192];
	int status;

	while (c.argv[c.argc])
		c.argc++;
	status = run_child(run_command, &c, out, sizeof(out));
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == rc, "%d: %s", status, out);
	ck_assert_has(out, part);
	if (rc)
		ck_assert_msg(strchr(out, '\n') == out + strlen(out) - 1, "not one line: %s", out);
}

START_TEST(command_line)
{
	char empty[300], missing[300];

	snprintf(empty, sizeof(empty), "%s/d2", scratch);
	snprintf(missing, sizeof(missing), "%s/none", scratch);
	check_command((struct command){.argv = {(char *)"replay"}}, 2, "ROOT");
	check_command((struct command){.argv = {(char *)"replay", missing}}, 1, missing);
	check_command((struct command){.argv = {(char *)"replay", empty}}, 1, "0 HTML pages");
	check_command((struct command){.argv = {(char *)"replay", scratch, (char *)"--clients=0"}}, 2,
		      "clients");
	check_command((struct command){.argv = {(char *)"replay", scratch, (char *)"--warmup=5s",
						(char *)"--duration=5s"}}, 2, "--warmup");
	check_command((struct command){.argv = {(char *)"replay", scratch, (char *)"--json",
						(char *)"/no/such/x.json"}}, 1, "/no/such/x.json");
	check_command((struct command){.argv = {(char *)"replay", scratch, (char *)"--pages=50",
						(char *)"--seed=3"}}, 0, "seed 3");
}
END_TEST

static Suite *make_suite(void)
{
	Suite *s = suite_create("replay");
	TCase *tree = tcase_create("tree"), *plain = tcase_create("plain");

	tcase_set_timeout(tree, 60);
	tcase_add_checked_fixture(tree, tree_make, tree_remove);
	tcase_add_loop_test(tree, views_are_even_and_unique, 0, 3);
	tcase_add_test(tree, views_depend_on_seed_and_number_alone);
	tcase_add_test(tree, three_images_are_enough);
	tcase_add_test(tree, scan_takes_files_only_and_sorts);
	tcase_add_test(tree, list_round_trip);
	tcase_add_test(tree, every_page_of_a_bounded_run_counts);
	tcase_add_test(tree, bad_files_are_counted_and_the_run_goes_on);
	tcase_add_test(tree, a_wish_to_stop_ends_the_run);
	tcase_add_test(tree, warmup_is_left_out);
	tcase_add_test(tree, command_line);
	suite_add_tcase(s, tree);
	tcase_add_test(plain, result_round_trip);
	tcase_add_loop_test(plain, wrong_results_are_refused, 0, sizeof(wrong) / sizeof(wrong[0]));
	tcase_add_test(plain, access_log_lines);
	tcase_add_test(plain, mounts_are_found);
	tcase_add_test(plain, mount_hits_come_from_stats);
	tcase_add_test(plain, numbers_for_people);
	suite_add_tcase(s, plain);
	return s;
}

int main(void)
{
	return unit_main(make_suite());
}
