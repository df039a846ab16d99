/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>

#include <check.h>

#include "base/hash.h"
#include "meta/meta.h"
#include "unit_util.h"

#define MAP (64u << 20)
#define LINES 0
#define COUNTERS 1

static const char *const tables[] = {"lines", "counters", NULL};
static char scratch[256], dir[300], data[320];

static void setup(void)
{
	scratch_make(scratch);
	snprintf(dir, sizeof(dir), "%s/meta", scratch);
	snprintf(data, sizeof(data), "%s/data.mdb", dir);
}

static void teardown(void)
{
	scratch_remove(scratch);
}

static struct meta *env_open(void)
{
	struct meta *m;

	ck_assert_ok(meta_open(&m, dir, tables, MAP, true));
	return m;
}

/* Keys in big-endian order, values that tell their key and version. */
static int put(struct meta_txn *t, uint64_t n, uint64_t version)
{
	uint64_t key = __builtin_bswap64(n), value[4] = {n, version, n ^ version, ~n};

	return meta_put(t, LINES, &key, 8, value, sizeof(value));
}

static void put_range(struct meta *m, uint64_t from, uint64_t to, uint64_t version)
{
	struct meta_txn *t;

	ck_assert_ok(meta_begin_write(m, &t));
	for (; from < to; from++)
		ck_assert_ok(put(t, from, version));
	ck_assert_ok(meta_commit(t));
}

static void del_range(struct meta *m, uint64_t from, uint64_t to)
{
	struct meta_txn *t;

	ck_assert_ok(meta_begin_write(m, &t));
	for (; from < to; from++) {
		uint64_t key = __builtin_bswap64(from);

		ck_assert_ok(meta_del(t, LINES, &key, 8));
	}
	ck_assert_ok(meta_commit(t));
}

/* The version under which `n` is stored, or a negative errno. */
static int64_t version_of(struct meta *m, uint64_t n)
{
	uint64_t key = __builtin_bswap64(n), value[4];
	size_t len = sizeof(value);
	int rc = meta_get(m, LINES, &key, 8, value, &len);

	if (rc < 0)
		return rc;
	ck_assert_uint_eq(len, sizeof(value));
	ck_assert_uint_eq(value[0], n);
	ck_assert_uint_eq(value[2], n ^ value[1]);
	return (int64_t)value[1];
}

START_TEST(absent_environment_is_not_made_by_accident)
{
	struct meta *m;
	struct stat st;

	ck_assert_int_eq(meta_open(&m, dir, tables, MAP, false), -ENOENT);
	ck_assert_ptr_null(m);
	ck_assert_int_ne(stat(dir, &st), 0);
	ck_assert_ok(mkdir(dir, 0700));
	ck_assert_int_eq(meta_open(&m, dir, tables, MAP, false), -ENOENT);
	ck_assert_ok(rmdir(dir)); /* still empty */
	m = env_open();
	ck_assert_ok(stat(dir, &st));
	ck_assert_int_eq(st.st_mode & 0777, 0700);
	meta_close(m);
	meta_close(NULL);
	ck_assert_ok(meta_open(&m, dir, tables, MAP, false));
	meta_close(m);
}
END_TEST

START_TEST(half_made_environment_is_made_again)
{
	char room[330], fresh[350];
	struct meta *m;
	int fd;

	ck_assert_ok(mkdir(dir, 0700));
	snprintf(room, sizeof(room), "%s/new", dir);
	ck_assert_ok(mkdir(room, 0700));
	snprintf(fresh, sizeof(fresh), "%s/data.mdb", room);
	fd = open(fresh, O_CREAT | O_WRONLY, 0600);
	ck_assert_int_eq(write(fd, "half", 4), 4);
	close(fd);
	m = env_open();
	put_range(m, 0, 10, 1);
	meta_close(m);
	ck_assert_int_ne(access(room, F_OK), 0);
}
END_TEST

START_TEST(commit_stays_and_abort_goes)
{
	uint64_t key = __builtin_bswap64(5);
	struct meta *m = env_open();
	struct meta_buf value;
	struct meta_txn *t;
	char small[8];
	size_t len = sizeof(small);

	put_range(m, 0, 1000, 1);
	ck_assert_ok(meta_begin_write(m, &t));
	ck_assert_ok(put(t, 5, 2));
	ck_assert_ok(meta_txn_get(t, LINES, &key, 8, &value)); /* sees its own change */
	ck_assert_uint_eq(((const uint64_t *)value.data)[1], 2);
	ck_assert_int_eq(version_of(m, 5), 1); /* others do not */
	meta_abort(t);
	meta_abort(NULL);
	ck_assert_int_eq(version_of(m, 5), 1);
	ck_assert_ok(meta_begin_write(m, &t));
	ck_assert_ok(meta_del(t, LINES, &key, 8));
	ck_assert_int_eq(meta_del(t, LINES, &key, 8), -ENOENT);
	ck_assert_int_eq(meta_txn_get(t, LINES, &key, 8, &value), -ENOENT);
	ck_assert_ok(meta_put(t, COUNTERS, "c", 1, "1", 1));
	ck_assert_ok(meta_commit(t)); /* absent keys are no failure */
	ck_assert_int_eq(version_of(m, 5), -ENOENT);
	key = __builtin_bswap64(6);
	ck_assert_int_eq(meta_get(m, LINES, &key, 8, small, &len), -EOVERFLOW);
	ck_assert_uint_eq(len, 32);
	meta_close(m);
	ck_assert_ok(meta_open(&m, dir, tables, MAP, false));
	ck_assert_int_eq(version_of(m, 5), -ENOENT);
	ck_assert_int_eq(version_of(m, 999), 1);
	ck_assert_uint_eq(meta_count(m, LINES), 999);
	ck_assert_uint_eq(meta_count(m, COUNTERS), 1);
	ck_assert_ok(meta_begin_write(m, &t));
	ck_assert_ok(meta_clear(t, LINES));
	ck_assert_ok(meta_commit(t));
	ck_assert_uint_eq(meta_count(m, LINES), 0);
	ck_assert_uint_eq(meta_count(m, COUNTERS), 1);
	meta_close(m);
}
END_TEST

START_TEST(keys_have_their_limits)
{
	char key[META_KEY_MAX + 1] = "k", value[8];
	struct meta *m = env_open();
	size_t len = sizeof(value);
	struct meta_txn *t;

	ck_assert_ok(meta_begin_write(m, &t));
	ck_assert_int_eq(meta_put(t, LINES, key, 0, "v", 1), -EINVAL);
	ck_assert_int_eq(meta_put(t, LINES, key, META_KEY_MAX + 1, "v", 1), -EINVAL);
	ck_assert_ok(meta_put(t, LINES, key, META_KEY_MAX, "v", 1));
	ck_assert_ok(meta_commit(t));
	ck_assert_int_eq(meta_get(m, LINES, key, 0, value, &len), -EINVAL);
	ck_assert_ok(meta_get(m, LINES, key, META_KEY_MAX, value, &len));
	ck_assert_uint_eq(len, 1);
	meta_close(m);
}
END_TEST

START_TEST(readers_keep_their_snapshot)
{
	uint64_t key = __builtin_bswap64(3);
	struct meta *m = env_open();
	struct meta_txn *reader;
	struct meta_buf value;

	put_range(m, 0, 10, 1);
	ck_assert_ok(meta_begin_read(m, &reader));
	put_range(m, 0, 10, 2);
	ck_assert_ok(meta_txn_get(reader, LINES, &key, 8, &value));
	ck_assert_uint_eq(((const uint64_t *)value.data)[1], 1);
	meta_abort(reader);
	ck_assert_int_eq(version_of(m, 3), 2);
	meta_close(m);
}
END_TEST

struct walked {
	uint64_t next, stop;
};

static int walk_step(void *arg, const struct meta_buf *key, const struct meta_buf *value)
{
	struct walked *w = arg;
	uint64_t n;

	memcpy(&n, key->data, 8);
	n = __builtin_bswap64(n);
	ck_assert_uint_eq(n, w->next);
	ck_assert_uint_eq(value->len, 32);
	w->next++;
	return n == w->stop ? 77 : 0;
}

START_TEST(walk_is_in_order_from_its_start)
{
	struct meta *m = env_open();
	struct walked w = {.next = 0, .stop = UINT64_MAX};
	uint64_t key = __builtin_bswap64(250);

	ck_assert_ok(meta_walk(m, LINES, NULL, 0, walk_step, &w));
	ck_assert_uint_eq(w.next, 0);
	put_range(m, 0, 300, 1);
	put_range(m, 300, 600, 1);
	ck_assert_ok(meta_walk(m, LINES, NULL, 0, walk_step, &w));
	ck_assert_uint_eq(w.next, 600);
	w = (struct walked){.next = 250, .stop = 259};
	ck_assert_int_eq(meta_walk(m, LINES, &key, 8, walk_step, &w), 77);
	ck_assert_uint_eq(w.next, 260);
	key = __builtin_bswap64(600);
	ck_assert_ok(meta_walk(m, LINES, &key, 8, walk_step, &w));
	meta_close(m);
}
END_TEST

START_TEST(full_map_is_enospc_and_harms_nothing)
{
	struct meta_txn *t;
	struct meta *m;
	uint64_t n = 1000;
	int rc;

	ck_assert_ok(meta_open(&m, dir, tables, 1 << 20, true));
	put_range(m, 0, 1000, 1);
	ck_assert_ok(meta_begin_write(m, &t));
	do {
		rc = put(t, n++, 1);
	} while (rc == 0 && n < 1000000);
	ck_assert_int_eq(rc, -ENOSPC);
	ck_assert_int_eq(put(t, 1, 5), -ENOSPC);
	ck_assert_int_eq(meta_commit(t), -ENOSPC);
	ck_assert_uint_eq(meta_count(m, LINES), 1000);
	put_range(m, 0, 10, 2);
	ck_assert_int_eq(version_of(m, 5), 2);
	meta_close(m);
	ck_assert_ok(meta_open(&m, dir, tables, MAP, false)); /* more room next time */
	put_range(m, 1000, 30000, 1);
	meta_close(m);
}
END_TEST

struct clock_hook {
	int calls, fail_at;
};

static int hook_tick(void *arg)
{
	struct clock_hook *c = arg;

	return ++c->calls == c->fail_at ? -EIO : 0;
}

START_TEST(hooks_surround_the_commit)
{
	struct meta *m = env_open();
	struct clock_hook clock = {.fail_at = 3};
	struct meta_hook hook = {.before = hook_tick, .after = hook_tick, .arg = &clock};
	struct meta_txn *t;

	meta_set_hook(m, &hook);
	put_range(m, 0, 10, 1);
	ck_assert_int_eq(clock.calls, 2);
	ck_assert_ok(meta_begin_write(m, &t));
	ck_assert_ok(put(t, 1, 2));
	ck_assert_int_eq(meta_commit(t), -EIO); /* before: not durable */
	ck_assert_int_eq(version_of(m, 1), 1);
	clock = (struct clock_hook){.fail_at = 2};
	ck_assert_ok(meta_begin_write(m, &t));
	ck_assert_ok(put(t, 1, 3));
	ck_assert_int_eq(meta_commit(t), -EIO); /* after: durable all the same */
	ck_assert_int_eq(version_of(m, 1), 3);
	meta_set_hook(m, NULL);
	put_range(m, 0, 10, 4);
	ck_assert_int_eq(clock.calls, 2);
	meta_close(m);
}
END_TEST

/* What the kernel says this process wrote with write(2) and its kin. */
static uint64_t bytes_by_kernel(void)
{
	unsigned long long n = 0;
	char line[128];
	FILE *io = fopen("/proc/self/io", "r");

	while (io && fgets(line, sizeof(line), io))
		if (sscanf(line, "wchar: %llu", &n) == 1)
			break;
	if (io)
		fclose(io);
	return n;
}

START_TEST(bytes_written_agree_with_the_kernel)
{
	uint64_t before = bytes_by_kernel(), counted, written, seed;
	struct meta *m = env_open();
	struct meta_txn *t;
	unsigned i;
	int rc = 0;

	if (!before)
		return;
	for (seed = 1; seed <= 12; seed++) {
		ck_assert_ok(meta_begin_write(m, &t));
		counted = meta_bytes_written(m);
		fflush(NULL);
		before = bytes_by_kernel();
		for (i = 0; i < 500 * seed; i++)
			rc |= put(t, hash_mix64(seed * 100000 + i) % 50000, seed);
		if (seed % 4 == 0)
			rc |= meta_clear(t, LINES);
		rc |= meta_commit(t);
		written = bytes_by_kernel() - before;
		ck_assert_ok(rc); /* not earlier: Check writes, too */
		counted = meta_bytes_written(m) - counted;
		ck_assert_msg(counted + 4096 >= written && counted <= written + 8192,
			      "seed %ju: counted %ju, written %ju", (uintmax_t)seed,
			      (uintmax_t)counted, (uintmax_t)written);
	}
	ck_assert_uint_gt(meta_bytes_used(m), 0);
	meta_close(m);
}
END_TEST

static char *file_read(size_t *len)
{
	struct stat st;
	char *bytes;
	int fd = open(data, O_RDONLY);

	ck_assert_int_ge(fd, 0);
	ck_assert_ok(fstat(fd, &st));
	bytes = malloc((size_t)st.st_size);
	ck_assert_ptr_nonnull(bytes);
	ck_assert_int_eq(read(fd, bytes, (size_t)st.st_size), st.st_size);
	close(fd);
	*len = (size_t)st.st_size;
	return bytes;
}

/* data.mdb becomes these bytes; the lock file goes. */
static void file_write(const char *bytes, size_t len)
{
	char lock[330];
	int fd = open(data, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
	close(fd);
	snprintf(lock, sizeof(lock), "%s/lock.mdb", dir);
	unlink(lock);
}

static void check_is_refused(bool create)
{
	char lock[330], *before, *after;
	size_t len, len_after;
	struct meta *m;

	before = file_read(&len);
	ck_assert_int_eq(meta_open(&m, dir, tables, MAP, create), -EUCLEAN);
	after = file_read(&len_after);
	ck_assert_uint_eq(len, len_after);
	ck_assert_int_eq(memcmp(before, after, len), 0);
	snprintf(lock, sizeof(lock), "%s/lock.mdb", dir);
	ck_assert_int_ne(access(lock, F_OK), 0);
	free(before);
	free(after);
}

START_TEST(garbage_is_refused_and_left_alone)
{
	char *bytes;
	size_t i, len = 100000;

	ck_assert_ok(mkdir(dir, 0700));
	bytes = malloc(len);
	ck_assert_ptr_nonnull(bytes);
	for (i = 0; i < len; i++)
		bytes[i] = (char)hash_mix64(i);
	file_write(bytes, len);
	check_is_refused(false);
	check_is_refused(true);
	memset(bytes, 0, len);
	file_write(bytes, len);
	check_is_refused(true);
	free(bytes);
}
END_TEST

START_TEST(truncated_file_is_refused)
{
	static const size_t lengths[] = {0, 1, 100, 4095, 4096, 4200, 8192, 12288, 50000};
	struct meta *m = env_open();
	size_t i, len;
	char *bytes;

	put_range(m, 0, 10000, 1);
	put_range(m, 0, 10000, 2);
	meta_close(m);
	bytes = file_read(&len);
	ck_assert_uint_gt(len, 200000);
	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		file_write(bytes, lengths[i]);
		check_is_refused(i % 2 == 0);
	}
	file_write(bytes, len / 2);
	check_is_refused(true);
	file_write(bytes, len);
	ck_assert_ok(meta_open(&m, dir, tables, MAP, false));
	ck_assert_int_eq(version_of(m, 9999), 2);
	meta_close(m);
	free(bytes);
}
END_TEST

/* A short file is sound as long as only free pages are missing, and then only. */
START_TEST(missing_free_pages_are_no_damage)
{
	struct meta *m = env_open();
	unsigned sound = 0, refused = 0, i;
	size_t len, keep;
	char *bytes;
	int rc;

	put_range(m, 0, 100, 1);
	put_range(m, 100, 20000, 1);
	del_range(m, 100, 20000);
	for (i = 2; i < 8; i++)
		put_range(m, 0, 100, i); /* moves to the lowest free pages */
	meta_close(m);
	bytes = file_read(&len);
	for (keep = len / 4096; keep > 2; keep = keep * 15 / 16) {
		file_write(bytes, keep * 4096);
		rc = meta_open(&m, dir, tables, MAP, false);
		if (rc == 0) {
			struct walked w = {.next = 0, .stop = UINT64_MAX};

			ck_assert_ok(meta_walk(m, LINES, NULL, 0, walk_step, &w));
			ck_assert_uint_eq(w.next, 100);
			put_range(m, 0, 3000, 9); /* takes from the free list */
			meta_close(m);
			ck_assert_uint_eq(refused, 0);
			sound++;
		} else {
			ck_assert_int_eq(rc, -EUCLEAN);
			refused++;
		}
	}
	printf("%u lengths sound, %u refused\n", sound, refused);
	ck_assert_uint_gt(sound, 1);
	ck_assert_uint_gt(refused, 1);
	free(bytes);
}
END_TEST

/* A flipped bit in the first two pages is noticed or harmless; it never takes the process down. */
START_TEST(flips_in_the_meta_pages_do_not_crash)
{
	struct meta *m = env_open();
	unsigned opened = 0, refused = 0, i;
	size_t len;
	char *bytes;
	int rc;

	put_range(m, 0, 5000, 1);
	put_range(m, 0, 10, 2);
	meta_close(m);
	bytes = file_read(&len);
	for (i = 0; i < 2 * 152 * 8; i += 5) { /* the meaningful bytes of both pages */
		unsigned bit = i % (152 * 8);
		size_t at = (i / (152 * 8)) * 4096 + bit / 8;

		bytes[at] = (char)(bytes[at] ^ 1 << bit % 8);
		file_write(bytes, len);
		bytes[at] = (char)(bytes[at] ^ 1 << bit % 8);
		rc = meta_open(&m, dir, tables, MAP, false);
		if (rc == 0) {
			struct walked w = {.next = 0, .stop = UINT64_MAX};

			meta_walk(m, LINES, NULL, 0, walk_step, &w);
			meta_close(m);
			opened++;
		} else {
			ck_assert_int_eq(rc, -EUCLEAN);
			refused++;
		}
	}
	ck_assert_uint_gt(opened, 0);
	ck_assert_uint_gt(refused, 100);
	free(bytes);
}
END_TEST

START_TEST(killed_process_leaves_what_it_committed)
{
	struct meta_txn *t;
	struct meta *m;
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		m = env_open();
		put_range(m, 0, 1000, 1);
		if (meta_begin_read(m, &t) || meta_begin_write(m, &t) || put(t, 1, 2))
			_exit(1);
		kill(getpid(), SIGKILL); /* with a reader slot and the writer's lock held */
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status));
	ck_assert_ok(meta_open(&m, dir, tables, MAP, false));
	ck_assert_int_eq(version_of(m, 1), 1);
	put_range(m, 0, 1000, 3); /* the lock is free */
	ck_assert_int_eq(version_of(m, 1), 3);
	meta_close(m);
}
END_TEST

struct crowd {
	struct meta *m;
	_Atomic bool stop;
	_Atomic uint64_t reads;
};

static void *read_always(void *arg)
{
	struct crowd *c = arg;
	uint64_t n = 0;
	int64_t v, last = 0;

	while (!c->stop) {
		v = version_of(c->m, n++ % 100 + 1);
		if (n % 100 == 1) {
			ck_assert_int_ge(v, last);
			last = v;
		}
		ck_assert_int_ge(v, 1);
		c->reads++;
	}
	return NULL;
}

START_TEST(readers_and_a_writer_do_not_meet)
{
	struct crowd c = {.m = env_open()};
	pthread_t ids[4];
	unsigned i;
	uint64_t version;

	put_range(c.m, 1, 101, 1);
	for (i = 0; i < 4; i++)
		ck_assert_ok(pthread_create(&ids[i], NULL, read_always, &c));
	for (version = 2; version < 40 || c.reads < 1000; version++)
		put_range(c.m, 1, 101, version);
	c.stop = true;
	for (i = 0; i < 4; i++)
		pthread_join(ids[i], NULL);
	meta_close(c.m);
}
END_TEST

/* `_i`: how many sixteenths of the file are left. */
START_TEST(file_cut_short_in_use_is_an_error)
{
	char buf[64];
	struct meta *m = env_open();
	struct meta_txn *t;
	struct stat st;
	struct walked w = {.next = 0, .stop = UINT64_MAX};
	unsigned lost = 0;

	meta_catch_bus_errors();
	for (unsigned i = 0; i < 20; i++)
		put_range(m, i * 500, i * 500 + 500, 7);
	ck_assert_int_eq(stat(data, &st), 0);
	ck_assert_int_eq(truncate(data, st.st_size * _i / 16 / 4096 * 4096), 0);
	for (uint64_t k = 0; k < 10000; k++) {
		uint64_t key = __builtin_bswap64(k);
		size_t len = sizeof(buf);
		int rc = meta_get(m, LINES, &key, sizeof(key), buf, &len);

		if (rc == 0)
			ck_assert_int_eq(lost, 0);
		else
			ck_assert_int_eq(rc, -EIO);
		lost += rc != 0;
	}
	ck_assert_uint_gt(lost, 0);
	ck_assert_int_eq(meta_begin_write(m, &t), -EIO);
	ck_assert_int_eq(meta_begin_read(m, &t), -EIO);
	ck_assert_int_eq(meta_walk(m, LINES, NULL, 0, walk_step, &w), -EIO);
	meta_close(m);
}
END_TEST

static Suite *meta_suite(void)
{
	Suite *s = suite_create("meta");
	TCase *t = tcase_create("meta");

	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, absent_environment_is_not_made_by_accident);
	tcase_add_test(t, half_made_environment_is_made_again);
	tcase_add_test(t, commit_stays_and_abort_goes);
	tcase_add_test(t, keys_have_their_limits);
	tcase_add_test(t, readers_keep_their_snapshot);
	tcase_add_test(t, walk_is_in_order_from_its_start);
	tcase_add_test(t, full_map_is_enospc_and_harms_nothing);
	tcase_add_test(t, hooks_surround_the_commit);
	tcase_add_test(t, bytes_written_agree_with_the_kernel);
	tcase_add_test(t, garbage_is_refused_and_left_alone);
	tcase_add_test(t, truncated_file_is_refused);
	tcase_add_test(t, missing_free_pages_are_no_damage);
	tcase_add_test(t, flips_in_the_meta_pages_do_not_crash);
	tcase_add_test(t, killed_process_leaves_what_it_committed);
	tcase_add_test(t, readers_and_a_writer_do_not_meet);
	tcase_add_loop_test(t, file_cut_short_in_use_is_an_error, 0, 12);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return unit_main(meta_suite());
}
