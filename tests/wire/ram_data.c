/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Attributes, bytes, xattrs and listings of the tree in RAM.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

#include "ram_cache.h"
#include "ram_priv.h"

static struct cache *ram_of(struct backing *b)
{
	return (struct cache *)b;
}

static struct cnode *ram_node(struct bnode *n)
{
	return (struct cnode *)n;
}

uint64_t backing_ino(const struct bnode *n)
{
	return ((const struct cnode *)n)->st.st_ino;
}

int cache_getattr(struct cache *c, struct cnode *n, struct cache_attr *out, unsigned flags)
{
	int err = ram_enter(c, flags);

	if (err)
		return err;
	pthread_mutex_lock(&c->lock);
	ram_fill_attr(c, n, out);
	out->changed = ram_changed(c);
	out->unseen = out->changed && !atomic_load(&c->switches.seen);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

int cache_setattr(struct cache *c, struct cnode *n, unsigned set, const struct stat *st,
		  struct cache_attr *out)
{
	int err = ram_enter(c, 0);

	pthread_mutex_lock(&c->lock);
	if (set & BSET_MODE)
		n->st.st_mode = (n->st.st_mode & S_IFMT) | (st->st_mode & 07777);
	if (set & BSET_UID)
		n->st.st_uid = st->st_uid;
	if (set & BSET_GID)
		n->st.st_gid = st->st_gid;
	ram_touch(n, set & (BSET_SIZE | BSET_MTIME_NOW));
	if (set & BSET_SIZE)
		err = ram_resize(n, (uint64_t)st->st_size);
	if (set & BSET_MTIME)
		n->st.st_mtim = st->st_mtim;
	if (set & BSET_ATIME)
		n->st.st_atim = st->st_atim;
	if (set & BSET_ATIME_NOW)
		n->st.st_atim = n->st.st_ctim;
	ram_fill_attr(c, n, out);
	out->changed = ram_changed(c);
	out->unseen = out->changed && !atomic_load(&c->switches.seen);
	pthread_mutex_unlock(&c->lock);
	return err;
}

int backing_statfs(struct backing *b, struct statvfs *out)
{
	(void)b;
	memset(out, 0, sizeof(*out));
	out->f_bsize = out->f_frsize = 4096;
	out->f_blocks = 1000;
	out->f_bfree = out->f_bavail = 500;
	out->f_namemax = 255;
	return 0;
}

int ram_resize(struct cnode *n, uint64_t size)
{
	if (size > n->room) {
		size_t room = size + size / 4 + 64;
		char *p = realloc(n->data, room);

		if (!p)
			return -ENOMEM;
		memset(p + n->room, 0, room - n->room);
		n->data = p;
		n->room = room;
	}
	if (size < (uint64_t)n->st.st_size)
		memset(n->data + size, 0, (size_t)n->st.st_size - size);
	n->st.st_size = (off_t)size;
	return 0;
}

int ram_put_bytes(struct cnode *n, const void *data, size_t len, uint64_t off)
{
	int err = off + len > (uint64_t)n->st.st_size ? ram_resize(n, off + len) : 0;

	if (!err && len)
		memcpy(n->data + off, data, len);
	ram_touch(n, true);
	return err;
}

void ram_append(struct cache *c, struct cnode *n, const void *data, size_t len)
{
	pthread_mutex_lock(&c->lock);
	if (ram_put_bytes(n, data, len, (uint64_t)n->st.st_size) != 0)
		abort();
	pthread_mutex_unlock(&c->lock);
}

ssize_t cache_read(struct cache *c, struct cnode *n, void *buf, size_t len, uint64_t off,
		   unsigned flags, bool *changed)
{
	int err = ram_enter(c, flags);
	uint64_t size;

	if (err)
		return err;
	pthread_mutex_lock(&c->lock);
	size = (uint64_t)n->st.st_size;
	len = off >= size ? 0 : len < size - off ? len : size - off;
	if (len)
		memcpy(buf, n->data + off, len);
	*changed = ram_changed(c);
	pthread_mutex_unlock(&c->lock);
	return (ssize_t)len;
}

ssize_t cache_write(struct cache *c, struct cnode *n, const void *buf, size_t len, uint64_t *off,
		    bool append)
{
	int err = ram_enter(c, 0);

	pthread_mutex_lock(&c->lock);
	if (append)
		*off = (uint64_t)n->st.st_size;
	err = ram_put_bytes(n, buf, len, *off);
	pthread_mutex_unlock(&c->lock);
	return err ? err : (ssize_t)len;
}

int cache_fsync(struct cache *c, struct cnode *n, bool datasync)
{
	(void)n;
	(void)datasync;
	return ram_enter(c, 0);
}

int cache_fallocate(struct cache *c, struct cnode *n, int mode, uint64_t off, uint64_t len)
{
	int err = 0;

	pthread_mutex_lock(&c->lock);
	if (mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
		uint64_t size = (uint64_t)n->st.st_size;

		if (off < size)
			memset(n->data + off, 0, len < size - off ? len : size - off);
	} else if (mode == 0) {
		if (off + len > (uint64_t)n->st.st_size)
			err = ram_resize(n, off + len);
	} else {
		err = -EOPNOTSUPP;
	}
	pthread_mutex_unlock(&c->lock);
	return err;
}

ssize_t cache_copy_range(struct cache *c, struct cnode *from, uint64_t from_off, struct cnode *to,
			 uint64_t to_off, size_t len)
{
	uint64_t size;
	char *copy;
	int err;

	pthread_mutex_lock(&c->lock);
	size = (uint64_t)from->st.st_size;
	len = from_off >= size ? 0 : len < size - from_off ? len : size - from_off;
	copy = malloc(len + 1);
	if (len)
		memcpy(copy, from->data + from_off, len);
	err = ram_put_bytes(to, copy, len, to_off);
	free(copy);
	pthread_mutex_unlock(&c->lock);
	return err ? err : (ssize_t)len;
}

off_t backing_lseek(struct backing *b, struct bnode *bn, off_t off, int whence)
{
	struct cnode *n = ram_node(bn);

	(void)b;
	if (off >= n->st.st_size)
		return -ENXIO;
	return whence == SEEK_DATA ? off : n->st.st_size;
}

ssize_t backing_readlink(struct backing *b, struct bnode *bn, char *buf, size_t len)
{
	struct cnode *n = ram_node(bn);
	size_t size = (size_t)n->st.st_size;

	(void)b;
	memcpy(buf, n->data, size < len ? size : len);
	return (ssize_t)(size < len ? size : len);
}

static struct ram_xattr **ram_xattr_find(struct cnode *n, const char *name)
{
	struct ram_xattr **x = &n->xattrs;

	while (*x && strcmp((*x)->name, name) != 0)
		x = &(*x)->next;
	return x;
}

ssize_t backing_getxattr(struct backing *b, struct bnode *bn, const char *name, void *buf,
			 size_t len)
{
	struct cache *c = ram_of(b);
	struct ram_xattr *x;
	ssize_t n;

	if (strcmp(name, "security.capability") == 0)
		atomic_fetch_add(&c->switches.asked_capability, 1);
	pthread_mutex_lock(&c->lock);
	x = *ram_xattr_find(ram_node(bn), name);
	n = !x ? -ENODATA : len && len < x->len ? -ERANGE : (ssize_t)x->len;
	if (n > 0 && len)
		memcpy(buf, x->value, x->len);
	pthread_mutex_unlock(&c->lock);
	return n;
}

ssize_t backing_listxattr(struct backing *b, struct bnode *bn, char *buf, size_t len)
{
	struct cache *c = ram_of(b);
	size_t n = 0;

	pthread_mutex_lock(&c->lock);
	for (struct ram_xattr *x = ram_node(bn)->xattrs; x; x = x->next) {
		size_t l = strlen(x->name) + 1;

		if (n + l <= len)
			memcpy(buf + n, x->name, l);
		n += l;
	}
	pthread_mutex_unlock(&c->lock);
	return len && n > len ? -ERANGE : (ssize_t)n;
}

int backing_flags(struct backing *b, struct bnode *bn, unsigned cmd, void *arg)
{
	if (cmd != FS_IOC_GETFLAGS)
		return -ENOTTY;
	pthread_mutex_lock(&ram_of(b)->lock);
	*(int *)arg = ram_node(bn)->flags;
	pthread_mutex_unlock(&ram_of(b)->lock);
	return 0;
}

int cache_set_flags(struct cache *c, struct cnode *n, unsigned cmd, void *arg)
{
	if (cmd != FS_IOC_SETFLAGS)
		return -ENOTTY;
	pthread_mutex_lock(&c->lock);
	n->flags = *(int *)arg;
	pthread_mutex_unlock(&c->lock);
	return 0;
}

int cache_removexattr(struct cache *c, struct cnode *n, const char *name)
{
	struct ram_xattr **at, *x;

	pthread_mutex_lock(&c->lock);
	at = ram_xattr_find(n, name);
	x = *at;
	if (x)
		*at = x->next;
	pthread_mutex_unlock(&c->lock);
	free(x);
	return x ? 0 : -ENODATA;
}

int cache_setxattr(struct cache *c, struct cnode *n, const char *name, const void *value,
		   size_t len, int flags)
{
	struct ram_xattr *x = malloc(sizeof(*x) + len + strlen(name) + 1);

	(void)flags;
	if (!x)
		return -ENOMEM;
	(void)cache_removexattr(c, n, name);
	memcpy(x->value, value, len);
	x->len = len;
	x->name = x->value + len;
	strcpy(x->name, name);
	pthread_mutex_lock(&c->lock);
	x->next = n->xattrs;
	n->xattrs = x;
	pthread_mutex_unlock(&c->lock);
	return 0;
}

struct bdir {
	size_t count;
	struct ram_listed {
		uint64_t ino;
		mode_t type;
		char name[256];
	} v[];
};

int backing_opendir(struct backing *b, struct bnode *bn, struct bdir **out)
{
	struct cache *c = ram_of(b);
	size_t count = 2, i = 2;
	struct bdir *d;

	pthread_mutex_lock(&c->lock);
	for (struct ram_dent *e = ram_node(bn)->entries; e; e = e->next)
		count++;
	d = calloc(1, sizeof(*d) + count * sizeof(d->v[0]));
	d->count = count;
	strcpy(d->v[0].name, ".");
	strcpy(d->v[1].name, "..");
	d->v[0].ino = d->v[1].ino = ram_node(bn)->st.st_ino;
	d->v[0].type = d->v[1].type = S_IFDIR;
	for (struct ram_dent *e = ram_node(bn)->entries; e; e = e->next, i++) {
		d->v[i].ino = e->object->st.st_ino;
		d->v[i].type = e->object->st.st_mode & S_IFMT;
		strcpy(d->v[i].name, e->name);
	}
	pthread_mutex_unlock(&c->lock);
	*out = d;
	return 0;
}

int backing_readdir(struct bdir *d, off_t off,
		    int (*fn)(void *arg, const char *name, uint64_t ino, mode_t type, off_t next),
		    void *arg)
{
	for (size_t i = (size_t)off; i < d->count; i++)
		if (fn(arg, d->v[i].name, d->v[i].ino, d->v[i].type, (off_t)i + 1))
			break;
	return 0;
}

void backing_closedir(struct bdir *d)
{
	free(d);
}

int cache_home(struct cache *c, struct cnode *n, struct cnode **dir, char name[NAME_MAX + 1])
{
	(void)c;
	(void)n;
	(void)dir;
	(void)name;
	return -ENOENT;
}
