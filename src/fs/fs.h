/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The FUSE side: low-level operations over cache.h; the only place with fuse headers. A nodeid is
 * the address of the cnode; the kernel's lookup count is the cnode's reference count.
 */
#ifndef GILD_FS_FS_H
#define GILD_FS_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "cache/cache.h"

struct fs;

struct fs_options {
	const char *source;     /* shown in /proc/mounts: the backing's path */
	const char *fuse_opts;  /* further -o options for libfuse/mount(8) ("allow_other,ro"), or NULL */
	bool readonly, allow_other, acl, debug;
	unsigned readers;       /* threads that read /dev/fuse; 0: one a core; and as many helpers */
	unsigned pool_threads;  /* for what may block; 0: 16 */
};

int fs_create(struct fs **out, struct cache *c, struct stats *stats, const struct fs_options *o);
int fs_mount(struct fs *f, const char *mountpoint);
/* Serve a descriptor instead of a mount (wire tests: a socketpair). */
int fs_attach(struct fs *f, int fd);
/* Called once, when INIT was answered: the mount is ready. */
void fs_on_ready(struct fs *f, void (*fn)(void *arg), void *arg);
/* Serves until unmounted or fs_stop. 0, or an error that ended it. Every request is answered. */
int fs_run(struct fs *f);
/* `path` is relative to the mount, "" its root; directories with all below them. What is asked for
 * after it is not older than it. -EINVAL: "..", -ENAMETOOLONG, errors of the backing. Not from a thread
 * that serves requests: it waits for them. */
int fs_invalidate(struct fs *f, const char *path);
void fs_stop(struct fs *f); /* async-signal-safe */
void fs_destroy(struct fs *f); /* unmounts if still mounted; NULL-safe */

#endif
