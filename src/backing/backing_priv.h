/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the files of the backing share.
 *
 *   struct backing   one opened directory tree
 *   struct bfs       one filesystem in it: the root's (index 0), or one mounted below
 *   struct bkey      what an object is: filesystem, inode number, type, handle or birth time
 *   struct bnode     an object that somebody holds (bnode.c)
 *   struct bfile     an open descriptor of a bnode (backing_fd.c)
 *
 * Locks, in order: a stripe of `io`, `names`, `lock`. No system call that can wait for the disk is
 * made under `lock`; renames are made under `names`, appends under their stripe.
 */
#ifndef GILD_BACKING_PRIV_H
#define GILD_BACKING_PRIV_H

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>

#include "backing/backing.h"
#include "base/htab.h"
#include "base/lock.h"
#include "base/log.h"

/* The largest handle a filesystem may give (MAX_HANDLE_SZ in the kernel). */
#define BKEY_BYTES 128
#define BACKING_IO_STRIPES 16
#define PROC_FD_LEN 32

struct bfs {
	/* constant */
	struct hash128 id;     /* hash of the UUID, of the user's fsid=, or of something passing */
	dev_t dev;             /* valid for this run only */
	unsigned index;
	bool stable;           /* `id` is the same after a remount */
	bool handles;          /* handles name an object for as long as it exists */
	bool owners;           /* stores owner and mode */
	bool local;            /* statx of an object in memory does not wait for anything */
	/* protected by backing.lock */
	bool by_handle;        /* open_by_handle_at works, so far */
	struct bnode *top;     /* some bnode on it, not held; NULL when there is none */
	/* free of locks */
	atomic_bool wrote;     /* a file was opened for writing since the last syncfs */
};

enum { BKEY_NONE = -1, BKEY_BTIME = -2 }; /* else a handle type, 0..255 */

struct bkey {
	struct bfs *fs;
	uint64_t ino;
	mode_t type;           /* S_IFMT bits */
	int kind;
	unsigned len;
	unsigned char bytes[BKEY_BYTES];
};

enum bnode_flags { BNODE_PINNED = 1, BNODE_EIO = 2, BNODE_ENOSPC = 4, BNODE_EDQUOT = 8 };

/* 72 bytes with an ext4 handle. */
struct bnode {
	struct htab_node link; /* lock */
	/* constant */
	struct bfs *fs;
	uint64_t ino;          /* as the filesystem says */
	/* protected by backing.lock */
	struct bnode *parent;  /* where it was seen last, held; NULL: not known */
	char *name;            /* and as what */
	struct bfile *file;
	/* rises under any reference, falls to zero under backing.lock only */
	_Atomic uint32_t refs;
	/* constant */
	uint8_t kind;          /* handle type; with `len` 0 none; BNODE_KIND_BTIME */
	uint8_t len;
	uint8_t type;          /* S_IFMT bits >> 12 */
	uint8_t flags;         /* enum bnode_flags; protected by backing.lock */
	unsigned char bytes[]; /* the handle, or the birth time */
};
#define BNODE_KIND_BTIME 0 /* FILEID_ROOT in the kernel, which no filesystem gives out */

enum bfile_mode { BFILE_PATH = 0, BFILE_READ = 1, BFILE_WRITE = 2 };

struct bfile {
	struct bnode *n;       /* constant; n->file is another bfile: private to its users */
	int fd;                /* constant */
	unsigned mode;         /* constant; enum bfile_mode bits, BFILE_PATH: O_PATH */
	/* protected by backing.lock */
	unsigned users;
	bool idle;             /* in backing.idle or backing.idle_dirs */
	struct bfile *prev, *next;
};

struct backing {
	/* constant */
	char *path;
	int root_fd;           /* O_RDONLY | O_DIRECTORY; what is mounted over it later is not seen */
	struct bnode *root;
	unsigned max_fds;
	bool readonly;
	bool as_root;
	uid_t euid;
	gid_t egid;
	bool with_fsid;
	struct hash128 fsid;
	/* protected by lock */
	struct lock lock;
	struct htab nodes;
	struct bfs **fs;
	unsigned fs_count;
	struct bfile idle, idle_dirs; /* list heads; the least recently used first */
	unsigned idle_dir_count;
	unsigned open_fds;     /* bfiles */
	uint64_t renames;      /* rises after each rename, before `names` is released */
	/* one rename at a time; taken and dropped by who must know that hints are up to date */
	struct lock names;
	/* the file position of a bnode's descriptor, by bnode: backing_io_lock() */
	struct lock io[BACKING_IO_STRIPES];
};

/* backing_fs.c */

int bfs_get(struct backing *b, int fd, const struct stat *st, struct bfs *near, struct bfs **out);
void bfs_destroy_all(struct backing *b);

/* bnode.c */

int battr_read(int fd, struct battr *out);
/* What `fd` is; `near` (or NULL) is the filesystem it was reached from. */
int bkey_read(struct backing *b, int fd, struct bfs *near, struct bkey *key, struct battr *attr);
bool bnode_is(const struct bnode *n, const struct bkey *key);
/* The held bnode of that key, made when there is none. `parent` and `name` may be NULL; a known
 * bnode takes them as its new hint unless a rename ended since `seen` (bnode_renames). */
int bnode_intern(struct backing *b, const struct bkey *key, struct bnode *parent, const char *name,
		 uint64_t seen, struct bnode **out);
/* After a rename, under `names`: the object of that key is now `parent`/`name`. */
void bnode_moved(struct backing *b, const struct bkey *key, struct bnode *parent, const char *name);
uint64_t bnode_renames(struct backing *b);
bool bname_valid(const char *name);

/* backing_fd.c */

/* openat2 of one component; EINTR and a lack of descriptors are dealt with. */
int bopen_at(struct backing *b, int dir, const char *name, int flags, mode_t mode);
/* By the kernel's memory of names alone, O_PATH; -EAGAIN where it does not know. */
int bopen_at_cached(int dir, const char *name);
/* A further descriptor of the object behind `fd`, with other flags. */
int bopen_again(struct backing *b, int fd, int flags);
bool bopen_retry(struct backing *b, int err);
/* `buf` of PROC_FD_LEN: a path that names what is behind `fd`, whatever it is. */
const char *bfd_path(int fd, char *buf);
/* A descriptor of n that can do what `want` says, to be given back by bfile_put. */
int bfile_get(struct backing *b, struct bnode *n, unsigned want, struct bfile **out);
/* n's descriptor if it is open, whatever it can do; else NULL. Given back the same way. */
struct bfile *bfile_get_open(struct backing *b, struct bnode *n);
void bfile_put(struct backing *b, struct bfile *f); /* NULL-safe */
void bfile_put_cold(struct backing *b, struct bfile *f); /* and the next to be closed */
/* Makes `fd` (owned from here on) the descriptor of n, unless n has one that can do as much. */
void bfile_attach(struct backing *b, struct bnode *n, int fd, unsigned mode);
/* The same, and keeps it: there is no other way to the object. -ENOMEM: `fd` was closed. */
int bfile_attach_pinned(struct backing *b, struct bnode *n, int fd, unsigned mode);
/* Opens for appending only, where the file allows nothing else. */
int bfile_get_append(struct backing *b, struct bnode *n, struct bfile **out);
/* n has no users left and leaves the table: gives up its descriptor. Call with `lock` held, then
 * bfile_close without. */
struct bfile *bfile_detach_locked(struct backing *b, struct bnode *n);
void bfile_close(struct backing *b, struct bfile *f);
int bfile_pin(struct backing *b, struct bnode *n);
/* Undone when `f`, the object's descriptor in use by the caller, is given back. */
void bfile_unpin(struct backing *b, struct bfile *f);
/* The error of an earlier close of a written descriptor, once. */
int bfile_take_error(struct backing *b, struct bnode *n);

/* tests */

/* From now on descriptors are reopened through parents only. */
void backing_forbid_handles(struct backing *b);
/* Closes every idle descriptor. */

static inline bool bnode_is_type(const struct bnode *n, mode_t type)
{
	return n->type == type >> 12;
}

static inline struct lock *backing_io_lock(struct backing *b, const struct bnode *n)
{
	return &b->io[n->ino % BACKING_IO_STRIPES];
}

#endif
