/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <math.h>
#include <pthread.h>
#include <stdint.h>

#include <check.h>

#include "base/hash.h"
#include "stats/stats.h"
#include "unit_util.h"

#define SAMPLES 20000

START_TEST(buckets_join_without_gap_or_overlap)
{
	unsigned i;

	ck_assert_uint_eq(hist_bucket_low(0), 0);
	for (i = 0; i < HIST_BUCKETS; i++) {
		ck_assert_uint_eq(hist_bucket_of(hist_bucket_low(i)), i);
		if (i + 1 < HIST_BUCKETS)
			ck_assert_uint_eq(hist_bucket_of(hist_bucket_low(i + 1) - 1), i);
	}
	ck_assert_uint_eq(hist_bucket_of(UINT64_MAX), HIST_BUCKETS - 1);
	ck_assert_uint_eq(hist_bucket_low(HIST_BUCKETS), UINT64_MAX);
}
END_TEST

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Seed _i chooses the shape: uniform small, uniform wide, log-uniform over all 64 bits. */
static uint64_t sample(int shape, uint64_t n)
{
	uint64_t x = hash_mix64(n + (uint64_t)shape * 1000003);

	if (shape == 0)
		return x % 50;
	if (shape == 1)
		return x % 1000000007;
	return x >> hash_mix64(x) % 64;
}

START_TEST(percentiles_are_within_a_thirtysecond)
{
	static const double points[] = {0, 1, 25, 50, 75, 90, 99, 99.9, 99.99};
	static uint64_t values[SAMPLES];
	static struct hist h;
	size_t i, at;

	hist_init(&h);
	ck_assert_uint_eq(hist_percentile(&h, 50), 0);
	for (i = 0; i < SAMPLES; i++) {
		values[i] = sample(_i, i);
		hist_add(&h, values[i]);
	}
	qsort(values, SAMPLES, sizeof(values[0]), compare_u64);
	for (i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		uint64_t got = hist_percentile(&h, points[i]), exact;

		at = (size_t)ceil(points[i] / 100 * SAMPLES);
		exact = values[at ? at - 1 : 0];
		ck_assert_msg(got >= exact && got - exact <= exact / 32,
			      "shape %d, %g %%: %ju instead of %ju", _i, points[i], (uintmax_t)got,
			      (uintmax_t)exact);
	}
	ck_assert_uint_eq(hist_percentile(&h, 100), values[SAMPLES - 1]);
}
END_TEST

START_TEST(merge_adds_up)
{
	static struct hist a, b, both;
	uint64_t i;

	hist_init(&a);
	hist_init(&b);
	hist_init(&both);
	for (i = 0; i < 1000; i++) {
		hist_add(i % 3 ? &a : &b, i * i);
		hist_add(&both, i * i);
	}
	hist_merge(&a, &b);
	ck_assert_uint_eq(a.count, 1000);
	ck_assert_uint_eq(a.sum, both.sum);
	ck_assert_uint_eq(a.max, 999 * 999);
	for (i = 0; i < HIST_BUCKETS; i++)
		ck_assert_uint_eq(a.bucket[i], both.bucket[i]);
	ck_assert_double_eq(hist_mean(&a), hist_mean(&both));
}
END_TEST

static void *add_many(void *arg)
{
	struct stats *s = arg;
	uint64_t i;

	for (i = 0; i < 20000; i++) {
		stats_inc(s, read_hits);
		hist_add(&s->latency_hit, i);
	}
	return NULL;
}

START_TEST(no_count_is_lost_between_threads)
{
	static struct stats s;
	pthread_t ids[4];
	uint64_t total = 0;
	unsigned i;

	stats_init(&s);
	for (i = 0; i < 4; i++)
		ck_assert_ok(pthread_create(&ids[i], NULL, add_many, &s));
	for (i = 0; i < 4; i++)
		pthread_join(ids[i], NULL);
	ck_assert_uint_eq(stats_get(&s, read_hits), 80000);
	ck_assert_uint_eq(s.latency_hit.count, 80000);
	for (i = 0; i < HIST_BUCKETS; i++)
		total += s.latency_hit.bucket[i];
	ck_assert_uint_eq(total, 80000);
	ck_assert_uint_eq(s.latency_hit.max, 19999);
}
END_TEST

static void fill(struct stats *s)
{
	uint64_t i;

	stats_init(s);
	stats_add(s, read_hits, 5);
	stats_inc(s, read_hits);
	stats_set(s, file_known, 77);
	for (i = 1; i <= 100; i++)
		hist_add(&s->latency_miss, i * 10);
}

START_TEST(json_has_every_row)
{
	static struct stats s;
	json_t *all, *miss;

	fill(&s);
	all = stats_to_json(&s);
	ck_assert_ptr_nonnull(all);
#define STATS_HAS(group, name) \
	ck_assert_ptr_nonnull(json_object_get(json_object_get(all, #group), #name));
#define COUNTER(group, name, unit, help) STATS_HAS(group, name)
#define GAUGE(group, name, unit, help) STATS_HAS(group, name)
#define HIST(group, name, unit, help) STATS_HAS(group, name)
#include "stats/stats.tbl"
#undef COUNTER
#undef GAUGE
#undef HIST
	ck_assert_int_eq(
		json_integer_value(json_object_get(json_object_get(all, "read"), "hits")), 6);
	miss = json_object_get(json_object_get(all, "latency"), "miss");
	ck_assert_int_eq(json_integer_value(json_object_get(miss, "count")), 100);
	ck_assert_double_eq(json_real_value(json_object_get(miss, "mean")), 505);
	ck_assert_int_eq(json_integer_value(json_object_get(miss, "max")), 1000);
	ck_assert_int_ge(json_integer_value(json_object_get(miss, "p50")), 500);
	ck_assert_int_le(json_integer_value(json_object_get(miss, "p50")), 515);
	ck_assert_ptr_nonnull(json_object_get(miss, "p999"));
	json_decref(all);
}
END_TEST

static char *printed(void (*print)(const struct stats *s, FILE *to), const struct stats *s)
{
	size_t len;
	char *text;
	FILE *to = open_memstream(&text, &len);

	ck_assert_ptr_nonnull(to);
	print(s, to);
	fclose(to);
	return text;
}

static void print_table(const struct stats *s, FILE *to)
{
	(void)s;
	stats_print_table(to);
}

START_TEST(prometheus_form_is_valid)
{
	static struct stats s;
	char *text, *line, *rest, name[128], value[64];

	fill(&s);
	text = printed(stats_print_prometheus, &s);
	ck_assert_has(text, "# TYPE gildfs_read_hits counter\ngildfs_read_hits 6\n");
	ck_assert_has(text, "# TYPE gildfs_file_known gauge\ngildfs_file_known 77\n");
	ck_assert_has(text, "# TYPE gildfs_latency_miss summary\n");
	ck_assert_has(text, "gildfs_latency_miss_count 100\n");
	ck_assert_has(text, "gildfs_latency_miss_sum 50500\n");
	ck_assert_has(text, "gildfs_latency_miss{quantile=\"0.99\"} ");
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		if (line[0] != '#')
			ck_assert_msg(sscanf(line, "gildfs_%127[a-z_{}=\".0-9] %63[0-9]", name,
					     value) == 2,
				      "%s", line);
	free(text);
}
END_TEST

START_TEST(text_and_table_name_every_row)
{
	static struct stats s;
	char *text, *table;

	fill(&s);
	text = printed(stats_print_text, &s);
	table = printed(print_table, &s);
#define STATS_HAS_TEXT(group, name, unit, help) \
	ck_assert_has(text, help);              \
	ck_assert_has(table, #group "\t" #name "\t" #unit "\t" help "\n");
#define COUNTER(group, name, unit, help) STATS_HAS_TEXT(group, name, unit, help)
#define GAUGE(group, name, unit, help) STATS_HAS_TEXT(group, name, unit, help)
#define HIST(group, name, unit, help) STATS_HAS_TEXT(group, name, unit, help)
#include "stats/stats.tbl"
#undef COUNTER
#undef GAUGE
#undef HIST
	free(table);
	free(text);
}
END_TEST

static Suite *stats_suite(void)
{
	Suite *s = suite_create("stats");
	TCase *t = tcase_create("stats");

	tcase_add_test(t, buckets_join_without_gap_or_overlap);
	tcase_add_loop_test(t, percentiles_are_within_a_thirtysecond, 0, 3);
	tcase_add_test(t, merge_adds_up);
	tcase_add_test(t, no_count_is_lost_between_threads);
	tcase_add_test(t, json_has_every_row);
	tcase_add_test(t, prometheus_form_is_valid);
	tcase_add_test(t, text_and_table_name_every_row);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return unit_main(stats_suite());
}
