/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The cache: lines of files on flash in front of the backing; hot spots, admission, eviction, write
 * modes and coherence. Knows nothing of FUSE. It owns what the mount knows of each object, a struct
 * cnode: its bnode, its attributes and when they were last verified, and for regular files the
 * version and epoch of what is on flash.
 *
 * Everything that changes data or attributes of the backing goes through here; only pure reads of
 * the namespace (readlink, readdir, xattrs' values, flags, statfs, lseek) may use backing.h with
 * cache_bnode().
 *
 * Threads: all functions are thread safe and may be called at once. They may block on the backing
 * unless CACHE_NOWAIT is given: then they answer -EAGAIN instead of waiting for the backing, for a
 * lock held over a call to the backing, or for another reader's fill, and have done nothing. Flash
 * reads count as not blocking. No error is returned that the backing would not have given, except
 * -EAGAIN with CACHE_NOWAIT.
 */
#ifndef GILD_CACHE_CACHE_H
#define GILD_CACHE_CACHE_H

#include "backing/backing.h"
#include "flash.h"
#include "stats/stats.h"

struct cache;
struct cnode;

enum cache_mode { CACHE_WRITE_THROUGH, CACHE_WRITE_AROUND, CACHE_READ_ONLY };
enum cache_coherence { CACHE_TTL, CACHE_STRICT, CACHE_EXCLUSIVE };
enum cache_policy { CACHE_POLICY_FREQ, CACHE_POLICY_ALWAYS, CACHE_POLICY_LRU };
#define CACHE_NOWAIT 1u

struct cache_options {
	enum cache_mode mode;
	enum cache_coherence coherence;
	uint64_t ttl_ns;           /* with CACHE_TTL; default 1 s */
	enum cache_policy policy;
	uint64_t seq_cutoff;       /* bytes a stream reads in order before it bypasses; 0: never */
	unsigned fill_threads;     /* 0: 2 */
	uint64_t fill_bytes;       /* memory of queued fills; 0: 32 MiB */
	uint64_t publish_after_ns; /* quiet time before a written file's version is published; 0: 2 s */
	uint64_t settle_ns;        /* age of a change made behind the mount before lines are filled: a
				    * write there stamps the file first and moves its bytes after;
				    * 0: 250 ms */
};

struct cache_attr {
	struct battr attr;
	uint64_t valid_ns;  /* how long the kernel may keep it (what remains of the ttl) */
	bool changed;       /* the data changed behind the mount: drop the kernel's pages first */
	bool unseen;        /* with `changed`: size and mtime may be as they were told last, so that who
	                     * compares those does not see it */
	uint32_t told;      /* with `changed`: for cache_told */
};

/* `flash` NULL: no cache, everything passes through. Neither it nor `backing` is owned; both outlive
 * the cache. After an unclean stop the files that were being written are dropped here. Errors:
 * -ENOMEM, -EIO, -EUCLEAN (control records that make no sense). */
int cache_open(struct cache **out, struct flash *flash, struct backing *backing, struct stats *stats,
	       const struct cache_options *o);
/* Publishes what is being written (syncs the backing), stops the threads, frees. */
int cache_close(struct cache *c);
/* A barrier: everything written through the mount is published and durable on return. Idle
 * descriptors of the backing are closed. */
int cache_flush(struct cache *c);
void cache_options_get(struct cache *c, struct cache_options *out);

/* ---- objects ---- */

struct cnode *cache_root(struct cache *c); /* not to be forgotten */
struct bnode *cache_bnode(struct cnode *n);
struct backing *cache_backing(struct cache *c);
/* One reference more; the same object always gives the same cnode while it is referenced. For
 * -ENOENT out->valid_ns says how long the kernel may keep that answer. */
int cache_lookup(struct cache *c, struct cnode *parent, const char *name, struct cnode **out,
		 struct cache_attr *attr, unsigned flags);
/* The directory (a reference) and the name where n was seen last. -ENOENT: not known. */
int cache_home(struct cache *c, struct cnode *n, struct cnode **dir, char name[NAME_MAX + 1]);
void cache_hold(struct cnode *n);
void cache_forget(struct cache *c, struct cnode *n, uint64_t count);
int cache_getattr(struct cache *c, struct cnode *n, struct cache_attr *out, unsigned flags);
int cache_setattr(struct cache *c, struct cnode *n, unsigned set, const struct stat *st,
		  struct cache_attr *out);

/* ---- data ---- */

/* Bytes read (short only at the end of the file) or an error. `changed` as in cache_attr. */
ssize_t cache_read(struct cache *c, struct cnode *n, void *buf, size_t len, uint64_t off,
		   unsigned flags, bool *changed);
/* `append`: to the backing's true end; *off returns where it went. */
ssize_t cache_write(struct cache *c, struct cnode *n, const void *buf, size_t len, uint64_t *off,
		    bool append);
int cache_fsync(struct cache *c, struct cnode *n, bool datasync);
int cache_fallocate(struct cache *c, struct cnode *n, int mode, uint64_t off, uint64_t len);
ssize_t cache_copy_range(struct cache *c, struct cnode *from, uint64_t from_off, struct cnode *to,
			 uint64_t to_off, size_t len);

/* ---- names: as their backing_ namesakes, plus coherence ---- */

int cache_create(struct cache *c, struct cnode *parent, const char *name, mode_t mode,
		 const struct bcred *cred, bool excl, struct cnode **out, struct cache_attr *attr);
int cache_tmpfile(struct cache *c, struct cnode *parent, mode_t mode, const struct bcred *cred,
		  struct cnode **out, struct cache_attr *attr);
int cache_mknod(struct cache *c, struct cnode *parent, const char *name, mode_t mode, dev_t rdev,
		const struct bcred *cred, struct cnode **out, struct cache_attr *attr);
int cache_mkdir(struct cache *c, struct cnode *parent, const char *name, mode_t mode,
		const struct bcred *cred, struct cnode **out, struct cache_attr *attr);
int cache_symlink(struct cache *c, struct cnode *parent, const char *name, const char *target,
		  const struct bcred *cred, struct cnode **out, struct cache_attr *attr);
int cache_link(struct cache *c, struct cnode *n, struct cnode *parent, const char *name,
	       struct cache_attr *attr);
/* Pins the victim's descriptor first when the kernel still knows it. */
int cache_unlink(struct cache *c, struct cnode *parent, const char *name);
int cache_rmdir(struct cache *c, struct cnode *parent, const char *name);
int cache_rename(struct cache *c, struct cnode *from, const char *name, struct cnode *to,
		 const char *new_name, unsigned flags);
int cache_setxattr(struct cache *c, struct cnode *n, const char *name, const void *value, size_t len,
		   int flags);
int cache_removexattr(struct cache *c, struct cnode *n, const char *name);
/* FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR, as backing_flags. */
int cache_set_flags(struct cache *c, struct cnode *n, unsigned cmd, void *arg);
/* The kernel has dropped its pages after an answer with `changed` said so. Until then answers go on
 * saying so, if with `unseen`, or in CACHE_EXCLUSIVE: who asks meanwhile must wait as well. */
void cache_told(struct cache *c, struct cnode *n, uint32_t told);
/* Takes back `changed` and `unseen` of an answer: the next one says so again. */
void cache_untold(struct cache *c, struct cnode *n);
/* Drops what is known of attributes and marks the data unverified: after it, nothing older than
 * this call is served. The caller makes the kernel drop its pages, afterwards: with CACHE_EXCLUSIVE
 * nobody else will, and what has changed up to the next look is not told as `changed`. */
void cache_invalidate(struct cache *c, struct cnode *n);
/* Calls fn, without locks, for every object known now that was seen last below `top`, and for those
 * with several links, wherever they are. Without memory for the list: for none, which is logged. */
void cache_each_below(struct cache *c, struct cnode *top, void (*fn)(void *arg, struct cnode *n),
		      void *arg);

#endif
