/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Names: every operation goes to the backing at once, in order. What it does to attributes (ctime of
 * the object, link count, times of the directories) is taken over inside the frame of
 * cache_modify.c, so that renames and links keep a file's lines; directories are only marked, they
 * are asked for when somebody wants to know.
 */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/cache_priv.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif
#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

/* Somebody else asked for the attributes while we asked for the name, and got others. Theirs may be of
 * a moment when the object did not have this name yet: a new file that is being written, say, and is
 * then put in the place of an old one, which nobody may see half written. */
static void cname_learn_again(struct cache *c, struct cnode *n, unsigned flags)
{
	uint64_t start = clock_mono_ns();
	struct battr a;
	int err = flags & CACHE_NOWAIT ? backing_getattr_cached(c->backing, n->bnode, &a)
				       : backing_getattr(c->backing, n->bnode, &a);

	if (err)
		cnode_unverify(c, n);
	else
		cnode_learn(c, n, &a, start);
}

/* Takes over the reference of `b`. */
static int cname_found(struct cache *c, struct bnode *b, const struct battr *a, uint64_t start,
		       struct cnode **out, struct cache_attr *attr, unsigned flags)
{
	struct cnode *n;
	int err = cnode_get(c, b, &n);

	if (err)
		return err;
	if (!cnode_learn(c, n, a, start))
		cname_learn_again(c, n, flags);
	cnode_lock(c, n);
	cnode_fill_attr(c, n, clock_mono_ns(), attr);
	cnode_tell_changed(c, n, attr);
	cnode_unlock(c, n);
	*out = n;
	return 0;
}

/* The backing could not say: what it said last is served, where the mode allows. */
static int cname_known(struct cache *c, struct cnode *parent, const char *name, int err,
		       struct cnode **out, struct cache_attr *attr)
{
	struct cnode *n = cache_is_transport_error(err) ? cknown_find(c, parent, name) : NULL;

	if (!n)
		return err;
	err = cnode_check_failed(c, n, err);
	if (err) {
		cache_forget(c, n, 1);
		return err;
	}
	cnode_lock(c, n);
	cnode_fill_attr(c, n, clock_mono_ns(), attr);
	cnode_tell_changed(c, n, attr);
	cnode_unlock(c, n);
	*out = n;
	return 0;
}

int cache_lookup(struct cache *c, struct cnode *parent, const char *name, struct cnode **out,
		 struct cache_attr *attr, unsigned flags)
{
	uint64_t start = clock_mono_ns(), changes = cknown_changes(c);
	struct bnode *b;
	struct battr a;
	int err;

	memset(attr, 0, sizeof(*attr));
	if (flags & CACHE_NOWAIT)
		err = backing_lookup_cached(c->backing, parent->bnode, name, &b, &a);
	else
		err = backing_lookup(c->backing, parent->bnode, name, &b, &a);
	if (err == -ENOENT) {
		attr->valid_ns =
			c->o.coherence == CACHE_EXCLUSIVE ? CACHE_FOREVER_NS : c->o.ttl_ns;
		cknown_forget(c, parent, name);
	}
	if (err) {
		if (cache_is_transport_error(err))
			stats_inc(c->stats, backing_errors);
		return cname_known(c, parent, name, err, out, attr);
	}
	cknown_learn(c, parent, name, b, changes);
	return cname_found(c, b, &a, start, out, attr, flags);
}

/* ---- making ---- */

static int cname_made(struct cache *c, struct cnode *parent, int err, struct bnode *b,
		      const struct battr *a, uint64_t start, struct cnode **out,
		      struct cache_attr *attr)
{
	cnode_unverify(c, parent);
	return err ? err : cname_found(c, b, a, start, out, attr, 0);
}

int cache_create(struct cache *c, struct cnode *parent, const char *name, mode_t mode,
		 const struct bcred *cred, bool excl, struct cnode **out, struct cache_attr *attr)
{
	uint64_t start = clock_mono_ns();
	struct bnode *b = NULL;
	struct battr a;
	int err;

	if (c->o.mode == CACHE_READ_ONLY)
		return -EROFS;
	err = backing_create(c->backing, parent->bnode, name, mode, cred, excl, &b, &a);
	return cname_made(c, parent, err, b, &a, start, out, attr);
}

int cache_tmpfile(struct cache *c, struct cnode *parent, mode_t mode, const struct bcred *cred,
		  struct cnode **out, struct cache_attr *attr)
{
	uint64_t start = clock_mono_ns();
	struct bnode *b;
	struct battr a;
	int err;

	if (c->o.mode == CACHE_READ_ONLY)
		return -EROFS;
	err = backing_tmpfile(c->backing, parent->bnode, mode, cred, &b, &a);
	if (err)
		return err;
	err = cname_found(c, b, &a, start, out, attr, 0);
	if (err)
		return err;
	cnode_lock(c, *out);
	if ((*out)->flags & CN_ATTR && !(*out)->nlink)
		(*out)->flags |= CN_GONE; /* until it is linked */
	cnode_unlock(c, *out);
	return 0;
}

int cache_mknod(struct cache *c, struct cnode *parent, const char *name, mode_t mode, dev_t rdev,
		const struct bcred *cred, struct cnode **out, struct cache_attr *attr)
{
	uint64_t start = clock_mono_ns();
	struct bnode *b = NULL;
	struct battr a;
	int err;

	if (c->o.mode == CACHE_READ_ONLY)
		return -EROFS;
	err = backing_mknod(c->backing, parent->bnode, name, mode, rdev, cred, &b, &a);
	return cname_made(c, parent, err, b, &a, start, out, attr);
}

int cache_mkdir(struct cache *c, struct cnode *parent, const char *name, mode_t mode,
		const struct bcred *cred, struct cnode **out, struct cache_attr *attr)
{
	uint64_t start = clock_mono_ns();
	struct bnode *b = NULL;
	struct battr a;
	int err;

	if (c->o.mode == CACHE_READ_ONLY)
		return -EROFS;
	err = backing_mkdir(c->backing, parent->bnode, name, mode, cred, &b, &a);
	return cname_made(c, parent, err, b, &a, start, out, attr);
}

int cache_symlink(struct cache *c, struct cnode *parent, const char *name, const char *target,
		  const struct bcred *cred, struct cnode **out, struct cache_attr *attr)
{
	uint64_t start = clock_mono_ns();
	struct bnode *b = NULL;
	struct battr a;
	int err;

	if (c->o.mode == CACHE_READ_ONLY)
		return -EROFS;
	err = backing_symlink(c->backing, parent->bnode, name, target, cred, &b, &a);
	return cname_made(c, parent, err, b, &a, start, out, attr);
}

int cache_link(struct cache *c, struct cnode *n, struct cnode *parent, const char *name,
	       struct cache_attr *attr)
{
	struct cmodify m;
	struct battr a;
	int err;

	if (c->o.mode == CACHE_READ_ONLY)
		return -EROFS;
	cmodify_begin(&m, c, n, false);
	err = backing_link(c->backing, n->bnode, parent->bnode, name, &a);
	cnode_unverify(c, parent);
	cmodify_end(&m, CMODIFY_META, 0, err ? NULL : &a, clock_mono_ns(), attr);
	return err;
}

/* ---- removing ---- */

struct cname_victim { /* an object that an operation takes a name from */
	struct bnode *b;  /* held */
	struct cnode *n;  /* held; NULL: the kernel does not know it */
	struct cmodify m;
	bool regular, last;
};

static int cname_victim_find(struct cache *c, struct cnode *parent, const char *name,
			     struct cname_victim *v)
{
	struct battr a;
	int err;

	memset(v, 0, sizeof(*v));
	err = backing_lookup(c->backing, parent->bnode, name, &v->b, &a);
	if (err)
		return err;
	v->n = cnode_find(c, v->b);
	v->regular = S_ISREG(a.st.st_mode);
	v->last = S_ISDIR(a.st.st_mode) || a.st.st_nlink <= 1;
	return 0;
}

/* Once its last name is gone it can be reached by a descriptor only. If there is none to be had, the
 * removal goes on: later requests then answer ESTALE. Inside the section, where nobody else gives or
 * takes a name: of two who remove one name each, one sees that it is the last. */
static void cname_victim_pin(struct cache *c, struct cname_victim *v)
{
	if (v->n && v->regular && v->m.c) {
		cnode_lock(c, v->n);
		v->last = !v->m.before_known || v->n->nlink <= 1;
		cnode_unlock(c, v->n);
	}
	if (v->n && v->last)
		backing_pin(c->backing, v->b);
}

static void cname_victim_done(struct cache *c, struct cname_victim *v, bool removed)
{
	if (v->n) {
		cnode_lock(c, v->n);
		if (removed && (v->n->flags & CN_ATTR) && !v->n->nlink)
			v->n->flags |= CN_GONE;
		cnode_unlock(c, v->n);
		cache_forget(c, v->n, 1);
	} else if (removed && v->regular && v->last && c->flash) {
		cfile_forget(c, v->b);
	}
	if (v->b)
		backing_put(c->backing, v->b);
}

static int cname_remove(struct cache *c, struct cnode *parent, const char *name,
			int (*remove)(struct backing *, struct bnode *, const char *))
{
	struct cname_victim v;
	int err;

	if (c->o.mode == CACHE_READ_ONLY)
		return -EROFS;
	err = cname_victim_find(c, parent, name, &v);
	if (err)
		return err;
	if (v.n)
		cmodify_begin(&v.m, c, v.n, false);
	cname_victim_pin(c, &v);
	cknown_forget(c, parent, name);
	err = remove(c->backing, parent->bnode, name);
	cknown_forget(c, parent, name);
	cnode_unverify(c, parent);
	if (v.n)
		cmodify_end(&v.m, CMODIFY_META, 0, NULL, 0, NULL);
	cname_victim_done(c, &v, !err);
	return err;
}

int cache_unlink(struct cache *c, struct cnode *parent, const char *name)
{
	return cname_remove(c, parent, name, backing_unlink);
}

int cache_rmdir(struct cache *c, struct cnode *parent, const char *name)
{
	return cname_remove(c, parent, name, backing_rmdir);
}

/* ---- renaming ---- */

/* Sections are entered by rising address. */
static void cname_begin_both(struct cache *c, struct cname_victim *a, struct cname_victim *b)
{
	struct cname_victim *first = a, *second = b;

	if (b->n && (!a->n || (uintptr_t)b->n < (uintptr_t)a->n)) {
		first = b;
		second = a;
	}
	if (first->n)
		cmodify_begin(&first->m, c, first->n, false);
	if (second->n && second->n != first->n)
		cmodify_begin(&second->m, c, second->n, false);
}

static void cname_end_both(struct cname_victim *a, struct cname_victim *b)
{
	bool same = a->n == b->n;

	if (a->n && a->m.c)
		cmodify_end(&a->m, CMODIFY_META, 0, NULL, 0, NULL);
	if (b->n && b->m.c && (!same || !a->m.c))
		cmodify_end(&b->m, CMODIFY_META, 0, NULL, 0, NULL);
}

int cache_rename(struct cache *c, struct cnode *from, const char *name, struct cnode *to,
		 const char *new_name, unsigned flags)
{
	bool replaces = !(flags & (RENAME_NOREPLACE | RENAME_EXCHANGE));
	struct cname_victim src, dst;
	int err, found;

	if (c->o.mode == CACHE_READ_ONLY)
		return -EROFS;
	err = cname_victim_find(c, from, name, &src);
	if (err)
		return err;
	found = cname_victim_find(c, to, new_name, &dst);
	cname_begin_both(c, &src, &dst);
	if (!found && replaces)
		cname_victim_pin(c, &dst);
	cknown_forget(c, from, name);
	cknown_forget(c, to, new_name);
	err = backing_rename(c->backing, from->bnode, name, to->bnode, new_name, flags);
	cknown_forget(c, from, name);
	cknown_forget(c, to, new_name);
	cnode_unverify(c, from);
	cnode_unverify(c, to);
	cname_end_both(&src, &dst);
	cname_victim_done(c, &src, false);
	cname_victim_done(c, &dst, !found && !err && replaces && dst.b != src.b);
	return err;
}

/* ---- extended attributes and flags ---- */

int cache_setxattr(struct cache *c, struct cnode *n, const char *name, const void *value, size_t len,
		   int flags)
{
	struct cmodify m;
	int err;

	if (c->o.mode == CACHE_READ_ONLY)
		return -EROFS;
	cmodify_begin(&m, c, n, false);
	err = backing_setxattr(c->backing, n->bnode, name, value, len, flags);
	cmodify_end(&m, CMODIFY_META, 0, NULL, 0, NULL);
	return err;
}

int cache_removexattr(struct cache *c, struct cnode *n, const char *name)
{
	struct cmodify m;
	int err;

	if (c->o.mode == CACHE_READ_ONLY)
		return -EROFS;
	cmodify_begin(&m, c, n, false);
	err = backing_removexattr(c->backing, n->bnode, name);
	cmodify_end(&m, CMODIFY_META, 0, NULL, 0, NULL);
	return err;
}

int cache_set_flags(struct cache *c, struct cnode *n, unsigned cmd, void *arg)
{
	struct cmodify m;
	int err;

	if (c->o.mode == CACHE_READ_ONLY)
		return -EROFS;
	cmodify_begin(&m, c, n, false);
	err = backing_flags(c->backing, n->bnode, cmd, arg);
	cmodify_end(&m, CMODIFY_META, 0, NULL, 0, NULL);
	return err;
}
