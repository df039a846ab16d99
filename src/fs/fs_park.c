/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Parked requests: drop the kernel's pages of a file first, answer then.
 *
 * The kernel's invalidation waits for every page that is locked, and a page is locked while a READ
 * for it (or a WRITE into a part of it) waits for our answer. Hence the order:
 *
 *   1. Invalidations run on threads of their own. READ and WRITE never wait for those threads, so
 *      the page locks that an invalidation waits for are always released.
 *   2. LOOKUP and GETATTR lock no page: they are parked here and answered after the invalidation,
 *      so whoever asked cannot see pages older than the attributes. Who asks meanwhile is parked as
 *      well: the cache goes on to call the file changed until it hears that the pages are gone.
 *   3. READ and WRITE hold pages themselves: they are answered first, and the invalidation follows.
 *      A READ that finds a change thus brings new bytes into one page while its neighbours are old
 *      for a moment, as when one reads a file natively while it is being written.
 *
 * Parked is only what the kernel would not notice by itself (`unseen`): given attributes with
 * another size or mtime it drops the pages on its own (AUTO_INVAL_DATA), and that is better where
 * it works. An invalidation from here makes the kernel distrust attributes that it asked for
 * before, so the read(2) that found out would still end at the old size. Where size and mtime are
 * the same that does no harm.
 *
 * A WRITE of a descriptor with O_DIRECT holds no pages, but others may have read some while it was
 * under way, and when it was submitted asynchronously the kernel does not look again: those pages
 * would be old for as long as they stay. So it is parked while the pages it covers are dropped. Only
 * whole pages: after an O_DIRECT write that came out short the kernel writes the rest through the
 * page cache, with the same flags, and then holds the page it covers in part. Such pages are dropped
 * after the answer.
 *
 * A READ or WRITE of a file that was replaced behind the mount has no other answer than ESTALE (who
 * opened it before may not be given the new file's bytes), but whoever opens it next can have the new
 * file: the name is dropped, too.
 *
 * The time a request is parked counts against the time the kernel may keep its attributes.
 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/htab.h"
#include "base/log.h"
#include "fs/fs_priv.h"

struct fs_parked {
	struct work work;
	struct fs *fs;
	fuse_req_t req;  /* NULL: nothing to answer */
	bool is_entry;
	size_t written;  /* not 0: the request is a WRITE, of that many bytes at `at` */
	off_t at;
	fuse_ino_t ino;
	off_t off, len;  /* len 0: to the end */
	uint32_t told;   /* of the cache_attr that is answered */
	uint64_t expires; /* clock_mono_ns */
	struct fuse_entry_param e; /* without is_entry only e.attr */
};

static void fs_parked_answer(struct fs_parked *p)
{
	uint64_t now = clock_mono_ns();
	double left = p->expires > now ? (double)(p->expires - now) / 1e9 : 0;

	if (p->written) {
		fuse_reply_write(p->req, p->written);
		return;
	}
	if (!p->is_entry) {
		fuse_reply_attr(p->req, &p->e.attr, left);
		return;
	}
	p->e.attr_timeout = p->e.entry_timeout = left;
	if (fuse_reply_entry(p->req, &p->e) != 0)
		cache_forget(p->fs->cache, fs_node(p->fs, p->e.ino), 1);
}

static void fs_drop_pages(const struct fs_parked *p, off_t off, off_t len)
{
	int err = fuse_lowlevel_notify_inval_inode(p->fs->session, p->ino, off, len);

	/* ENOENT: the kernel does not know the inode yet, or no longer. */
	if (err && err != -ENOENT)
		log_debug("fs", "invalidating an inode: error %d", -err);
}

static void fs_parked_run(struct work *w)
{
	struct fs_parked *p = container_of(w, struct fs_parked, work);

	if (p->len >= 0)
		fs_drop_pages(p, p->off, p->len);
	if (p->req && !p->written)
		cache_told(p->fs->cache, fs_node(p->fs, p->ino), p->told);
	if (p->req)
		fs_parked_answer(p);
	if (p->written && p->len != (off_t)p->written)
		fs_drop_pages(p, p->at, (off_t)p->written);
	free(p);
}

/* Without memory, or while stopping, the request is answered at once: pages that the attributes
 * contradict are dropped by the kernel itself (AUTO_INVAL_DATA). */
static void fs_park(struct fs *f, const struct fs_parked *like)
{
	struct fs_parked *p = malloc(sizeof(*p));
	struct fs_parked now = *like;

	now.fs = f;
	now.work.run = fs_parked_run;
	if (p) {
		*p = now;
		if (workq_submit(f->park, &p->work) == 0)
			return;
		free(p);
	}
	log_warning("fs", "a changed file could not be invalidated in time");
	if (now.req)
		fs_parked_answer(&now);
}

static uint64_t fs_expiry(uint64_t valid_ns)
{
	uint64_t now = clock_mono_ns();

	return valid_ns < UINT64_MAX - now ? now + valid_ns : UINT64_MAX;
}

void fs_park_inval(struct fs *f, fuse_ino_t ino, off_t off)
{
	fs_park(f, &(struct fs_parked){ .ino = ino, .off = off });
}

void fs_park_direct(struct fs *f, fuse_req_t req, fuse_ino_t ino, off_t at, size_t written)
{
	off_t page = sysconf(_SC_PAGESIZE);
	struct fs_parked p = { .req = req, .ino = ino, .at = at, .written = written };

	p.off = (at + page - 1) / page * page;
	p.len = (at + (off_t)written) / page * page - p.off;
	if (p.len == 0)
		p.len = -1;
	fs_park(f, &p);
}

void fs_park_attr(struct fs *f, fuse_req_t req, fuse_ino_t ino, const struct cache_attr *a)
{
	struct fs_parked p = {
		.req = req, .ino = ino, .told = a->told, .expires = fs_expiry(a->valid_ns)
	};

	p.e.attr = a->attr.st;
	fs_park(f, &p);
}

void fs_park_entry(struct fs *f, fuse_req_t req, const struct fuse_entry_param *e,
		   const struct cache_attr *a)
{
	struct fs_parked p = {
		.req = req, .is_entry = true, .ino = e->ino, .told = a->told,
		.expires = fs_expiry(a->valid_ns), .e = *e
	};

	fs_park(f, &p);
}

struct fs_gone {
	struct work work;
	struct fs *fs;
	struct cnode *n; /* held */
};

static void fs_gone_run(struct work *w)
{
	struct fs_gone *g = container_of(w, struct fs_gone, work);
	struct fs *f = g->fs;
	char name[NAME_MAX + 1];
	struct cnode *dir;

	if (cache_home(f->cache, g->n, &dir, name) == 0) {
		fuse_lowlevel_notify_inval_entry(f->session, fs_ino(f, dir), name, strlen(name));
		cache_forget(f->cache, dir, 1);
	}
	cache_forget(f->cache, g->n, 1);
	free(g);
}

void fs_park_gone(struct fs *f, struct cnode *n)
{
	struct fs_gone *g = malloc(sizeof(*g));

	if (!g)
		return;
	*g = (struct fs_gone){ .work.run = fs_gone_run, .fs = f, .n = n };
	cache_hold(n);
	if (workq_submit(f->park, &g->work) != 0) {
		cache_forget(f->cache, n, 1);
		free(g);
	}
}
