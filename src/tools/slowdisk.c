/* SPDX-License-Identifier: BSD-2-Clause
 *
 * gild slowdisk, image form: DIR/disk is an image behind a disk-array model.
 *
 * DIR/disk is meant for a loop device (losetup --direct-io=on) with a real ext4 or XFS on it: then
 * the filesystem's own reads of inodes, directories and bitmaps, its journal and its read-ahead
 * reach the model as they would reach a RAID controller, and page cache and read-ahead above work
 * as on a real disk. DIR/control switches the delays (the image is filled without them) and tells
 * the counters.
 *
 * A request enters the model first; then its real I/O runs, on one of a few threads, with O_DIRECT
 * so that the page cache does not hold the image a second time; the answer leaves when both are
 * over. Waiting requests cost memory only, so a thousand may wait. The real device must be faster
 * than the model, or it shows through.
 *
 * Where the content lies. Image bytes are laid out linearly over the array, and the whole image
 * spans the part of the stroke that 40 GB take of the modelled array (the content and the arrays of
 * the published measurements: 18 % of hdd-6, 5 % of hdd-24), whatever the image's size: a small
 * image stands for the large content and has its seek distances. --stroke changes the part.
 *
 * No write cache is modelled, neither in the drives nor in the controller: write-through, the
 * default of server drives. So a flush has nothing to wait for in the model; it flushes the image.
 */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "tools/slowdisk.h"
#include "tools/slowdisk_image.h"

enum { INO_ROOT = FUSE_ROOT_ID, INO_DISK = 2, INO_CONTROL = 3 };

#define IMAGE_TIMEOUT 86400.0 /* seconds names and attributes stay: they never change */

struct slowdisk {
	struct slow_image *image;
	struct slow_pool *pool;
	struct delay *delay;
	struct timespec started;
};

static struct slowdisk *slowdisk_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static void slowdisk_init(void *userdata, struct fuse_conn_info *conn)
{
	struct slowdisk *s = userdata;

	slow_image_keep(s->image);
	slow_session_init_conn(conn);
}

static void slowdisk_attr(const struct slowdisk *s, fuse_ino_t ino, struct stat *st)
{
	*st = (struct stat){.st_ino = ino, .st_nlink = 1, .st_uid = getuid(), .st_gid = getgid()};
	st->st_atim = st->st_mtim = st->st_ctim = s->started;
	st->st_blksize = SLOW_MAX_IO;
	if (ino == INO_ROOT) {
		st->st_mode = S_IFDIR | 0755;
		st->st_nlink = 2;
	} else if (ino == INO_CONTROL) {
		st->st_mode = S_IFREG | 0644;
	} else {
		st->st_mode = S_IFREG | 0600;
		st->st_size = (off_t)slow_image_bytes(s->image);
		st->st_blocks = st->st_size / 512;
	}
}

static void slowdisk_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = {.attr_timeout = IMAGE_TIMEOUT, .entry_timeout = IMAGE_TIMEOUT};

	if (parent == INO_ROOT && strcmp(name, "disk") == 0)
		e.ino = INO_DISK;
	else if (parent == INO_ROOT && strcmp(name, "control") == 0)
		e.ino = INO_CONTROL;
	if (!e.ino) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	slowdisk_attr(slowdisk_of(req), e.ino, &e.attr);
	fuse_reply_entry(req, &e);
}

static void slowdisk_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	slowdisk_attr(slowdisk_of(req), ino, &st);
	fuse_reply_attr(req, &st, IMAGE_TIMEOUT);
}

/* Owner and mode are fixed; so is the size, and to set it does nothing, as with a block device:
 * "echo off > control" and "dd of=disk" truncate. */
static void slowdisk_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
			     struct fuse_file_info *fi)
{
	(void)attr;
	if (to_set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
		fuse_reply_err(req, EPERM);
	else
		slowdisk_getattr(req, ino, fi);
}

static void slowdisk_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (ino == INO_CONTROL) {
		slow_control_open(req, fi, slowdisk_of(req)->delay);
		return;
	}
	fi->direct_io = 1;
	fuse_reply_open(req, fi);
}

static void slowdisk_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (ino == INO_CONTROL)
		slow_control_release(req, fi);
	else
		fuse_reply_err(req, 0);
}

/* Clamps a request to the image; false when it was answered here. */
static bool slowdisk_clamp(fuse_req_t req, off_t off, size_t *size, bool write)
{
	uint64_t bytes = slow_image_bytes(slowdisk_of(req)->image);

	if (off >= 0 && (uint64_t)off < bytes && *size > 0) {
		if (*size > bytes - (uint64_t)off)
			*size = bytes - (uint64_t)off;
		return true;
	}
	if (write)
		fuse_reply_err(req, *size ? ENOSPC : 0);
	else
		fuse_reply_buf(req, NULL, 0);
	return false;
}

static void slowdisk_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			  struct fuse_file_info *fi)
{
	struct slowdisk *s = slowdisk_of(req);
	struct slow_io *io;

	if (ino == INO_CONTROL) {
		slow_control_read(req, size, off, fi);
		return;
	}
	if (!slowdisk_clamp(req, off, &size, false))
		return;
	io = slow_io_get(s->pool, req, size);
	if (!io) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	io->reply = SLOW_REPLY_DATA;
	io->size = size;
	slow_io_begin(io, s->delay, (uint64_t)off, size, false);
	io->error = -slow_image_read(s->image, io->buf, size, (uint64_t)off);
	delay_end(&io->item);
}

static void slowdisk_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
			   struct fuse_file_info *fi)
{
	struct slowdisk *s = slowdisk_of(req);
	struct slow_io *io;

	(void)fi;
	if (ino == INO_CONTROL) {
		slow_control_write(req, buf, size, s->delay);
		return;
	}
	if (!slowdisk_clamp(req, off, &size, true))
		return;
	io = slow_io_get(s->pool, req, size);
	if (!io) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	io->reply = SLOW_REPLY_COUNT;
	io->size = size;
	memcpy(io->buf, buf, size);
	slow_io_begin(io, s->delay, (uint64_t)off, size, true);
	io->error = -slow_image_write(s->image, io->buf, size, (uint64_t)off);
	delay_end(&io->item);
}

static void slowdisk_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)datasync;
	(void)fi;
	fuse_reply_err(req, ino == INO_DISK ? -slow_image_flush(slowdisk_of(req)->image) : 0);
}

/* What a loop device's discard becomes. It moves no head. */
static void slowdisk_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
			       struct fuse_file_info *fi)
{
	struct slowdisk *s = slowdisk_of(req);

	(void)fi;
	if (ino != INO_DISK || offset < 0 || length <= 0 ||
	    (uint64_t)offset + (uint64_t)length > slow_image_bytes(s->image))
		fuse_reply_err(req, EINVAL);
	else
		fuse_reply_err(req, -slow_image_punch(s->image, mode, (uint64_t)offset,
						      (uint64_t)length));
}

static void slowdisk_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			     struct fuse_file_info *fi)
{
	static const char *const names[] = {".", "..", "disk", "control"};
	static const fuse_ino_t inos[] = {INO_ROOT, INO_ROOT, INO_DISK, INO_CONTROL};
	char buf[512];
	size_t used = 0;

	(void)fi;
	if (ino != INO_ROOT) {
		fuse_reply_err(req, ENOTDIR);
		return;
	}
	if (size > sizeof(buf))
		size = sizeof(buf);
	for (off_t i = off; i >= 0 && i < 4; i++) {
		struct stat st;
		size_t need;

		slowdisk_attr(slowdisk_of(req), inos[i], &st);
		need = fuse_add_direntry(req, buf + used, size - used, names[i], &st, i + 1);
		if (need > size - used)
			break;
		used += need;
	}
	fuse_reply_buf(req, buf, used);
}

static void slowdisk_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs v = {.f_bsize = 4096, .f_frsize = 4096, .f_namemax = 255, .f_files = 2};

	(void)ino;
	v.f_blocks = slow_image_bytes(slowdisk_of(req)->image) / 4096;
	fuse_reply_statfs(req, &v);
}

static const struct fuse_lowlevel_ops slowdisk_ops = {
	.init = slowdisk_init,
	.lookup = slowdisk_lookup,
	.getattr = slowdisk_getattr,
	.setattr = slowdisk_setattr,
	.open = slowdisk_open,
	.release = slowdisk_release,
	.read = slowdisk_read,
	.write = slowdisk_write,
	.fsync = slowdisk_fsync,
	.fallocate = slowdisk_fallocate,
	.readdir = slowdisk_readdir,
	.statfs = slowdisk_statfs,
};

int slow_image_run(const struct slow_args *a)
{
	struct slowdisk s = {0};
	int err, code = 1;

	err = slow_image_open(&s.image, a->source, a->size);
	if (err)
		return 1;
	err = slow_pool_create(&s.pool);
	if (!err)
		err = delay_create(&s.delay, a->kind, slow_image_bytes(s.image), a->stroke,
				   a->delays);
	if (err) {
		fprintf(stderr, "gild slowdisk: cannot set up the model: %s\n", strerror(-err));
	} else {
		struct slow_session session = {.mountpoint = a->mountpoint,
					       .foreground = a->foreground,
					       .allow_other = a->allow_other,
					       .ops = &slowdisk_ops,
					       .userdata = &s,
					       .delay = s.delay};

		clock_gettime(CLOCK_REALTIME, &s.started);
		code = slow_session_run(&session);
		if (session.handed_over)
			slow_image_keep(s.image);
	}
	delay_destroy(s.delay);
	slow_pool_destroy(s.pool);
	slow_image_close(s.image);
	return code;
}
