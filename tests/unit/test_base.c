/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <check.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/htab.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/workq.h"
#include "unit_util.h"

START_TEST(crc32c_matches_the_published_vectors)
{
	unsigned char buf[32];

	ck_assert_uint_eq(hash_crc32c(0, "123456789", 9), 0xe3069283);
	ck_assert_uint_eq(hash_crc32c(0, "", 0), 0);
	memset(buf, 0, sizeof(buf)); /* RFC 3720, B.4 */
	ck_assert_uint_eq(hash_crc32c(0, buf, 32), 0x8a9136aa);
	memset(buf, 0xff, sizeof(buf));
	ck_assert_uint_eq(hash_crc32c(0, buf, 32), 0x62a8ab43);
}
END_TEST

START_TEST(crc32c_continues_at_any_split)
{
	char buf[257];
	size_t i;

	for (i = 0; i < sizeof(buf); i++)
		buf[i] = (char)(i * 7);
	for (i = 0; i <= sizeof(buf); i++)
		ck_assert_uint_eq(hash_crc32c(hash_crc32c(0, buf, i), buf + i, sizeof(buf) - i),
				  hash_crc32c(0, buf, sizeof(buf)));
}
END_TEST

START_TEST(hashes_are_xxh3)
{
	struct hash128 h = hash_128("", 0);

	ck_assert_uint_eq(hash_64("", 0), 0x2d06800538d394c2ULL);
	ck_assert_uint_eq(h.lo, 0x6001c324468d497fULL);
	ck_assert_uint_eq(h.hi, 0x99aa06d3014798d8ULL);
	ck_assert_uint_ne(hash_mix64(1), hash_mix64(2));
	ck_assert_uint_eq(hash_mix64(0x9e3779b97f4a7c15ULL), 0xe220a8397b1dcdafULL);
}
END_TEST

START_TEST(file_clock_is_the_one_of_files)
{
	uint64_t a = clock_mono_ns(), b = clock_mono_ns(), now = clock_file_ns();
	uint64_t s = (uint64_t)time(NULL);

	ck_assert_uint_ge(b, a);
	ck_assert_uint_ge(now / NS_PER_S + 2, s);
	ck_assert_uint_le(now / NS_PER_S, s + 2);
}
END_TEST

struct thing {
	struct htab_node node;
	unsigned key;
	bool seen;
};

static struct thing *thing_find(struct htab *t, unsigned key, uint64_t hash)
{
	struct htab_node *n;

	for (n = htab_find(t, hash); n; n = htab_next(n))
		if (container_of(n, struct thing, node)->key == key)
			return container_of(n, struct thing, node);
	return NULL;
}

static void thing_see_and_remove(struct htab_node *n, void *arg)
{
	struct thing *g = container_of(n, struct thing, node);

	ck_assert(!g->seen);
	g->seen = true;
	if (g->key % 2)
		htab_remove(arg, n);
}

START_TEST(htab_finds_what_it_holds)
{
	static struct thing things[5000];
	const unsigned n = sizeof(things) / sizeof(things[0]);
	struct htab t;
	unsigned i;

	ck_assert_int_eq(htab_init(&t, 4), 0);
	for (i = 0; i < n; i++) {
		/* Three to a hash: equal hashes must not hide each other. */
		things[i] = (struct thing){.key = i};
		htab_insert(&t, &things[i].node, hash_mix64(i / 3));
	}
	ck_assert_uint_eq(t.count, n);
	ck_assert_uint_ge(t.mask + 1, n / 2); /* it grew */
	for (i = 0; i < n; i++)
		ck_assert_ptr_eq(thing_find(&t, i, hash_mix64(i / 3)), &things[i]);
	ck_assert_ptr_null(thing_find(&t, n, hash_mix64(n)));
	htab_each(&t, thing_see_and_remove, &t);
	for (i = 0; i < n; i++) {
		ck_assert(things[i].seen);
		ck_assert_ptr_eq(thing_find(&t, i, hash_mix64(i / 3)), i % 2 ? NULL : &things[i]);
	}
	ck_assert_uint_eq(t.count, n / 2);
	htab_destroy(&t);
}
END_TEST

static void log_more_than_the_ring(void *arg)
{
	int i;

	(void)arg;
	log_set_level(LOG_LV_DEBUG);
	if (!freopen("/dev/null", "w", stderr))
		return;
	for (i = 0; i < LOG_RING + 10; i++)
		log_debug("test", "line %d.", i);
	log_set_level(LOG_LV_WARNING);
	log_info("test", "dropped");
	log_dump_ring(stdout);
}

START_TEST(log_ring_keeps_the_last_lines)
{
	static char out[64 << 10];
	char last[32];

	ck_assert_int_eq(run_child(log_more_than_the_ring, NULL, out, sizeof(out)), 0);
	snprintf(last, sizeof(last), "debug: test: line %d.", LOG_RING + 9);
	ck_assert_has(out, last);
	ck_assert_has(out, "line 10.");
	ck_assert_ptr_null(strstr(out, "line 9."));
	ck_assert_ptr_null(strstr(out, "dropped"));
	ck_assert(strstr(out, "line 10.") < strstr(out, "line 11."));
}
END_TEST

static void fail_an_assertion(void *arg)
{
	(void)arg;
	log_info("test", "the line before");
	errno = ENOENT;
	log_warning("test", "%s", strerror(errno));
	if (errno != ENOENT) /* logging keeps errno */
		_exit(3);
	gild_assert(1 + 1 == 3);
}

START_TEST(failed_assertion_shows_the_ring_and_aborts)
{
	char out[4096];
	int status = run_child(fail_an_assertion, NULL, out, sizeof(out));

	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	ck_assert_has(out, "info: test: the line before");
	ck_assert_has(out, "warning: test: No such file");
	ck_assert_has(out, "1 + 1 == 3");
	ck_assert_has(out, "fail_an_assertion");
}
END_TEST

struct pair {
	struct lock low, high;
	struct lock_cond cond;
};

static void pair_init(struct pair *p)
{
	lock_init(&p->low, "low", RANK_CACHE_FILE);
	lock_init(&p->high, "high", RANK_FTL);
	lock_cond_init(&p->cond);
}

static void pair_destroy(struct pair *p)
{
	lock_cond_destroy(&p->cond);
	lock_destroy(&p->high);
	lock_destroy(&p->low);
}

START_TEST(locks_may_be_released_in_any_order)
{
	struct pair p;

	pair_init(&p);
	lock_acquire(&p.low);
	lock_acquire(&p.high);
	lock_assert_held(&p.low);
	lock_release(&p.low);
	lock_assert_held(&p.high);
	lock_release(&p.high);
	lock_acquire(&p.low);
	lock_release(&p.low);
	pair_destroy(&p);
}
END_TEST

START_TEST(timed_wait_ends)
{
	uint64_t start = clock_mono_ns(), end;
	struct pair p;

	pair_init(&p);
	lock_acquire(&p.high);
	while (lock_cond_wait_until(&p.cond, &p.high, start + 5 * NS_PER_MS))
		;
	end = clock_mono_ns();
	lock_assert_held(&p.high);
	lock_release(&p.high);
	ck_assert_uint_ge(end, start + 5 * NS_PER_MS);
	pair_destroy(&p);
}
END_TEST

#ifdef GILD_DEBUG
static void lock_falling(void *arg)
{
	struct pair p;

	(void)arg;
	pair_init(&p);
	lock_acquire(&p.high);
	lock_acquire(&p.low);
}

static void lock_twice(void *arg)
{
	struct pair p;

	(void)arg;
	pair_init(&p);
	lock_acquire(&p.low);
	lock_acquire(&p.low);
}

static void *lock_and_keep(void *arg)
{
	lock_acquire(arg);
	return NULL;
}

static void lock_release_of_another(void *arg)
{
	struct pair p;
	pthread_t id;

	(void)arg;
	pair_init(&p);
	pthread_create(&id, NULL, lock_and_keep, &p.low);
	pthread_join(id, NULL);
	lock_release(&p.low);
}

static void lock_wait_without(void *arg)
{
	struct pair p;

	(void)arg;
	pair_init(&p);
	lock_cond_wait(&p.cond, &p.low);
}

static void lock_wait_below(void *arg)
{
	struct pair p;

	(void)arg;
	pair_init(&p);
	lock_acquire(&p.low);
	lock_acquire(&p.high);
	lock_cond_wait(&p.cond, &p.low);
}

static void lock_assert_wrong(void *arg)
{
	struct pair p;

	(void)arg;
	pair_init(&p);
	lock_assert_held(&p.low);
}

static const struct {
	void (*fn)(void *arg);
	const char *sentence;
} lock_abuses[] = {
	{lock_falling, "low (rank 30) is taken while high (rank 64) is held"},
	{lock_twice, "low (rank 30) is taken while low (rank 30) is held"},
	{lock_release_of_another, "low is released by a thread that does not hold it"},
	{lock_wait_without, "a wait gives up low, but the last lock taken is none"},
	{lock_wait_below, "a wait gives up low, but the last lock taken is high"},
	{lock_assert_wrong, "lock_is_held"},
};

START_TEST(lock_abuse_aborts)
{
	char out[4096];
	int status = run_child(lock_abuses[_i].fn, NULL, out, sizeof(out));

	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	ck_assert_has(out, lock_abuses[_i].sentence);
}
END_TEST
#endif

struct job {
	struct work work;
	struct gate *gate;
	unsigned number;
};

struct gate {
	struct lock lock;
	struct lock_cond changed;
	bool open;
	unsigned entered, left, order[64];
};

static void gate_init(struct gate *g, bool open)
{
	*g = (struct gate){.open = open};
	lock_init(&g->lock, "gate", RANK_TOOLS);
	lock_cond_init(&g->changed);
}

static void gate_destroy(struct gate *g)
{
	lock_cond_destroy(&g->changed);
	lock_destroy(&g->lock);
}

static void gate_pass(struct work *w)
{
	struct job *j = container_of(w, struct job, work);
	struct gate *g = j->gate;

	lock_acquire(&g->lock);
	g->order[g->entered++] = j->number;
	lock_cond_broadcast(&g->changed);
	while (!g->open)
		lock_cond_wait(&g->changed, &g->lock);
	g->left++;
	lock_release(&g->lock);
}

static void gate_wait_entered(struct gate *g, unsigned n)
{
	lock_acquire(&g->lock);
	while (g->entered < n)
		lock_cond_wait(&g->changed, &g->lock);
	lock_release(&g->lock);
}

static void gate_open(struct gate *g)
{
	lock_acquire(&g->lock);
	g->open = true;
	lock_cond_broadcast(&g->changed);
	lock_release(&g->lock);
}

START_TEST(workq_refuses_more_than_its_limit_and_keeps_order)
{
	struct job jobs[10];
	struct workq *q;
	struct gate g;
	unsigned i;

	gate_init(&g, false);
	ck_assert_int_eq(workq_create(&q, "test-queue-with-long-name", 1, 4), 0);
	for (i = 0; i < 10; i++)
		jobs[i] = (struct job){.work.run = gate_pass, .gate = &g, .number = i};
	ck_assert_int_eq(workq_submit(q, &jobs[0].work), 0);
	gate_wait_entered(&g, 1); /* runs, so it does not wait any more */
	for (i = 1; i <= 4; i++)
		ck_assert_int_eq(workq_submit(q, &jobs[i].work), 0);
	ck_assert_int_eq(workq_submit(q, &jobs[5].work), -EAGAIN);
	ck_assert_uint_eq(workq_depth(q), 4);
	gate_open(&g);
	workq_drain(q);
	ck_assert_uint_eq(workq_depth(q), 0);
	ck_assert_uint_eq(g.left, 5);
	for (i = 0; i < 5; i++)
		ck_assert_uint_eq(g.order[i], i);
	ck_assert_int_eq(workq_submit(q, &jobs[5].work), 0);
	workq_destroy(q); /* runs what waits */
	ck_assert_uint_eq(g.left, 6);
	workq_destroy(NULL);
	gate_destroy(&g);
}
END_TEST

START_TEST(workq_drain_waits_for_earlier_items_only)
{
	struct gate closed, open;
	struct job blocker, jobs[20], last;
	struct workq *q;
	unsigned i;

	gate_init(&closed, false);
	gate_init(&open, true);
	ck_assert_int_eq(workq_create(&q, "test", 2, 0), 0);
	workq_drain(q); /* an empty queue is drained */
	for (i = 0; i < 20; i++) {
		jobs[i] = (struct job){.work.run = gate_pass, .gate = &open, .number = i};
		ck_assert_int_eq(workq_submit(q, &jobs[i].work), 0);
	}
	workq_drain(q);
	ck_assert_uint_eq(open.left, 20);
	blocker = (struct job){.work.run = gate_pass, .gate = &closed};
	ck_assert_int_eq(workq_submit(q, &blocker.work), 0);
	last = (struct job){.work.run = gate_pass, .gate = &open};
	ck_assert_int_eq(workq_submit(q, &last.work), 0);
	gate_wait_entered(&open, 21);
	ck_assert_uint_eq(closed.left, 0);
	gate_open(&closed);
	workq_drain(q);
	ck_assert_uint_eq(closed.left, 1);
	workq_destroy(q);
	gate_destroy(&open);
	gate_destroy(&closed);
}
END_TEST

static Suite *base_suite(void)
{
	Suite *s = suite_create("base");
	TCase *t = tcase_create("base");

	tcase_add_test(t, crc32c_matches_the_published_vectors);
	tcase_add_test(t, crc32c_continues_at_any_split);
	tcase_add_test(t, hashes_are_xxh3);
	tcase_add_test(t, file_clock_is_the_one_of_files);
	tcase_add_test(t, htab_finds_what_it_holds);
	tcase_add_test(t, log_ring_keeps_the_last_lines);
	tcase_add_test(t, failed_assertion_shows_the_ring_and_aborts);
	tcase_add_test(t, locks_may_be_released_in_any_order);
	tcase_add_test(t, timed_wait_ends);
#ifdef GILD_DEBUG
	tcase_add_loop_test(t, lock_abuse_aborts, 0,
			    sizeof(lock_abuses) / sizeof(lock_abuses[0]));
#endif
	tcase_add_test(t, workq_refuses_more_than_its_limit_and_keeps_order);
	tcase_add_test(t, workq_drain_waits_for_earlier_items_only);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return unit_main(base_suite());
}
