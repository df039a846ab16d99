/* SPDX-License-Identifier: BSD-2-Clause
 * The image of a slow disk. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "tools/disk_model.h"
#include "tools/slowdisk_image.h"

#define IMAGE_ALIGN 4096

struct slow_image {
	const char *path; /* the caller's */
	int fd;     /* through the page cache; holds the lock */
	int direct; /* O_DIRECT, or -1 where the filesystem has none */
	uint64_t bytes;
	bool created; /* and not kept yet */
};

static int image_complain(const char *path, const char *what, int err)
{
	fprintf(stderr, "gild slowdisk: %s: %s\n", path, what);
	return err;
}

/* Opens or creates; sets `bytes`. */
static int image_open_file(struct slow_image *im, const char *path, uint64_t size)
{
	struct stat st;
	off_t end;

	im->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (im->fd < 0 && errno == ENOENT && size > 0) {
		im->fd = open(path, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0600);
		im->created = im->fd >= 0;
		if (im->created && ftruncate(im->fd, (off_t)size) != 0)
			return image_complain(path, strerror(errno), -errno);
	}
	if (im->fd < 0 && errno == ENOENT)
		return image_complain(path, "no such image; --size creates one", -ENOENT);
	if (im->fd < 0 || fstat(im->fd, &st) != 0)
		return image_complain(path, strerror(errno), -errno);
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return image_complain(path, "not a regular file or block device", -EINVAL);
	if (flock(im->fd, LOCK_EX | LOCK_NB) != 0)
		return image_complain(path, "in use by another slowdisk", -EBUSY);
	end = lseek(im->fd, 0, SEEK_END);
	if (end < 0)
		return image_complain(path, strerror(errno), -errno);
	im->bytes = (uint64_t)end;
	if (size > 0 && im->bytes != size)
		return image_complain(path, "exists with another size; leave out --size", -EEXIST);
	if (im->bytes < DISK_MODEL_MIN || im->bytes % 512 != 0)
		return image_complain(path, "size must be at least 1M and a multiple of 512",
				      -EINVAL);
	return 0;
}

/* A block device that something else has mounted refuses O_EXCL. */
static int image_open_direct(struct slow_image *im, const char *path)
{
	struct stat st;
	int excl;

	if (fstat(im->fd, &st) != 0)
		return image_complain(path, strerror(errno), -errno);
	excl = S_ISBLK(st.st_mode) ? O_EXCL : 0;
	im->direct = open(path, O_RDWR | O_CLOEXEC | O_DIRECT | excl);
	if (im->direct < 0 && errno == EBUSY)
		return image_complain(path, "in use by the system, mounted perhaps", -EBUSY);
	if (im->direct < 0)
		log_warning("slowdisk", "%s: no O_DIRECT here (%s), the page cache is used", path,
			    strerror(errno));
	return 0;
}

int slow_image_open(struct slow_image **out, const char *path, uint64_t size)
{
	struct slow_image *im = calloc(1, sizeof(*im));
	int err;

	if (!im)
		return image_complain(path, strerror(ENOMEM), -ENOMEM);
	im->path = path;
	im->fd = im->direct = -1;
	err = image_open_file(im, path, size);
	if (!err)
		err = image_open_direct(im, path);
	if (err) {
		slow_image_close(im);
		return err;
	}
	*out = im;
	return 0;
}

void slow_image_keep(struct slow_image *im)
{
	im->created = false;
}

void slow_image_close(struct slow_image *im)
{
	if (!im)
		return;
	if (im->created)
		unlink(im->path);
	if (im->direct >= 0)
		close(im->direct);
	if (im->fd >= 0)
		close(im->fd);
	free(im);
}

uint64_t slow_image_bytes(const struct slow_image *im)
{
	return im->bytes;
}

static int image_fd(const struct slow_image *im, const char *buf, size_t size, uint64_t offset)
{
	bool aligned = ((uintptr_t)buf | size | offset) % IMAGE_ALIGN == 0;

	return aligned && im->direct >= 0 ? im->direct : im->fd;
}

int slow_image_read(struct slow_image *im, char *buf, size_t size, uint64_t offset)
{
	int fd = image_fd(im, buf, size, offset);

	while (size > 0) {
		ssize_t n = pread(fd, buf, size, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			int err = n < 0 ? errno : EIO;

			log_error("slowdisk", "%s: reading %zu bytes at %llu: %s", im->path, size,
				  (unsigned long long)offset, strerror(err));
			return -err;
		}
		buf += n;
		size -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int slow_image_write(struct slow_image *im, const char *buf, size_t size, uint64_t offset)
{
	int fd = image_fd(im, buf, size, offset);

	while (size > 0) {
		ssize_t n = pwrite(fd, buf, size, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			int err = n < 0 ? errno : EIO;

			log_error("slowdisk", "%s: writing %zu bytes at %llu: %s", im->path, size,
				  (unsigned long long)offset, strerror(err));
			return -err;
		}
		buf += n;
		size -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int slow_image_punch(struct slow_image *im, int mode, uint64_t offset, uint64_t length)
{
	if (!(mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) ||
	    (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE)))
		return -EOPNOTSUPP;
	return fallocate(im->fd, mode, (off_t)offset, (off_t)length) == 0 ? 0 : -errno;
}

int slow_image_flush(struct slow_image *im)
{
	if (fdatasync(im->fd) == 0)
		return 0;
	log_error("slowdisk", "%s: flush: %s", im->path, strerror(errno));
	return -errno;
}
