/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include "../unit/cache_env.h"
#include "../unit/card_rig.h"
#include "base/clock.h"
#include "cache/cache_priv.h"
#include "power.h"
#include "stack_ops.h"

#define NAMES 7u
#define SIZE 90000u
#define AGED (20 * NS_PER_MS)
#define LONG_AGO (CACHE_DURABLE_NS + NS_PER_S)

static char data[1 << 20];

struct op {
	struct whole *w;
	uint64_t *rng;
	struct cache *c;
	struct cnode *n; /* of an object that is there */
	const char *name;
};

static const char *ops_name(uint64_t i)
{
	static const char *const names[NAMES] = {"a", "b", "c", "d", "e", "f", "g"};

	return names[i % NAMES];
}

static bool ops_is(struct whole *w, const char *name)
{
	return !access(env_path(&w->env, name), F_OK);
}

static bool ops_cut(const struct op *o)
{
	return media_fault_is_cut(o->w->rig.fault[0]);
}

static void ops_want(const struct op *o, bool ok, const char *what)
{
	ck_assert_msg(ok || ops_cut(o), "%s %s failed with the power on", what, o->name);
}

static const char *ops_data(uint64_t *rng)
{
	return data + env_rand(rng) % (sizeof(data) / 2);
}

void ops_patterns(uint64_t seed)
{
	env_pattern(data, sizeof(data), seed);
	memset(data + sizeof(data) / 4, 0, sizeof(data) / 8);
}

void ops_init(struct whole *w, uint64_t seed)
{
	static const size_t sizes[4] = {SIZE, SIZE + 33333, 700, 5 * FLASH_SECTOR};
	unsigned i;

	for (i = 0; i < 4; i++)
		env_put(&w->env, ops_name(i), data + i * 1000 + seed % 1000, sizes[i]);
}

void ops_settle(struct whole *w)
{
	struct cache *c = w->env.c;
	bool busy = true;

	env_drain(&w->env);
	while (busy) {
		lock_acquire(&c->open_lock);
		busy = c->deads || c->sweep_wanted;
		lock_release(&c->open_lock);
		lock_acquire(&c->round_lock);
		lock_release(&c->round_lock);
		if (busy)
			usleep(50);
	}
}

static bool ops_same(struct whole *w, const char *name, uint64_t off, size_t most)
{
	static char want[1 << 20], got[1 << 20];
	int fd = open(env_path(&w->env, name), O_RDONLY);
	struct cnode *n = env_lookup(&w->env, name);
	ssize_t len = pread(fd, want, most, (off_t)off), have;
	bool same;

	close(fd);
	have = env_read(&w->env, n, got, most, off);
	same = len == have && !memcmp(want, got, (size_t)len);
	env_forget(&w->env, n);
	if (!same)
		printf("%s: %zd bytes at %llu are not the %zd of the backing\n", name, have,
		       (unsigned long long)off, len);
	return same;
}

unsigned ops_compare(struct whole *w, uint64_t *rng, bool whole)
{
	unsigned i, stale = 0;

	if (env_rand(rng) % 2)
		power_pass(AGED);
	for (i = 0; i < NAMES; i++) {
		bool same = true;

		if (!ops_is(w, ops_name(i)))
			continue;
		if (env_rand(rng) % 2) {
			same = ops_same(w, ops_name(i), env_rand(rng) % SIZE, 1 + env_rand(rng) % 30000);
			env_drain(&w->env);
		}
		if (whole)
			same &= ops_same(w, ops_name(i), 0, 1 << 20);
		stale += !same;
	}
	return stale;
}

unsigned ops_files(struct whole *w)
{
	unsigned i, n = 0;

	for (i = 0; i < NAMES; i++)
		n += ops_is(w, ops_name(i));
	return n;
}

unsigned ops_warm(struct whole *w, bool must)
{
	unsigned i, warm = 0;

	power_pass(AGED);
	for (i = 0; i < NAMES; i++) {
		struct stat st;
		struct cnode *n;

		if (stat(env_path(&w->env, ops_name(i)), &st))
			continue;
		n = env_lookup(&w->env, ops_name(i));
		if (must && st.st_size)
			env_warm(&w->env, n);
		warm += must && st.st_size;
		env_forget(&w->env, n);
	}
	return warm;
}

/* ---- through the mount ---- */

static void op_write(struct op *o)
{
	static const size_t most[4] = {40000, 100, FLASH_SECTOR, 140000};
	uint64_t off = env_rand(o->rng) % SIZE;
	size_t len = 1 + env_rand(o->rng) % most[env_rand(o->rng) % 4];
	bool append = env_rand(o->rng) % 4 == 0;

	if (env_rand(o->rng) % 2)
		off -= off % FLASH_SECTOR;
	ops_want(o, cache_write(o->c, o->n, ops_data(o->rng), len, &off, append) == (ssize_t)len,
		 "write");
}

static void op_setattr(struct op *o)
{
	struct stat st = {.st_mode = 0600 + (env_rand(o->rng) & 077),
			  .st_size = (off_t)(env_rand(o->rng) % (3 * SIZE / 2))};
	struct cache_attr a;
	unsigned set = env_rand(o->rng) % 3 ? BSET_SIZE : BSET_MODE;

	if (env_rand(o->rng) % 4 == 0) {
		set = BSET_MTIME;
		st.st_mtim.tv_sec = (time_t)(1000000 + env_rand(o->rng) % 1000);
	}
	ops_want(o, !cache_setattr(o->c, o->n, set, &st, &a), "setattr");
}

static void op_fallocate(struct op *o)
{
	static const int modes[4] = {0, FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_ZERO_RANGE};

	/* not all filesystems can do all of them */
	cache_fallocate(o->c, o->n, modes[env_rand(o->rng) % 4], env_rand(o->rng) % SIZE,
			1 + env_rand(o->rng) % 40000);
}

static void op_copy(struct op *o)
{
	const char *from = ops_name(env_rand(o->rng));
	struct cnode *n;

	if (!ops_is(o->w, from))
		return;
	n = env_lookup(&o->w->env, from);
	if (n != o->n)
		cache_copy_range(o->c, n, env_rand(o->rng) % SIZE, o->n, env_rand(o->rng) % SIZE,
				 1 + env_rand(o->rng) % 40000);
	env_forget(&o->w->env, n);
}

static void op_name(struct op *o)
{
	struct cnode *root = cache_root(o->c);
	const char *to = ops_name(env_rand(o->rng));
	struct cache_attr a;

	switch (env_rand(o->rng) % 4) {
	case 0:
		cache_link(o->c, o->n, root, to, &a); /* -EEXIST as it happens */
		break;
	case 1:
		if (ops_files(o->w) > 3)
			cache_unlink(o->c, root, o->name);
		break;
	default: /* so here */
		if (ops_files(o->w) > 3 || !ops_is(o->w, to))
			cache_rename(o->c, root, o->name, root, to, (unsigned)(env_rand(o->rng) % 3));
	}
}

static void op_sync(struct op *o)
{
	unsigned i;

	if (env_rand(o->rng) % 2) {
		if (!cache_fsync(o->c, o->n, env_rand(o->rng) % 2))
			o->w->lost += o->w->both && !power_is_durable(o->name);
	} else if (!cache_flush(o->c)) {
		for (i = 0; i < NAMES; i++)
			if (o->w->both && ops_is(o->w, ops_name(i)))
				o->w->lost += !power_is_durable(ops_name(i));
	}
}

/* What the publisher does after a quiet time: unlike a barrier it does not sync the whole backing
 * first. */
static void op_publish(struct op *o)
{
	struct cache *c = o->c;
	uint64_t after = c->o.publish_after_ns;
	unsigned tries;
	bool open = true;

	lock_acquire(&c->round_lock); /* for who reads it */
	lock_acquire(&c->open_lock);
	c->o.publish_after_ns = 1;
	lock_cond_signal(&c->open_cond);
	lock_release(&c->open_lock);
	lock_release(&c->round_lock);
	for (tries = 0; open && tries < 1000 && !ops_cut(o); tries++) {
		usleep(50);
		lock_acquire(&c->open_lock);
		open = c->opens || c->deads;
		lock_release(&c->open_lock);
	}
	lock_acquire(&c->round_lock);
	c->o.publish_after_ns = after;
	lock_release(&c->round_lock);
}

static void op_read(struct op *o)
{
	static char buf[1 << 20];
	uint64_t off = env_rand(o->rng) % 3 ? 0 : env_rand(o->rng) % SIZE;
	size_t len = off ? 1 + env_rand(o->rng) % 30000 : sizeof(buf);

	power_pass(AGED);
	if (env_rand(o->rng) % 8 == 0) { /* long enough to be durable by itself */
		power_sync();
		power_pass(LONG_AGO);
	}
	ops_want(o, env_read(&o->w->env, o->n, buf, len, off) >= 0, "read");
}

static void op_create(struct op *o)
{
	struct bcred cred = {.uid = geteuid(), .gid = getegid()};
	struct cache_attr a;

	if (cache_create(o->c, cache_root(o->c), o->name, 0644, &cred, false, &o->n, &a)) {
		ops_want(o, false, "create");
		return;
	}
	op_write(o);
	env_forget(&o->w->env, o->n);
}

void ops_step(struct whole *w, uint64_t *rng)
{
	static void (*const ops[20])(struct op *) = {
		op_write, op_write, op_write, op_write, op_write, op_setattr, op_setattr,
		op_fallocate, op_copy, op_name, op_name, op_sync, op_publish, op_publish,
		op_read, op_read, op_read, op_read, op_read, op_read,
	};
	struct op o = {.w = w, .rng = rng, .c = w->env.c, .name = ops_name(env_rand(rng))};
	uint64_t what = env_rand(rng) % 24;

	if (what == 20) {
		csweep_run(w->env.c);
	} else if (what == 21) {
		if (w->strict)
			ops_behind(w, rng);
	} else if (!ops_is(w, o.name)) {
		if (!ops_cut(&o))
			op_create(&o);
	} else {
		o.n = env_lookup(&w->env, o.name);
		ops[what % 20](&o);
		env_forget(&w->env, o.n);
	}
}

/* ---- behind it ---- */

void ops_behind(struct whole *w, uint64_t *rng)
{
	const char *name = ops_name(env_rand(rng)), *path = env_path(&w->env, name);
	struct timespec ts[2];
	struct stat st;
	char other[600];
	int fd;

	if (media_fault_is_cut(w->rig.fault[0]) || stat(path, &st))
		return;
	snprintf(other, sizeof(other), "%s", path);
	if (env_rand(rng) % 3 == 0) { /* replaced, as an editor does */
		snprintf(other, sizeof(other), "%s/new", w->env.dir);
		env_put(&w->env, "new", ops_data(rng), (size_t)st.st_size);
	}
	fd = open(other, O_WRONLY);
	ck_assert_int_ge(fd, 0);
	/* not the calls that power.c wraps: these have no events */
	if (env_rand(rng) % 2) {
		ck_assert_ok(truncate(other, (off_t)(env_rand(rng) % SIZE)));
	} else {
		ck_assert_int_ge(lseek(fd, (off_t)(env_rand(rng) % SIZE), SEEK_SET), 0);
		ck_assert_int_eq(write(fd, ops_data(rng), 5000), 5000);
	}
	ts[0] = st.st_atim;
	ts[1] = st.st_mtim;
	if (env_rand(rng) % 2) /* same mtime, perhaps same size */
		ck_assert_ok(futimens(fd, ts));
	close(fd);
	if (strcmp(other, path))
		ck_assert_ok(rename(other, path));
	power_sync();
}
