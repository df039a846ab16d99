/* SPDX-License-Identifier: BSD-2-Clause
 *
 * An intrusive, chained hash table that grows: 16 bytes an object, no allocation per insert.
 *
 * Not thread safe: the owner's lock covers it. Objects embed struct htab_node and are found with
 * container_of(). Growth doubles the bucket array in one step (about 10 ns an object).
 */
#ifndef GILD_BASE_HTAB_H
#define GILD_BASE_HTAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

struct htab_node {
	struct htab_node *next;
	uint64_t hash;
};

struct htab {
	struct htab_node **buckets;
	size_t mask;  /* buckets - 1 */
	size_t count; /* objects */
};

int htab_init(struct htab *t, size_t expected); /* -ENOMEM */
void htab_destroy(struct htab *t);              /* frees the buckets, not the objects */
/* The first node with this hash, or NULL; then htab_next for further ones: the caller compares. */
struct htab_node *htab_find(const struct htab *t, uint64_t hash);
struct htab_node *htab_next(const struct htab_node *n);
void htab_insert(struct htab *t, struct htab_node *n, uint64_t hash); /* never fails */
void htab_remove(struct htab *t, struct htab_node *n);
/* Calls fn for every node; fn may remove and free the node it is given. */
void htab_each(struct htab *t, void (*fn)(struct htab_node *n, void *arg), void *arg);

#endif
