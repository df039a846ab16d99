/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The file table on flash: records, file numbers, what happens to them at start.
 *
 * FLASH_CTL_FILE, key = the object's identity: who has which number, and of which version its lines
 * are. States: `open` (the version may still move: not trusted by a later mount) and `published`.
 * FLASH_CTL_OPEN, key = the number: an index of the open ones, so that a start after a crash need
 * not walk all files to give their space back. (Lines of files that were only found to be young have
 * neither record until they are published.) Nothing depends on it for being right: a record that
 * says `open` is not trusted whether the index knows it or not, so the two need no common order.
 * FLASH_CTL_CACHE "numbers": the first number that was not reserved yet. It is raised durably before
 * a number of the new block is used, and an unclean start goes on after the block.
 *
 * A record is looked for once in a cnode's life, at the first read or change of its data. That there
 * is none, or an open one, must be durable before a write may rely on it: a deletion by a sweep that
 * a power cut takes back brings back a trusted record, when the backing may have lost the inode's new
 * times and kept the new bytes. So the last change of that kind is remembered for each first byte of
 * a key, and how many of them commits have covered.
 */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cache/cache_file.h"
#include "cache/cache_priv.h"

static const uint8_t cfile_numbers_key[FLASH_CTL_KEY] = "numbers";

static void cfile_key(const struct hash128 *id, uint8_t key[FLASH_CTL_KEY])
{
	cfile_put64(key, id->lo);
	cfile_put64(key + 8, id->hi);
}

static void cfile_open_key(uint64_t number, uint8_t key[FLASH_CTL_KEY])
{
	cfile_put64(key, number);
	memset(key + 8, 0, 8);
}

static void cfile_node_key(const struct cnode *n, uint8_t key[FLASH_CTL_KEY], bool *stable)
{
	struct hash128 id = backing_identity(n->bnode, stable);

	cfile_key(&id, key);
}

/* ---- numbers ---- */

static int cfile_reserve_locked(struct cache *c, uint64_t limit)
{
	uint8_t value[8];
	int err;

	cfile_put64(value, limit);
	err = c->flash->ops->ctl_put(c->flash, FLASH_CTL_CACHE, cfile_numbers_key, value,
				     sizeof(value), cache_stamp(c));
	if (!err)
		err = c->flash->ops->flush(c->flash);
	if (!err)
		c->number_limit = limit;
	return err;
}

uint64_t cfile_number(struct cache *c)
{
	uint64_t number = 0;
	int err = 0;

	lock_acquire(&c->number_lock);
	if (c->number_next >= c->number_limit)
		err = cfile_reserve_locked(c, c->number_next + CACHE_NUMBER_BLOCK);
	if (!err)
		number = c->number_next++;
	lock_release(&c->number_lock);
	if (err)
		cache_flash_failed(c, "reserve file numbers", err);
	return number;
}

uint64_t cfile_need_number(struct cache *c, struct cnode *n)
{
	uint64_t number, have;
	bool needed;

	cnode_lock(c, n);
	have = n->number;
	needed = (n->flags & CN_LOADED) && !have;
	cnode_unlock(c, n);
	if (!needed)
		return have;
	number = cfile_number(c);
	cnode_lock(c, n);
	if (!n->number) {
		n->number = number;
		n->epoch = n->floor = 1;
	}
	have = n->number;
	cnode_unlock(c, n);
	return have;
}

/* ---- records ---- */

/* Orders the calls for one key among themselves. */
static int cfile_put_key(struct cache *c, const uint8_t key[FLASH_CTL_KEY], const void *value,
			 size_t len, bool trusted)
{
	struct lock *l = &c->record_locks[key[0] % CACHE_RECORD_LOCKS];
	_Atomic uint64_t *last = &c->untrusted[key[0] % CACHE_UNTRUSTED];
	int err;

	lock_acquire(l);
	if (!trusted)
		atomic_store(last, UINT64_MAX); /* seen by whoever sees what is put now */
	err = c->flash->ops->ctl_put(c->flash, FLASH_CTL_FILE, key, value, len, cache_stamp(c));
	if (!trusted)
		atomic_store(last, atomic_fetch_add(&c->untrusts, 1) + 1);
	lock_release(l);
	return err;
}

int cfile_delete_key(struct cache *c, const uint8_t key[FLASH_CTL_KEY])
{
	return cfile_put_key(c, key, NULL, 0, false);
}

/* What was read before this call, no record or an open one, is so durably. */
static bool cfile_is_durable(struct cache *c, const uint8_t key[FLASH_CTL_KEY])
{
	return atomic_load(&c->untrusted[key[0] % CACHE_UNTRUSTED]) <=
	       atomic_load(&c->untrusts_durable);
}

static int cfile_get(struct cache *c, const uint8_t key[FLASH_CTL_KEY], struct cfile_record *rec)
{
	uint8_t value[FLASH_CTL_VALUE];
	size_t len = sizeof(value);
	uint64_t stamp;
	int err = c->flash->ops->ctl_get(c->flash, FLASH_CTL_FILE, key, value, &len, &stamp);

	if (err)
		return err;
	err = cfile_decode(value, len, rec);
	if (err && cache_may_warn(c))
		log_warning("cache", "a file record on flash makes no sense; the file starts anew");
	return err;
}

static bool cfile_trusted(struct cache *c, struct cnode *n, const struct cfile_record *rec,
			  bool stable)
{
	uint8_t handle[CFILE_HANDLE_MAX];
	size_t len = backing_handle(c->backing, n->bnode, handle, sizeof(handle));

	if (rec->state != CFILE_PUBLISHED || (!stable && rec->mount != c->mount))
		return false;
	return !rec->handle_len || !len ||
	       (rec->handle_len == len && !memcmp(rec->handle, handle, len));
}

void cfile_load(struct cache *c, struct cnode *n)
{
	uint8_t key[FLASH_CTL_KEY];
	struct cfile_record rec = {0};
	struct cversion v;
	uint64_t dead = 0;
	bool stable, trusted = false, durable;
	int err;

	cfile_node_key(n, key, &stable);
	err = cfile_get(c, key, &rec);
	durable = cfile_is_durable(c, key);
	if (!err)
		trusted = cfile_trusted(c, n, &rec, stable);
	cnode_lock(c, n);
	if (n->flags & CN_LOADED) {
		cnode_unlock(c, n);
		return;
	}
	n->flags |= CN_LOADED;
	cnode_version(n, &v);
	if (!err && trusted && cversion_same(&v, &rec.version)) {
		n->number = rec.number;
		n->epoch = rec.epoch;
		n->floor = rec.floor;
		n->flags |= CN_RECORD;
	} else {
		if (durable && (err == -ENOENT || (!err && rec.state == CFILE_OPEN)))
			n->flags |= CN_SAFE;
		dead = err ? 0 : rec.number;
	}
	cnode_unlock(c, n);
	if (dead)
		cfile_bury(c, n, dead, NULL, false);
	if (err && err != -ENOENT && err != -EUCLEAN)
		cache_flash_failed(c, "read a file record", err);
}

static int cfile_put_open(struct cache *c, uint64_t number, const uint8_t file_key[FLASH_CTL_KEY],
			  uint32_t epoch)
{
	uint8_t key[FLASH_CTL_KEY], value[CFILE_OPEN_VALUE];

	cfile_open_key(number, key);
	memcpy(value, file_key, FLASH_CTL_KEY);
	cfile_put32(value + FLASH_CTL_KEY, epoch);
	return c->flash->ops->ctl_put(c->flash, FLASH_CTL_OPEN, key, value, sizeof(value),
				      cache_stamp(c));
}

int cfile_put(struct cache *c, struct cnode *n, uint64_t number, const struct cversion *v, bool open)
{
	uint8_t key[FLASH_CTL_KEY], value[FLASH_CTL_VALUE];
	struct cfile_record rec = {
		.state = open ? CFILE_OPEN : CFILE_PUBLISHED,
		.number = number,
		.version = *v,
		.mount = c->mount,
	};
	bool stable, ours;
	size_t len;
	int err = 0;

	cfile_node_key(n, key, &stable);
	rec.unstable = !stable;
	rec.handle_len = backing_handle(c->backing, n->bnode, rec.handle, sizeof(rec.handle));
	cnode_lock(c, n);
	ours = n->number == number;
	rec.epoch = n->epoch;
	rec.floor = n->floor;
	if (ours && !open)
		n->flags &= ~CN_SAFE;
	cnode_unlock(c, n);
	if (!ours) /* taken away just now, by a change behind the mount */
		return -ESTALE;
	len = cfile_encode(&rec, value);
	if (open)
		err = cfile_put_open(c, rec.number, key, rec.epoch);
	if (!err)
		err = cfile_put_key(c, key, value, len, !open);
	if (err)
		cache_flash_failed(c, "write a file record", err);
	return err;
}

int cfile_delete(struct cache *c, struct cnode *n)
{
	uint8_t key[FLASH_CTL_KEY];
	bool stable;

	cfile_node_key(n, key, &stable);
	return cfile_delete_key(c, key);
}

void cfile_forget(struct cache *c, struct bnode *b)
{
	struct cfile_record rec;
	uint8_t key[FLASH_CTL_KEY];
	bool stable;
	struct hash128 id = backing_identity(b, &stable);

	cfile_key(&id, key);
	if (!cfile_get(c, key, &rec))
		cfile_bury(c, NULL, rec.number, &id, true);
}

void cfile_delete_open(struct cache *c, uint64_t number)
{
	uint8_t key[FLASH_CTL_KEY];

	cfile_open_key(number, key);
	c->flash->ops->ctl_put(c->flash, FLASH_CTL_OPEN, key, NULL, 0, cache_stamp(c));
}

/* ---- dead numbers ---- */

void cfile_bury(struct cache *c, struct cnode *n, uint64_t number, const struct hash128 *key,
		bool forget)
{
	struct cdead *d = malloc(sizeof(*d));

	if (!d)
		return; /* its lines cool down and GC drops them */
	*d = (struct cdead){.n = n, .number = number, .forget = forget};
	if (key)
		d->key = *key;
	if (n)
		cache_hold(n);
	cpublish_bury(c, d);
}

void cfile_bury_dead(struct cache *c, struct cdead *d)
{
	struct cfile_record rec;
	uint8_t key[FLASH_CTL_KEY];

	if (d->n)
		cnode_enter(c, d->n);
	cfile_key(&d->key, key);
	if (d->forget && !cfile_get(c, key, &rec) && rec.number == d->number)
		cfile_delete_key(c, key);
	c->flash->ops->trim(c->flash, d->number, 0, FLASH_TO_END, cache_stamp(c));
	if (d->n) {
		cnode_leave(c, d->n);
		cache_forget(c, d->n, 1);
	}
	free(d);
}

/* ---- start and stop ---- */

struct cfile_recovery {
	struct cache *c;
	uint64_t files;
	int err;
};

static int cfile_recover_one(void *arg, const uint8_t open_key[FLASH_CTL_KEY], const void *value,
			     size_t len, uint64_t stamp)
{
	struct cfile_recovery *r = arg;
	struct flash *f = r->c->flash;
	uint64_t number = cfile_get64(open_key);
	struct cfile_record rec;
	int err = 0;

	(void)stamp;
	if (len == CFILE_OPEN_VALUE && !cfile_get(r->c, value, &rec) && rec.number == number &&
	    rec.state == CFILE_OPEN) {
		err = cfile_delete_key(r->c, value);
		if (!err)
			err = f->ops->trim(f, number, 0, FLASH_TO_END, cache_stamp(r->c));
		r->files++;
	}
	if (!err)
		err = f->ops->ctl_put(f, FLASH_CTL_OPEN, open_key, NULL, 0, cache_stamp(r->c));
	r->err = r->err ? r->err : err;
	return 0;
}

static int cfile_recover(struct cache *c)
{
	struct cfile_recovery r = {.c = c};
	int err = c->flash->ops->ctl_walk(c->flash, FLASH_CTL_OPEN, cfile_recover_one, &r);

	if (r.files) {
		log_info("cache", "%llu files were being written when it was stopped; they start anew",
			 (unsigned long long)r.files);
		stats_add(c->stats, file_recovered, r.files);
	}
	/* What could not be cleared away is not trusted all the same. */
	if (r.err)
		cache_flash_failed(c, "clear away open files", r.err);
	return err;
}

int cfile_start(struct cache *c, bool unclean)
{
	uint8_t value[8];
	size_t len = sizeof(value);
	uint64_t stamp, first = FLASH_VOLUME + 1;
	int err;

	(void)unclean; /* a block is skipped by every start: the clean stop has given back the rest */
	err = c->flash->ops->ctl_get(c->flash, FLASH_CTL_CACHE, cfile_numbers_key, value, &len,
				     &stamp);
	if (!err && len == sizeof(value))
		first = cfile_get64(value);
	else if (err != -ENOENT)
		return err && err != -EOVERFLOW ? err : -EUCLEAN;
	if (!first || first > UINT64_MAX / 2)
		return -EUCLEAN;
	c->number_next = c->number_limit = first;
	return cfile_recover(c);
}

int cfile_stop(struct cache *c)
{
	int err = 0;

	lock_acquire(&c->number_lock);
	if (c->number_limit > c->number_next)
		err = cfile_reserve_locked(c, c->number_next);
	lock_release(&c->number_lock);
	return err;
}
