/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The slow directory: handles, identity, attributes, and every system call on it. Nothing else in
 * the program touches the backing. Knows nothing of flash or FUSE.
 *
 * A struct bnode is one object (file, directory, symlink, ...) that somebody holds. Looking up the
 * same object again, by whatever name, gives the same bnode (hard links, renames), as long as it is
 * held; an inode number reused by a new object gives a new one. Descriptors behind bnodes are a
 * bounded LRU: they are reopened by file handle (root, where the filesystem has handles) or
 * through the parent and the last known name, with the identity checked; a file that is gone
 * answers -ESTALE. All paths are walked with openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS) one
 * component at a time. Non-regular files are opened O_PATH only.
 *
 * Nothing outside is ever reached by a name, whoever changes the tree behind us. The system calls
 * that take a path, all there are:
 *
 *   openat2            one component, BENEATH, no symlinks        bopen_at, bopen_at_cached
 *   openat             the same where there is no openat2: one component with O_NOFOLLOW cannot
 *                      leave its directory either                 bopen_at
 *   mkdirat, mknodat, symlinkat, linkat (new name), unlinkat, renameat2
 *                      one component (bname_valid: no "/", "." or ".."), which they do not follow
 *   open, chmod, utimensat, *xattr, linkat (old name) on /proc/self/fd/N: the object behind our
 *                      own descriptor, whatever it is called; opened only when its type is known
 *   open_by_handle_at  no path at all
 *   open, realpath of the path given at opening; /dev/disk/by-uuid: root's own
 *
 * What is held stays what it is, as behind a descriptor: an object that is moved out of the tree,
 * on its filesystem, can be used by who holds it (and a directory's names can, too), until it is
 * put; it cannot be looked up again. A stored handle names its object wherever it has gone: files
 * have no parent to ask. It gives attributes, and is not a name in the tree.
 *
 * All functions are thread safe, may block on the slow disk, take no lock of the caller's, and
 * return 0 or a negative errno (the backing's own), sizes where said. Names are single components.
 */
#ifndef GILD_BACKING_BACKING_H
#define GILD_BACKING_BACKING_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include "base/hash.h"

struct backing;
struct bnode;
struct bdir;

struct battr {
	struct stat st;       /* st_ino as backing_ino(); st_dev is not to be used: it changes over reboots */
	struct timespec btime; /* 0 where the filesystem has none */
	bool append_only;      /* chattr +a; a descriptor from before would not know */
};

struct backing_options {
	const char *fsid;     /* identity of the filesystem given by the user, or NULL: its UUID */
	unsigned max_fds;     /* 0: a quarter of RLIMIT_NOFILE, at most 160 */
	bool readonly;
};

/* Who asks: owner of what is created. Ignored unless the daemon is root. */
struct bcred {
	uid_t uid;
	gid_t gid;
	mode_t umask;         /* applied only where the parent has no default ACL */
};

/* -ENOENT, -ENOTDIR, -EACCES, ...; -ENOSYS where /proc is not mounted; nothing is logged. */
int backing_open(struct backing **out, const char *path, const struct backing_options *o);
void backing_close(struct backing *b); /* all bnodes must have been put */
struct bnode *backing_root(struct backing *b); /* held by the backing; do not put */
const char *backing_path(const struct backing *b); /* absolute, as resolved at opening */
/* The root's and those behind bnodes; not those of bdirs. */
unsigned backing_open_fds(struct backing *b);
int backing_statfs(struct backing *b, struct statvfs *out);
int backing_syncfs(struct backing *b);
/* Closes what no call uses, but for the root and what is pinned: they keep filesystems below it from
 * being unmounted, and any of them from becoming read-only. */
void backing_close_idle(struct backing *b);

/* ---- bnodes ---- */

/* A held reference; *attr is filled. -ENOENT etc. Objects on a filesystem mounted below the root
 * get an identity of their own. "." and ".." are refused (-EINVAL). */
int backing_lookup(struct backing *b, struct bnode *parent, const char *name, struct bnode **out,
		   struct battr *attr);
/* The same, but without ever waiting for a disk or a network: -EAGAIN where that cannot be known. */
int backing_lookup_cached(struct backing *b, struct bnode *parent, const char *name,
			  struct bnode **out, struct battr *attr);
void backing_hold(struct bnode *n);
void backing_put(struct backing *b, struct bnode *n);
/* A bnode from a stored handle (backing_handle) without a path. -ESTALE, -EOPNOTSUPP, -EPERM. */
int backing_from_handle(struct backing *b, const void *handle, size_t len, struct bnode **out,
			struct battr *attr);
/* The object's handle for backing_from_handle; returns its length (at most 144), 0 where there is
 * none: the filesystem has no lasting handles, or it is mounted below the root's. */
size_t backing_handle(struct backing *b, struct bnode *n, void *buf, size_t room);

/* Identity over remounts and reboots: hash of filesystem id, inode number, generation (file handle,
 * else birth time). `stable` false: neither exists; cached data must not survive a remount. */
struct hash128 backing_identity(const struct bnode *n, bool *stable);
/* Where n was seen last: *parent (held) and its name there. -ENOENT: not known. */
int backing_home(struct backing *b, struct bnode *n, struct bnode **parent, char name[NAME_MAX + 1]);
/* Whether n, as far as is known, is below `top`: it was seen last there. */
bool backing_below(struct backing *b, const struct bnode *n, const struct bnode *top);
mode_t backing_type(const struct bnode *n);   /* S_IFMT bits */
uint64_t backing_ino(const struct bnode *n);  /* unique over all filesystems below the root */
bool backing_same_fs(const struct bnode *n);  /* on the root's own filesystem */

/* Keeps a descriptor until the bnode is put: before unlink or a replacing rename of what is still
 * in use, and for files created with modes that a non-root daemon could not open again. */
int backing_pin(struct backing *b, struct bnode *n);

/* ---- attributes ---- */

int backing_getattr(struct backing *b, struct bnode *n, struct battr *out);
int backing_getattr_cached(struct backing *b, struct bnode *n, struct battr *out); /* or -EAGAIN */
enum bset { BSET_MODE = 1, BSET_UID = 2, BSET_GID = 4, BSET_SIZE = 8, BSET_ATIME = 16,
	    BSET_MTIME = 32, BSET_ATIME_NOW = 64, BSET_MTIME_NOW = 128 };
/* Applies the members of `st` named in `set`, in the order owner, mode, size, times; *out is the
 * state afterwards. */
int backing_setattr(struct backing *b, struct bnode *n, unsigned set, const struct stat *st,
		    struct battr *out);
ssize_t backing_getxattr(struct backing *b, struct bnode *n, const char *name, void *buf, size_t len);
ssize_t backing_listxattr(struct backing *b, struct bnode *n, char *buf, size_t len);
int backing_setxattr(struct backing *b, struct bnode *n, const char *name, const void *value,
		     size_t len, int flags);
int backing_removexattr(struct backing *b, struct bnode *n, const char *name);
/* The ioctls of chattr(1) and lsattr(1): FS_IOC_GETFLAGS and FS_IOC_SETFLAGS (`arg` an int),
 * FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR (a struct fsxattr). -ENOTTY for any other, and for what is
 * neither a regular file nor a directory. */
int backing_flags(struct backing *b, struct bnode *n, unsigned cmd, void *arg);
ssize_t backing_readlink(struct backing *b, struct bnode *n, char *buf, size_t len);

/* ---- data of regular files ---- */

ssize_t backing_pread(struct backing *b, struct bnode *n, void *buf, size_t len, uint64_t off);
ssize_t backing_pwrite(struct backing *b, struct bnode *n, const void *buf, size_t len, uint64_t off);
/* At the backing's true end, whatever the caller believes; *off: where it went. */
ssize_t backing_append(struct backing *b, struct bnode *n, const void *buf, size_t len, uint64_t *off);
int backing_fsync(struct backing *b, struct bnode *n, bool datasync); /* directories too */
int backing_fallocate(struct backing *b, struct bnode *n, int mode, uint64_t off, uint64_t len);
off_t backing_lseek(struct backing *b, struct bnode *n, off_t off, int whence); /* DATA, HOLE */
ssize_t backing_copy_range(struct backing *b, struct bnode *from, uint64_t from_off, struct bnode *to,
			   uint64_t to_off, size_t len);
/* What was read of [off, off+len) is kept elsewhere now: its pages need not stay in memory. */
void backing_drop_pages(struct backing *b, struct bnode *n, uint64_t off, size_t len);

/* ---- names ---- */

int backing_create(struct backing *b, struct bnode *parent, const char *name, mode_t mode,
		   const struct bcred *cred, bool excl, struct bnode **out, struct battr *attr);
/* A regular file without a name, which backing_link may give one; pinned until then. -EOPNOTSUPP
 * where the filesystem makes none. */
int backing_tmpfile(struct backing *b, struct bnode *parent, mode_t mode, const struct bcred *cred,
		    struct bnode **out, struct battr *attr);
int backing_mknod(struct backing *b, struct bnode *parent, const char *name, mode_t mode, dev_t rdev,
		  const struct bcred *cred, struct bnode **out, struct battr *attr);
int backing_mkdir(struct backing *b, struct bnode *parent, const char *name, mode_t mode,
		  const struct bcred *cred, struct bnode **out, struct battr *attr);
int backing_symlink(struct backing *b, struct bnode *parent, const char *name, const char *target,
		    const struct bcred *cred, struct bnode **out, struct battr *attr);
int backing_link(struct backing *b, struct bnode *n, struct bnode *parent, const char *name,
		 struct battr *attr);
int backing_unlink(struct backing *b, struct bnode *parent, const char *name);
int backing_rmdir(struct backing *b, struct bnode *parent, const char *name);
/* flags: of renameat2(2). Known bnodes learn their new parent and name. */
int backing_rename(struct backing *b, struct bnode *from, const char *name, struct bnode *to,
		   const char *new_name, unsigned flags);

/* ---- directories ---- */

int backing_opendir(struct backing *b, struct bnode *n, struct bdir **out);
/* Entries after position `off` (0: start); fn returns 0 to go on, 1 to stop before this entry.
 * `next` is the position after the entry, good for a later call, also after rewinding. */
int backing_readdir(struct bdir *d, off_t off,
		    int (*fn)(void *arg, const char *name, uint64_t ino, mode_t type, off_t next),
		    void *arg);
void backing_closedir(struct bdir *d);

#endif
