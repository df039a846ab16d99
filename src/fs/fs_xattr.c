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
 * on this mount. But an access ACL is also the file's mode. The kernel then believes the mode it knew,
 * and does not say whether the caller may keep the set-group-id bit, which chmod(2) would have
 * taken away: both is seen to here.
 */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "fs/fs_priv.h"

#define FS_CAPABILITY "security.capability"
#define FS_TRUSTED "trusted." /* root's alone, for the caller as for us */
#define FS_ACL "system.posix_acl_access"
#define FS_GROUPS_MAX 1024

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

/* Takes the names out that are root's alone; the new length. */
static size_t fs_hide_trusted(char *list, size_t len)
{
	size_t kept = 0;

	for (size_t at = 0; at < len;) {
		size_t n = strnlen(list + at, len - at) + 1;

		if (n > len - at) /* not ended: nothing the kernel would take */
			n = len - at;
		if (strncmp(list + at, FS_TRUSTED, strlen(FS_TRUSTED)) != 0) {
			memmove(list + kept, list + at, n);
			kept += n;
		}
		at += n;
	}
	return kept;
}

void fs_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct fs *f = fs_of(req);
	char *list = fs_self(f)->reply;
	ssize_t n = backing_listxattr(cache_backing(f->cache), cache_bnode(fs_node(f, ino)), list,
				      FS_MAX_IO);

	if (n > 0 && fuse_req_ctx(req)->uid != 0)
		n = (ssize_t)fs_hide_trusted(list, (size_t)n);
	if (size && n > 0 && (size_t)n > size)
		n = -ERANGE;
	fs_reply_xattr(f, req, n, size);
}

static bool fs_in_group(fuse_req_t req, gid_t gid)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	gid_t groups[FS_GROUPS_MAX];
	int n, i;

	if (ctx->uid == 0 || ctx->gid == gid)
		return true;
	n = fuse_req_getgroups(req, FS_GROUPS_MAX, groups);
	for (i = 0; i < n && i < FS_GROUPS_MAX; i++)
		if (groups[i] == gid)
			return true;
	return false;
}

/* The mode of `ino` was set by way of its ACL. */
static void fs_acl_was_set(struct fs *f, fuse_req_t req, fuse_ino_t ino)
{
	struct cnode *n = fs_node(f, ino);
	struct cache_attr a = { 0 };

	if (cache_getattr(f->cache, n, &a, 0) == 0 && (a.attr.st.st_mode & S_ISGID) &&
	    !fs_in_group(req, a.attr.st.st_gid)) {
		struct stat st = { .st_mode = a.attr.st.st_mode & ~(mode_t)S_ISGID };
		int err = cache_setattr(f->cache, n, BSET_MODE, &st, &a);

		if (err)
			log_warning("fs", "a set-group-id bit stays at a change of an ACL: %s",
				    strerror(-err));
	}
	/* The attributes alone: that waits for no page. */
	fuse_lowlevel_notify_inval_inode(f->session, ino, -1, 0);
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
	if (!err && strcmp(name, FS_ACL) == 0)
		fs_acl_was_set(f, req, ino);
	fuse_reply_err(req, -err);
}

void fs_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct fs *f = fs_of(req);

	fuse_reply_err(req, -cache_removexattr(f->cache, fs_node(f, ino), name));
}
