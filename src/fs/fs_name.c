/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Names: lookup, creation, removal, renaming, links.
 *
 * CREATE is answered rather than refused with ENOSYS (after which the kernel would send MKNOD): both
 * are one message, but only CREATE says whether O_EXCL was asked for. With MKNOD an open(O_CREAT)
 * that loses a race against somebody behind the mount fails with EEXIST. The backing also learns
 * that the file is about to be written and keeps its descriptor. Once an OPEN was refused the kernel
 * sends no RELEASE for created files either; one that comes before that needs nothing done.
 *
 * TMPFILE comes here as a CREATE whose flags hold O_TMPFILE (fs_loop.c).
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/fs_priv.h"

void fs_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *f = fs_of(req);
	struct fs_thread *t = fs_self(f);
	struct cache_attr a = { 0 };
	struct cnode *n = NULL;
	int err = cache_lookup(f->cache, fs_node(f, parent), name, &n, &a, fs_flags(t));

	if (fs_defer(t, req, err))
		return;
	if (err == -ENOENT && a.valid_ns) {
		struct fuse_entry_param e = { .ino = 0, .entry_timeout = (double)a.valid_ns / 1e9 };

		/* Such a name could not be invalidated (fs_invalidate.c). */
		if (parent == FUSE_ROOT_ID && !f->epochs && e.entry_timeout > 1)
			e.entry_timeout = 1;

		fuse_reply_entry(req, &e);
	} else if (err) {
		fuse_reply_err(req, -err);
	} else {
		fs_reply_entry(f, req, n, &a);
	}
}

void fs_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
	struct fs *f = fs_of(req);

	fs_nocap_forget(f, ino);
	if (ino != FUSE_ROOT_ID)
		cache_forget(f->cache, fs_node(f, ino), count);
	fuse_reply_none(req);
}

void fs_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	struct fs *f = fs_of(req);
	struct fs_thread *t = fs_self(f);

	for (size_t i = 0; i < count && fs_within(t, &forgets[i], sizeof(forgets[i])); i++) {
		fs_nocap_forget(f, forgets[i].ino);
		if (forgets[i].ino != FUSE_ROOT_ID)
			cache_forget(f->cache, fs_node(f, forgets[i].ino), forgets[i].nlookup);
	}
	fuse_reply_none(req);
}

void fs_op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct fs *f = fs_of(req);
	char target[PATH_MAX + 1];
	ssize_t n = backing_readlink(cache_backing(f->cache), cache_bnode(fs_node(f, ino)), target,
				     sizeof(target) - 1);

	if (n < 0) {
		fuse_reply_err(req, (int)-n);
		return;
	}
	target[n] = '\0';
	fuse_reply_readlink(req, target);
}

static void fs_reply_made(struct fs *f, fuse_req_t req, int err, struct cnode *n,
			  const struct cache_attr *a)
{
	if (err)
		fuse_reply_err(req, -err);
	else
		fs_reply_entry(f, req, n, a);
}

void fs_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct fs *f = fs_of(req);
	struct bcred cred = fs_cred(req);
	struct cache_attr a = { 0 };
	struct cnode *n = NULL;
	int err = cache_mknod(f->cache, fs_node(f, parent), name, mode, rdev, &cred, &n, &a);

	fs_reply_made(f, req, err, n, &a);
}

void fs_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct fs *f = fs_of(req);
	struct bcred cred = fs_cred(req);
	struct cache_attr a = { 0 };
	struct cnode *n = NULL;
	int err = cache_mkdir(f->cache, fs_node(f, parent), name, mode & 07777, &cred, &n, &a);

	fs_reply_made(f, req, err, n, &a);
}

void fs_op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct fs *f = fs_of(req);
	struct bcred cred = fs_cred(req);
	struct cache_attr a = { 0 };
	struct cnode *n = NULL;
	int err = cache_symlink(f->cache, fs_node(f, parent), name, target, &cred, &n, &a);

	fs_reply_made(f, req, err, n, &a);
}

void fs_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
	struct fs *f = fs_of(req);
	struct cnode *n = fs_node(f, ino);
	struct cache_attr a = { 0 };
	int err = cache_link(f->cache, n, fs_node(f, new_parent), new_name, &a);

	if (!err)
		cache_hold(n); /* an entry is a reference more */
	fs_reply_made(f, req, err, n, &a);
}

void fs_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *f = fs_of(req);

	fuse_reply_err(req, -cache_unlink(f->cache, fs_node(f, parent), name));
}

void fs_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *f = fs_of(req);

	fuse_reply_err(req, -cache_rmdir(f->cache, fs_node(f, parent), name));
}

void fs_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		  const char *new_name, unsigned flags)
{
	struct fs *f = fs_of(req);

	fuse_reply_err(req, -cache_rename(f->cache, fs_node(f, parent), name,
					  fs_node(f, new_parent), new_name, flags));
}

/* The kernel asks for CREATE only where it knows no such name, and then takes the file for new: an
 * O_TRUNC is ours to do if the name has appeared behind the mount. */
static int fs_create_file(struct fs *f, fuse_req_t req, fuse_ino_t parent, const char *name,
			  mode_t mode, int flags, struct cnode **n, struct cache_attr *a)
{
	struct bcred cred = fs_cred(req);
	struct stat empty = { .st_size = 0 };
	int err;

	if ((flags & O_TMPFILE) == O_TMPFILE)
		return cache_tmpfile(f->cache, fs_node(f, parent), mode & 07777, &cred, n, a);
	err = cache_create(f->cache, fs_node(f, parent), name, mode & 07777, &cred, flags & O_EXCL,
			   n, a);
	if (err || !(flags & O_TRUNC) || a->attr.st.st_size == 0)
		return err;
	err = cache_setattr(f->cache, *n, BSET_SIZE, &empty, a);
	if (err)
		cache_forget(f->cache, *n, 1);
	return err;
}

void fs_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		  struct fuse_file_info *fi)
{
	struct fs *f = fs_of(req);
	struct fuse_entry_param e;
	struct cache_attr a = { 0 };
	struct cnode *n = NULL;
	uint64_t changes = fs_nocap_changes(f);
	int err = fs_create_file(f, req, parent, name, mode, fi->flags, &n, &a);

	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	fs_fill_entry(&e, n, &a);
	fi->fh = 0;
	fi->keep_cache = 1;
	if (fi->flags & O_EXCL) /* it is new, and about to be written */
		fs_nocap_learn(f, e.ino, changes);
	if (fuse_reply_create(req, &e, fi) != 0)
		cache_forget(f->cache, n, 1);
	else if (a.changed)
		fs_park_inval(f, e.ino, 0);
}
