/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Nodes of a --files mount.
 *
 * Invariants: (1) a node is in the table while the kernel holds lookups of it or a child names it
 * as parent; (2) a node holds one reference to its parent; the root has none and stays.
 */
#include <config.h>

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/htab.h"
#include "base/lock.h"
#include "base/log.h"
#include "tools/slowdisk_nodes.h"

struct slow_node {
	struct htab_node link;
	dev_t dev;
	ino_t ino;
	/* under the table's lock */
	struct slow_node *parent;
	char *name;
	uint64_t lookups, children;
	struct slow_handle *open;
};

struct slow_nodes {
	struct lock lock;
	struct htab table; /* under lock */
	struct slow_node *root;
};

static uint64_t node_hash(dev_t dev, ino_t ino)
{
	return hash_mix64(hash_mix64((uint64_t)dev) ^ (uint64_t)ino);
}

static struct slow_node *node_find_locked(struct slow_nodes *t, const struct stat *st)
{
	struct htab_node *l;

	for (l = htab_find(&t->table, node_hash(st->st_dev, st->st_ino)); l; l = htab_next(l)) {
		struct slow_node *n = container_of(l, struct slow_node, link);

		if (slow_node_is(n, st))
			return n;
	}
	return NULL;
}

static struct slow_node *node_new_locked(struct slow_nodes *t, const struct stat *st)
{
	struct slow_node *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->dev = st->st_dev;
	n->ino = st->st_ino;
	htab_insert(&t->table, &n->link, node_hash(n->dev, n->ino));
	return n;
}

int slow_nodes_create(struct slow_nodes **out, const struct stat *root)
{
	struct slow_nodes *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	if (htab_init(&t->table, 1024) != 0) {
		free(t);
		return -ENOMEM;
	}
	lock_init(&t->lock, "slowdisk nodes", RANK_FS_TABLE);
	t->root = node_new_locked(t, root);
	if (!t->root) {
		slow_nodes_destroy(t);
		return -ENOMEM;
	}
	*out = t;
	return 0;
}

static void node_free(struct htab_node *l, void *arg)
{
	struct slow_nodes *t = arg;
	struct slow_node *n = container_of(l, struct slow_node, link);

	htab_remove(&t->table, l);
	while (n->open) { /* only when the mount ended with open files */
		struct slow_handle *h = n->open;

		n->open = h->next;
		close(h->fd);
		free(h);
	}
	free(n->name);
	free(n);
}

void slow_nodes_destroy(struct slow_nodes *t)
{
	if (!t)
		return;
	htab_each(&t->table, node_free, t);
	htab_destroy(&t->table);
	lock_destroy(&t->lock);
	free(t);
}

struct slow_node *slow_nodes_root(struct slow_nodes *t)
{
	return t->root;
}

/* Frees `n` and then every ancestor that nothing holds any more. */
static void node_release_locked(struct slow_nodes *t, struct slow_node *n)
{
	while (n && n != t->root && n->lookups == 0 && n->children == 0) {
		struct slow_node *parent = n->parent;

		node_free(&n->link, t);
		if (parent)
			parent->children--;
		n = parent;
	}
}

/* False when `parent` lies below `n`, which only a change behind the mount can cause, or when
 * there is no memory; the old name stays then. */
static bool node_name_locked(struct slow_nodes *t, struct slow_node *n, struct slow_node *parent,
			     const char *name)
{
	struct slow_node *before = n->parent;
	char *copy;

	if (n == t->root || (before == parent && n->name && strcmp(n->name, name) == 0))
		return true;
	for (struct slow_node *p = parent; p; p = p->parent)
		if (p == n)
			return false;
	copy = strdup(name);
	if (!copy)
		return false;
	free(n->name);
	n->name = copy;
	n->parent = parent;
	parent->children++;
	if (before) {
		before->children--;
		node_release_locked(t, before);
	}
	return true;
}

struct slow_node *slow_node_look(struct slow_nodes *t, struct slow_node *parent, const char *name,
				 const struct stat *st, bool *fresh)
{
	struct slow_node *n;

	lock_acquire(&t->lock);
	n = node_find_locked(t, st);
	*fresh = !n || (n->lookups == 0 && n != t->root);
	if (!n)
		n = node_new_locked(t, st);
	if (n && !node_name_locked(t, n, parent, name) && !n->parent) {
		node_release_locked(t, n);
		n = NULL;
	}
	if (n)
		n->lookups++;
	lock_release(&t->lock);
	return n;
}

void slow_node_forget(struct slow_nodes *t, struct slow_node *n, uint64_t lookups)
{
	lock_acquire(&t->lock);
	n->lookups -= lookups < n->lookups ? lookups : n->lookups;
	node_release_locked(t, n);
	lock_release(&t->lock);
}

void slow_node_renamed(struct slow_nodes *t, const struct stat *st, struct slow_node *parent,
		       const char *name)
{
	struct slow_node *n;

	lock_acquire(&t->lock);
	n = node_find_locked(t, st);
	if (n)
		node_name_locked(t, n, parent, name);
	lock_release(&t->lock);
}

/* Prepends "part/" (or "part" at the end); false when it does not fit. */
static bool node_prepend(char *buf, size_t *at, const char *part)
{
	size_t len = strlen(part);
	bool slash = buf[*at] != '\0';

	if (len + slash > *at)
		return false;
	if (slash)
		buf[--*at] = '/';
	*at -= len;
	memcpy(buf + *at, part, len);
	return true;
}

int slow_node_path(struct slow_nodes *t, struct slow_node *n, const char *name, char *buf)
{
	size_t at = PATH_MAX - 1;
	bool fits = true;

	buf[at] = '\0';
	if (name)
		fits = node_prepend(buf, &at, name);
	lock_acquire(&t->lock);
	for (; fits && n != t->root; n = n->parent)
		fits = node_prepend(buf, &at, n->name);
	lock_release(&t->lock);
	if (fits && buf[at] == '\0')
		fits = node_prepend(buf, &at, ".");
	if (!fits)
		return -ENAMETOOLONG;
	memmove(buf, buf + at, PATH_MAX - at);
	return 0;
}

struct slow_handle *slow_node_open(struct slow_nodes *t, struct slow_node *n, int fd)
{
	struct slow_handle *h = malloc(sizeof(*h));

	if (!h)
		return NULL;
	h->fd = fd;
	h->node = n;
	lock_acquire(&t->lock);
	h->next = n->open;
	n->open = h;
	lock_release(&t->lock);
	return h;
}

void slow_node_close(struct slow_nodes *t, struct slow_handle *h)
{
	struct slow_handle **at;

	lock_acquire(&t->lock);
	for (at = &h->node->open; *at != h;)
		at = &(*at)->next;
	*at = h->next;
	lock_release(&t->lock);
	close(h->fd);
	free(h);
}

int slow_node_fstat(struct slow_nodes *t, struct slow_node *n, struct stat *st)
{
	int err = -ESTALE;

	lock_acquire(&t->lock);
	if (n->open)
		err = fstat(n->open->fd, st) == 0 ? 0 : -errno;
	lock_release(&t->lock);
	return err;
}

bool slow_node_is(const struct slow_node *n, const struct stat *st)
{
	return n->dev == st->st_dev && n->ino == st->st_ino;
}

uint64_t slow_node_ino(const struct slow_node *n)
{
	return (uint64_t)n->ino;
}
