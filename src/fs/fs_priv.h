/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Inside src/fs: the session, the threads' own state, and what the files of operations share.
 */
#ifndef GILD_FS_FS_PRIV_H
#define GILD_FS_FS_PRIV_H

#define FUSE_USE_VERSION 35

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/workq.h"
#include "fs/fs.h"

#define FS_MAX_IO (1u << 20)           /* bytes of one READ or WRITE, and of read-ahead */
#define FS_MSG_ROOM (FS_MAX_IO + 65536) /* bytes of the largest message: a WRITE and its headers */
#define FS_MSG_COPY 16384              /* messages up to this are copied to the pool, larger swapped */
#define FS_MSG_SLACK 512               /* zero bytes after a message: short ones read as zeroes */
#define FS_MSG_BIG_MAX 128             /* large messages in memory at once */
#define FS_MAX_BACKGROUND 64
#define FS_NOCAP_SLOTS 1024

/* A request as read from the kernel. Large ones (`big`) are mappings that are swapped between the
 * readers and the pool and kept; small ones are malloced. */
struct fs_msg {
	struct work work;
	struct fs *fs;
	struct fs_msg *next; /* in the free list */
	char *data;
	size_t len;
	bool big;
};

/* What a thread that serves requests has: a reader, or a pool thread (made at its first request). */
struct fs_thread {
	struct fs *fs;
	struct fs_msg *msg;  /* being served */
	char *reply;         /* FS_MAX_IO bytes, reused for every answer */
	bool nowait;         /* operations must not block: answer or fs_defer() */
	bool again;          /* set by fs_defer(): serve the message once more, in the pool */
	bool helper;
	bool started;
	atomic_bool done;    /* readers: the thread is about to end */
	pthread_t id;
};

/* "This file has no security.capability", see fs_xattr.c. */
struct fs_nocap {
	fuse_ino_t ino;
	uint64_t until;
};

struct fs {
	/* constant after fs_create */
	struct cache *cache;
	struct stats *stats;
	struct fuse_session *session;
	bool acl, exclusive;
	unsigned readers, helpers;
	uint64_t nocap_ttl;
	struct workq *pool;  /* what may block */
	struct workq *park;  /* invalidations: they wait for READs, so READs never wait for them */
	pthread_key_t self;
	/* constant after fs_mount or fs_attach */
	char *mountpoint;    /* NULL when serving a bare descriptor */
	/* constant after INIT */
	bool no_open;        /* the kernel understands ENOSYS to OPEN */
	bool epochs;         /* ... and how to distrust all names at once */
	/* owned by the thread in fs_run */
	struct fs_thread *threads;
	struct sigaction old_action;
	void (*ready_fn)(void *arg);
	void *ready_arg;
	sem_t wake;
	atomic_bool initialised, ready, stopping, ended;
	atomic_int error;
	atomic_ullong init_unique; /* of the INIT being answered, if its answer may need a flag more */
	atomic_uint idle;    /* readers waiting for a request */
	atomic_uint asleep;  /* helpers waiting to be woken */
	sem_t help;
	atomic_ullong inline_from; /* clock_mono_ns from which readers may run what may block */
	atomic_uint inlining;    /* threads in fs_serve_inline, fewer than readers */
	/* under `lock` */
	struct lock lock;
	struct fs_msg *free;
	unsigned free_count, big_count;
	struct fs_nocap nocap[FS_NOCAP_SLOTS];
	uint64_t nocap_changes;
};

extern const struct fuse_lowlevel_ops fs_ops;

/* fs_init.c */
void fs_op_init(void *userdata, struct fuse_conn_info *conn);
void fs_patch_init(struct fs *f, struct iovec *iov, int count);
/* Raises the mount's read-ahead to FS_MAX_IO, which only root can and INIT cannot. */
void fs_raise_readahead(const char *mountpoint);

/* fs_msg.c */
struct fs_msg *fs_msg_get_big(struct fs *f); /* NULL: too many, or no memory */
struct fs_msg *fs_msg_copy(const struct fs_msg *from);
void fs_msg_put(struct fs_msg *m);
void fs_msg_free_all(struct fs *f);
char *fs_buffer_map(size_t len); /* huge pages if there are any; NULL: no memory */
void fs_buffer_unmap(char *p, size_t len);

/* fs_loop.c */
/* The calling thread's state; NULL only if it could not be made (no memory). */
struct fs_thread *fs_self(struct fs *f);
void fs_thread_free(void *t);
int fs_loop_start(struct fs *f);
void fs_loop_stop(struct fs *f);

/* For operations tried on a reader: true if `err` says that it would have blocked. Then the request
 * is to be left alone: it will be served again in the pool. */
bool fs_defer(struct fs_thread *t, fuse_req_t req, long err);
static inline unsigned fs_flags(const struct fs_thread *t)
{
	return t->nowait ? CACHE_NOWAIT : 0;
}
/* Whether [p, p + len) is inside the message: libfuse does not check. */
bool fs_within(const struct fs_thread *t, const void *p, size_t len);

/* fs_attr.c */
void fs_fill_entry(struct fuse_entry_param *e, struct cnode *n, const struct cache_attr *a);
struct bcred fs_cred(fuse_req_t req);
/* Answers with the new or found object `n`; its reference is dropped if the kernel did not take it. */
void fs_reply_entry(struct fs *f, fuse_req_t req, struct cnode *n, const struct cache_attr *a);

/* fs_park.c */
/* Whether the kernel will not drop changed pages by itself when it gets these attributes. */
static inline bool fs_must_park(const struct fs *f, const struct cache_attr *a)
{
	return a->changed && (a->unseen || f->exclusive);
}

/* Drops the kernel's pages of `ino` from `off` on, and its attributes; in the background. */
void fs_park_inval(struct fs *f, fuse_ino_t ino, off_t off);
/* Answers an O_DIRECT WRITE of `written` bytes, more than 0, after their pages were dropped. */
void fs_park_direct(struct fs *f, fuse_req_t req, fuse_ino_t ino, off_t at, size_t written);
/* Drops the whole file's pages, and then answers. */
void fs_park_attr(struct fs *f, fuse_req_t req, fuse_ino_t ino, const struct cache_attr *a);
void fs_park_entry(struct fs *f, fuse_req_t req, const struct fuse_entry_param *e,
		   const struct cache_attr *a);

/* Somebody has n open that is gone from the backing: its name is to be looked up anew at once, not
 * when the kernel's time for it is over. In the background. */
void fs_park_gone(struct fs *f, struct cnode *n);

/* fs_xattr.c */
uint64_t fs_nocap_changes(struct fs *f);
void fs_nocap_learn(struct fs *f, fuse_ino_t ino, uint64_t changes);
void fs_nocap_forget(struct fs *f, fuse_ino_t ino);
void fs_nocap_clear(struct fs *f);

static inline struct fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static inline fuse_ino_t fs_ino(struct fs *f, struct cnode *n)
{
	return n == cache_root(f->cache) ? FUSE_ROOT_ID : (fuse_ino_t)(uintptr_t)n;
}

static inline struct cnode *fs_node(struct fs *f, fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? cache_root(f->cache) : (struct cnode *)(uintptr_t)ino;
}

void fs_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count);
void fs_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void fs_op_readlink(fuse_req_t req, fuse_ino_t ino);
void fs_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void fs_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void fs_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void fs_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		  const char *new_name, unsigned flags);
void fs_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name);
void fs_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		  struct fuse_file_info *fi);

void fs_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int set,
		   struct fuse_file_info *fi);
void fs_op_statfs(fuse_req_t req, fuse_ino_t ino);

void fs_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void fs_op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		 struct fuse_file_info *fi);
void fs_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void fs_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
		     struct fuse_file_info *fi);
void fs_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void fs_op_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t from_off,
			   struct fuse_file_info *from_fi, fuse_ino_t to, off_t to_off,
			   struct fuse_file_info *to_fi, size_t len, int flags);

void fs_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		   struct fuse_file_info *fi);
void fs_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi);
void fs_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);

void fs_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void fs_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void fs_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		    size_t size, int flags);
void fs_op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
		 unsigned flags, const void *in, size_t in_len, size_t out_len);
void fs_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

#endif
