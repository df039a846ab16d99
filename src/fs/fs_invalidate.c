/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Invalidation by path, on somebody's demand (gild invalidate): what is asked for after it is not
 * older than it. Needed where nothing is checked (coherence=exclusive), of use elsewhere.
 *
 * The cache is told before the kernel: else the kernel could ask again and be told the old story.
 * The kernel then drops
 *   the entry of every component of the path, known or "no such name", and what hangs below it
 *   attributes, pages, ACLs of the object, and of all known objects below a directory
 *   all other names: since 6.16 by one message (epoch); before that the names directly below the
 *   root that the kernel knows as missing, and of what is in use at that moment, stay. For those
 *   fs_op_lookup gives a short time.
 *
 * Objects are found below a directory by where they were seen last; those with several links are
 * taken to be anywhere. An object that was moved there behind the mount is looked up anew by
 * whoever comes by its new name.
 *
 * Runs on a thread that no request waits for (fs_park.c says why).
 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "fs/fs_priv.h"

#define FS_NOTIFY_INC_EPOCH 8 /* headers before 6.16 do not have it */

static void fs_invalidate_node(void *arg, struct cnode *n)
{
	struct fs *f = arg;

	cache_invalidate(f->cache, n);
	fuse_lowlevel_notify_inval_inode(f->session, fs_ino(f, n), 0, 0);
}

static bool fs_next_epoch(struct fs *f)
{
	struct fuse_out_header out = { .len = sizeof(out), .error = FS_NOTIFY_INC_EPOCH };

	return write(fuse_session_fd(f->session), &out, sizeof(out)) == sizeof(out);
}

static int fs_invalidate_name(void *arg, const char *name, uint64_t ino, mode_t type, off_t next)
{
	struct fs *f = arg;

	(void)ino;
	(void)type;
	(void)next;
	fuse_lowlevel_notify_inval_entry(f->session, FUSE_ROOT_ID, name, strlen(name));
	return 0;
}

static void fs_invalidate_below(struct fs *f, struct cnode *top)
{
	struct bdir *d;

	cache_each_below(f->cache, top, fs_invalidate_node, f);
	if (fs_next_epoch(f) || top != cache_root(f->cache))
		return;
	if (backing_opendir(cache_backing(f->cache), cache_bnode(top), &d))
		return;
	backing_readdir(d, 0, fs_invalidate_name, f);
	backing_closedir(d);
}

/* One component: *n, held, becomes its child, held. */
static int fs_invalidate_step(struct fs *f, struct cnode **n, const char *name)
{
	struct cache_attr a;
	struct cnode *child = NULL;
	int err = cache_lookup(f->cache, *n, name, &child, &a, 0);

	fuse_lowlevel_notify_inval_entry(f->session, fs_ino(f, *n), name, strlen(name));
	if (err)
		return err;
	cache_forget(f->cache, *n, 1);
	*n = child;
	return 0;
}

int fs_invalidate(struct fs *f, const char *path)
{
	struct cnode *n = cache_root(f->cache);
	char name[NAME_MAX + 1];
	int err = 0;

	cache_hold(n);
	while (*path && !err) {
		size_t len = strcspn(path, "/");

		if (len > NAME_MAX)
			err = -ENAMETOOLONG;
		memcpy(name, path, err ? 0 : len);
		name[err ? 0 : len] = 0;
		if (strcmp(name, "..") == 0)
			err = -EINVAL;
		else if (*name && strcmp(name, ".") != 0)
			err = fs_invalidate_step(f, &n, name);
		path += len + (path[len] == '/');
	}
	if (!err) {
		fs_nocap_clear(f);
		fs_invalidate_node(f, n);
		if (S_ISDIR(backing_type(cache_bnode(n))))
			fs_invalidate_below(f, n);
	}
	cache_forget(f->cache, n, 1);
	/* What is not there is known to be not there now. */
	return err == -ENOENT || err == -ENOTDIR ? 0 : err;
}
