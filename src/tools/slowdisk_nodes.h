/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The inodes a --files mount has told the kernel about: identity, and the path last seen.
 *
 * No descriptor is kept per node, so a million files fit any descriptor limit. A path may have gone
 * stale (a removed name, a change behind the mount): users compare what they find with the node's
 * identity. Thread safe.
 */
#ifndef GILD_TOOLS_SLOWDISK_NODES_H
#define GILD_TOOLS_SLOWDISK_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct slow_nodes;
struct slow_node;

/* An open file; kept with its node, because an unlinked one can be reached no other way. */
struct slow_handle {
	int fd;
	struct slow_node *node;
	struct slow_handle *next; /* under the table's lock */
};

int slow_nodes_create(struct slow_nodes **out, const struct stat *root); /* -ENOMEM */
void slow_nodes_destroy(struct slow_nodes *t);                           /* NULL-safe */
struct slow_node *slow_nodes_root(struct slow_nodes *t);

/* The node of `st`, found as parent/name; one kernel lookup is added. *fresh: the kernel did not
 * know it. NULL: no memory. */
struct slow_node *slow_node_look(struct slow_nodes *t, struct slow_node *parent, const char *name,
				 const struct stat *st, bool *fresh);
void slow_node_forget(struct slow_nodes *t, struct slow_node *n, uint64_t lookups);
/* `st`'s node, if the kernel knows one, is now called parent/name. */
void slow_node_renamed(struct slow_nodes *t, const struct stat *st, struct slow_node *parent,
		       const char *name);

/* Path below the root, "." for the root itself; with `name` (may be NULL) appended.
 * -ENAMETOOLONG. `buf` has PATH_MAX bytes. */
int slow_node_path(struct slow_nodes *t, struct slow_node *n, const char *name, char *buf);
/* Adds `fd` to the node's open files; NULL: no memory, the caller still owns the descriptor. */
struct slow_handle *slow_node_open(struct slow_nodes *t, struct slow_node *n, int fd);
void slow_node_close(struct slow_nodes *t, struct slow_handle *h); /* closes the descriptor */
/* fstat of one of the node's open files; -ESTALE when it has none. */
int slow_node_fstat(struct slow_nodes *t, struct slow_node *n, struct stat *st);

bool slow_node_is(const struct slow_node *n, const struct stat *st);
uint64_t slow_node_ino(const struct slow_node *n); /* the source's inode number */

#endif
