/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>

#include "../unit/cache_env.h"
#include "base/clock.h"
#include "power.h"

#define POWER_FILES 64
#define POWER_NAMES 16
#define POWER_BLOCK 4096u

struct ptimes {
	struct statx_timestamp m, c;
};

struct pstate { /* of a file */
	char *data;
	size_t len;
	struct ptimes t;
};

struct pfile {
	uint64_t ino;
	struct pstate *s; /* s[0]: durable */
	unsigned n;
	bool fake;
	struct statx_timestamp raw; /* its ctime while `fake` holds */
	struct ptimes is;
};

struct pnames {
	unsigned n;
	struct {
		char name[32];
		uint64_t ino;
	} e[POWER_NAMES];
};

static struct power {
	char dir[256], hidden[256];
	struct media_fault *fault;
	struct pfile f[POWER_FILES];
	unsigned nf;
	struct pnames *names; /* names[0]: durable */
	unsigned nn;
	bool on;
	_Atomic bool off; /* calls fail */
	_Atomic uint64_t skew; /* ns */
} P;

static pthread_mutex_t power_lock = PTHREAD_MUTEX_INITIALIZER;

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __real_statx(int dir, const char *path, int flags, unsigned mask, struct statx *x);
int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __real_syncfs(int fd);
ssize_t __real_pwrite(int fd, const void *buf, size_t len, off_t off);
ssize_t __real_pwritev2(int fd, const struct iovec *v, int n, off_t off, int flags);
int __real_ftruncate(int fd, off_t len);
int __real_fallocate(int fd, int mode, off_t off, off_t len);
ssize_t __real_copy_file_range(int in, off64_t *in_off, int out, off64_t *out_off, size_t len,
			       unsigned flags);
int __real_renameat(int from, const char *name, int to, const char *new_name);
int __real_renameat2(int from, const char *name, int to, const char *new_name, unsigned flags);
int __real_linkat(int from, const char *name, int to, const char *new_name, int flags);
int __real_unlinkat(int dir, const char *name, int flags);

static struct pfile *power_find(uint64_t ino)
{
	unsigned i;

	for (i = 0; i < P.nf; i++)
		if (P.f[i].ino == ino)
			return &P.f[i];
	return NULL;
}

static bool ptime_same(const struct statx_timestamp *a, const struct statx_timestamp *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static int power_statx(int dir, const char *path, int flags, struct statx *x)
{
	struct pfile *f;

	if (__real_statx(dir, path, flags, STATX_BASIC_STATS | STATX_BTIME, x) != 0)
		return -1;
	f = power_find(x->stx_ino);
	if (!f || !S_ISREG(x->stx_mode))
		return 0;
	x->stx_nlink--;
	if (f->fake && ptime_same(&f->raw, &x->stx_ctime)) {
		x->stx_mtime = f->is.m;
		x->stx_ctime = f->is.c;
	} else {
		f->fake = false;
	}
	return 0;
}

static const char *power_hidden(uint64_t ino)
{
	static char path[300];

	snprintf(path, sizeof(path), "%s/%" PRIu64, P.hidden, ino);
	return path;
}

/* From now on the file's times are `t`. */
static void power_fake(struct pfile *f, const struct ptimes *t)
{
	struct statx x;

	ck_assert_ok(__real_statx(AT_FDCWD, power_hidden(f->ino), 0, STATX_BASIC_STATS, &x));
	f->raw = x.stx_ctime;
	f->is = *t;
	f->fake = true;
}

/* A kernel with coarse timestamps could give the next change the ctime that a file really has. */
static void power_wait(void)
{
	uint64_t now = clock_file_ns();

	while (clock_file_ns() <= now)
		usleep(500);
}

static struct pfile *power_track(const char *path)
{
	struct pfile *f;
	struct statx x;
	struct ptimes t;

	ck_assert_ok(power_statx(AT_FDCWD, path, 0, &x));
	f = power_find(x.stx_ino);
	if (f)
		return f;
	ck_assert(P.nf < POWER_FILES);
	f = &P.f[P.nf++];
	*f = (struct pfile){.ino = x.stx_ino};
	t = (struct ptimes){x.stx_mtime, x.stx_ctime};
	ck_assert_ok(__real_linkat(AT_FDCWD, path, AT_FDCWD, power_hidden(f->ino), 0));
	power_fake(f, &t);
	power_wait();
	return f;
}

static void power_forget_before(struct pfile *f, unsigned i)
{
	unsigned k;

	for (k = 0; k < i; k++)
		free(f->s[k].data);
	memmove(f->s, f->s + i, (f->n - i) * sizeof(*f->s));
	f->n -= i;
}

static void power_note_file(struct pfile *f)
{
	struct pstate s = {0}, *last = f->n ? &f->s[f->n - 1] : NULL;
	int fd = open(power_hidden(f->ino), O_RDONLY);
	struct statx x;

	ck_assert_int_ge(fd, 0);
	ck_assert_ok(power_statx(fd, "", AT_EMPTY_PATH, &x));
	s.len = x.stx_size;
	s.t = (struct ptimes){x.stx_mtime, x.stx_ctime};
	s.data = malloc(s.len + 1);
	ck_assert_int_eq(pread(fd, s.data, s.len, 0), (ssize_t)s.len);
	close(fd);
	if (last && last->len == s.len && ptime_same(&last->t.m, &s.t.m) &&
	    ptime_same(&last->t.c, &s.t.c) && !memcmp(last->data, s.data, s.len)) {
		free(s.data);
		return;
	}
	f->s = realloc(f->s, (f->n + 1) * sizeof(*f->s));
	f->s[f->n++] = s;
}

static void power_note_names(void)
{
	DIR *d = opendir(P.dir);
	struct pnames now = {0};
	struct dirent *de;
	char path[600];

	ck_assert_ptr_nonnull(d);
	while ((de = readdir(d))) {
		if (de->d_type != DT_REG)
			continue;
		ck_assert(now.n < POWER_NAMES);
		snprintf(path, sizeof(path), "%s/%s", P.dir, de->d_name);
		snprintf(now.e[now.n].name, sizeof(now.e[0].name), "%.31s", de->d_name);
		now.e[now.n++].ino = power_track(path)->ino;
	}
	closedir(d);
	if (P.nn && !memcmp(&P.names[P.nn - 1], &now, sizeof(now)))
		return;
	P.names = realloc(P.names, (P.nn + 1) * sizeof(now));
	P.names[P.nn++] = now;
}

static void power_note_all(void)
{
	unsigned i;

	power_note_names();
	for (i = 0; i < P.nf; i++)
		power_note_file(&P.f[i]);
}

/* Inodes that no directory names any more, nor may name again, are gone. */
static void power_let_go(void)
{
	unsigned i, k, j;

	for (i = 0; i < P.nf;) {
		bool named = false;

		for (k = 0; k < P.nn && !named; k++)
			for (j = 0; j < P.names[k].n && !named; j++)
				named = P.names[k].e[j].ino == P.f[i].ino;
		if (named) {
			i++;
			continue;
		}
		__real_unlinkat(AT_FDCWD, power_hidden(P.f[i].ino), 0);
		power_forget_before(&P.f[i], P.f[i].n);
		free(P.f[i].s);
		P.f[i] = P.f[--P.nf];
	}
}

static void power_sync_all(void)
{
	unsigned i;

	power_note_all();
	for (i = 0; i < P.nf; i++)
		power_forget_before(&P.f[i], P.f[i].n - 1);
	P.names[0] = P.names[P.nn - 1];
	P.nn = 1;
	power_let_go();
}

void power_start(const char *dir, struct media_fault *fault)
{
	memset(&P, 0, sizeof(P));
	snprintf(P.dir, sizeof(P.dir), "%s", dir);
	scratch_make(P.hidden);
	P.fault = fault;
	P.on = true;
	power_sync();
}

void power_off(void)
{
	P.off = true;
}

void power_stop(void)
{
	unsigned i;

	P.on = false;
	for (i = 0; i < P.nf; i++) {
		power_forget_before(&P.f[i], P.f[i].n);
		free(P.f[i].s);
	}
	free(P.names);
	scratch_remove(P.hidden);
	P.nf = P.nn = 0;
}

void power_note(void)
{
	pthread_mutex_lock(&power_lock);
	power_note_all();
	pthread_mutex_unlock(&power_lock);
}

void power_sync(void)
{
	pthread_mutex_lock(&power_lock);
	power_sync_all();
	pthread_mutex_unlock(&power_lock);
}

bool power_is_durable(const char *name)
{
	char path[600];
	bool durable;

	pthread_mutex_lock(&power_lock);
	power_note_all();
	snprintf(path, sizeof(path), "%s/%s", P.dir, name);
	durable = power_track(path)->n == 1;
	pthread_mutex_unlock(&power_lock);
	return durable;
}

void power_pass(uint64_t ns)
{
	power_wait();
	atomic_fetch_add(&P.skew, ns);
}

/* Draws the file's bytes; *t: its times. */
static void power_cut_file(struct pfile *f, uint64_t *rng, struct ptimes *t)
{
	struct pstate *is = &f->s[env_rand(rng) % f->n], *from = is;
	size_t off, n, have;
	bool mixed = env_rand(rng) % 2;
	char *data = calloc(1, is->len + POWER_BLOCK);
	int fd = open(power_hidden(f->ino), O_WRONLY | O_TRUNC);

	ck_assert(data && fd >= 0);
	*t = is->t;
	if (env_rand(rng) % 2)
		from = &f->s[env_rand(rng) % f->n];
	for (off = 0; off < is->len; off += POWER_BLOCK) {
		if (mixed)
			from = &f->s[env_rand(rng) % f->n];
		n = is->len - off < POWER_BLOCK ? is->len - off : POWER_BLOCK;
		have = off < from->len ? from->len - off : 0;
		memcpy(data + off, from->data + off, n < have ? n : have);
	}
	ck_assert_int_eq(__real_pwrite(fd, data, is->len, 0), (ssize_t)is->len);
	close(fd);
	free(data);
}

static void power_cut_names(uint64_t *rng)
{
	const struct pnames *is = &P.names[env_rand(rng) % P.nn], *was = &P.names[P.nn - 1];
	char path[600];
	unsigned i;

	for (i = 0; i < was->n; i++) {
		snprintf(path, sizeof(path), "%s/%s", P.dir, was->e[i].name);
		ck_assert_ok(__real_unlinkat(AT_FDCWD, path, 0));
	}
	for (i = 0; i < is->n; i++) {
		snprintf(path, sizeof(path), "%s/%s", P.dir, is->e[i].name);
		ck_assert_ok(__real_linkat(AT_FDCWD, power_hidden(is->e[i].ino), AT_FDCWD, path, 0));
	}
}

void power_cut(uint64_t *rng)
{
	struct ptimes t[POWER_FILES];
	unsigned i;

	if (!P.fault && !P.off)
		return;
	P.off = false;
	pthread_mutex_lock(&power_lock);
	power_note_all();
	for (i = 0; i < P.nf; i++)
		power_cut_file(&P.f[i], rng, &t[i]);
	power_cut_names(rng);
	for (i = 0; i < P.nf; i++)
		power_fake(&P.f[i], &t[i]);
	power_wait();
	power_sync_all();
	pthread_mutex_unlock(&power_lock);
}

/* ---- what the backing calls ---- */

static bool power_before(void)
{
	if (!P.on || (!P.off && (!P.fault || !media_fault_event(P.fault))))
		return true;
	errno = EIO;
	return false;
}

static void power_after(void)
{
	if (P.on && P.fault)
		media_fault_event(P.fault); /* a cut here is noticed by the next call */
}

#define POWER_WRAP(type, name, params, args)     \
	type __wrap_##name params;               \
	type __wrap_##name params                \
	{                                        \
		type rc;                         \
                                                 \
		if (!power_before())             \
			return -1;               \
		rc = __real_##name args;         \
		power_after();                   \
		return rc;                       \
	}

POWER_WRAP(ssize_t, pwrite, (int fd, const void *buf, size_t len, off_t off), (fd, buf, len, off))
POWER_WRAP(ssize_t, pwritev2, (int fd, const struct iovec *v, int n, off_t off, int flags),
	   (fd, v, n, off, flags))
POWER_WRAP(int, ftruncate, (int fd, off_t len), (fd, len))
POWER_WRAP(int, fallocate, (int fd, int mode, off_t off, off_t len), (fd, mode, off, len))
POWER_WRAP(ssize_t, copy_file_range,
	   (int in, off64_t *in_off, int out, off64_t *out_off, size_t len, unsigned flags),
	   (in, in_off, out, out_off, len, flags))
POWER_WRAP(int, renameat, (int from, const char *name, int to, const char *new_name),
	   (from, name, to, new_name))
POWER_WRAP(int, renameat2,
	   (int from, const char *name, int to, const char *new_name, unsigned flags),
	   (from, name, to, new_name, flags))
POWER_WRAP(int, linkat, (int from, const char *name, int to, const char *new_name, int flags),
	   (from, name, to, new_name, flags))
POWER_WRAP(int, unlinkat, (int dir, const char *name, int flags), (dir, name, flags))

int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
	int rc = __real_clock_gettime(id, ts);
	uint64_t ns;

	if (id != CLOCK_REALTIME_COARSE)
		return rc;
	ns = (uint64_t)ts->tv_sec * NS_PER_S + (uint64_t)ts->tv_nsec + P.skew;
	*ts = (struct timespec){(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
	return rc;
}

int __wrap_statx(int dir, const char *path, int flags, unsigned mask, struct statx *x);
int __wrap_statx(int dir, const char *path, int flags, unsigned mask, struct statx *x)
{
	int rc;

	pthread_mutex_lock(&power_lock);
	rc = P.on ? power_statx(dir, path, flags, x) : __real_statx(dir, path, flags, mask, x);
	pthread_mutex_unlock(&power_lock);
	return rc;
}

static int power_fsync(int fd)
{
	struct statx x;
	struct pfile *f;

	if (!P.on)
		return 0;
	if (!power_before())
		return -1;
	pthread_mutex_lock(&power_lock);
	power_note_all();
	if (!__real_statx(fd, "", AT_EMPTY_PATH, STATX_INO, &x) && (f = power_find(x.stx_ino)))
		power_forget_before(f, f->n - 1);
	pthread_mutex_unlock(&power_lock);
	power_after();
	return 0;
}

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	return power_fsync(fd);
}

int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	return power_fsync(fd);
}

int __wrap_syncfs(int fd);
int __wrap_syncfs(int fd)
{
	(void)fd;
	if (!P.on)
		return 0;
	if (!power_before())
		return -1;
	power_sync();
	power_after();
	return 0;
}
