/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Attributes. All of it works on any type of object and on O_PATH descriptors: with AT_EMPTY_PATH
 * where the kernel takes it, else through /proc/self/fd, which leads to the object itself, also
 * when that is a symbolic link.
 */
#include "config.h"

#include <errno.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backing/backing_priv.h"

static int bfile_getattr(struct bnode *n, struct bfile *f, struct battr *out)
{
	int rc = battr_read(f->fd, out);

	if (rc == 0)
		out->st.st_ino = backing_ino(n);
	return rc;
}

static int bfile_getattr_put(struct backing *b, struct bnode *n, struct bfile *f,
			     struct battr *out)
{
	int rc = bfile_getattr(n, f, out);

	/* An idle descriptor of a removed file would keep its blocks in use. */
	if (rc == 0 && out->st.st_nlink == 0)
		bfile_put_cold(b, f);
	else
		bfile_put(b, f);
	return rc;
}

int backing_getattr(struct backing *b, struct bnode *n, struct battr *out)
{
	struct bfile *f;
	int rc = bfile_get(b, n, BFILE_PATH, &f);

	return rc < 0 ? rc : bfile_getattr_put(b, n, f, out);
}

int backing_getattr_cached(struct backing *b, struct bnode *n, struct battr *out)
{
	struct bfile *f = n->fs->local ? bfile_get_open(b, n) : NULL;

	return f ? bfile_getattr_put(b, n, f, out) : -EAGAIN;
}

static int bset_owner(struct bfile *f, unsigned set, const struct stat *st)
{
	uid_t uid = set & BSET_UID ? st->st_uid : (uid_t)-1;
	gid_t gid = set & BSET_GID ? st->st_gid : (gid_t)-1;

	if (!(set & (BSET_UID | BSET_GID)))
		return 0;
	return fchownat(f->fd, "", uid, gid, AT_EMPTY_PATH) == 0 ? 0 : -errno;
}

static int bset_mode(struct bfile *f, unsigned set, const struct stat *st)
{
	char path[PROC_FD_LEN];

	if (!(set & BSET_MODE))
		return 0;
	return chmod(bfd_path(f->fd, path), st->st_mode & 07777) == 0 ? 0 : -errno;
}

static int bset_times(struct bfile *f, unsigned set, const struct stat *st)
{
	struct timespec ts[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
	char path[PROC_FD_LEN];

	if (!(set & (BSET_ATIME | BSET_MTIME | BSET_ATIME_NOW | BSET_MTIME_NOW)))
		return 0;
	if (set & BSET_ATIME)
		ts[0] = st->st_atim;
	if (set & BSET_MTIME)
		ts[1] = st->st_mtim;
	if (set & BSET_ATIME_NOW)
		ts[0].tv_nsec = UTIME_NOW;
	if (set & BSET_MTIME_NOW)
		ts[1].tv_nsec = UTIME_NOW;
	if (utimensat(f->fd, "", ts, AT_EMPTY_PATH) == 0)
		return 0;
	if (errno != EINVAL)
		return -errno;
	/* Kernels before 5.8. */
	return utimensat(AT_FDCWD, bfd_path(f->fd, path), ts, 0) == 0 ? 0 : -errno;
}

/* The order matters: changing the owner clears suid bits that the mode may set again, and a
 * truncation changes the times. `data` is opened before the mode may forbid it. */
static int bset_all(struct bfile *f, struct bfile *data, unsigned set, const struct stat *st)
{
	int rc = bset_owner(f, set, st);

	if (rc == 0)
		rc = bset_mode(f, set, st);
	if (rc == 0 && (set & BSET_SIZE))
		rc = ftruncate(data->fd, st->st_size) == 0 ? 0 : -errno;
	if (rc == 0)
		rc = bset_times(f, set, st);
	return rc;
}

int backing_setattr(struct backing *b, struct bnode *n, unsigned set, const struct stat *st,
		    struct battr *out)
{
	struct bfile *f = NULL, *data = NULL;
	int rc;

	if (b->readonly)
		return -EROFS;
	rc = bfile_get(b, n, BFILE_PATH, &f);
	if (rc == 0 && (set & BSET_SIZE))
		rc = bfile_get(b, n, BFILE_WRITE, &data);
	if (rc == 0)
		rc = bset_all(f, data, set, st);
	if (rc == 0)
		rc = bfile_getattr(n, f, out);
	bfile_put(b, data);
	bfile_put(b, f);
	return rc;
}

enum bxattr_op { BXATTR_GET, BXATTR_LIST, BXATTR_SET, BXATTR_REMOVE };

struct bxattr {
	enum bxattr_op op;
	const char *name;
	void *buf;
	const void *value;
	size_t len;
	int flags;
};

static ssize_t bxattr_call(const char *path, const struct bxattr *x)
{
	switch (x->op) {
	case BXATTR_GET:
		return getxattr(path, x->name, x->buf, x->len);
	case BXATTR_LIST:
		return listxattr(path, x->buf, x->len);
	case BXATTR_SET:
		return setxattr(path, x->name, x->value, x->len, x->flags);
	case BXATTR_REMOVE:
		return removexattr(path, x->name);
	}
	return -1;
}

static ssize_t bxattr_run(struct backing *b, struct bnode *n, const struct bxattr *x)
{
	char path[PROC_FD_LEN];
	struct bfile *f;
	ssize_t rc;

	if (b->readonly && (x->op == BXATTR_SET || x->op == BXATTR_REMOVE))
		return -EROFS;
	rc = bfile_get(b, n, BFILE_PATH, &f);
	if (rc < 0)
		return rc;
	rc = bxattr_call(bfd_path(f->fd, path), x);
	if (rc < 0)
		rc = -errno;
	bfile_put(b, f);
	return rc;
}

ssize_t backing_getxattr(struct backing *b, struct bnode *n, const char *name, void *buf,
			 size_t len)
{
	struct bxattr x = {.op = BXATTR_GET, .name = name, .buf = buf, .len = len};

	return bxattr_run(b, n, &x);
}

ssize_t backing_listxattr(struct backing *b, struct bnode *n, char *buf, size_t len)
{
	struct bxattr x = {.op = BXATTR_LIST, .buf = buf, .len = len};

	return bxattr_run(b, n, &x);
}

int backing_setxattr(struct backing *b, struct bnode *n, const char *name, const void *value,
		     size_t len, int flags)
{
	struct bxattr x = {
		.op = BXATTR_SET, .name = name, .value = value, .len = len, .flags = flags};

	return (int)bxattr_run(b, n, &x);
}

int backing_removexattr(struct backing *b, struct bnode *n, const char *name)
{
	struct bxattr x = {.op = BXATTR_REMOVE, .name = name};

	return (int)bxattr_run(b, n, &x);
}

static int bflags_call(struct backing *b, const struct bfile *f, bool dir, unsigned cmd, void *arg)
{
	int fd = f->fd, rc;

	if (dir)
		fd = bopen_again(b, f->fd, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return fd;
	rc = ioctl(fd, cmd, arg) == 0 ? 0 : -errno;
	if (dir)
		close(fd);
	return rc;
}

int backing_flags(struct backing *b, struct bnode *n, unsigned cmd, void *arg)
{
	bool set = cmd == FS_IOC_SETFLAGS || cmd == FS_IOC_FSSETXATTR;
	bool dir = bnode_is_type(n, S_IFDIR);
	struct bfile *f;
	int rc;

	if (!set && cmd != FS_IOC_GETFLAGS && cmd != FS_IOC_FSGETXATTR)
		return -ENOTTY;
	if (!dir && !bnode_is_type(n, S_IFREG))
		return -ENOTTY;
	if (set && b->readonly)
		return -EROFS;
	rc = bfile_get(b, n, dir ? BFILE_PATH : BFILE_READ, &f);
	if (rc < 0)
		return rc;
	rc = bflags_call(b, f, dir, cmd, arg);
	bfile_put(b, f);
	return rc;
}

ssize_t backing_readlink(struct backing *b, struct bnode *n, char *buf, size_t len)
{
	struct bfile *f;
	ssize_t rc;

	if (!bnode_is_type(n, S_IFLNK))
		return -EINVAL;
	rc = bfile_get(b, n, BFILE_PATH, &f);
	if (rc < 0)
		return rc;
	rc = readlinkat(f->fd, "", buf, len);
	if (rc < 0)
		rc = -errno;
	bfile_put(b, f);
	return rc;
}
