/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Opening and closing a backing, and what concerns it as a whole.
 *
 * The root is held by one descriptor from opening to closing. If its disk is unmounted (lazily) or
 * something is mounted over it, that descriptor still leads to the old tree: the empty directory
 * below a missing mount is never taken for the content.
 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backing/backing_priv.h"

#define BACKING_MAX_FDS 160
#define BACKING_MIN_FDS 4

static unsigned backing_fd_limit(unsigned asked)
{
	struct rlimit rl;
	unsigned limit = asked;

	if (limit == 0) {
		limit = BACKING_MAX_FDS;
		if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur / 4 < limit)
			limit = (unsigned)(rl.rlim_cur / 4);
	}
	return limit < BACKING_MIN_FDS ? BACKING_MIN_FDS : limit;
}

/* Attributes are changed and files opened for data through /proc/self/fd. */
static int backing_check_proc(int fd)
{
	char path[PROC_FD_LEN];
	int again = open(bfd_path(fd, path), O_PATH | O_CLOEXEC);

	if (again < 0)
		return errno == ENOENT ? -ENOSYS : -errno;
	close(again);
	return 0;
}

static int backing_open_root(struct backing *b, const char *path)
{
	struct bkey key;
	struct battr attr;
	int rc, fd;

	b->path = realpath(path, NULL);
	if (!b->path)
		return -errno;
	fd = open(b->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	b->root_fd = fd;
	rc = backing_check_proc(fd);
	if (rc == 0)
		rc = bkey_read(b, fd, NULL, &key, &attr);
	if (rc == 0)
		rc = bnode_intern(b, &key, NULL, NULL, 0, &b->root);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	bfile_attach(b, b->root, fd, BFILE_READ);
	return b->root->file ? bfile_pin(b, b->root) : -ENOMEM;
}

static void backing_init(struct backing *b, const struct backing_options *o)
{
	b->root_fd = -1;
	b->idle.next = b->idle.prev = &b->idle;
	b->idle_dirs.next = b->idle_dirs.prev = &b->idle_dirs;
	b->euid = geteuid();
	b->egid = getegid();
	b->as_root = b->euid == 0;
	b->readonly = o->readonly;
	b->max_fds = backing_fd_limit(o->max_fds);
	b->with_fsid = o->fsid != NULL;
	if (o->fsid)
		b->fsid = hash_128(o->fsid, strlen(o->fsid));
	lock_init(&b->lock, "backing", RANK_BACKING);
	lock_init(&b->names, "backing names", RANK_BACKING_NAMES);
	for (unsigned i = 0; i < BACKING_IO_STRIPES; i++)
		lock_init(&b->io[i], "backing io", RANK_BACKING_IO);
}

int backing_open(struct backing **out, const char *path, const struct backing_options *o)
{
	static const struct backing_options defaults;
	struct backing *b = calloc(1, sizeof(*b));
	int rc;

	if (!b)
		return -ENOMEM;
	backing_init(b, o ? o : &defaults);
	rc = htab_init(&b->nodes, 1024);
	if (rc == 0)
		rc = backing_open_root(b, path);
	if (rc < 0) {
		backing_close(b);
		return rc;
	}
	*out = b;
	return 0;
}

static void backing_check_leaks(struct backing *b)
{
	if (b->nodes.count == 0)
		return;
	log_error("backing", "%zu objects of %s are still held at closing", b->nodes.count,
		  b->path);
#ifdef GILD_DEBUG
	gild_assert(b->nodes.count == 0);
#endif
}

void backing_close(struct backing *b)
{
	if (!b)
		return;
	if (b->root)
		backing_put(b, b->root);
	if (b->nodes.buckets) {
		backing_check_leaks(b);
		htab_destroy(&b->nodes);
	}
	bfs_destroy_all(b);
	for (unsigned i = 0; i < BACKING_IO_STRIPES; i++)
		lock_destroy(&b->io[i]);
	lock_destroy(&b->names);
	lock_destroy(&b->lock);
	free(b->path);
	free(b);
}

struct bnode *backing_root(struct backing *b)
{
	return b->root;
}

const char *backing_path(const struct backing *b)
{
	return b->path;
}

unsigned backing_open_fds(struct backing *b)
{
	unsigned open_fds;

	lock_acquire(&b->lock);
	open_fds = b->open_fds;
	lock_release(&b->lock);
	return open_fds;
}

int backing_statfs(struct backing *b, struct statvfs *out)
{
	return fstatvfs(b->root_fd, out) == 0 ? 0 : -errno;
}

/* A descriptor that syncfs takes, of any known object on fs. */
static int backing_open_below(struct backing *b, struct bfs *fs)
{
	struct bfile *f;
	struct bnode *n;
	int fd = -ENOENT;

	lock_acquire(&b->lock);
	n = fs->top;
	if (n)
		backing_hold(n);
	lock_release(&b->lock);
	if (!n)
		return fd;
	if (bnode_is_type(n, S_IFDIR) || bnode_is_type(n, S_IFREG))
		fd = bfile_get(b, n, BFILE_PATH, &f);
	if (fd == 0) {
		fd = bopen_again(b, f->fd, O_RDONLY);
		bfile_put(b, f);
	}
	backing_put(b, n);
	return fd;
}

static int backing_syncfs_below(struct backing *b, struct bfs *fs)
{
	int fd = backing_open_below(b, fs);
	int rc;

	if (fd < 0) {
		/* Nothing says any more where it is mounted, but something was written there. */
		sync();
		return 0;
	}
	rc = syncfs(fd) == 0 ? 0 : -errno;
	close(fd);
	return rc;
}

int backing_syncfs(struct backing *b)
{
	int rc = syncfs(b->root_fd) == 0 ? 0 : -errno;

	for (unsigned i = 1;; i++) {
		struct bfs *fs = NULL;
		int below = 0;

		lock_acquire(&b->lock);
		if (i < b->fs_count)
			fs = b->fs[i];
		lock_release(&b->lock);
		if (!fs)
			return rc;
		if (atomic_exchange(&fs->wrote, false))
			below = backing_syncfs_below(b, fs);
		if (below < 0)
			atomic_store(&fs->wrote, true);
		if (rc == 0)
			rc = below;
	}
}

int backing_pin(struct backing *b, struct bnode *n)
{
	return bfile_pin(b, n);
}
