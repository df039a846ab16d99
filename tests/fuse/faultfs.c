/* SPDX-License-Identifier: BSD-2-Clause
 *
 * faultfs SOURCE MOUNTPOINT CONTROL [-f]: shows SOURCE on MOUNTPOINT and breaks what CONTROL says: a network
 * filesystem in trouble, for tests. CONTROL is a file of lines "OPERATION FAULT", read at every
 * operation (a test replaces it by rename). OPERATION is getattr, open, read, write, readdir, or all;
 * FAULT an error number, or `hang`: the call waits until the line is gone.
 *
 * Nothing is cached by the kernel, so that each call of gildfs arrives here.
 */
#define FUSE_USE_VERSION 31
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int source = -1;
static const char *control;

/* A number that is not negative is an error; -1: hang; 0: nothing is wrong. */
static int fault_look(const char *op)
{
	FILE *f = fopen(control, "re");
	char name[32], what[32];
	int fault = 0;

	while (f && !fault && fscanf(f, "%31s %31s", name, what) == 2)
		if (strcmp(name, op) == 0 || strcmp(name, "all") == 0)
			fault = strcmp(what, "hang") == 0 ? -1 : atoi(what);
	if (f)
		fclose(f);
	return fault;
}

static int fault(const char *op)
{
	struct timespec pause = {.tv_nsec = 5000000};
	int what;

	while ((what = fault_look(op)) < 0)
		nanosleep(&pause, NULL);
	return what;
}

#define FAULT(op)                                                                                  \
	do {                                                                                       \
		int err_ = fault(op);                                                              \
		if (err_)                                                                          \
			return -err_;                                                              \
	} while (0)

static const char *rel(const char *path)
{
	return path[1] ? path + 1 : ".";
}

static int done(long rc)
{
	return rc < 0 ? -errno : (int)rc;
}

static void *fault_init(struct fuse_conn_info *conn, struct fuse_config *cfg)
{
	(void)conn;
	cfg->use_ino = 1;
	cfg->hard_remove = 1;
	cfg->attr_timeout = cfg->entry_timeout = cfg->negative_timeout = 0;
	return NULL;
}

static int fault_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	FAULT("getattr");
	return done(fi ? fstat((int)fi->fh, st) : fstatat(source, rel(path), st, AT_SYMLINK_NOFOLLOW));
}

static int fault_open(const char *path, struct fuse_file_info *fi)
{
	int fd;

	FAULT("open");
	fd = openat(source, rel(path), fi->flags & ~(O_CREAT | O_EXCL | O_APPEND));
	fi->fh = (uint64_t)fd;
	return fd < 0 ? -errno : 0;
}

static int fault_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	int fd;

	FAULT("open");
	fd = openat(source, rel(path), fi->flags, mode);
	fi->fh = (uint64_t)fd;
	return fd < 0 ? -errno : 0;
}

static int fault_release(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	return done(close((int)fi->fh));
}

static int fault_read(const char *path, char *buf, size_t len, off_t off, struct fuse_file_info *fi)
{
	(void)path;
	FAULT("read");
	return done(pread((int)fi->fh, buf, len, off));
}

static int fault_write(const char *path, const char *buf, size_t len, off_t off,
		       struct fuse_file_info *fi)
{
	(void)path;
	FAULT("write");
	return done(pwrite((int)fi->fh, buf, len, off));
}

static int fault_fsync(const char *path, int data, struct fuse_file_info *fi)
{
	(void)path;
	(void)data;
	return done(fsync((int)fi->fh));
}

static int fault_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
	int fd = fi ? (int)fi->fh : openat(source, rel(path), O_WRONLY), rc;

	if (fd < 0)
		return -errno;
	rc = done(ftruncate(fd, size));
	if (!fi)
		close(fd);
	return rc;
}

static int fault_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t off,
			 struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
	int fd;
	struct dirent *e;
	DIR *d;

	(void)off;
	(void)fi;
	(void)flags;
	FAULT("readdir");
	fd = openat(source, rel(path), O_RDONLY | O_DIRECTORY);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d)
		return -errno;
	while ((e = readdir(d)))
		fill(buf, e->d_name, &(struct stat){.st_ino = e->d_ino, .st_mode = DTTOIF(e->d_type)},
		     0, 0);
	closedir(d);
	return 0;
}

static int fault_readlink(const char *path, char *buf, size_t len)
{
	ssize_t n = readlinkat(source, rel(path), buf, len - 1);

	if (n < 0)
		return -errno;
	buf[n] = 0;
	return 0;
}

static int fault_mkdir(const char *path, mode_t mode)
{
	return done(mkdirat(source, rel(path), mode));
}

static int fault_unlink(const char *path)
{
	return done(unlinkat(source, rel(path), 0));
}

static int fault_rmdir(const char *path)
{
	return done(unlinkat(source, rel(path), AT_REMOVEDIR));
}

static int fault_rename(const char *from, const char *to, unsigned flags)
{
	return flags ? -EINVAL : done(renameat(source, rel(from), source, rel(to)));
}

static int fault_utimens(const char *path, const struct timespec ts[2], struct fuse_file_info *fi)
{
	(void)fi;
	return done(utimensat(source, rel(path), ts, AT_SYMLINK_NOFOLLOW));
}

static const struct fuse_operations fault_ops = {
	.init = fault_init,
	.getattr = fault_getattr,
	.open = fault_open,
	.create = fault_create,
	.release = fault_release,
	.read = fault_read,
	.write = fault_write,
	.fsync = fault_fsync,
	.truncate = fault_truncate,
	.readdir = fault_readdir,
	.readlink = fault_readlink,
	.mkdir = fault_mkdir,
	.unlink = fault_unlink,
	.rmdir = fault_rmdir,
	.rename = fault_rename,
	.utimens = fault_utimens,
};

int main(int argc, char **argv)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	int rc;

	if (argc < 4) {
		fprintf(stderr, "usage: faultfs SOURCE MOUNTPOINT CONTROL [-f]\n");
		return 2;
	}
	source = open(argv[1], O_PATH | O_DIRECTORY);
	control = realpath(argv[3], NULL);
	if (source < 0 || !control) {
		perror("faultfs");
		return 1;
	}
	if (fuse_opt_add_arg(&args, argv[0]) || fuse_opt_add_arg(&args, argv[2]) ||
	    fuse_opt_add_arg(&args, "-ofsname=faultfs") ||
	    fuse_opt_add_arg(&args, "-odefault_permissions,allow_other") ||
	    (argc > 4 && fuse_opt_add_arg(&args, argv[4])))
		return 1;
	rc = fuse_main(args.argc, args.argv, &fault_ops, NULL);
	fuse_opt_free_args(&args);
	return rc;
}
