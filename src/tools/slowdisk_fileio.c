/* SPDX-License-Identifier: BSD-2-Clause
 * Open files and directories of a --files mount. */
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/slowdisk_files.h"

#define FILES_JOURNAL 0 /* where fsync writes: the start of the stroke */

struct files_dir {
	DIR *dir;
	off_t at;           /* offset of what comes next */
	struct dirent *kept; /* read but did not fit; NULL: none */
};

static int files_fd(const struct fuse_file_info *fi)
{
	return ((const struct slow_handle *)(uintptr_t)fi->fh)->fd;
}

/* Flags for our descriptor: the kernel has looked the name up and checked O_EXCL, and its requests
 * are not aligned as O_DIRECT wants. */
static int files_flags(const struct fuse_file_info *fi)
{
	return (fi->flags & ~(O_CREAT | O_EXCL | O_DIRECT | O_NOCTTY)) | O_NOFOLLOW | O_CLOEXEC;
}

void files_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct slow_files *f = files_of(req);
	struct slow_handle *h;
	char path[PATH_MAX];
	struct stat st;
	int fd, err;

	if (ino == FILES_CONTROL_INO) {
		slow_control_open(req, fi, f->delay);
		return;
	}
	/* Checked before, or O_TRUNC might empty what took the name meanwhile. */
	err = files_stat(f, ino, path, &st);
	fd = err ? -1 : openat(f->root, path, files_flags(fi));
	if (fd < 0) {
		fuse_reply_err(req, err ? -err : errno);
		return;
	}
	h = slow_node_open(f->nodes, files_node(f, ino), fd);
	if (!h) {
		close(fd);
		fuse_reply_err(req, ENOMEM);
		return;
	}
	fi->fh = (uintptr_t)h;
	fi->keep_cache = 1;
	if (fuse_reply_open(req, fi) != 0)
		slow_node_close(f->nodes, h);
}

/* Creates `path`, or opens it if somebody else just did and O_EXCL is not asked for. */
static int files_create_fd(fuse_req_t req, const char *path, mode_t mode,
			   const struct fuse_file_info *fi)
{
	struct slow_files *f = files_of(req);
	int fd = openat(f->root, path, files_flags(fi) | O_CREAT | O_EXCL, mode);
	int err;

	if (fd < 0 && errno == EEXIST && !(fi->flags & O_EXCL)) {
		fd = openat(f->root, path, files_flags(fi));
		return fd >= 0 ? fd : -errno;
	}
	if (fd < 0)
		return -errno;
	err = files_own(req, path);
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

void files_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		  struct fuse_file_info *fi)
{
	struct slow_files *f = files_of(req);
	struct fuse_entry_param e = {.attr_timeout = FILES_TIMEOUT, .entry_timeout = FILES_TIMEOUT};
	struct slow_handle *h = NULL;
	struct slow_node *n = NULL;
	char path[PATH_MAX];
	bool fresh;
	int err = files_path(f, parent, name, path), fd = -1;

	if (!err) {
		fd = files_create_fd(req, path, mode, fi);
		err = fd < 0 ? fd : 0;
	}
	if (!err && fstat(fd, &e.attr) != 0)
		err = -errno;
	if (!err && !(n = slow_node_look(f->nodes, files_node(f, parent), name, &e.attr, &fresh)))
		err = -ENOMEM;
	if (!err && !(h = slow_node_open(f->nodes, n, fd))) {
		slow_node_forget(f->nodes, n, 1);
		err = -ENOMEM;
	}
	if (err) {
		if (fd >= 0)
			close(fd);
		fuse_reply_err(req, -err);
		return;
	}
	e.ino = (uintptr_t)n;
	fi->fh = (uintptr_t)h;
	fi->keep_cache = 1;
	if (fuse_reply_create(req, &e, fi) != 0) {
		slow_node_close(f->nodes, h);
		slow_node_forget(f->nodes, n, 1);
	}
}

/* Data costs its bytes at the file's place. A read at the end of the file costs nothing. */
static void files_answer(fuse_req_t req, struct slow_io *io, fuse_ino_t ino, ssize_t n, off_t off,
			 bool write)
{
	struct slow_files *f = files_of(req);

	io->error = n < 0 ? errno : 0;
	io->size = n > 0 ? (size_t)n : 0;
	if (n > 0)
		files_charge(f, io, files_place(slow_node_ino(files_node(f, ino)), (uint64_t)off),
			     (size_t)n, write);
	else
		slow_io_done(io);
}

void files_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct slow_io *io;

	if (ino == FILES_CONTROL_INO) {
		slow_control_read(req, size, off, fi);
		return;
	}
	io = size <= SLOW_MAX_IO ? slow_io_get(files_of(req)->pool, req, size) : NULL;
	if (!io) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	io->reply = SLOW_REPLY_DATA;
	files_answer(req, io, ino, pread(files_fd(fi), io->buf, size, off), off, false);
}

void files_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		 struct fuse_file_info *fi)
{
	struct slow_io *io;

	if (ino == FILES_CONTROL_INO) {
		slow_control_write(req, buf, size, files_of(req)->delay);
		return;
	}
	io = slow_io_get(files_of(req)->pool, req, 0);
	if (!io) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	io->reply = SLOW_REPLY_COUNT;
	files_answer(req, io, ino, pwrite(files_fd(fi), buf, size, off), off, true);
}

void files_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct slow_io *io;

	if (ino == FILES_CONTROL_INO) {
		fuse_reply_err(req, 0);
		return;
	}
	io = slow_io_get(files_of(req)->pool, req, 0);
	if (!io) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	io->reply = SLOW_REPLY_ERROR;
	if ((datasync ? fdatasync(files_fd(fi)) : fsync(files_fd(fi))) != 0)
		io->error = errno;
	files_charge(files_of(req), io, FILES_JOURNAL, FILES_BLOCK, true);
}

void files_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (ino == FILES_CONTROL_INO) {
		slow_control_release(req, fi);
		return;
	}
	slow_node_close(files_of(req)->nodes, (struct slow_handle *)(uintptr_t)fi->fh);
	fuse_reply_err(req, 0);
}

void files_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct slow_files *f = files_of(req);
	struct files_dir *d = calloc(1, sizeof(*d));
	char path[PATH_MAX];
	struct stat st;
	int err = d ? files_stat(f, ino, path, &st) : -ENOMEM, fd = -1;

	if (!err) {
		fd = openat(f->root, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		err = fd < 0 || !(d->dir = fdopendir(fd)) ? -errno : 0;
	}
	if (err) {
		if (fd >= 0)
			close(fd);
		free(d);
		fuse_reply_err(req, -err);
		return;
	}
	fi->fh = (uintptr_t)d;
	if (fuse_reply_open(req, fi) != 0) {
		closedir(d->dir);
		free(d);
	}
}

/* Fills `io` from the handle's position; errors after the first entry wait for the next call. */
static void files_fill(fuse_req_t req, struct files_dir *d, struct slow_io *io, size_t size)
{
	size_t used = 0;

	for (;;) {
		struct stat st = {0};
		size_t need;

		errno = 0;
		if (!d->kept && !(d->kept = readdir(d->dir))) {
			io->error = used ? 0 : errno;
			break;
		}
		st.st_ino = d->kept->d_ino;
		st.st_mode = (mode_t)d->kept->d_type << 12;
		need = fuse_add_direntry(req, io->buf + used, size - used, d->kept->d_name, &st,
					 d->kept->d_off);
		if (need > size - used)
			break;
		used += need;
		d->at = d->kept->d_off;
		d->kept = NULL;
	}
	io->size = used;
}

void files_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		   struct fuse_file_info *fi)
{
	struct files_dir *d = (struct files_dir *)(uintptr_t)fi->fh;
	struct slow_files *f = files_of(req);
	struct slow_io *io;

	if (size > SLOW_MAX_IO)
		size = SLOW_MAX_IO;
	io = slow_io_get(f->pool, req, size);
	if (!io) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	io->reply = SLOW_REPLY_DATA;
	if (off != d->at) {
		seekdir(d->dir, off);
		d->at = off;
		d->kept = NULL;
	}
	files_fill(req, d, io, size);
	if (off == 0)
		files_charge(f, io, files_place(slow_node_ino(files_node(f, ino)), 0), FILES_BLOCK,
			     false);
	else
		slow_io_done(io);
}

void files_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct files_dir *d = (struct files_dir *)(uintptr_t)fi->fh;

	(void)ino;
	closedir(d->dir);
	free(d);
	fuse_reply_err(req, 0);
}
