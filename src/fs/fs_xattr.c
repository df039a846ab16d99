/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Extended attributes; values live in the backing.
 *
 * The kernel asks for security.capability before every write(2) and every exec, and FUSE cannot
 * tell it to remember the answer. "It has none" is therefore remembered here, for as long as
 * attributes may be in a small direct-mapped table, and answered by the reader.
 *
 * Invariants of the table (all under fs->lock):
 *   1. A slot is filled only if no xattr was set through the mount since before the backing was
 *      asked, or made the file anew (`nocap_changes` is counted before and after each change).
 *   2. It is emptied when an xattr of the file is set, and at FORGET, since the address may become
 *      another file's; all of them when something is invalidated by hand.
 *
 * Without acl= the POSIX ACL attributes pass through like any other: they can be read and set, the
 * backing keeps them and cp -a and rsync -A carry them along, but the kernel does not enforce them
 * on this mount.
 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "fs/fs_priv.h"

#define FS_CAPABILITY "security.capability"

static struct fs_nocap *fs_nocap_slot(struct fs *f, fuse_ino_t ino)
{
	return &f->nocap[hash_mix64(ino) % FS_NOCAP_SLOTS];
}

static bool fs_nocap_known(struct fs *f, fuse_ino_t ino)
{
	struct fs_nocap *s = fs_nocap_slot(f, ino);
	bool known;

	lock_acquire(&f->lock);
	known = s->ino == ino && clock_mono_ns() < s->until;
	lock_release(&f->lock);
	return known;
}

uint64_t fs_nocap_changes(struct fs *f)
{
	uint64_t n;

	lock_acquire(&f->lock);
	n = f->nocap_changes;
	lock_release(&f->lock);
	return n;
}

void fs_nocap_learn(struct fs *f, fuse_ino_t ino, uint64_t changes)
{
	struct fs_nocap *s = fs_nocap_slot(f, ino);
	uint64_t now = clock_mono_ns();

	lock_acquire(&f->lock);
	if (f->nocap_changes == changes) {
		s->ino = ino;
		s->until = f->nocap_ttl < UINT64_MAX - now ? now + f->nocap_ttl : UINT64_MAX;
	}
	lock_release(&f->lock);
}

static void fs_nocap_changed(struct fs *f, fuse_ino_t ino)
{
	lock_acquire(&f->lock);
	f->nocap_changes++;
	if (fs_nocap_slot(f, ino)->ino == ino)
		fs_nocap_slot(f, ino)->ino = 0;
	lock_release(&f->lock);
}

void fs_nocap_forget(struct fs *f, fuse_ino_t ino)
{
	lock_acquire(&f->lock);
	if (fs_nocap_slot(f, ino)->ino == ino)
		fs_nocap_slot(f, ino)->ino = 0;
	lock_release(&f->lock);
}

void fs_nocap_clear(struct fs *f)
{
	lock_acquire(&f->lock);
	f->nocap_changes++;
	memset(f->nocap, 0, sizeof(f->nocap));
	lock_release(&f->lock);
}

/* `size` 0 asks for the length alone. */
static void fs_reply_xattr(struct fs *f, fuse_req_t req, ssize_t n, size_t size)
{
	if (n < 0)
		fuse_reply_err(req, (int)-n);
	else if (size == 0)
		fuse_reply_xattr(req, (size_t)n);
	else
		fuse_reply_buf(req, fs_self(f)->reply, (size_t)n);
}

void fs_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct fs *f = fs_of(req);
	struct fs_thread *t = fs_self(f);
	bool capability = strcmp(name, FS_CAPABILITY) == 0;
	uint64_t changes;
	ssize_t n;

	if (capability && fs_nocap_known(f, ino)) {
		fuse_reply_err(req, ENODATA);
		return;
	}
	if (t->nowait && fs_defer(t, req, -EAGAIN))
		return;
	changes = fs_nocap_changes(f);
	n = backing_getxattr(cache_backing(f->cache), cache_bnode(fs_node(f, ino)), name,
			     size ? t->reply : NULL, size < FS_MAX_IO ? size : FS_MAX_IO);
	if (capability && n == -ENODATA)
		fs_nocap_learn(f, ino, changes);
	fs_reply_xattr(f, req, n, size);
}

void fs_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct fs *f = fs_of(req);
	ssize_t n = backing_listxattr(cache_backing(f->cache), cache_bnode(fs_node(f, ino)),
				      size ? fs_self(f)->reply : NULL,
				      size < FS_MAX_IO ? size : FS_MAX_IO);

	fs_reply_xattr(f, req, n, size);
}

void fs_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		    size_t size, int flags)
{
	struct fs *f = fs_of(req);
	int err;

	if (!fs_within(fs_self(f), value, size)) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	fs_nocap_changed(f, ino);
	err = cache_setxattr(f->cache, fs_node(f, ino), name, value, size, flags);
	fs_nocap_changed(f, ino);
	fuse_reply_err(req, -err);
}

void fs_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct fs *f = fs_of(req);

	fuse_reply_err(req, -cache_removexattr(f->cache, fs_node(f, ino), name));
}
