/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#include <check.h>

#include "base/hash.h"
#include "media/media.h"
#include "unit_util.h"

#define SIZE (1u << 20)

static char scratch[256], file[300];

static void setup(void)
{
	scratch_make(scratch);
	snprintf(file, sizeof(file), "%s/medium", scratch);
}

static void teardown(void)
{
	scratch_remove(scratch);
}

static char *aligned_new(size_t len)
{
	void *p;

	ck_assert_ok(posix_memalign(&p, MEDIA_ALIGN, len));
	return p;
}

/* Bytes that tell where they belong. */
static void paint(char *buf, size_t len, uint64_t off)
{
	size_t i;

	for (i = 0; i < len; i += 8) {
		uint64_t x = hash_mix64(off + i);

		memcpy(buf + i, &x, 8);
	}
}

enum kind { FILE_BUFFERED, FILE_DIRECT, RAM, REGION, FAULT, KINDS };

struct rig {
	struct media *under, *m;
};

static struct rig rig_open(enum kind kind)
{
	struct media_fault *ctl;
	struct rig r = {0};

	switch (kind) {
	case FILE_BUFFERED:
		ck_assert_ok(media_open_file(&r.m, file, SIZE, MEDIA_CREATE | MEDIA_DISCARD));
		break;
	case FILE_DIRECT:
		ck_assert_ok(media_open_file(&r.m, file, SIZE, MEDIA_CREATE | MEDIA_DIRECT));
		break;
	case RAM:
		ck_assert_ok(media_open_ram(&r.m, SIZE));
		break;
	case REGION:
		ck_assert_ok(media_open_ram(&r.under, 3 * SIZE));
		ck_assert_ok(media_open_region(&r.m, r.under, SIZE, SIZE));
		break;
	default:
		ck_assert_ok(media_open_ram(&r.under, SIZE));
		ck_assert_ok(media_open_fault(&r.m, &ctl, r.under, 1));
		r.under = NULL;
	}
	ck_assert_uint_eq(media_size(r.m), SIZE);
	return r;
}

static void rig_close(struct rig *r)
{
	media_close(r->m);
	media_close(r->under);
}

START_TEST(every_medium_reads_what_was_written_at_any_alignment)
{
	static const size_t lens[] = {1, 8, 511, 4095, 4096, 4097, 12345, 400000};
	char *all = aligned_new(SIZE), *got = aligned_new(SIZE);
	struct rig r = rig_open(_i);
	size_t i, at;

	paint(all, SIZE, 0);
	for (at = 0; at < SIZE; at += SIZE / 8)
		ck_assert_ok(media_write(r.m, all + at, SIZE / 8, at));
	ck_assert_ok(media_flush(r.m));
	for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		for (at = 0; at < 3; at++) {
			size_t off = hash_mix64(i * 3 + at) % (SIZE - lens[i]);

			memset(got, 0, lens[i] + 3);
			ck_assert_ok(media_read(r.m, got + at, lens[i], off));
			ck_assert_mem_eq(got + at, all + off, lens[i]);
			ck_assert_int_eq(got[at + lens[i]], 0);
		}
	}
	ck_assert_ok(media_read(r.m, got, 10, SIZE - 10));
	ck_assert_mem_eq(got, all + SIZE - 10, 10);
	rig_close(&r);
	free(all);
	free(got);
}
END_TEST

START_TEST(every_medium_refuses_what_the_contract_forbids)
{
	struct rig r = rig_open(_i);
	char *buf = aligned_new(3 * MEDIA_ALIGN);
	struct media_stats st;

	memset(buf, 1, 3 * MEDIA_ALIGN);
	ck_assert_int_eq(media_read(r.m, buf, 1, SIZE), -EINVAL);
	ck_assert_int_eq(media_read(r.m, buf, 2, SIZE - 1), -EINVAL);
	ck_assert_int_eq(media_read(r.m, buf, 1, UINT64_MAX), -EINVAL);
	ck_assert_int_eq(media_read(r.m, buf, SIZE, UINT64_MAX - 10), -EINVAL);
	ck_assert_int_eq(media_write(r.m, buf, MEDIA_ALIGN, SIZE), -EINVAL);
	ck_assert_int_eq(media_write(r.m, buf, 2 * MEDIA_ALIGN, SIZE - MEDIA_ALIGN), -EINVAL);
	ck_assert_int_eq(media_write(r.m, buf + 512, MEDIA_ALIGN, 0), -EINVAL);
	ck_assert_int_eq(media_write(r.m, buf, 512, 0), -EINVAL);
	ck_assert_int_eq(media_write(r.m, buf, MEDIA_ALIGN, 512), -EINVAL);
	ck_assert_int_eq(media_discard(r.m, SIZE - 1, 2), -EINVAL);
	ck_assert_ok(media_discard(r.m, MEDIA_ALIGN, 2 * MEDIA_ALIGN));
	ck_assert_ok(media_write(r.m, buf, MEDIA_ALIGN, 0));
	ck_assert_ok(media_discard(r.m, 1, MEDIA_ALIGN)); /* no whole piece: nothing happens */
	ck_assert_ok(media_read(r.m, buf + MEDIA_ALIGN, MEDIA_ALIGN, 0));
	ck_assert_mem_eq(buf, buf + MEDIA_ALIGN, MEDIA_ALIGN);
	ck_assert_ok(media_flush(r.m));
	media_get_stats(r.m, &st);
	ck_assert_uint_eq(st.errors, 10);
	ck_assert_uint_eq(st.writes, 1);
	ck_assert_uint_eq(st.write_bytes, MEDIA_ALIGN);
	ck_assert_uint_eq(st.reads, 1);
	ck_assert_uint_eq(st.flushes, 1);
	ck_assert_uint_eq(st.discards, 1);
	rig_close(&r);
	free(buf);
}
END_TEST

START_TEST(regions_keep_to_their_part)
{
	char *buf = aligned_new(SIZE), *got = aligned_new(SIZE);
	struct media *ram, *a, *b, *c;
	struct media_stats st;

	ck_assert_ok(media_open_ram(&ram, 2 * SIZE));
	ck_assert_int_eq(media_open_region(&c, ram, 512, SIZE), -EINVAL);
	ck_assert_int_eq(media_open_region(&c, ram, 2 * SIZE, MEDIA_ALIGN), -EINVAL);
	ck_assert_int_eq(media_open_region(&c, ram, SIZE, SIZE + MEDIA_ALIGN), -EINVAL);
	ck_assert_int_eq(media_open_region(&c, ram, UINT64_MAX - 4095, 8192), -EINVAL);
	ck_assert_ok(media_open_region(&a, ram, 0, SIZE));
	ck_assert_ok(media_open_region(&b, ram, SIZE, SIZE));
	memset(buf, 'a', SIZE);
	ck_assert_ok(media_write(a, buf, SIZE, 0));
	memset(got, 'b', SIZE);
	ck_assert_ok(media_write(b, got, SIZE, 0));
	ck_assert_ok(media_read(a, got, SIZE, 0));
	ck_assert_mem_eq(got, buf, SIZE);
	ck_assert_ok(media_read(ram, got, 2, SIZE - 1));
	ck_assert_mem_eq(got, "ab", 2);
	ck_assert_ok(media_flush(b));
	media_get_stats(ram, &st);
	ck_assert_uint_eq(st.write_bytes, 2 * SIZE);
	ck_assert_uint_eq(st.flushes, 1);
	media_close(b);
	media_close(a);
	media_close(ram);
	media_close(NULL);
	free(buf);
	free(got);
}
END_TEST

START_TEST(new_file_has_its_blocks)
{
	struct media *m, *second;
	struct stat st;

	ck_assert_ok(media_open_file(&m, file, SIZE, MEDIA_CREATE));
	ck_assert_ok(stat(file, &st));
	ck_assert_int_eq(st.st_size, SIZE);
	ck_assert_int_ge((uint64_t)st.st_blocks * 512, SIZE);
	ck_assert_int_eq(st.st_mode & 077, 0);
	ck_assert_int_eq(media_open_file(&second, file, SIZE, MEDIA_CREATE), -EEXIST);
	ck_assert_ptr_null(second);
	media_close(m);
	ck_assert_ok(stat(file, &st)); /* the failed one took nothing away */
	ck_assert_int_eq(st.st_size, SIZE);
}
END_TEST

START_TEST(file_is_locked_while_open)
{
	struct media *m, *second;

	ck_assert_ok(media_open_file(&m, file, SIZE, MEDIA_CREATE));
	ck_assert_int_eq(media_open_file(&second, file, 0, 0), -EBUSY);
	ck_assert_int_eq(media_open_file(&second, file, 0, MEDIA_READONLY), -EBUSY);
	media_close(m);
	ck_assert_ok(media_open_file(&second, file, 0, MEDIA_READONLY));
	media_close(second);
}
END_TEST

START_TEST(read_only_medium_takes_no_change)
{
	char *buf = aligned_new(MEDIA_ALIGN);
	struct media *m;

	ck_assert_ok(media_open_file(&m, file, SIZE, MEDIA_CREATE));
	media_close(m);
	memset(buf, 0, MEDIA_ALIGN);
	ck_assert_ok(media_open_file(&m, file, 0, MEDIA_READONLY | MEDIA_DIRECT));
	ck_assert_int_eq(media_write(m, buf, MEDIA_ALIGN, 0), -EROFS);
	ck_assert_int_eq(media_discard(m, 0, MEDIA_ALIGN), -EROFS);
	ck_assert_ok(media_flush(m));
	ck_assert_ok(media_read(m, buf, MEDIA_ALIGN, 0));
	media_close(m);
	free(buf);
}
END_TEST

START_TEST(wrong_files_are_refused)
{
	char path[320];
	struct media *m;
	int fd;

	ck_assert_int_eq(media_open_file(&m, file, 0, 0), -ENOENT);
	ck_assert_int_eq(media_open_file(&m, scratch, 0, MEDIA_READONLY), -EINVAL);
	ck_assert_int_eq(media_open_file(&m, "/dev/null", 0, 0), -EINVAL);
	snprintf(path, sizeof(path), "%s/fifo", scratch);
	ck_assert_ok(mkfifo(path, 0600));
	ck_assert_int_eq(media_open_file(&m, path, 0, 0), -EINVAL); /* and does not hang */
	fd = open(file, O_CREAT | O_WRONLY, 0600);
	ck_assert_int_eq(media_open_file(&m, file, 0, 0), -EINVAL);
	ck_assert_ok(ftruncate(fd, 3 * MEDIA_ALIGN + 5));
	ck_assert_int_eq(media_open_file(&m, file, 4 * MEDIA_ALIGN, 0), -EINVAL);
	ck_assert_int_eq(media_open_file(&m, file, 1000, 0), -EINVAL);
	ck_assert_ok(media_open_file(&m, file, 0, 0));
	ck_assert_uint_eq(media_size(m), 3 * MEDIA_ALIGN);
	media_close(m);
	ck_assert_int_eq(media_open_file(&m, file, 0, MEDIA_CREATE), -EINVAL);
	close(fd);
}
END_TEST

START_TEST(no_room_leaves_nothing_behind)
{
	struct statvfs fs;
	struct media *m;
	uint64_t size;
	int rc;

	ck_assert_ok(statvfs(scratch, &fs));
	size = (uint64_t)fs.f_blocks * fs.f_frsize * 2 / MEDIA_ALIGN * MEDIA_ALIGN;
	if (size < SIZE)
		return; /* a filesystem that does not know its size */
	rc = media_open_file(&m, file, size, MEDIA_CREATE);
	ck_assert_int_eq(rc, -ENOSPC);
	ck_assert_int_ne(access(file, F_OK), 0);
}
END_TEST

START_TEST(truncated_file_gives_an_error)
{
	unsigned flags = _i ? MEDIA_DIRECT : 0;
	char *buf = aligned_new(2 * MEDIA_ALIGN);
	struct media *m;

	ck_assert_ok(media_open_file(&m, file, SIZE, MEDIA_CREATE | flags));
	ck_assert_ok(truncate(file, SIZE / 2));
	ck_assert_ok(media_read(m, buf, 100, SIZE / 2 - 100));
	ck_assert_int_eq(media_read(m, buf, 100, SIZE / 2 - 50), -EIO);
	ck_assert_int_eq(media_read(m, buf, MEDIA_ALIGN, SIZE - MEDIA_ALIGN), -EIO);
	media_close(m);
	free(buf);
}
END_TEST

/* The C library's fdatasync, replaced in this program. While `rigged`, call n from 1 on waits until
 * it is allowed, and all but the first fail. */
#define CALLERS 5

static struct {
	_Atomic bool rigged;
	_Atomic unsigned started, finished, allowed;
} sync_rig;

int fdatasync(int fd)
{
	unsigned call;

	if (!sync_rig.rigged)
		return (int)syscall(SYS_fdatasync, fd);
	call = ++sync_rig.started;
	while (sync_rig.allowed < call)
		sched_yield();
	sync_rig.finished++;
	errno = EIO;
	return call > 1 ? -1 : 0;
}

struct flusher {
	pthread_t id;
	struct media *m;
	_Atomic long tid; /* 0 until it is about to flush */
	unsigned started_at_entry, finished_at_return;
	int rc;
};

static void *flusher_run(void *arg)
{
	struct flusher *f = arg;

	f->started_at_entry = sync_rig.started;
	f->tid = syscall(SYS_gettid);
	f->rc = media_flush(f->m);
	f->finished_at_return = sync_rig.finished;
	return NULL;
}

static bool flusher_sleeps(const struct flusher *f)
{
	char path[64], state = 0;
	FILE *stat;

	snprintf(path, sizeof(path), "/proc/self/task/%ld/stat", (long)f->tid);
	stat = f->tid ? fopen(path, "r") : NULL;
	if (!stat)
		return false;
	if (fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	fclose(stat);
	return state == 'S';
}

/* The first flush syncs; four more come while it does and wait. None of them may be content with
 * it; they share what follows; all of them see its error, and only they. */
START_TEST(flush_waits_for_a_sync_that_began_after_it)
{
	struct flusher f[CALLERS];
	struct media *m;
	unsigned i;

	ck_assert_ok(media_open_file(&m, file, SIZE, MEDIA_CREATE));
	sync_rig.rigged = true;
	for (i = 0; i < CALLERS; i++) {
		f[i] = (struct flusher){.m = m};
		ck_assert_ok(pthread_create(&f[i].id, NULL, flusher_run, &f[i]));
		while (i == 0 ? sync_rig.started == 0 : !flusher_sleeps(&f[i]))
			sched_yield();
	}
	sync_rig.allowed = CALLERS;
	for (i = 0; i < CALLERS; i++) {
		pthread_join(f[i].id, NULL);
		ck_assert_uint_gt(f[i].finished_at_return, f[i].started_at_entry);
		ck_assert_int_eq(f[i].rc, i == 0 ? 0 : -EIO);
	}
	sync_rig.rigged = false;
	ck_assert_uint_ge(sync_rig.started, 2);
	ck_assert_uint_lt(sync_rig.started, CALLERS);
	media_close(m);
}
END_TEST

static Suite *media_suite(void)
{
	Suite *s = suite_create("media");
	TCase *t = tcase_create("media");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, every_medium_reads_what_was_written_at_any_alignment, 0, KINDS);
	tcase_add_loop_test(t, every_medium_refuses_what_the_contract_forbids, 0, KINDS);
	tcase_add_test(t, regions_keep_to_their_part);
	tcase_add_test(t, new_file_has_its_blocks);
	tcase_add_test(t, file_is_locked_while_open);
	tcase_add_test(t, read_only_medium_takes_no_change);
	tcase_add_test(t, wrong_files_are_refused);
	tcase_add_test(t, no_room_leaves_nothing_behind);
	tcase_add_loop_test(t, truncated_file_gives_an_error, 0, 2);
	tcase_add_test(t, flush_waits_for_a_sync_that_began_after_it);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return unit_main(media_suite());
}
