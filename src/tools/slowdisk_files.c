/* SPDX-License-Identifier: BSD-2-Clause
 *
 * gild slowdisk --files: a directory at the pace of a disk array, without root and without an
 * image. An approximation, and this is what it approximates:
 *
 * - A file lies in one piece at a place chosen by hashing its inode number; each directory has a
 *   place for its entries and the inodes in it. The places spread over the default stroke of the
 *   model, as if the directory held 40 GB.
 * - Reading data costs a read of those bytes, writing a write. The kernel's page cache is above, so
 *   cached reads cost nothing; writes go through at once, one model write each.
 * - The first lookup of an inode (again after the kernel forgot it) costs a 4 KiB read near its
 *   directory's place, listing a directory one read there, fsync one write at the journal's place.
 * - Other changes (create, unlink, mkdir, rename, chmod) cost nothing: a journal gathers them.
 * - No fragmentation, no indirect blocks, no bitmaps, no write-back.
 *
 * The real I/O runs first and the model's time is added to it: the directory should lie on
 * something fast. Extended attributes, fallocate and locks of other hosts are not passed on.
 */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/hash.h"
#include "tools/slowdisk_files.h"

#define FILES_INODE 256 /* bytes; of a directory's inodes, 512 lie together */

struct slow_files *files_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

struct slow_node *files_node(struct slow_files *f, fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? slow_nodes_root(f->nodes) : (struct slow_node *)(uintptr_t)ino;
}

int files_path(struct slow_files *f, fuse_ino_t ino, const char *name, char *buf)
{
	if (ino == FILES_CONTROL_INO)
		return -EPERM;
	return slow_node_path(f->nodes, files_node(f, ino), name, buf);
}

int files_stat(struct slow_files *f, fuse_ino_t ino, char *path, struct stat *st)
{
	int err = files_path(f, ino, NULL, path);

	if (err)
		return err;
	if (fstatat(f->root, path, st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT ? -ESTALE : -errno;
	return slow_node_is(files_node(f, ino), st) ? 0 : -ESTALE;
}

uint64_t files_place(uint64_t ino, uint64_t offset)
{
	return (hash_mix64(ino) % FILES_SPAN + offset) % FILES_SPAN / FILES_BLOCK * FILES_BLOCK;
}

/* Where `ino` is kept: among the inodes of its directory. */
static uint64_t files_inode_place(uint64_t dir, uint64_t ino)
{
	return files_place(dir, 0) + ino % 512 * FILES_INODE / FILES_BLOCK * FILES_BLOCK;
}

void files_charge(struct slow_files *f, struct slow_io *io, uint64_t place, size_t length,
			 bool write)
{
	slow_io_begin(io, f->delay, place, length, write);
	delay_end(&io->item);
}

static void files_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	slow_session_init_conn(conn);
}

static void files_unlook(struct slow_io *io)
{
	struct slow_files *f = io->owner;

	if (io->entry.ino != FUSE_ROOT_ID)
		slow_node_forget(f->nodes, files_node(f, io->entry.ino), 1);
}

/* Answers with the entry parent/name, which exists at `path`; a first lookup is charged when
 * `charge`. */
static void files_reply_entry(fuse_req_t req, fuse_ino_t parent, const char *name, const char *path,
			      bool charge)
{
	struct slow_files *f = files_of(req);
	struct slow_node *dir = files_node(f, parent), *n;
	struct slow_io *io = slow_io_get(f->pool, req, 0);
	bool fresh;

	if (!io) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	io->reply = SLOW_REPLY_ENTRY;
	io->entry = (struct fuse_entry_param){.attr_timeout = FILES_TIMEOUT,
					      .entry_timeout = FILES_TIMEOUT};
	if (fstatat(f->root, path, &io->entry.attr, AT_SYMLINK_NOFOLLOW) != 0) {
		io->error = errno;
		slow_io_done(io);
		return;
	}
	n = slow_node_look(f->nodes, dir, name, &io->entry.attr, &fresh);
	if (!n) {
		io->error = ENOMEM;
		slow_io_done(io);
		return;
	}
	io->entry.ino = (uintptr_t)n;
	io->unlook = files_unlook;
	io->owner = f;
	if (fresh && charge)
		files_charge(f, io, files_inode_place(slow_node_ino(dir), slow_node_ino(n)),
			     FILES_BLOCK, false);
	else
		slow_io_done(io);
}

static void files_control_attr(struct stat *st)
{
	*st = (struct stat){.st_ino = FILES_CONTROL_INO, .st_nlink = 1, .st_uid = getuid(),
			    .st_gid = getgid(), .st_mode = S_IFREG | 0644};
}

static void files_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	char path[PATH_MAX];
	int err;

	if (parent == FUSE_ROOT_ID && strcmp(name, FILES_CONTROL) == 0) {
		struct fuse_entry_param e = {.ino = FILES_CONTROL_INO};

		files_control_attr(&e.attr);
		fuse_reply_entry(req, &e);
		return;
	}
	err = files_path(files_of(req), parent, name, path);
	if (err)
		fuse_reply_err(req, -err);
	else
		files_reply_entry(req, parent, name, path, true);
}

static void files_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	struct slow_files *f = files_of(req);

	if (ino != FUSE_ROOT_ID && ino != FILES_CONTROL_INO)
		slow_node_forget(f->nodes, files_node(f, ino), nlookup);
	fuse_reply_none(req);
}

static void files_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct slow_files *f = files_of(req);
	char path[PATH_MAX];
	struct stat st;
	int err = 0;

	(void)fi;
	if (ino == FILES_CONTROL_INO)
		files_control_attr(&st);
	else
		err = files_stat(f, ino, path, &st);
	if (err == -ESTALE)
		err = slow_node_fstat(f->nodes, files_node(f, ino), &st);
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_attr(req, &st, FILES_TIMEOUT);
}

static struct timespec files_time(int to_set, int set, int now, struct timespec t)
{
	if (to_set & now)
		t.tv_nsec = UTIME_NOW;
	else if (!(to_set & set))
		t.tv_nsec = UTIME_OMIT;
	return t;
}

static int files_set(struct slow_files *f, const char *path, const struct stat *attr, int to_set)
{
	uid_t uid = to_set & FUSE_SET_ATTR_UID ? attr->st_uid : (uid_t)-1;
	gid_t gid = to_set & FUSE_SET_ATTR_GID ? attr->st_gid : (gid_t)-1;
	struct timespec t[2] = {
		files_time(to_set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW, attr->st_atim),
		files_time(to_set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW, attr->st_mtim),
	};

	if ((to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) &&
	    fchownat(f->root, path, uid, gid, AT_SYMLINK_NOFOLLOW) != 0)
		return -errno;
	if ((to_set & FUSE_SET_ATTR_MODE) && fchmodat(f->root, path, attr->st_mode, 0) != 0)
		return -errno;
	if (to_set & FUSE_SET_ATTR_SIZE) {
		int fd = openat(f->root, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		int err = fd >= 0 && ftruncate(fd, attr->st_size) == 0 ? 0 : -errno;

		if (fd >= 0)
			close(fd);
		if (err)
			return err;
	}
	if ((t[0].tv_nsec != UTIME_OMIT || t[1].tv_nsec != UTIME_OMIT) &&
	    utimensat(f->root, path, t, AT_SYMLINK_NOFOLLOW) != 0)
		return -errno;
	return 0;
}

/* By path, except that an open file's size goes by its descriptor: it may have no name left. */
static void files_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
			  struct fuse_file_info *fi)
{
	struct slow_files *f = files_of(req);
	char path[PATH_MAX];
	struct stat st;
	int err = 0;

	if (ino == FILES_CONTROL_INO) {
		files_getattr(req, ino, NULL);
		return;
	}
	if (fi && (to_set & FUSE_SET_ATTR_SIZE)) {
		struct slow_handle *h = (struct slow_handle *)(uintptr_t)fi->fh;

		err = ftruncate(h->fd, attr->st_size) == 0 ? 0 : -errno;
		to_set &= ~FUSE_SET_ATTR_SIZE;
	}
	if (!err && to_set) {
		err = files_stat(f, ino, path, &st);
		if (!err)
			err = files_set(f, path, attr, to_set);
	}
	if (err)
		fuse_reply_err(req, -err);
	else
		files_getattr(req, ino, fi);
}

static void files_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char path[PATH_MAX], target[PATH_MAX];
	struct stat st;
	int err = files_stat(files_of(req), ino, path, &st);
	ssize_t n = err ? 0 : readlinkat(files_of(req)->root, path, target, sizeof(target) - 1);

	if (err || n < 0) {
		fuse_reply_err(req, err ? -err : errno);
		return;
	}
	target[n] = '\0';
	fuse_reply_readlink(req, target);
}

int files_own(fuse_req_t req, const char *path)
{
	struct slow_files *f = files_of(req);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct stat st;

	if (!f->owner)
		return 0;
	if (fstatat(f->root, path, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return -errno;
	/* A group that is not ours came from a set-group-id directory. */
	return fchownat(f->root, path, ctx->uid, st.st_gid == getegid() ? ctx->gid : (gid_t)-1,
			AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
}

static void files_made(fuse_req_t req, fuse_ino_t parent, const char *name, const char *path,
		       int err)
{
	if (!err)
		err = files_own(req, path);
	if (err)
		fuse_reply_err(req, -err);
	else
		files_reply_entry(req, parent, name, path, false);
}

static void files_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
			dev_t rdev)
{
	char path[PATH_MAX];
	int err = files_path(files_of(req), parent, name, path);

	if (!err && mknodat(files_of(req)->root, path, mode, rdev) != 0)
		err = -errno;
	files_made(req, parent, name, path, err);
}

static void files_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	char path[PATH_MAX];
	int err = files_path(files_of(req), parent, name, path);

	if (!err && mkdirat(files_of(req)->root, path, mode) != 0)
		err = -errno;
	files_made(req, parent, name, path, err);
}

static void files_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	char path[PATH_MAX];
	int err = files_path(files_of(req), parent, name, path);

	if (!err && symlinkat(target, files_of(req)->root, path) != 0)
		err = -errno;
	files_made(req, parent, name, path, err);
}

static void files_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct slow_files *f = files_of(req);
	char from[PATH_MAX], path[PATH_MAX];
	struct stat st;
	int err = files_stat(f, ino, from, &st);

	if (!err)
		err = files_path(f, parent, name, path);
	if (!err && linkat(f->root, from, f->root, path, 0) != 0)
		err = -errno;
	if (err)
		fuse_reply_err(req, -err);
	else
		files_reply_entry(req, parent, name, path, false);
}

static void files_remove(fuse_req_t req, fuse_ino_t parent, const char *name, int flags)
{
	char path[PATH_MAX];
	int err = files_path(files_of(req), parent, name, path);

	if (!err && unlinkat(files_of(req)->root, path, flags) != 0)
		err = -errno;
	fuse_reply_err(req, -err);
}

static void files_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	files_remove(req, parent, name, 0);
}

static void files_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	files_remove(req, parent, name, AT_REMOVEDIR);
}

static void files_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
			 const char *newname, unsigned flags)
{
	struct slow_files *f = files_of(req);
	char from[PATH_MAX], to[PATH_MAX];
	struct stat st;
	int err = files_path(f, parent, name, from);

	if (!err)
		err = files_path(f, newparent, newname, to);
	if (!err && renameat2(f->root, from, f->root, to, flags) != 0)
		err = -errno;
	if (!err && fstatat(f->root, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
		slow_node_renamed(f->nodes, &st, files_node(f, newparent), newname);
	if (!err && (flags & RENAME_EXCHANGE) &&
	    fstatat(f->root, from, &st, AT_SYMLINK_NOFOLLOW) == 0)
		slow_node_renamed(f->nodes, &st, files_node(f, parent), name);
	fuse_reply_err(req, -err);
}

static void files_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs v;

	(void)ino;
	if (fstatvfs(files_of(req)->root, &v) != 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_statfs(req, &v);
}

static const struct fuse_lowlevel_ops files_ops = {
	.init = files_init,
	.lookup = files_lookup,
	.forget = files_forget,
	.getattr = files_getattr,
	.setattr = files_setattr,
	.readlink = files_readlink,
	.mknod = files_mknod,
	.mkdir = files_mkdir,
	.symlink = files_symlink,
	.link = files_link,
	.unlink = files_unlink,
	.rmdir = files_rmdir,
	.rename = files_rename,
	.open = files_open,
	.create = files_create,
	.read = files_read,
	.write = files_write,
	.fsync = files_fsync,
	.release = files_release,
	.opendir = files_opendir,
	.readdir = files_readdir,
	.releasedir = files_releasedir,
	.statfs = files_statfs,
};

static int files_setup(struct slow_files *f, const struct slow_args *a)
{
	struct stat st;
	int err;

	f->root = open(a->source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (f->root < 0 || fstat(f->root, &st) != 0) {
		err = -errno;
		fprintf(stderr, "gild slowdisk: %s: %s\n", a->source, strerror(-err));
		return err;
	}
	f->owner = geteuid() == 0;
	err = slow_nodes_create(&f->nodes, &st);
	if (!err)
		err = slow_pool_create(&f->pool);
	if (!err)
		err = delay_create(&f->delay, a->kind, FILES_BYTES, a->stroke, a->delays);
	if (err)
		fprintf(stderr, "gild slowdisk: cannot set up the model: %s\n", strerror(-err));
	return err;
}

int slow_files_run(const struct slow_args *a)
{
	struct slow_files f = {.root = -1};
	int code = 1;

	if (files_setup(&f, a) == 0) {
		struct slow_session session = {.mountpoint = a->mountpoint,
					       .foreground = a->foreground,
					       .allow_other = a->allow_other,
					       .ops = &files_ops,
					       .userdata = &f,
					       .delay = f.delay};

		code = slow_session_run(&session);
	}
	delay_destroy(f.delay);
	slow_pool_destroy(f.pool);
	slow_nodes_destroy(f.nodes);
	if (f.root >= 0)
		close(f.root);
	return code;
}
