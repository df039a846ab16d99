/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Data of regular files.
 *
 * Everything but backing_append uses explicit offsets, so that descriptors can be shared. An append
 * must learn where the kernel put it although others may append behind the mount at the same time.
 * fstat before and after cannot tell; but pwritev2 with RWF_APPEND and offset -1 leaves the
 * descriptor's file position exactly behind what was written. So the position of a shared
 * descriptor belongs to the bnode's io lock, and to whoever moves it: append, and lseek.
 */
#include "config.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "backing/backing_priv.h"

ssize_t backing_pread(struct backing *b, struct bnode *n, void *buf, size_t len, uint64_t off)
{
	struct bfile *f;
	size_t done = 0;
	ssize_t rc = bfile_get(b, n, BFILE_READ, &f);

	if (rc < 0)
		return rc;
	while (done < len) {
		rc = pread(f->fd, (char *)buf + done, len - done, (off_t)(off + done));
		if (rc < 0 && errno == EINTR)
			continue;
		if (rc <= 0)
			break;
		done += (size_t)rc;
	}
	if (rc < 0)
		rc = -errno;
	bfile_put(b, f);
	/* A caller must not take an error for the end of the file. */
	return rc < 0 ? rc : (ssize_t)done;
}

ssize_t backing_pwrite(struct backing *b, struct bnode *n, const void *buf, size_t len,
		       uint64_t off)
{
	struct bfile *f;
	size_t done = 0;
	ssize_t rc = bfile_get(b, n, BFILE_WRITE, &f);

	if (rc < 0)
		return rc;
	while (done < len) {
		rc = pwrite(f->fd, (const char *)buf + done, len - done, (off_t)(off + done));
		if (rc < 0 && errno == EINTR)
			continue;
		if (rc <= 0)
			break;
		done += (size_t)rc;
	}
	if (rc < 0)
		rc = -errno;
	bfile_put(b, f);
	return done > 0 ? (ssize_t)done : rc;
}

static ssize_t bfile_append(struct bfile *f, const void *buf, size_t len, uint64_t *off)
{
	struct iovec iov = {(void *)buf, len};
	ssize_t rc;
	off_t end;

	do
		rc = pwritev2(f->fd, &iov, 1, -1, RWF_APPEND);
	while (rc < 0 && errno == EINTR);
	if (rc < 0)
		return -errno;
	end = lseek(f->fd, 0, SEEK_CUR);
	if (end < rc)
		return end < 0 ? -errno : -EIO;
	*off = (uint64_t)(end - rc);
	return rc;
}

ssize_t backing_append(struct backing *b, struct bnode *n, const void *buf, size_t len,
		       uint64_t *off)
{
	struct bfile *f;
	ssize_t rc = bfile_get_append(b, n, &f);

	if (rc < 0)
		return rc;
	lock_acquire(backing_io_lock(b, n));
	rc = bfile_append(f, buf, len, off);
	lock_release(backing_io_lock(b, n));
	bfile_put(b, f);
	return rc;
}

static int bfile_sync(int fd, bool datasync)
{
	int rc;

	do
		rc = datasync ? fdatasync(fd) : fsync(fd);
	while (rc != 0 && errno == EINTR);
	return rc == 0 ? 0 : -errno;
}

static int backing_fsync_dir(struct backing *b, struct bnode *n, bool datasync)
{
	struct bfile *f;
	int rc = bfile_get(b, n, BFILE_PATH, &f);
	int fd;

	if (rc < 0)
		return rc;
	fd = bopen_again(b, f->fd, O_RDONLY | O_DIRECTORY);
	rc = fd < 0 ? fd : bfile_sync(fd, datasync);
	if (fd >= 0)
		close(fd);
	bfile_put(b, f);
	return rc;
}

int backing_fsync(struct backing *b, struct bnode *n, bool datasync)
{
	struct bfile *f;
	int rc, earlier;

	if (bnode_is_type(n, S_IFDIR))
		return backing_fsync_dir(b, n, datasync);
	rc = bfile_get(b, n, BFILE_READ, &f);
	if (rc == -EACCES || rc == -EPERM)
		rc = bfile_get(b, n, BFILE_WRITE, &f);
	if (rc < 0)
		return rc;
	rc = bfile_sync(f->fd, datasync);
	bfile_put(b, f);
	earlier = bfile_take_error(b, n);
	return rc < 0 ? rc : earlier;
}

int backing_fallocate(struct backing *b, struct bnode *n, int mode, uint64_t off, uint64_t len)
{
	struct bfile *f;
	int rc = bfile_get(b, n, BFILE_WRITE, &f);

	if (rc < 0)
		return rc;
	do
		rc = fallocate(f->fd, mode, (off_t)off, (off_t)len) == 0 ? 0 : -errno;
	while (rc == -EINTR);
	bfile_put(b, f);
	return rc;
}

off_t backing_lseek(struct backing *b, struct bnode *n, off_t off, int whence)
{
	struct bfile *f;
	off_t rc;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	rc = bfile_get(b, n, BFILE_READ, &f);
	if (rc < 0)
		return rc;
	lock_acquire(backing_io_lock(b, n));
	rc = lseek(f->fd, off, whence);
	if (rc < 0)
		rc = -errno;
	lock_release(backing_io_lock(b, n));
	bfile_put(b, f);
	return rc;
}

ssize_t backing_copy_range(struct backing *b, struct bnode *from, uint64_t from_off,
			   struct bnode *to, uint64_t to_off, size_t len)
{
	struct bfile *src = NULL, *dst = NULL;
	off64_t in = (off64_t)from_off, out = (off64_t)to_off;
	ssize_t rc = bfile_get(b, from, BFILE_READ, &src);

	if (rc == 0)
		rc = bfile_get(b, to, BFILE_WRITE, &dst);
	if (rc == 0) {
		do
			rc = copy_file_range(src->fd, &in, dst->fd, &out, len, 0);
		while (rc < 0 && errno == EINTR);
		if (rc < 0)
			rc = -errno;
	}
	bfile_put(b, dst);
	bfile_put(b, src);
	return rc;
}

void backing_drop_pages(struct backing *b, struct bnode *n, uint64_t off, size_t len)
{
	struct bfile *f = bfile_get_open(b, n);

	if (f && (f->mode & BFILE_READ))
		(void)posix_fadvise(f->fd, (off_t)off, (off_t)len, POSIX_FADV_DONTNEED);
	bfile_put(b, f);
}
