/* SPDX-License-Identifier: BSD-2-Clause
 * The disk model against what data sheets and geometry say. All in model time: no clock, no I/O. */
#include <config.h>

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "tools/disk_model.h"

#define SEED 20130611
#define CONTENT (20ULL << 30)
#define MS 1000000.0

struct rng {
	uint64_t state;
};

static uint64_t rng_below(struct rng *r, uint64_t n)
{
	return hash_mix64(++r->state * 0x9e3779b97f4a7c15ULL) % n;
}

static double rng_unit(struct rng *r)
{
	return (double)rng_below(r, 1ULL << 53) / (double)(1ULL << 53);
}

static struct disk_model *model(enum disk_model_kind kind, double stroke)
{
	struct disk_model *m;

	ck_assert_int_eq(disk_model_create(&m, kind, CONTENT, stroke), 0);
	return m;
}

struct result {
	double mean_ms, iops;
	uint64_t sum; /* of all completion times: equal for equal runs */
};

static void submit_random(struct disk_model *m, struct disk_model_request *r, struct rng *rng,
			  bool write, uint64_t now)
{
	r->offset = rng_below(rng, CONTENT / 4096) * 4096;
	r->length = 4096;
	r->write = write;
	disk_model_submit(m, r, now);
}

/* `count` random 4 KiB requests, `depth` always under way. */
static struct result run_random(struct disk_model *m, unsigned depth, unsigned count, bool write,
				uint64_t seed)
{
	struct disk_model_request *all = calloc(depth, sizeof(*all)), *r;
	struct rng rng = {seed};
	struct result res = {0};
	uint64_t now = 1000, begin = now;
	unsigned done = 0;

	for (unsigned i = 0; i < depth; i++)
		submit_random(m, &all[i], &rng, write, now);
	while (done < count) {
		now = disk_model_next_ns(m);
		ck_assert_uint_ne(now, UINT64_MAX);
		while ((r = disk_model_take(m, now))) {
			res.mean_ms += (double)(r->done_ns - r->submitted_ns) / MS / count;
			res.sum = hash_mix64(res.sum ^ r->done_ns);
			submit_random(m, r, &rng, write, now);
			done++;
		}
	}
	res.iops = done / ((double)(now - begin) / 1e9);
	free(all);
	return res;
}

static double iops(enum disk_model_kind kind, double stroke, unsigned depth, bool write)
{
	struct disk_model *m = model(kind, stroke);
	double n = run_random(m, depth, 6000, write, SEED).iops;

	disk_model_destroy(m);
	return n;
}

/* The last request of a stream that reads or writes `total` bytes in order, `gap_ns` between an
 * answer and the next request. */
static double stream_mb_s(enum disk_model_kind kind, uint64_t size, uint64_t total, bool write,
			  uint64_t gap_ns)
{
	struct disk_model *m = model(kind, 0);
	struct disk_model_request r = {.length = size, .write = write};
	uint64_t now = 1000, begin = now;

	for (r.offset = 0; r.offset < total; r.offset += size) {
		disk_model_submit(m, &r, now);
		while (!disk_model_take(m, now))
			now = disk_model_next_ns(m);
		now += gap_ns;
	}
	disk_model_destroy(m);
	return (double)total / ((double)(now - begin) / 1e9) / 1e6;
}

START_TEST(seek_curve_meets_the_data_sheet)
{
	const struct disk_drive_sheet *s = disk_model_kind_info(_i)->sheet;
	struct rng rng = {SEED};
	struct disk_drive d;
	double sum = 0;

	disk_drive_init(&d, s, s->capacity, 1, 0);
	for (int i = 0; i < 200000; i++)
		sum += (double)disk_drive_seek_ns(&d, fabs(rng_unit(&rng) - rng_unit(&rng)));
	ck_assert_double_eq_tol(sum / 200000, (double)s->seek_average_ns,
				0.01 * (double)s->seek_average_ns);
	ck_assert_double_eq_tol((double)disk_drive_seek_ns(&d, 1), (double)s->seek_full_ns, 10);
	ck_assert_double_eq_tol((double)disk_drive_seek_ns(&d, 1e-9), (double)s->seek_track_ns,
				0.01 * (double)s->seek_track_ns);
	for (double x = 0.001; x < 1; x += 0.001)
		ck_assert_uint_ge(disk_drive_seek_ns(&d, x), disk_drive_seek_ns(&d, x - 0.001));
	ck_assert_double_eq_tol(disk_drive_cylinder(&d, 0), 0, 1e-9);
	ck_assert_double_eq_tol(disk_drive_cylinder(&d, d.bytes), 1, 1e-6);
}
END_TEST

START_TEST(one_drive_serves_in_command_seek_half_turn_transfer)
{
	struct disk_model *m = model(DISK_MODEL_HDD1, 1);
	const struct disk_drive_sheet *s = disk_model_kind_info(DISK_MODEL_HDD1)->sheet;
	double got = run_random(m, 1, 20000, false, SEED).mean_ms, seek = 0, want;
	struct rng rng = {SEED + 1};
	struct disk_drive d;

	disk_drive_init(&d, s, CONTENT, 1, 0);
	for (int i = 0; i < 100000; i++) {
		double a = disk_drive_cylinder(&d, rng_below(&rng, CONTENT));
		double b = disk_drive_cylinder(&d, rng_below(&rng, CONTENT));

		seek += (double)disk_drive_seek_ns(&d, fabs(a - b)) / 100000;
	}
	want = ((double)s->command_ns + seek + (double)s->turn_ns / 2 + 4096 / s->rate_outer * 1e9) / MS;
	ck_assert_double_eq_tol(got, want, 0.02 * want);
	ck_assert_double_ge(got, 12.0);
	ck_assert_double_le(got, 13.5);
	disk_model_destroy(m);
}
END_TEST

/* At depth 1 all six heads idle, so the nearer of two serves: three pairs of heads, replayed. */
START_TEST(mirrors_read_with_the_nearer_head)
{
	const struct disk_drive_sheet *s = disk_model_kind_info(DISK_MODEL_HDD6)->sheet;
	struct disk_model *m = model(DISK_MODEL_HDD6, 1);
	double got = run_random(m, 1, 20000, false, SEED).mean_ms, seek = 0, want;
	double head[3][2] = {{0}};
	struct rng rng = {SEED + 1};
	struct disk_drive d;

	disk_drive_init(&d, s, CONTENT, 1, 0);
	for (int i = 0; i < 100000; i++) {
		double x = disk_drive_cylinder(&d, rng_below(&rng, CONTENT));
		double *h = head[rng_below(&rng, 3)];
		int near = fabs(h[0] - x) <= fabs(h[1] - x) ? 0 : 1;

		seek += (double)disk_drive_seek_ns(&d, fabs(h[near] - x)) / 100000;
		h[near] = x;
	}
	want = ((double)s->command_ns + seek + (double)s->turn_ns / 2 + 4096 / s->rate_outer * 1e9) / MS;
	ck_assert_double_eq_tol(got, want, 0.03 * want);
	ck_assert_double_lt(seek, (double)s->seek_average_ns * 0.8);
	disk_model_destroy(m);
}
END_TEST

START_TEST(a_part_of_the_stroke_is_faster)
{
	ck_assert_double_gt(iops(DISK_MODEL_HDD6, 0, 1, false),
			    1.25 * iops(DISK_MODEL_HDD6, 1, 1, false));
	ck_assert_double_eq_tol(iops(DISK_MODEL_HDD6, 0, 1, false),
				iops(DISK_MODEL_HDD6, 40e9 / (3 * 73.4e9), 1, false), 0.001);
}
END_TEST

START_TEST(depth_brings_scheduling_and_spindles)
{
	static const double at_least[] = {[DISK_MODEL_HDD6] = 6, [DISK_MODEL_HDD24] = 13,
					  [DISK_MODEL_HDD1] = 2};
	double one = iops(_i, 1, 1, false), many = iops(_i, 1, 32, false);

	printf("%s, full stroke: %.0f IOPS at depth 1, %.0f at 32\n",
	       disk_model_kind_info(_i)->name, one, many);
	ck_assert_double_ge(many, at_least[_i] * one);
	ck_assert_double_le(many, 2 * at_least[_i] * one);
	/* A line longer than the drives' queues costs waiting, not rate. */
	ck_assert_double_ge(iops(_i, 1, 512, false), 0.95 * many);
}
END_TEST

START_TEST(sequential_reads_stream)
{
	const struct disk_model_kind_info *k = disk_model_kind_info(_i);
	double full = k->sheet->rate_outer * k->spindles / k->mirrors / 1e6;
	double got = stream_mb_s(_i, 1 << 20, 256 << 20, false, 100000);

	ck_assert_double_ge(got, 0.93 * full);
	ck_assert_double_le(got, 1.01 * full);
}
END_TEST

/* 64 KiB at a time the host is the limit, unless a drive seeks or turns in between. */
START_TEST(small_sequential_reads_come_from_the_buffer)
{
	ck_assert_double_ge(stream_mb_s(_i, 65536, 64 << 20, false, 50000), 100);
}
END_TEST

/* No write cache: the next sector has passed when the next write comes. */
START_TEST(a_synchronous_writer_loses_a_turn_each_time)
{
	const struct disk_drive_sheet *s = disk_model_kind_info(_i)->sheet;
	double got = stream_mb_s(_i, 4096, 16 << 20, true, 50000);

	ck_assert_double_le(got, 1.1 * 4096 / ((double)s->turn_ns / 1e9) / 1e6);
	ck_assert_double_ge(got, 0.45 * 4096 / ((double)s->turn_ns / 1e9) / 1e6);
}
END_TEST

START_TEST(writes_cost_both_mirrors)
{
	struct disk_model *m = model(DISK_MODEL_HDD6, 0);
	struct disk_model_spindle_stats s, t;
	struct disk_model_request r = {.offset = 5 * DISK_MODEL_CHUNK + 8192, .length = 4096,
				       .write = true};

	disk_model_submit(m, &r, 1000);
	while (!disk_model_take(m, disk_model_next_ns(m)))
		;
	for (unsigned i = 0; i < 6; i++) {
		disk_model_stats(m, i, &s);
		ck_assert_uint_eq(s.writes, i / 2 == 5 % 3);
		ck_assert_uint_eq(s.busy_ns > 0, i / 2 == 5 % 3);
	}
	disk_model_stats(m, 4, &s);
	disk_model_stats(m, 5, &t);
	ck_assert_uint_eq(r.done_ns - 1000, s.busy_ns > t.busy_ns ? s.busy_ns : t.busy_ns);
	disk_model_destroy(m);
	/* So an array has half of its reads in writes, and less for the longer settling. */
	ck_assert_double_lt(iops(DISK_MODEL_HDD6, 1, 64, true),
			    0.5 * iops(DISK_MODEL_HDD6, 1, 64, false));
}
END_TEST

START_TEST(runs_repeat_exactly)
{
	struct disk_model *a = model(_i, 0), *b = model(_i, 0), *c = model(_i, 0);
	uint64_t sum = run_random(a, 16, 3000, false, SEED).sum;

	ck_assert_uint_eq(sum, run_random(b, 16, 3000, false, SEED).sum);
	ck_assert_uint_ne(sum, run_random(c, 16, 3000, false, SEED + 1).sum);
	disk_model_destroy(a);
	disk_model_destroy(b);
	disk_model_destroy(c);
}
END_TEST

/* Whoever asks late gets the same times: the model starts the next when the head was free. */
START_TEST(late_calls_change_nothing)
{
	struct disk_model *m[2] = {model(_i, 0), model(_i, 0)};
	struct disk_model_request *r[2], *q;
	struct rng rng = {SEED};
	uint64_t now = 1000;

	for (int k = 0; k < 2; k++) {
		r[k] = calloc(200, sizeof(**r));
		rng.state = SEED;
		for (int i = 0; i < 200; i++)
			submit_random(m[k], &r[k][i], &rng, i % 3 == 0, now);
	}
	for (int done = 0; done < 200;) {
		now = disk_model_next_ns(m[0]);
		while (disk_model_take(m[0], now))
			done++;
	}
	for (int done = 0; done < 200;)
		for (now += 50 * 1000000; (q = disk_model_take(m[1], now));)
			done++;
	for (int i = 0; i < 200; i++)
		ck_assert_uint_eq(r[0][i].done_ns, r[1][i].done_ns);
	for (int k = 0; k < 2; k++) {
		free(r[k]);
		disk_model_destroy(m[k]);
	}
}
END_TEST

/* Any offset and length: each request comes back once, each byte is moved once (twice written). */
START_TEST(requests_split_and_come_back_once)
{
	struct disk_model *m = model(_i, 0);
	unsigned mirrors = disk_model_kind_info(_i)->mirrors, back = 0;
	struct disk_model_request *r = calloc(500, sizeof(*r)), *q;
	struct disk_model_spindle_stats s;
	struct rng rng = {SEED};
	uint64_t now = 1000, want = 0, got = 0;

	for (int i = 0; i < 500; i++) {
		r[i].offset = rng_below(&rng, CONTENT);
		r[i].length = 1 + rng_below(&rng, 1ULL << rng_below(&rng, 22));
		if (r[i].length > CONTENT - r[i].offset)
			r[i].length = CONTENT - r[i].offset;
		r[i].write = rng_below(&rng, 2);
		want += r[i].length * (r[i].write ? mirrors : 1);
		now += rng_below(&rng, 4000000);
		disk_model_submit(m, &r[i], now);
	}
	while ((now = disk_model_next_ns(m)) != UINT64_MAX) {
		while ((q = disk_model_take(m, now))) {
			ck_assert_uint_gt(q->done_ns, q->submitted_ns);
			q->submitted_ns = UINT64_MAX; /* a second time would fail above */
			back++;
		}
	}
	ck_assert_uint_eq(back, 500);
	for (unsigned i = 0; i < disk_model_spindles(m); i++) {
		disk_model_stats(m, i, &s);
		got += s.bytes;
		ck_assert_uint_eq(s.queue, 0);
		ck_assert_uint_ge(s.busy_ns, s.seek_ns + s.wait_ns + s.transfer_ns);
	}
	ck_assert_uint_eq(got, want);
	free(r);
	disk_model_destroy(m);
}
END_TEST

/* One request at the far end against a crowd at the near end that never ends. */
START_TEST(nobody_starves)
{
	struct disk_model *m = model(DISK_MODEL_HDD1, 1);
	struct disk_model_request *near = calloc(16, sizeof(*near)), *r;
	struct disk_model_request far = {.offset = CONTENT - 4096, .length = 4096};
	struct rng rng = {SEED};
	uint64_t now = 1000;
	unsigned served = 0;

	for (int i = 0; i < 16; i++) {
		near[i].offset = rng_below(&rng, 4096) * 4096;
		near[i].length = 4096;
		near[i].write = true; /* no buffer hits: all need the head */
		disk_model_submit(m, &near[i], now);
	}
	disk_model_submit(m, &far, now);
	for (r = NULL; r != &far;) {
		now = disk_model_next_ns(m);
		while ((r = disk_model_take(m, now)) && r != &far) {
			served++;
			r->offset = rng_below(&rng, 4096) * 4096;
			disk_model_submit(m, r, now);
		}
	}
	ck_assert_uint_ge(served, 32); /* near ones were preferred */
	ck_assert_uint_le(served, DISK_MODEL_PASSES + 2);
	free(near);
	disk_model_destroy(m);
}
END_TEST

static uint64_t one(struct disk_model *m, uint64_t offset, bool write, uint64_t *now)
{
	struct disk_model_request r = {.offset = offset, .length = 4096, .write = write};
	uint64_t begin = *now;

	disk_model_submit(m, &r, begin);
	while (!disk_model_take(m, *now))
		*now = disk_model_next_ns(m);
	return r.done_ns - begin;
}

START_TEST(a_write_takes_what_it_covers_out_of_the_buffer)
{
	struct disk_model *m = model(DISK_MODEL_HDD1, 0);
	uint64_t now = 1000;

	one(m, 1 << 30, false, &now);
	ck_assert_uint_le(one(m, 1 << 30, false, &now), 200000);
	now += 20000000;
	ck_assert_uint_le(one(m, (1 << 30) + 262144, false, &now), 200000);
	one(m, (1 << 30) + 262144, true, &now);
	ck_assert_uint_ge(one(m, (1 << 30) + 262144, false, &now), 1000000);
	disk_model_destroy(m);
}
END_TEST

/* The buffer holds the end of a long stream, not all of it. */
START_TEST(what_streamed_by_is_gone)
{
	struct disk_model *m = model(DISK_MODEL_HDD1, 0);
	struct disk_model_request r = {.length = 1 << 20};
	uint64_t now = 1000;

	for (r.offset = 0; r.offset < 64 << 20; r.offset += r.length) {
		disk_model_submit(m, &r, now);
		while (!disk_model_take(m, now))
			now = disk_model_next_ns(m);
	}
	ck_assert_uint_le(one(m, (64 << 20) - 4096, false, &now), 200000);
	ck_assert_uint_ge(one(m, 32 << 20, false, &now), 1000000);
	disk_model_destroy(m);
}
END_TEST

START_TEST(bad_parameters_are_refused)
{
	struct disk_model *m;

	ck_assert_int_eq(disk_model_create(&m, DISK_MODEL_HDD6, DISK_MODEL_MIN - 1, 0), -EINVAL);
	ck_assert_int_eq(disk_model_create(&m, DISK_MODEL_HDD6, CONTENT, 1.01), -EINVAL);
	ck_assert_int_eq(disk_model_create(&m, DISK_MODEL_HDD6, CONTENT, -0.1), -EINVAL);
	ck_assert_int_eq(disk_model_create(&m, DISK_MODEL_HDD6, CONTENT, NAN), -EINVAL);
	for (int k = 0; k < DISK_MODEL_KINDS; k++) {
		uint64_t now = 1000;

		ck_assert_int_eq(disk_model_create(&m, k, DISK_MODEL_MIN, 0), 0);
		one(m, 0, true, &now);
		one(m, DISK_MODEL_MIN - 4096, false, &now);
		disk_model_destroy(m);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("disk_model");
	TCase *t = tcase_create("model");
	SRunner *runner;
	int failed;

	printf("seed %d\n", SEED);
	tcase_add_loop_test(t, seek_curve_meets_the_data_sheet, 0, DISK_MODEL_KINDS);
	tcase_add_test(t, one_drive_serves_in_command_seek_half_turn_transfer);
	tcase_add_test(t, mirrors_read_with_the_nearer_head);
	tcase_add_test(t, a_part_of_the_stroke_is_faster);
	tcase_add_loop_test(t, depth_brings_scheduling_and_spindles, 0, DISK_MODEL_KINDS);
	tcase_add_loop_test(t, sequential_reads_stream, 0, DISK_MODEL_KINDS);
	tcase_add_loop_test(t, small_sequential_reads_come_from_the_buffer, 0, DISK_MODEL_KINDS);
	tcase_add_loop_test(t, a_synchronous_writer_loses_a_turn_each_time, 0, DISK_MODEL_KINDS);
	tcase_add_test(t, writes_cost_both_mirrors);
	tcase_add_loop_test(t, runs_repeat_exactly, 0, DISK_MODEL_KINDS);
	tcase_add_loop_test(t, late_calls_change_nothing, 0, DISK_MODEL_KINDS);
	tcase_add_loop_test(t, requests_split_and_come_back_once, 0, DISK_MODEL_KINDS);
	tcase_add_test(t, nobody_starves);
	tcase_add_test(t, a_write_takes_what_it_covers_out_of_the_buffer);
	tcase_add_test(t, what_streamed_by_is_gone);
	tcase_add_test(t, bad_parameters_are_refused);
	suite_add_tcase(suite, t);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
