/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Attributes and entries.
 *
 * A nodeid is the address of a cnode. After FORGET the memory may become another object with the
 * same nodeid; the generation is nevertheless always 0. The kernel sends FORGET only after it has
 * taken the inode out of use, and a reply that names the nodeid again waits in the kernel until the
 * old inode is gone (iget5_locked), so two objects never meet under one nodeid. Only handles given
 * out by an NFS server outlive an inode: with EXPORT_SUPPORT off they are not made from nodeids
 * that we would have to resolve.
 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "fs/fs_priv.h"

struct bcred fs_cred(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return (struct bcred){ .uid = ctx->uid, .gid = ctx->gid, .umask = ctx->umask };
}

static double fs_seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

void fs_fill_entry(struct fuse_entry_param *e, struct cnode *n, const struct cache_attr *a)
{
	memset(e, 0, sizeof(*e));
	e->ino = (uintptr_t)n;
	e->attr = a->attr.st;
	e->attr.st_ino = backing_ino(cache_bnode(n));
	e->attr_timeout = e->entry_timeout = fs_seconds(a->valid_ns);
}

void fs_reply_entry(struct fs *f, fuse_req_t req, struct cnode *n, const struct cache_attr *a)
{
	struct fuse_entry_param e;

	fs_fill_entry(&e, n, a);
	if (fs_must_park(f, a))
		fs_park_entry(f, req, &e, a);
	else if (fuse_reply_entry(req, &e) != 0)
		cache_forget(f->cache, n, 1);
}

static void fs_reply_attr(struct fs *f, fuse_req_t req, fuse_ino_t ino, struct cache_attr *a)
{
	a->attr.st.st_ino = backing_ino(cache_bnode(fs_node(f, ino)));
	if (fs_must_park(f, a))
		fs_park_attr(f, req, ino, a);
	else
		fuse_reply_attr(req, &a->attr.st, fs_seconds(a->valid_ns));
}

void fs_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *f = fs_of(req);
	struct fs_thread *t = fs_self(f);
	struct cache_attr a = { 0 };
	int err = cache_getattr(f->cache, fs_node(f, ino), &a, fs_flags(t));

	(void)fi;
	if (fs_defer(t, req, err))
		return;
	if (err)
		fuse_reply_err(req, -err);
	else
		fs_reply_attr(f, req, ino, &a);
}

/* ctime is never set by hand: the backing does it. */
static unsigned fs_set_of(int set)
{
	unsigned b = 0;

	if (set & FUSE_SET_ATTR_MODE)
		b |= BSET_MODE;
	if (set & FUSE_SET_ATTR_UID)
		b |= BSET_UID;
	if (set & FUSE_SET_ATTR_GID)
		b |= BSET_GID;
	if (set & FUSE_SET_ATTR_SIZE)
		b |= BSET_SIZE;
	if (set & FUSE_SET_ATTR_ATIME_NOW)
		b |= BSET_ATIME_NOW;
	else if (set & FUSE_SET_ATTR_ATIME)
		b |= BSET_ATIME;
	if (set & FUSE_SET_ATTR_MTIME_NOW)
		b |= BSET_MTIME_NOW;
	else if (set & FUSE_SET_ATTR_MTIME)
		b |= BSET_MTIME;
	return b;
}

void fs_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int set,
		   struct fuse_file_info *fi)
{
	struct fs *f = fs_of(req);
	struct cache_attr a = { 0 };
	unsigned b = fs_set_of(set);
	bool changed;
	int err;

	(void)fi;
	if (b)
		err = cache_setattr(f->cache, fs_node(f, ino), b, st, &a);
	else
		err = cache_getattr(f->cache, fs_node(f, ino), &a, 0);
	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	/* Not parked: during a truncate the kernel holds back the write-out of dirty pages, for which
	 * an invalidation would wait. Nor does it compare mtimes here. */
	changed = a.changed;
	a.changed = false;
	fs_reply_attr(f, req, ino, &a);
	if (changed)
		fs_park_inval(f, ino, 0);
}

void fs_op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct fs *f = fs_of(req);
	struct statvfs sv;
	int err = backing_statfs(cache_backing(f->cache), &sv);

	(void)ino;
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_statfs(req, &sv);
}
