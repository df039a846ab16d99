/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A medium in a regular file or on a block device.
 *
 * Files are preallocated when made, so that overwriting them later needs no new blocks: it cannot
 * fail with ENOSPC and a flush has little of the filesystem's own metadata to write. Data goes by
 * O_DIRECT where the filesystem takes it. The flag is set after the preallocation, because glibc's
 * emulation of it writes single bytes.
 *
 * Flushes are shared. A flush may only be satisfied by an fdatasync that started after the call,
 * so callers queue for the *next* one. Whoever finds none running runs one for the whole queue:
 *
 * 1. at most one fdatasync runs;
 * 2. a waiter is in file->waiting exactly until the fdatasync that will answer it starts;
 * 3. each waiter of a round gets that round's result: the kernel reports a failed write-back once,
 *    so the next round's success means nothing for the data of the failed one.
 */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"
#include "media/media_priv.h"

#define MEDIA_BOUNCE_MAX (256u << 10)

struct media_waiter {
	struct media_waiter *next;
	int rc;
	bool done;
};

struct media_file {
	struct media base;
	/* constant after open */
	char *path;
	int fd;
	bool device, direct, discard;

	struct lock lock; /* protects the members below */
	struct lock_cond flushed;
	struct media_waiter *waiting;
	bool flushing;
};

static int media_file_failed(const struct media_file *f, const char *what, uint64_t len,
			     uint64_t off, int error)
{
	log_error("media", "%s: %s of %llu bytes at %llu failed: %s; check the device", f->path,
		  what, (unsigned long long)len, (unsigned long long)off, strerror(error));
	return -error;
}

/* pread(2) until all is there; the end of the file is -EIO: it was longer when it was opened. */
static int media_file_pread(const struct media_file *f, char *buf, size_t len, uint64_t off)
{
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = pread(f->fd, buf + done, len - done, (off_t)(off + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return media_file_failed(f, "read", len, off, n < 0 ? errno : EIO);
		done += (size_t)n;
	}
	return 0;
}

static int media_file_read_bounced(const struct media_file *f, char *buf, size_t len, uint64_t off)
{
	uint64_t span = media_align_up(off + len) - media_align_down(off);
	size_t room = span < MEDIA_BOUNCE_MAX ? span : MEDIA_BOUNCE_MAX;
	void *bounce;
	int rc = 0;

	if (posix_memalign(&bounce, MEDIA_ALIGN, room))
		return -ENOMEM;
	while (len && rc == 0) {
		uint64_t start = media_align_down(off);
		size_t skip = (size_t)(off - start);
		size_t n = len < room - skip ? len : room - skip;

		rc = media_file_pread(f, bounce, (size_t)media_align_up(skip + n), start);
		if (rc == 0)
			memcpy(buf, (char *)bounce + skip, n);
		buf += n;
		off += n;
		len -= n;
	}
	free(bounce);
	return rc;
}

static int media_file_read(struct media *m, void *buf, size_t len, uint64_t off)
{
	struct media_file *f = (struct media_file *)m;

	if (f->direct && !media_is_aligned(buf, len, off))
		return media_file_read_bounced(f, buf, len, off);
	return media_file_pread(f, buf, len, off);
}

static int media_file_write(struct media *m, const void *buf, size_t len, uint64_t off)
{
	struct media_file *f = (struct media_file *)m;
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = pwrite(f->fd, (const char *)buf + done, len - done, (off_t)(off + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return media_file_failed(f, "write", len, off, n < 0 ? errno : EIO);
		done += (size_t)n;
	}
	return 0;
}

/* Runs one fdatasync for everybody in f->waiting. Called with the lock, which it drops meanwhile. */
static void media_file_flush_round(struct media_file *f)
{
	struct media_waiter *round = f->waiting, *next;
	int rc;

	f->waiting = NULL;
	f->flushing = true;
	lock_release(&f->lock);
	do {
		rc = fdatasync(f->fd) == 0 ? 0 : -errno;
	} while (rc == -EINTR);
	if (rc < 0)
		log_error("media", "%s: flush failed: %s; what was written since the last flush is "
				   "lost, check the device",
			  f->path, strerror(-rc));
	lock_acquire(&f->lock);
	f->flushing = false;
	for (; round; round = next) {
		next = round->next; /* a waiter may be gone once it is done */
		round->rc = rc;
		round->done = true;
	}
	lock_cond_broadcast(&f->flushed);
}

static int media_file_flush(struct media *m)
{
	struct media_file *f = (struct media_file *)m;
	struct media_waiter self = {0};

	lock_acquire(&f->lock);
	self.next = f->waiting;
	f->waiting = &self;
	while (!self.done) {
		if (f->flushing)
			lock_cond_wait(&f->flushed, &f->lock);
		else
			media_file_flush_round(f);
	}
	lock_release(&f->lock);
	return self.rc;
}

static int media_file_discard(struct media *m, uint64_t off, uint64_t len)
{
	struct media_file *f = (struct media_file *)m;
	uint64_t range[2] = {off, len};
	int rc;

	if (f->device)
		rc = ioctl(f->fd, BLKDISCARD, range);
	else if (f->discard)
		rc = fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off,
			       (off_t)len);
	else
		return 0;
	if (rc == 0 || errno == EOPNOTSUPP || errno == ENOSYS || errno == ENOTTY)
		return 0;
	return media_file_failed(f, "discard", len, off, errno);
}

static void media_file_close(struct media *m)
{
	struct media_file *f = (struct media_file *)m;

	if (f->fd >= 0)
		close(f->fd); /* gives up the lock as well */
	lock_cond_destroy(&f->flushed);
	lock_destroy(&f->lock);
	free(f->path);
	free(f);
}

static const struct media_ops media_file_ops = {
	.read = media_file_read,
	.write = media_file_write,
	.flush = media_file_flush,
	.discard = media_file_discard,
	.close = media_file_close,
};

/* Makes the name durable: without this a power cut can lose a whole new file. */
static int media_file_sync_parent(const char *path)
{
	char *copy = strdup(path);
	int fd, rc;

	if (!copy)
		return -ENOMEM;
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(copy);
	if (fd < 0)
		return -errno;
	rc = fsync(fd) == 0 ? 0 : -errno;
	close(fd);
	return rc;
}

static int media_file_preallocate(struct media_file *f, uint64_t size)
{
	int rc;

	do {
		rc = -posix_fallocate(f->fd, 0, (off_t)size);
	} while (rc == -EINTR);
	if (rc == -EFBIG)
		rc = -ENOSPC;
	if (rc == 0 && fsync(f->fd) < 0)
		rc = -errno;
	if (rc == 0)
		rc = media_file_sync_parent(f->path);
	if (rc < 0)
		log_error("media", "%s: cannot set aside %llu bytes: %s; free some space or choose "
				   "a smaller size",
			  f->path, (unsigned long long)size, strerror(-rc));
	return rc;
}

static int media_file_measure(struct media_file *f, const struct stat *st, uint64_t size)
{
	uint64_t there = (uint64_t)st->st_size;

	if (f->device && ioctl(f->fd, BLKGETSIZE64, &there) < 0)
		return -errno;
	there = media_align_down(there);
	if (there == 0 || size > there) {
		log_error("media", "%s: holds %llu bytes, %llu are needed; give a bigger one",
			  f->path, (unsigned long long)there,
			  (unsigned long long)(size ? size : MEDIA_ALIGN));
		return -EINVAL;
	}
	f->base.size = size ? size : there;
	return 0;
}

/* O_DIRECT if the filesystem takes the flag and then really reads with our alignment. */
static void media_file_set_direct(struct media_file *f)
{
	int flags = fcntl(f->fd, F_GETFL);
	void *buf;

	if (flags < 0 || fcntl(f->fd, F_SETFL, flags | O_DIRECT) < 0)
		return;
	if (posix_memalign(&buf, MEDIA_ALIGN, MEDIA_ALIGN) == 0) {
		f->direct = pread(f->fd, buf, MEDIA_ALIGN, 0) == MEDIA_ALIGN;
		free(buf);
	}
	if (!f->direct)
		fcntl(f->fd, F_SETFL, flags);
}

/* Opens without waiting for anything (a FIFO would block) and takes the exclusive lock. */
static int media_file_open_fd(struct media_file *f, unsigned flags, struct stat *st)
{
	int mode = (flags & MEDIA_READONLY ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK;

	if (flags & MEDIA_CREATE) {
		f->fd = open(f->path, mode | O_CREAT | O_EXCL, 0600);
	} else {
		if (!(flags & MEDIA_PEEK) && stat(f->path, st) == 0 && S_ISBLK(st->st_mode))
			mode |= O_EXCL;
		f->fd = open(f->path, mode);
	}
	if (f->fd < 0 || fstat(f->fd, st) < 0)
		return -errno;
	f->device = S_ISBLK(st->st_mode);
	if (!f->device && !S_ISREG(st->st_mode))
		return -EINVAL;
	if (!f->device && !(flags & MEDIA_PEEK) && flock(f->fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	return 0;
}

static int media_file_setup(struct media_file *f, uint64_t size, unsigned flags)
{
	struct stat st;
	int rc = media_file_open_fd(f, flags, &st);

	if (rc < 0) {
		log_error("media", "%s: cannot be opened as a medium: %s%s", f->path, strerror(-rc),
			  rc == -EBUSY ? "; another process uses it" : "");
		return rc;
	}
	if (flags & MEDIA_CREATE) {
		rc = media_file_preallocate(f, size);
		st.st_size = (off_t)size;
	}
	if (rc == 0)
		rc = media_file_measure(f, &st, size);
	if (rc == 0 && (flags & MEDIA_DIRECT))
		media_file_set_direct(f);
	if (rc < 0 && (flags & MEDIA_CREATE))
		unlink(f->path);
	return rc;
}

int media_open_file(struct media **out, const char *path, uint64_t size, unsigned flags)
{
	struct media_file *f;
	int rc;

	*out = NULL;
	if (size % MEDIA_ALIGN || ((flags & MEDIA_CREATE) && (size == 0 || flags & MEDIA_READONLY)) ||
	    ((flags & MEDIA_PEEK) && !(flags & MEDIA_READONLY)))
		return -EINVAL;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->base.ops = &media_file_ops;
	f->base.readonly = flags & MEDIA_READONLY;
	f->discard = flags & MEDIA_DISCARD;
	f->fd = -1;
	/* One above RANK_MEDIA: the fault injector calls down with its own lock held. */
	lock_init(&f->lock, "media file", RANK_MEDIA + 1);
	lock_cond_init(&f->flushed);
	f->path = strdup(path);
	rc = f->path ? media_file_setup(f, size, flags) : -ENOMEM;
	if (rc < 0)
		media_file_close(&f->base);
	else
		*out = &f->base;
	return rc;
}
