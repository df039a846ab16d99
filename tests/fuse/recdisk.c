/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A power cut of real filesystems: two disks as files behind FUSE, to be loop-mounted, and a log of
 * all that happened to them, in order. powercut.py makes from it what two real disks with write
 * caches could hold had the power gone at any moment.
 *
 * usage: recdisk MOUNTPOINT LOG IMAGE0 IMAGE1
 *
 * MOUNTPOINT/disk0, disk1: the images. MOUNTPOINT/mark: what is written to it is noted in the log,
 * for "this was acknowledged before". One thread: the order of the log is that of the answers. The
 * kernel's write-back cache is off, so each write of the loop device comes here before it returns,
 * and its flushes come as FSYNC.
 *
 * The log: {type, disk, 0, length, offset} and, of writes and marks, the data.
 */
#define FUSE_USE_VERSION 35
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NODES 3 /* disk0, disk1, mark: inodes 2, 3, 4 */
#define MARK 2
#define FOREVER 3600.0

struct rec_entry { /* in host order */
	char type; /* 'w'rite, 'f'lush, 'm'ark */
	unsigned char disk;
	unsigned short zero;
	unsigned len;
	unsigned long long off;
};

static const char *const names[NODES] = {"disk0", "disk1", "mark"};
static int images[NODES];
static FILE *log_file;

static void rec_log(char type, unsigned disk, const void *data, size_t len, off_t off)
{
	struct rec_entry e = {.type = type, .disk = (unsigned char)disk, .len = (unsigned)len,
			      .off = (unsigned long long)off};

	if (fwrite(&e, sizeof(e), 1, log_file) != 1 ||
	    (len && fwrite(data, len, 1, log_file) != 1)) {
		perror("recdisk: the log");
		exit(1);
	}
}

static int rec_stat(fuse_ino_t ino, struct stat *st)
{
	struct stat image;

	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_nlink = 1;
	st->st_mode = S_IFDIR | 0755;
	if (ino == FUSE_ROOT_ID)
		return 0;
	st->st_mode = S_IFREG | 0600;
	if (ino - 2 < MARK && !fstat(images[ino - 2], &image))
		st->st_size = image.st_size;
	return ino - 2 < NODES ? 0 : ENOENT;
}

static void rec_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = {.attr_timeout = FOREVER, .entry_timeout = FOREVER};
	unsigned i;

	for (i = 0; i < NODES; i++) {
		if (parent != FUSE_ROOT_ID || strcmp(name, names[i]))
			continue;
		e.ino = i + 2;
		rec_stat(e.ino, &e.attr);
		fuse_reply_entry(req, &e);
		return;
	}
	fuse_reply_err(req, ENOENT);
}

static void rec_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;
	int err = rec_stat(ino, &st);

	(void)fi;
	if (err)
		fuse_reply_err(req, err);
	else
		fuse_reply_attr(req, &st, FOREVER);
}

static void rec_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int set,
			struct fuse_file_info *fi)
{
	(void)st;
	if (set & FUSE_SET_ATTR_SIZE && ino - 2 < MARK)
		fuse_reply_err(req, EPERM);
	else
		rec_getattr(req, ino, fi);
}

static void rec_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fi->direct_io = ino - 2 == MARK;
	fi->keep_cache = 1;
	fuse_reply_open(req, fi);
}

static void rec_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	static char buf[1 << 20];
	ssize_t n = ino - 2 < MARK ? pread(images[ino - 2], buf, size, off) : 0;

	(void)fi;
	if (n < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_buf(req, buf, (size_t)n);
}

static void rec_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
		      struct fuse_file_info *fi)
{
	(void)fi;
	if (ino - 2 == MARK) {
		rec_log('m', 0, data, size, 0);
	} else {
		if (pwrite(images[ino - 2], data, size, off) != (ssize_t)size) {
			fuse_reply_err(req, EIO);
			return;
		}
		rec_log('w', (unsigned)ino - 2, data, size, off);
	}
	fuse_reply_write(req, size);
}

static void rec_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)datasync;
	(void)fi;
	if (ino - 2 < MARK)
		rec_log('f', (unsigned)ino - 2, NULL, 0, 0);
	fuse_reply_err(req, 0);
}

static const struct fuse_lowlevel_ops rec_ops = {
	.lookup = rec_lookup,
	.getattr = rec_getattr,
	.setattr = rec_setattr,
	.open = rec_open,
	.read = rec_read,
	.write = rec_write,
	.fsync = rec_fsync,
};

int main(int argc, char **argv)
{
	char *fargv[] = {argv[0], NULL};
	struct fuse_args args = FUSE_ARGS_INIT(1, fargv);
	struct fuse_session *se;
	int i, err;

	if (argc != 5) {
		fprintf(stderr, "usage: recdisk MOUNTPOINT LOG IMAGE0 IMAGE1\n");
		return 2;
	}
	log_file = fopen(argv[2], "w");
	for (i = 0; i < MARK; i++)
		images[i] = open(argv[3 + i], O_RDWR | O_CLOEXEC);
	if (!log_file || images[0] < 0 || images[1] < 0) {
		perror("recdisk");
		return 1;
	}
	se = fuse_session_new(&args, &rec_ops, sizeof(rec_ops), NULL);
	if (!se || fuse_set_signal_handlers(se) || fuse_session_mount(se, argv[1]))
		return 1;
	err = fuse_session_loop(se);
	fuse_session_unmount(se);
	fuse_session_destroy(se);
	return fclose(log_file) || err ? 1 : 0;
}
