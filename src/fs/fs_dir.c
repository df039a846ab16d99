/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Directories. A handle is the backing's own open directory.
 *
 * A listing is gathered first, as many entries as the answer will hold, and the objects are looked
 * up afterwards: the backing's callback runs under its own rules, the cache's lookup under others.
 * Each entry with attributes is a reference that the kernel takes over with the answer.
 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/fs_priv.h"

static struct bdir *fs_dir_of(const struct fuse_file_info *fi)
{
	return (struct bdir *)(uintptr_t)fi->fh;
}

void fs_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *f = fs_of(req);
	struct bdir *d = NULL;
	int err = backing_opendir(cache_backing(f->cache), cache_bnode(fs_node(f, ino)), &d);

	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	fi->fh = (uintptr_t)d;
	if (fuse_reply_open(req, fi) != 0)
		backing_closedir(d);
}

void fs_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	backing_closedir(fs_dir_of(fi));
	fuse_reply_err(req, 0);
}

struct fs_dirent {
	uint64_t ino;
	off_t next;
	mode_t type;
	uint16_t name_len;
	char name[];  /* ended by 0 */
};

/* Entries in a row, each padded to 8 bytes. None is larger than its form in the answer. */
struct fs_listing {
	bool plus;
	size_t room;      /* bytes left in the answer */
	size_t used;      /* of `bytes` */
	unsigned count;
	bool too_small;   /* not even one entry fits */
	char *bytes;
};

static int fs_listing_add(void *arg, const char *name, uint64_t ino, mode_t type, off_t next)
{
	struct fs_listing *l = arg;
	size_t len = strlen(name);
	size_t size = l->plus ? fuse_add_direntry_plus(NULL, NULL, 0, name, NULL, 0)
			      : fuse_add_direntry(NULL, NULL, 0, name, NULL, 0);
	struct fs_dirent *d = (struct fs_dirent *)(l->bytes + l->used);

	if (size > l->room || len > UINT16_MAX) {
		l->too_small = l->count == 0;
		return 1;
	}
	d->ino = ino;
	d->next = next;
	d->type = type;
	d->name_len = (uint16_t)len;
	memcpy(d->name, name, len + 1);
	l->room -= size;
	l->used += (sizeof(*d) + len + 1 + 7) / 8 * 8;
	l->count++;
	return 0;
}

static const struct fs_dirent *fs_listing_next(const struct fs_dirent *d)
{
	return (const struct fs_dirent *)((const char *)d +
					  (sizeof(*d) + d->name_len + 1u + 7) / 8 * 8);
}

/* The object behind an entry with a reference, or NULL: the entry then goes without attributes. */
static struct cnode *fs_dirent_lookup(struct fs *f, fuse_ino_t dir, const struct fs_dirent *d,
				      struct fuse_entry_param *e)
{
	struct cache_attr a = { 0 };
	struct cnode *n = NULL;
	bool dots = strcmp(d->name, ".") == 0 || strcmp(d->name, "..") == 0;

	memset(e, 0, sizeof(*e));
	e->attr.st_ino = d->ino;
	e->attr.st_mode = d->type;
	if (dots || cache_lookup(f->cache, fs_node(f, dir), d->name, &n, &a, 0) != 0)
		return NULL;
	fs_fill_entry(e, n, &a);
	/* Nothing is parked here, as a listing would wait for many: the next who asks for attributes is. */
	if (fs_must_park(f, &a)) {
		cache_untold(f->cache, n);
		e->attr_timeout = 0;
	}
	return n;
}

static void fs_reply_plus(struct fs *f, fuse_req_t req, fuse_ino_t dir, const struct fs_listing *l)
{
	struct fs_thread *t = fs_self(f);
	const struct fs_dirent *d = (const struct fs_dirent *)l->bytes;
	struct cnode **held = calloc(l->count + 1, sizeof(*held));
	size_t len = 0;

	if (!held) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	for (unsigned i = 0; i < l->count; i++, d = fs_listing_next(d)) {
		struct fuse_entry_param e;

		held[i] = fs_dirent_lookup(f, dir, d, &e);
		len += fuse_add_direntry_plus(req, t->reply + len, FS_MAX_IO - len, d->name, &e,
					      d->next);
	}
	if (fuse_reply_buf(req, t->reply, len) != 0) {
		for (unsigned i = 0; i < l->count; i++)
			if (held[i])
				cache_forget(f->cache, held[i], 1);
	}
	free(held);
}

static void fs_reply_plain(struct fs *f, fuse_req_t req, const struct fs_listing *l)
{
	struct fs_thread *t = fs_self(f);
	const struct fs_dirent *d = (const struct fs_dirent *)l->bytes;
	size_t len = 0;

	for (unsigned i = 0; i < l->count; i++, d = fs_listing_next(d)) {
		struct stat st = { .st_ino = d->ino, .st_mode = d->type };

		len += fuse_add_direntry(req, t->reply + len, FS_MAX_IO - len, d->name, &st,
					 d->next);
	}
	fuse_reply_buf(req, t->reply, len);
}

static void fs_list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    const struct fuse_file_info *fi, bool plus)
{
	struct fs *f = fs_of(req);
	struct fs_listing l = { .plus = plus };
	int err;

	l.room = size < FS_MAX_IO ? size : FS_MAX_IO;
	/* An entry here takes at most 8 bytes more than in a plain answer. */
	l.bytes = malloc(l.room + l.room / 2 + 512);
	err = l.bytes ? backing_readdir(fs_dir_of(fi), off, fs_listing_add, &l) : -ENOMEM;
	if (!err && l.too_small)
		err = -EINVAL;
	if (err)
		fuse_reply_err(req, -err);
	else if (plus)
		fs_reply_plus(f, req, ino, &l);
	else
		fs_reply_plain(f, req, &l);
	free(l.bytes);
}

void fs_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		   struct fuse_file_info *fi)
{
	fs_list(req, ino, size, off, fi, false);
}

void fs_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	fs_list(req, ino, size, off, fi, true);
}
