/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What is agreed with the kernel at INIT, and why.
 *
 * Wanted:
 *   AUTO_INVAL_DATA   the kernel drops a file's pages when size or mtime moved. Not in exclusive
 *                     mode, where nobody else changes files and our own writes would drop them.
 *   DONT_MASK         the umask applies only where the parent has no default ACL; the backing knows.
 *   CACHE_SYMLINKS    a symlink's target never changes under one inode.
 *   READDIRPLUS(AUTO) a walk costs 7-8 us a file with it, 40 us without.
 *   PARALLEL_DIROPS, ASYNC_READ, ASYNC_DIO   more than one request in flight.
 *   IOCTL_DIR         lsattr and chattr of directories.
 *   POSIX_ACL         only with acl=: it costs a GETXATTR a file.
 * Not wanted, although libfuse turns some of them on by itself:
 *   ATOMIC_O_TRUNC    O_TRUNC would come with OPEN, which we never see: it would be lost.
 *   HANDLE_KILLPRIV   with it the kernel leaves clearing suid bits at a write to us; without it, it
 *                     sends a SETATTR.
 *   WRITEBACK_CACHE   loses appends and changes made behind the mount.
 *   SPLICE_*          ten times slower here than read and write.
 *   EXPORT_SUPPORT    NFS handles need (nodeid, generation) to be unique for ever; see fs_attr.c.
 *   NO_OPENDIR_SUPPORT the kernel would cache listings.
 *
 * libfuse 3.14 takes PARALLEL_DIROPS as wanted but does not tell the kernel, which then looks up one
 * name at a time in a directory: on a slow disk that is a queue. So our own writev, which every
 * answer passes, adds the flag to the answer of INIT. Newer versions set it themselves.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/log.h"
#include "fs/fs_priv.h"

#define FS_WANT                                                                                    \
	(FUSE_CAP_DONT_MASK | FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_READDIRPLUS |                     \
	 FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ASYNC_READ |              \
	 FUSE_CAP_ASYNC_DIO | FUSE_CAP_IOCTL_DIR)

void fs_op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct fs *f = userdata;
	unsigned want = FS_WANT;

	if (!f->exclusive)
		want |= FUSE_CAP_AUTO_INVAL_DATA;
	if (f->acl)
		want |= FUSE_CAP_POSIX_ACL;
	if (f->acl && !(conn->capable & FUSE_CAP_POSIX_ACL))
		log_warning("fs", "this kernel's FUSE has no POSIX ACLs: mounted without them");
	conn->want = conn->capable & want;
	conn->max_read = FS_MAX_IO;
	conn->max_write = FS_MAX_IO;
	if (conn->max_readahead > FS_MAX_IO)
		conn->max_readahead = FS_MAX_IO;
	conn->max_background = FS_MAX_BACKGROUND;
	conn->congestion_threshold = FS_MAX_BACKGROUND * 3 / 4;
	f->epochs = conn->proto_major > 7 || conn->proto_minor >= 44;
	f->no_open = conn->capable & FUSE_CAP_NO_OPEN_SUPPORT;
	if (!f->no_open)
		log_warning("fs", "this kernel's FUSE lacks zero-message open: small files are slow");
}

void fs_patch_init(struct fs *f, struct iovec *iov, int count)
{
	const struct fuse_out_header *out = iov[0].iov_base;
	struct fuse_init_out init;

	uint64_t unique = atomic_load(&f->init_unique);

	if (!unique || count != 2 || out->unique != unique)
		return;
	if (out->error || iov[1].iov_len != sizeof(init))
		return;
	memcpy(&init, iov[1].iov_base, sizeof(init));
	init.flags |= FUSE_PARALLEL_DIROPS;
	memcpy(iov[1].iov_base, &init, sizeof(init));
}

void fs_raise_readahead(const char *mountpoint)
{
	struct statx sx;
	char path[64];
	int fd;

	/* The device number without a request to ourselves. */
	if (statx(AT_FDCWD, mountpoint, AT_STATX_DONT_SYNC, STATX_TYPE, &sx) < 0)
		return;
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", sx.stx_dev_major,
		 sx.stx_dev_minor);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (dprintf(fd, "%u\n", FS_MAX_IO / 1024) < 0)
		log_debug("fs", "read-ahead stays at the kernel's default");
	close(fd);
}
