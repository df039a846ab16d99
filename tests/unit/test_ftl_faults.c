/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A medium and an environment that go wrong: flipped bits, misdirected writes, lying flushes, errors,
 * the wrong map. Never wrong data; and several threads at once.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "ftl/ftl_media.h"
#include "ftl_rig.h"

#define LINES 24

static struct flash_stats stats(struct rig *r)
{
	struct flash_stats s;

	r->f->ops->stats(r->f, &s);
	return s;
}

/* Two versions of every line are in the log, so that anything older would be noticed. */
static void faults_write(struct rig *r)
{
	uint8_t key[FLASH_CTL_KEY] = {7};

	for (uint64_t version = 1; version <= 2; version++) {
		for (uint64_t line = 0; line < LINES; line++)
			ck_assert_int_eq(rig_write(r, 5, line * 16, 16, version * 4096, line % 2), 0);
		ck_assert_int_eq(r->f->ops->ctl_put(r->f, 1, key, &version, 8, r->stamp++), 0);
	}
	ck_assert_int_eq(r->f->ops->trim(r->f, 5, 3, 2, r->stamp++), 0);
	ck_assert_int_eq(r->f->ops->flush(r->f), 0);
}

/* Every sector is of the last version, or said to be corrupt. Returns how many are. */
static unsigned faults_check(struct rig *r)
{
	uint8_t *buf = malloc(LINES * FLASH_LINE), want[FLASH_SECTOR];
	struct flash_sector st[LINES * 16];
	unsigned corrupt = 0;

	ck_assert_int_eq(r->f->ops->read(r->f, 5, 0, LINES * 16, 0, buf, st), 0);
	for (unsigned i = 0; i < LINES * 16; i++) {
		if (st[i].flags & FLASH_CORRUPT) {
			corrupt++;
			continue;
		}
		if (i == 3 || i == 4) {
			ck_assert_uint_eq(st[i].flags, 0);
			continue;
		}
		ck_assert_msg(st[i].flags & FLASH_PRESENT, "sector %u is absent", i);
		rig_fill(want, 2 * 4096 + i);
		ck_assert_msg(!memcmp(want, buf + i * FLASH_SECTOR, FLASH_SECTOR), "sector %u: stale", i);
	}
	free(buf);
	return corrupt;
}

/* A flip at `at`: opened as it is, and recovered from the log alone. */
static unsigned faults_flip(struct rig *r, uint64_t at, unsigned bit)
{
	unsigned corrupt;

	media_fault_flip(r->fault, at, bit);
	rig_open(r);
	corrupt = faults_check(r);
	ck_assert_int_eq(r->f->ops->close(r->f), 0);
	rig_meta_lose(r);
	ck_assert_int_eq(ftl_recover(r->media, r->meta), 0);
	rig_open(r);
	ck_assert_uint_eq(faults_check(r), corrupt);
	ck_assert_int_eq(r->f->ops->close(r->f), 0);
	return corrupt;
}

static uint64_t eb_offset(unsigned eb)
{
	return 8192 + (uint64_t)eb * RIG_EB;
}

START_TEST(test_flips)
{
	unsigned corrupt = 0;
	struct rig r;

	rig_init(&r, 32, true);
	faults_write(&r);
	ck_assert_int_eq(r.f->ops->close(r.f), 0);
	for (unsigned i = 0; i < 60; i++) {
		/* All over the first EBs, headers and footers more often. */
		uint64_t at = eb_offset(i % 9) + hash_mix64(i) % RIG_EB;

		if (i % 5 == 0)
			at = eb_offset(i % 9) + hash_mix64(i) % 80;
		if (i % 5 == 1)
			at = eb_offset(i % 9) + RIG_EB - 4096 + hash_mix64(i) % 72;
		if (i % 5 == 2)
			at = eb_offset(i % 9) + 4096 + hash_mix64(i) % FTL_RECORD_HEADER;
		if (i % 5 == 3)
			at = eb_offset(i % 9) + RIG_EB - 8192 + hash_mix64(i) % 256;
		corrupt += faults_flip(&r, at, i % 8);
		media_fault_flip(r.fault, at, i % 8);
	}
	ck_assert_uint_gt(corrupt, 0);
	rig_open(&r);
	ck_assert_uint_eq(faults_check(&r), 0);
	rig_done(&r);
}
END_TEST

START_TEST(test_flipped_super)
{
	struct ftl_identity id;
	struct rig r;

	rig_init(&r, 32, true);
	faults_write(&r);
	for (int slot = 0; slot < 2; slot++) {
		ck_assert_int_eq(r.f->ops->close(r.f), 0);
		media_fault_flip(r.fault, slot * 4096 + 30, 3);
		ck_assert_int_eq(ftl_identify(r.media, &id), 0);
		rig_open(&r);
		ck_assert_uint_eq(faults_check(&r), 0);
	}
	ck_assert_int_eq(r.f->ops->close(r.f), 0);
	media_fault_flip(r.fault, 30, 3);
	media_fault_flip(r.fault, 4096 + 30, 3);
	ck_assert_int_eq(ftl_identify(r.media, &id), -EUCLEAN);
	ck_assert_int_eq(ftl_open(&r.f, r.media, r.meta, &r.opt), -EUCLEAN);
	r.f = NULL;
	rig_done(&r);
}
END_TEST

START_TEST(test_misdirected)
{
	struct rig r;

	for (uint64_t n = 1; n < 24; n++) {
		unsigned corrupt;

		rig_init(&r, 32, true);
		media_fault_misdirect(r.fault, n, n % 2 ? (int64_t)RIG_EB : 4096);
		faults_write(&r);
		corrupt = faults_check(&r);
		ck_assert_uint_lt(corrupt, LINES * 16);
		ck_assert_int_eq(r.f->ops->close(r.f), 0);
		if (!ftl_open(&r.f, r.media, r.meta, &r.opt)) {
			faults_check(&r);
			r.f->ops->close(r.f);
		}
		r.f = NULL;
		rig_done(&r);
	}
}
END_TEST

/* A flush that lied is found out by what was appended after it. */
START_TEST(test_lying_flush)
{
	unsigned found = 0;

	for (uint64_t seed = 0; seed < 24; seed++) {
		struct flash_sector st[64];
		uint8_t *buf = malloc(64 * FLASH_SECTOR);
		struct flash_health h;
		struct rig r;

		rig_init(&r, 32, true);
		ck_assert_int_eq(rig_write(&r, 5, 0, 32, 1, false), 0);
		ck_assert_int_eq(ftl_checkpoint(r.f), 0);
		media_fault_lie(r.fault, true);
		for (unsigned i = 0; i < 8; i++) {
			ck_assert_int_eq(rig_write(&r, 5, i * 4, 4, 1000 + seed, false), 0);
			ck_assert_int_eq(r.f->ops->flush(r.f), 0);
		}
		media_fault_cut_at(r.fault, media_fault_calls(r.fault) + 1);
		r.f->ops->close(r.f);
		media_fault_restore(r.fault, MEDIA_KEEP_SUBSET);
		media_fault_cut_at(r.fault, 0);
		media_fault_lie(r.fault, false);
		rig_open(&r);
		r.f->ops->health(r.f, &h);
		ck_assert_int_eq(r.f->ops->read(r.f, 5, 0, 32, 0, buf, st), 0);
		if (h.state == FLASH_DEGRADED) {
			found++;
			for (unsigned i = 0; i < 32; i++)
				ck_assert_uint_eq(st[i].flags & FLASH_PRESENT, 0);
		}
		free(buf);
		rig_done(&r);
	}
	printf("lying flush: found out in %u of 24\n", found);
	ck_assert_uint_gt(found, 5);
}
END_TEST

static void fail_and_check(enum media_fault_op op, bool background)
{
	struct flash_health h;
	struct rig r;
	int err = 0;

	rig_init(&r, 32, true);
	r.opt.background = background;
	rig_reopen(&r);
	ck_assert_int_eq(rig_write(&r, 1, 0, 64, 3, false), 0);
	ck_assert_int_eq(r.f->ops->flush(r.f), 0);
	media_fault_fail(r.fault, op, 1, -EIO);
	ck_assert_int_eq(rig_write(&r, 1, 64, 16, 3, false), 0);
	ck_assert_int_eq(r.f->ops->flush(r.f), -EIO);
	/* It stays so: what the failed flush covered may be lost. Reads go on, from memory too. */
	ck_assert_int_eq(r.f->ops->flush(r.f), -EIO);
	err = rig_write(&r, 1, 200, 1, 3, false);
	ck_assert_int_eq(err, -EIO);
	ck_assert_int_eq(r.f->ops->trim(r.f, 1, 0, 4, r.stamp++), -EIO);
	r.f->ops->health(r.f, &h);
	ck_assert_int_eq(h.state, FLASH_READONLY);
	ck_assert_uint_ge(h.media_errors, 1);
	rig_expect(&r, 1, 0, 80, 3);
	ck_assert_int_eq(r.f->ops->close(r.f), -EIO);
	rig_open(&r);
	ck_assert(stats(&r).unclean);
	rig_expect(&r, 1, 0, 64, 3);
	ck_assert_int_eq(rig_write(&r, 1, 64, 64, 3, false), 0);
	ck_assert_int_eq(r.f->ops->flush(r.f), 0);
	rig_expect(&r, 1, 0, 128, 3);
	rig_done(&r);
}

START_TEST(test_write_error)
{
	fail_and_check(MEDIA_OP_WRITE, false);
	fail_and_check(MEDIA_OP_WRITE, true);
}
END_TEST

START_TEST(test_flush_error)
{
	fail_and_check(MEDIA_OP_FLUSH, false);
	fail_and_check(MEDIA_OP_FLUSH, true);
}
END_TEST

START_TEST(test_read_error)
{
	uint8_t *buf = malloc(64 * FLASH_SECTOR);
	struct flash_sector st[64];
	unsigned bad = 0;
	struct rig r;

	rig_init(&r, 32, true);
	ck_assert_int_eq(rig_write(&r, 1, 0, 64, 3, false), 0);
	ck_assert_int_eq(r.f->ops->flush(r.f), 0);
	media_fault_fail(r.fault, MEDIA_OP_READ, 2, -EIO);
	ck_assert_int_eq(r.f->ops->read(r.f, 1, 0, 64, 0, buf, st), 0);
	for (unsigned i = 0; i < 64; i++)
		bad += !!(st[i].flags & FLASH_CORRUPT);
	ck_assert_uint_eq(bad, 16);
	ck_assert(st[16].flags & FLASH_CORRUPT);
	ck_assert_uint_ge(stats(&r).media_errors, 1);
	ck_assert_uint_eq(stats(&r).corrupt_sectors, 16);
	rig_expect(&r, 1, 0, 64, 3); /* it was for once */
	ck_assert_int_eq(rig_write(&r, 1, 64, 64, 3, false), 0);
	free(buf);
	rig_done(&r);
}
END_TEST

static void copy_file(const char *from, const char *to)
{
	FILE *a = fopen(from, "r"), *b = fopen(to, "w");
	static char buf[1 << 16];
	size_t n;

	ck_assert(a && b);
	while ((n = fread(buf, 1, sizeof(buf), a)) > 0)
		ck_assert_uint_eq(fwrite(buf, 1, n, b), n);
	fclose(a);
	fclose(b);
}

START_TEST(test_wrong_map)
{
	struct ftl_format f = {.uuid = "another card!!!", .controllers = 1, .op_percent = 28};
	struct ftl_identity id;
	char data[128], old[128];
	struct media *other;
	struct rig r, s;

	rig_init(&r, 32, false);
	snprintf(data, sizeof(data), "%s/data.mdb", r.dir);
	snprintf(old, sizeof(old), "%s/old", r.dir);
	ck_assert_int_eq(rig_write(&r, 1, 0, 64, 3, false), 0);
	ck_assert_int_eq(ftl_checkpoint(r.f), 0);
	ck_assert_int_eq(r.f->ops->close(r.f), 0);
	meta_close(r.meta);
	copy_file(data, old);
	rig_meta_open(&r);
	rig_open(&r);
	ck_assert_int_eq(rig_write(&r, 1, 0, 64, 7, false), 0);
	ck_assert_int_eq(r.f->ops->close(r.f), 0);
	/* The map of yesterday: refused, the medium unchanged. */
	meta_close(r.meta);
	copy_file(old, data);
	rig_meta_open(&r);
	ck_assert_int_eq(ftl_open(&r.f, r.media, r.meta, &r.opt), -ESTALE);
	ck_assert_int_eq(ftl_recover(r.media, r.meta), 0);
	rig_open(&r);
	rig_expect(&r, 1, 0, 64, 7);
	ck_assert_int_eq(r.f->ops->close(r.f), 0);
	/* The map of another card. */
	rig_init_format(&s, 32, false, &f);
	ck_assert_int_eq(s.f->ops->close(s.f), 0);
	ck_assert_int_eq(ftl_open(&s.f, s.media, r.meta, &s.opt), -ESTALE);
	rig_open(&s);
	rig_done(&s);
	/* A medium that was cut off, and one that is nothing. */
	ck_assert_int_eq(media_open_region(&other, r.media, 0, 4 << 20), 0);
	ck_assert_int_eq(ftl_open(&r.f, other, r.meta, &r.opt), -EUCLEAN);
	media_close(other);
	ck_assert_int_eq(media_open_ram(&other, 4 << 20), 0);
	ck_assert_int_eq(ftl_identify(other, &id), -ENODATA);
	ck_assert_int_eq(ftl_open(&r.f, other, r.meta, &r.opt), -ENODATA);
	media_close(other);
	unlink(old);
	rig_open(&r);
	rig_expect(&r, 1, 0, 64, 7);
	rig_done(&r);
}
END_TEST

static enum flash_verdict lost_reclaim(void *arg, uint64_t file, uint64_t line, uint64_t stamp,
				       uint32_t epoch)
{
	(void)arg;
	(void)line;
	(void)stamp;
	(void)epoch;
	ck_assert_uint_eq(file, 6);
	return FLASH_DROP;
}

static int flip_value(void *arg, const struct meta_buf *key, const struct meta_buf *value)
{
	struct {
		uint8_t key[META_KEY_MAX], value[4096];
		size_t key_len, len;
	} *v = arg;

	memcpy(v->key, key->data, key->len);
	memcpy(v->value, value->data, value->len);
	v->key_len = key->len;
	v->len = value->len;
	return 1;
}

/* Any bit of an entry of the map or the control table: an error, never another version. */
START_TEST(test_rotten_map)
{
	struct {
		uint8_t key[META_KEY_MAX], value[4096];
		size_t key_len, len;
	} v;
	uint8_t *buf = malloc(FLASH_LINE), ctl[FLASH_CTL_KEY] = {7}, out[8];
	struct flash_sector st[16];
	struct rig r;

	rig_init(&r, 32, false);
	faults_write(&r);
	ck_assert_int_eq(ftl_checkpoint(r.f), 0);
	for (unsigned table = 0; table < 2; table++) {
		ck_assert_int_eq(meta_walk(r.meta, table, NULL, 0, flip_value, &v), 1);
		for (unsigned bit = 0; bit < v.len * 8; bit += 13) {
			size_t len = sizeof(out);
			struct meta_txn *t;

			v.value[bit / 8] ^= (uint8_t)(1 << bit % 8);
			ck_assert_int_eq(meta_begin_write(r.meta, &t), 0);
			ck_assert_int_eq(meta_put(t, table, v.key, v.key_len, v.value, v.len), 0);
			ck_assert_int_eq(meta_commit(t), 0);
			if (table == 0)
				ck_assert_int_eq(r.f->ops->read(r.f, 5, 0, 16, 0, buf, st), -EUCLEAN);
			else
				ck_assert_int_eq(r.f->ops->ctl_get(r.f, 1, ctl, out, &len, NULL), -EUCLEAN);
			v.value[bit / 8] ^= (uint8_t)(1 << bit % 8);
			ck_assert_int_eq(meta_begin_write(r.meta, &t), 0);
			ck_assert_int_eq(meta_put(t, table, v.key, v.key_len, v.value, v.len), 0);
			ck_assert_int_eq(meta_commit(t), 0);
		}
	}
	ck_assert_uint_eq(faults_check(&r), 0);
	free(buf);
	rig_done(&r);
}
END_TEST

/* Dirty data whose record has rotted: GC keeps saying so, also after a recovery. */
static int refuse_commit(void *arg)
{
	++*(unsigned *)arg;
	return -ENOSPC;
}

/* No room for the map: tried again now and then, not all the time; nothing is lost. */
START_TEST(test_commits_fail)
{
	unsigned calls = 0;
	struct meta_hook h = {.before = refuse_commit, .arg = &calls}, none = {.arg = NULL};
	struct rig r;

	rig_init(&r, 32, false);
	r.opt.checkpoint_lines = 1;
	rig_reopen(&r);
	meta_set_hook(r.meta, &h);
	for (unsigned i = 0; i < 300; i++) {
		ck_assert_int_eq(rig_write(&r, 1, i, 1, 4, true), 0);
		ftl_step(r.f);
	}
	ck_assert_uint_gt(calls, 0);
	ck_assert_uint_lt(calls, 30);
	rig_expect(&r, 1, 0, 300, 4);
	meta_set_hook(r.meta, &none);
	ck_assert_int_eq(ftl_checkpoint(r.f), 0);
	rig_audit(&r);
	rig_reopen(&r);
	rig_expect(&r, 1, 0, 300, 4);
	rig_done(&r);
}
END_TEST

START_TEST(test_lost)
{
	struct flash_sector st[16];
	uint8_t *buf = malloc(FLASH_LINE);
	struct rig r;

	rig_init(&r, 32, true);
	ck_assert_int_eq(rig_write(&r, 5, 0, 16, 1, false), 0);
	ck_assert_int_eq(rig_write(&r, 5, 0, 16, 3, true), 0);
	for (unsigned i = 1; i < 30; i++)
		ck_assert_int_eq(rig_write(&r, 6, i * 16, 16, 3, false), 0);
	ck_assert_int_eq(r.f->ops->flush(r.f), 0);
	/* In the first EB, in the payload of the second record. */
	media_fault_flip(r.fault, eb_offset(0) + 4096 + 55000, 1);
	r.f->ops->set_reclaim(r.f, lost_reclaim, NULL);
	for (unsigned i = 0; i < 32 * 4 * 4; i++) {
		int err = rig_write(&r, 6, i * 16, 16, 3, false);

		ck_assert(!err || err == -ENOSPC);
		ck_assert_int_eq(ftl_step(r.f), 0);
	}
	/* Were it not moved, this would mend it. */
	media_fault_flip(r.fault, eb_offset(0) + 4096 + 55000, 1);
	for (int turn = 0; turn < 2; turn++) {
		ck_assert_int_eq(r.f->ops->read(r.f, 5, 0, 16, 0, buf, st), 0);
		for (unsigned i = 0; i < 16; i++)
			ck_assert_uint_eq(st[i].flags, FLASH_PRESENT | FLASH_DIRTY | FLASH_CORRUPT);
		ck_assert_int_eq(r.f->ops->close(r.f), 0);
		if (turn == 0) {
			rig_meta_lose(&r);
			ck_assert_int_eq(ftl_recover(r.media, r.meta), 0);
		}
		rig_open(&r);
	}
	/* A new version ends it. */
	ck_assert_int_eq(rig_write(&r, 5, 0, 16, 9, true), 0);
	rig_expect(&r, 5, 0, 16, 9);
	free(buf);
	r.f->ops->close(r.f);
	r.f = NULL;
	rig_done(&r);
}
END_TEST

/* ---- several threads ---- */

#define THREADS 4
#define THREAD_OPS 800

struct worker {
	struct rig *r;
	unsigned n;
	pthread_t t;
	const char *bad;
};

static _Atomic uint64_t worker_stamp;

static enum flash_verdict worker_reclaim(void *arg, uint64_t file, uint64_t line, uint64_t stamp,
					 uint32_t epoch)
{
	(void)arg;
	(void)file;
	(void)epoch;
	return (line + stamp) % 3 ? FLASH_DROP : FLASH_KEEP_HOT;
}

static void worker_op(struct worker *w, uint64_t x, uint64_t *version)
{
	struct flash *f = w->r->f;
	uint8_t buf[8 * FLASH_SECTOR], want[FLASH_SECTOR];
	struct flash_sector st[8];
	uint64_t slot = x / 16 % 40, sector = slot * 10;
	struct flash_write wr = {.file = 10 + w->n, .sector = sector, .count = 8, .data = buf,
				 .len = sizeof(buf), .epoch = 1, .dirty = x % 11 == 0};
	int err;

	if (x % 16 < 7) {
		wr.stamp = worker_stamp++;
		for (unsigned i = 0; i < 8; i++)
			rig_fill(buf + i * FLASH_SECTOR, wr.stamp * 4096 + sector + i);
		err = f->ops->write(f, &wr);
		if (err == -ENOSPC)
			err = f->ops->trim(f, wr.file, sector, 8, wr.stamp), version[slot] = 0;
		else
			version[slot] = wr.stamp;
		if (err)
			w->bad = "write";
	} else if (x % 16 == 7) {
		err = f->ops->trim(f, wr.file, sector, 8, worker_stamp++);
		version[slot] = 0;
		if (err)
			w->bad = "trim";
	} else if (x % 16 == 8) {
		if (f->ops->mark_clean(f, wr.file, sector, 8, worker_stamp++))
			w->bad = "mark_clean";
	} else if (x % 16 == 9) {
		if (f->ops->flush(f))
			w->bad = "flush";
	} else {
		if (f->ops->read(f, wr.file, sector, 8, 0, buf, st))
			w->bad = "read";
		for (unsigned i = 0; i < 8; i++) {
			if (!(st[i].flags & FLASH_PRESENT))
				continue;
			rig_fill(want, version[slot] * 4096 + sector + i);
			if (st[i].stamp != version[slot] || st[i].flags & FLASH_CORRUPT ||
			    memcmp(want, buf + i * FLASH_SECTOR, FLASH_SECTOR))
				w->bad = "contents";
		}
	}
}

static void *worker_main(void *arg)
{
	uint64_t version[40] = {0};
	struct worker *w = arg;

	for (unsigned i = 0; i < THREAD_OPS && !w->bad; i++)
		worker_op(w, hash_mix64(w->n * 1000003 + i), version);
	return NULL;
}

START_TEST(test_threads)
{
	struct worker w[THREADS];
	struct rig r;

	rig_init(&r, 24, false);
	ck_assert_int_eq(r.f->ops->close(r.f), 0);
	r.opt.background = true;
	r.opt.checkpoint_bytes = 1 << 20;
	rig_open(&r);
	r.f->ops->set_reclaim(r.f, worker_reclaim, NULL);
	worker_stamp = 1;
	for (unsigned i = 0; i < THREADS; i++) {
		w[i] = (struct worker){.r = &r, .n = i};
		ck_assert_int_eq(pthread_create(&w[i].t, NULL, worker_main, &w[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(w[i].t, NULL);
	for (unsigned i = 0; i < THREADS; i++)
		ck_assert_msg(!w[i].bad, "thread %u: %s", i, w[i].bad);
	ck_assert_uint_gt(stats(&r).gc_runs, 0);
	ck_assert_uint_gt(stats(&r).checkpoints, 2);
	r.opt.background = false;
	rig_reopen(&r);
	rig_done(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ftl faults");
	TCase *t = tcase_create("faults");
	SRunner *r = srunner_create(s);
	int failed;

	log_set_level(getenv("GILD_TEST_LOG") ? LOG_LV_INFO : LOG_LV_ERROR);
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, test_flips);
	tcase_add_test(t, test_flipped_super);
	tcase_add_test(t, test_misdirected);
	tcase_add_test(t, test_lying_flush);
	tcase_add_test(t, test_write_error);
	tcase_add_test(t, test_flush_error);
	tcase_add_test(t, test_read_error);
	tcase_add_test(t, test_wrong_map);
	tcase_add_test(t, test_rotten_map);
	tcase_add_test(t, test_commits_fail);
	tcase_add_test(t, test_lost);
	tcase_add_test(t, test_threads);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
