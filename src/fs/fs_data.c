/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Data of files.
 *
 * Zero-message open: OPEN and FLUSH are answered with ENOSYS once, and the kernel asks no more: a
 * file is opened without a message, its pages stay from one open to the next, and its requests come
 * by nodeid with a file handle of 0. There is no state of an open file here.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "fs/fs_priv.h"

void fs_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	if (fs_of(req)->no_open) {
		fuse_reply_err(req, ENOSYS);
		return;
	}
	fi->fh = 0;
	fi->keep_cache = 1;
	fuse_reply_open(req, fi);
}

void fs_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	fuse_reply_err(req, ENOSYS);
}

void fs_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct fs *f = fs_of(req);
	struct fs_thread *t = fs_self(f);
	bool changed = false;
	ssize_t n;

	(void)fi;
	if (size > FS_MAX_IO || off < 0) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	n = cache_read(f->cache, fs_node(f, ino), t->reply, size, (uint64_t)off, fs_flags(t),
		       &changed);
	if (fs_defer(t, req, n))
		return;
	if (n == -ESTALE)
		fs_park_gone(f, fs_node(f, ino)); /* before the answer: the kernel may forget it then */
	if (n < 0)
		fuse_reply_err(req, (int)-n);
	else
		fuse_reply_buf(req, t->reply, (size_t)n);
	if (changed)
		fs_park_inval(f, ino, 0);
}

void fs_op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		 struct fuse_file_info *fi)
{
	struct fs *f = fs_of(req);
	/* Dirty pages of a mapping carry the flags of some descriptor, but a place of their own. */
	bool append = (fi->flags & O_APPEND) && !fi->writepage;
	uint64_t at = (uint64_t)off;
	ssize_t n;

	if (off < 0 || !fs_within(fs_self(f), buf, size)) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	n = cache_write(f->cache, fs_node(f, ino), buf, size, &at, append);
	if (n == -ESTALE)
		fs_park_gone(f, fs_node(f, ino));
	if (n < 0) {
		fuse_reply_err(req, (int)-n);
		return;
	}
	if (n > 0 && (fi->flags & O_DIRECT) && !fi->writepage && at == (uint64_t)off) {
		fs_park_direct(f, req, ino, off, (size_t)n);
		return;
	}
	fuse_reply_write(req, (size_t)n);
	/* The kernel has put the data, and the end of the file, where it believed the end to be. */
	if (at != (uint64_t)off)
		fs_park_inval(f, ino, (off_t)(at < (uint64_t)off ? at : (uint64_t)off));
}

void fs_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct fs *f = fs_of(req);

	(void)fi;
	fuse_reply_err(req, -cache_fsync(f->cache, fs_node(f, ino), datasync != 0));
}

void fs_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
		     struct fuse_file_info *fi)
{
	struct fs *f = fs_of(req);

	(void)fi;
	if (off < 0 || len <= 0) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	fuse_reply_err(req, -cache_fallocate(f->cache, fs_node(f, ino), mode, (uint64_t)off,
					     (uint64_t)len));
}

void fs_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct fs *f = fs_of(req);
	off_t at;

	(void)fi;
	if (whence != SEEK_DATA && whence != SEEK_HOLE) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	at = backing_lseek(cache_backing(f->cache), cache_bnode(fs_node(f, ino)), off, whence);
	if (at < 0)
		fuse_reply_err(req, (int)-at);
	else
		fuse_reply_lseek(req, at);
}

void fs_op_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t from_off,
			   struct fuse_file_info *from_fi, fuse_ino_t to, off_t to_off,
			   struct fuse_file_info *to_fi, size_t len, int flags)
{
	struct fs *f = fs_of(req);
	ssize_t n;

	(void)from_fi;
	(void)to_fi;
	if (flags || from_off < 0 || to_off < 0) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	n = cache_copy_range(f->cache, fs_node(f, from), (uint64_t)from_off, fs_node(f, to),
			     (uint64_t)to_off, len);
	if (n < 0)
		fuse_reply_err(req, (int)-n);
	else
		fuse_reply_write(req, (size_t)n);
}
