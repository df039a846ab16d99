/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One lock, one table of names, one list of objects. A cnode and its bnode are the same object.
 */
#include "config.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ram_cache.h"
#include "ram_priv.h"

struct cnode *cache_root(struct cache *c)
{
	return &c->root;
}

struct bnode *cache_bnode(struct cnode *n)
{
	return (struct bnode *)n;
}

struct backing *cache_backing(struct cache *c)
{
	return (struct backing *)c;
}

struct ram_switches *ram_switches(struct cache *c)
{
	return &c->switches;
}

void cache_options_get(struct cache *c, struct cache_options *out)
{
	memset(out, 0, sizeof(*out));
	out->coherence = c->coherence;
	out->ttl_ns = 1000000000;
}

/* 0, or -EAGAIN where the caller must not wait; waits out a hang otherwise. */
int ram_enter(struct cache *c, unsigned flags)
{
	if (flags & CACHE_NOWAIT)
		return atomic_load(&c->switches.cold) ? -EAGAIN : 0;
	if (atomic_load(&c->switches.hang)) {
		atomic_fetch_add(&c->switches.waiting, 1);
		while (atomic_load(&c->switches.hang))
			sched_yield();
		atomic_fetch_sub(&c->switches.waiting, 1);
	}
	return 0;
}

bool ram_changed(struct cache *c)
{
	return atomic_load(&c->switches.changed) && atomic_exchange(&c->switches.changed, false);
}

void ram_fill_attr(struct cache *c, struct cnode *n, struct cache_attr *a)
{
	memset(a, 0, sizeof(*a));
	a->attr.st = n->st;
	a->attr.st.st_blocks = (n->st.st_size + 511) / 512;
	a->valid_ns = c->coherence == CACHE_STRICT ? 0 : 1000000000;
}

void ram_touch(struct cnode *n, bool data)
{
	clock_gettime(CLOCK_REALTIME, &n->st.st_ctim);
	if (data)
		n->st.st_mtim = n->st.st_ctim;
}

static uint64_t ram_hash(struct cnode *dir, const char *name)
{
	return hash_mix64(hash_64(name, strlen(name)) ^ dir->st.st_ino);
}

struct ram_dent *ram_find(struct cache *c, struct cnode *dir, const char *name)
{
	struct htab_node *h = htab_find(&c->names, ram_hash(dir, name));

	for (; h; h = htab_next(h)) {
		struct ram_dent *d = container_of(h, struct ram_dent, node);

		if (d->dir == dir && strcmp(d->name, name) == 0)
			return d;
	}
	return NULL;
}

int ram_enter_name(struct cache *c, struct cnode *dir, const char *name, struct cnode *n)
{
	struct ram_dent *d = calloc(1, sizeof(*d) + strlen(name) + 1);

	if (!d)
		return -ENOMEM;
	strcpy(d->name, name);
	d->dir = dir;
	d->object = n;
	d->next = dir->entries;
	dir->entries = d;
	htab_insert(&c->names, &d->node, ram_hash(dir, name));
	n->st.st_nlink++;
	ram_touch(dir, true);
	return 0;
}

void ram_drop_name(struct cache *c, struct ram_dent *d)
{
	struct ram_dent **at = &d->dir->entries;

	while (*at != d)
		at = &(*at)->next;
	*at = d->next;
	htab_remove(&c->names, &d->node);
	d->object->st.st_nlink--;
	ram_touch(d->object, false);
	ram_touch(d->dir, true);
	ram_release(c, d->object);
	free(d);
}

struct cnode *ram_new(struct cache *c, mode_t mode)
{
	struct cnode *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->st.st_ino = ++c->inodes;
	n->st.st_mode = mode;
	n->st.st_blksize = 4096;
	ram_touch(n, true);
	n->st.st_atim = n->st.st_mtim;
	return n;
}

void ram_release(struct cache *c, struct cnode *n)
{
	if (n->refs || n->st.st_nlink || n == &c->root)
		return;
	while (n->xattrs) {
		struct ram_xattr *x = n->xattrs;

		n->xattrs = x->next;
		free(x);
	}
	free(n->data);
	free(n);
}

static void ram_reference(struct cache *c, struct cnode *n, uint64_t by)
{
	n->refs += by;
	c->refs += by;
}

int cache_lookup(struct cache *c, struct cnode *parent, const char *name, struct cnode **out,
		 struct cache_attr *attr, unsigned flags)
{
	int err = ram_enter(c, flags);
	struct ram_dent *d;

	if (err)
		return err;
	pthread_mutex_lock(&c->lock);
	d = ram_find(c, parent, name);
	if (d) {
		*out = d->object;
		ram_reference(c, d->object, 1);
		ram_fill_attr(c, d->object, attr);
		attr->changed = ram_changed(c);
		attr->unseen = attr->changed && !atomic_load(&c->switches.seen);
	} else {
		err = -ENOENT;
		attr->valid_ns = c->coherence == CACHE_STRICT ? 0 : 1000000000;
	}
	pthread_mutex_unlock(&c->lock);
	return err;
}

void cache_hold(struct cnode *n)
{
	__atomic_add_fetch(&n->refs, 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(n->counter, 1, __ATOMIC_SEQ_CST);
}

void cache_told(struct cache *c, struct cnode *n, uint32_t told)
{
	(void)c;
	(void)n;
	(void)told;
}

void cache_untold(struct cache *c, struct cnode *n)
{
	(void)n;
	atomic_store(&c->switches.changed, true);
}

void cache_forget(struct cache *c, struct cnode *n, uint64_t count)
{
	pthread_mutex_lock(&c->lock);
	if (n->refs < count)
		abort();
	n->refs -= count;
	c->refs -= count;
	ram_release(c, n);
	pthread_mutex_unlock(&c->lock);
}

uint64_t ram_references(struct cache *c)
{
	uint64_t n;

	pthread_mutex_lock(&c->lock);
	n = c->refs;
	pthread_mutex_unlock(&c->lock);
	return n;
}

/* 1: there was one, and `excl` was not set. */
static int ram_make(struct cache *c, struct cnode *dir, const char *name, mode_t mode,
		    const struct bcred *cred, bool excl, struct cnode **out,
		    struct cache_attr *attr)
{
	struct ram_dent *d;
	struct cnode *n;
	int err = ram_enter(c, 0);

	pthread_mutex_lock(&c->lock);
	d = ram_find(c, dir, name);
	n = d ? d->object : ram_new(c, mode & ~cred->umask);
	if (d && excl)
		err = -EEXIST;
	if (!err && n && !d) {
		n->st.st_uid = cred->uid;
		n->st.st_gid = cred->gid;
		n->counter = &c->refs;
		err = ram_enter_name(c, dir, name, n);
	}
	if (!err) {
		*out = n;
		ram_reference(c, n, 1);
		ram_fill_attr(c, n, attr);
	}
	pthread_mutex_unlock(&c->lock);
	return err;
}

int cache_create(struct cache *c, struct cnode *parent, const char *name, mode_t mode,
		 const struct bcred *cred, bool excl, struct cnode **out, struct cache_attr *attr)
{
	return ram_make(c, parent, name, S_IFREG | mode, cred, excl, out, attr);
}

int cache_tmpfile(struct cache *c, struct cnode *parent, mode_t mode, const struct bcred *cred,
		  struct cnode **out, struct cache_attr *attr)
{
	(void)c;
	(void)parent;
	(void)mode;
	(void)cred;
	(void)out;
	(void)attr;
	return -EOPNOTSUPP;
}

int cache_mknod(struct cache *c, struct cnode *parent, const char *name, mode_t mode, dev_t rdev,
		const struct bcred *cred, struct cnode **out, struct cache_attr *attr)
{
	(void)rdev;
	return ram_make(c, parent, name, mode, cred, true, out, attr);
}

int cache_mkdir(struct cache *c, struct cnode *parent, const char *name, mode_t mode,
		const struct bcred *cred, struct cnode **out, struct cache_attr *attr)
{
	return ram_make(c, parent, name, S_IFDIR | mode, cred, true, out, attr);
}

int cache_symlink(struct cache *c, struct cnode *parent, const char *name, const char *target,
		  const struct bcred *cred, struct cnode **out, struct cache_attr *attr)
{
	struct bcred open = { .uid = cred->uid, .gid = cred->gid };
	int err = ram_make(c, parent, name, S_IFLNK | 0777, &open, true, out, attr);

	if (err)
		return err;
	(*out)->data = strdup(target);
	(*out)->room = strlen(target) + 1;
	(*out)->st.st_size = attr->attr.st.st_size = (off_t)strlen(target);
	return 0;
}

int cache_link(struct cache *c, struct cnode *n, struct cnode *parent, const char *name,
	       struct cache_attr *attr)
{
	int err;

	pthread_mutex_lock(&c->lock);
	err = ram_find(c, parent, name) ? -EEXIST : ram_enter_name(c, parent, name, n);
	if (!err)
		ram_fill_attr(c, n, attr);
	pthread_mutex_unlock(&c->lock);
	return err;
}

static int ram_remove(struct cache *c, struct cnode *parent, const char *name, bool dir)
{
	struct ram_dent *d;
	int err = ram_enter(c, 0);

	pthread_mutex_lock(&c->lock);
	d = ram_find(c, parent, name);
	if (!d)
		err = -ENOENT;
	else if (S_ISDIR(d->object->st.st_mode) != dir)
		err = dir ? -ENOTDIR : -EISDIR;
	else if (d->object->entries)
		err = -ENOTEMPTY;
	else
		ram_drop_name(c, d);
	pthread_mutex_unlock(&c->lock);
	return err;
}

int cache_unlink(struct cache *c, struct cnode *parent, const char *name)
{
	return ram_remove(c, parent, name, false);
}

int cache_rmdir(struct cache *c, struct cnode *parent, const char *name)
{
	return ram_remove(c, parent, name, true);
}

int cache_rename(struct cache *c, struct cnode *from, const char *name, struct cnode *to,
		 const char *new_name, unsigned flags)
{
	struct ram_dent *d, *old;
	int err = 0;

	pthread_mutex_lock(&c->lock);
	d = ram_find(c, from, name);
	old = ram_find(c, to, new_name);
	if (!d)
		err = -ENOENT;
	else if (flags > 1)
		err = -EINVAL;
	else if (flags == 1 && old)
		err = -EEXIST;
	else if (old && old->object->entries)
		err = -ENOTEMPTY;
	else if (!old || old->object != d->object) {
		if (old)
			ram_drop_name(c, old);
		err = ram_enter_name(c, to, new_name, d->object);
		if (!err)
			ram_drop_name(c, d);
	}
	pthread_mutex_unlock(&c->lock);
	return err;
}

struct cache *ram_cache_open(enum cache_coherence coherence)
{
	struct cache *c = calloc(1, sizeof(*c));

	if (!c || htab_init(&c->names, 64) != 0)
		abort();
	pthread_mutex_init(&c->lock, NULL);
	c->coherence = coherence;
	c->inodes = 1;
	c->root.st.st_ino = 1;
	c->root.st.st_mode = S_IFDIR | 0755;
	c->root.st.st_nlink = 1;
	c->root.counter = &c->refs;
	ram_touch(&c->root, true);
	return c;
}

static void ram_free_tree(struct cache *c, struct cnode *dir)
{
	while (dir->entries) {
		struct ram_dent *d = dir->entries;

		ram_free_tree(c, d->object);
		d->object->refs = 0;
		ram_drop_name(c, d);
	}
}

bool ram_cache_close(struct cache *c)
{
	bool clean = c->refs == 0;

	ram_free_tree(c, &c->root);
	htab_destroy(&c->names);
	pthread_mutex_destroy(&c->lock);
	free(c);
	return clean;
}

struct cnode *ram_file(struct cache *c, struct cnode *dir, const char *name, const void *data,
		       size_t len)
{
	struct cnode *n;

	pthread_mutex_lock(&c->lock);
	n = ram_new(c, S_IFREG | 0644);
	if (!n || ram_enter_name(c, dir, name, n) != 0)
		abort();
	n->counter = &c->refs;
	ram_put_bytes(n, data, len, 0);
	pthread_mutex_unlock(&c->lock);
	return n;
}
