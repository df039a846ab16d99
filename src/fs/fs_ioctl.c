/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The inode flags of chattr(1) and lsattr(1), kept by the backing. Any other ioctl is answered as for
 * a file that knows none.
 *
 * Kernels since 5.14 check who may change flags before they ask. Older ones hand the call through
 * like any other ioctl, so it is checked here as well: the owner, or root; immutable and append-only
 * are root's alone. The backing enforces what the flags say; the kernel, which does not know them
 * here, still lets an immutable file be opened for writing, and the write fails with EPERM.
 */
#include "config.h"

#include <errno.h>
#include <linux/fs.h>
#include <string.h>

#include "fs/fs_priv.h"

union fs_flags_arg { /* what these ioctls take and give */
	int flags;
	struct fsxattr x;
};

static size_t fs_flags_len(unsigned cmd)
{
	switch (cmd) {
	case FS_IOC_GETFLAGS:
	case FS_IOC_SETFLAGS:
		return sizeof(int);
	case FS_IOC_FSGETXATTR:
	case FS_IOC_FSSETXATTR:
		return sizeof(struct fsxattr);
	default:
		return 0;
	}
}

static bool fs_flags_locked(bool x, const union fs_flags_arg *arg)
{
	return x ? arg->x.fsx_xflags & (FS_XFLAG_IMMUTABLE | FS_XFLAG_APPEND)
		 : (uint32_t)arg->flags & (FS_IMMUTABLE_FL | FS_APPEND_FL);
}

static int fs_flags_may_set(struct fs *f, fuse_req_t req, struct cnode *n, unsigned cmd,
			    const union fs_flags_arg *arg)
{
	bool x = cmd == FS_IOC_FSSETXATTR;
	uid_t uid = fuse_req_ctx(req)->uid;
	union fs_flags_arg old = { 0 };
	struct cache_attr a;
	int err;

	if (uid == 0)
		return 0;
	err = cache_getattr(f->cache, n, &a, 0);
	if (!err)
		err = backing_flags(cache_backing(f->cache), cache_bnode(n),
				    x ? FS_IOC_FSGETXATTR : FS_IOC_GETFLAGS, &old);
	if (!err && (uid != a.attr.st.st_uid || fs_flags_locked(x, &old) || fs_flags_locked(x, arg)))
		err = -EPERM;
	return err;
}

void fs_op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
		 unsigned flags, const void *in, size_t in_len, size_t out_len)
{
	bool set = cmd == FS_IOC_SETFLAGS || cmd == FS_IOC_FSSETXATTR;
	struct fs *f = fs_of(req);
	struct cnode *n = fs_node(f, ino);
	size_t len = fs_flags_len(cmd);
	union fs_flags_arg value = { 0 };
	int err;

	(void)arg;
	(void)fi;
	(void)flags;
	if (!len || (set ? in_len : out_len) < len) {
		fuse_reply_err(req, ENOTTY);
		return;
	}
	if (!set) {
		err = backing_flags(cache_backing(f->cache), cache_bnode(n), cmd, &value);
	} else if (!fs_within(fs_self(f), in, len)) {
		err = -EINVAL;
	} else {
		memcpy(&value, in, len);
		err = fs_flags_may_set(f, req, n, cmd, &value);
		if (!err)
			err = cache_set_flags(f->cache, n, cmd, &value);
	}
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_ioctl(req, 0, &value, set ? 0 : len);
}
