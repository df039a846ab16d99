/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The hash table. The bucket is the hash's low bits, so callers pass a well mixed hash (hash_64,
 * hash_mix64). A failed growth is no error: the chains get longer and the next insert tries again.
 */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "base/htab.h"
#include "base/log.h"

int htab_init(struct htab *t, size_t expected)
{
	size_t n = 16;

	while (n < expected && n < (size_t)1 << 40)
		n <<= 1;
	*t = (struct htab){.mask = n - 1};
	t->buckets = calloc(n, sizeof(*t->buckets));
	return t->buckets ? 0 : -ENOMEM;
}

void htab_destroy(struct htab *t)
{
	free(t->buckets);
	*t = (struct htab){0};
}

static struct htab_node *htab_match(struct htab_node *n, uint64_t hash)
{
	while (n && n->hash != hash)
		n = n->next;
	return n;
}

struct htab_node *htab_find(const struct htab *t, uint64_t hash)
{
	return htab_match(t->buckets[hash & t->mask], hash);
}

struct htab_node *htab_next(const struct htab_node *n)
{
	return htab_match(n->next, n->hash);
}

static void htab_grow(struct htab *t)
{
	size_t mask = t->mask * 2 + 1, i;
	struct htab_node **buckets = calloc(mask + 1, sizeof(*buckets));

	if (!buckets)
		return;
	for (i = 0; i <= t->mask; i++) {
		struct htab_node *n = t->buckets[i], *next;

		for (; n; n = next) {
			next = n->next;
			n->next = buckets[n->hash & mask];
			buckets[n->hash & mask] = n;
		}
	}
	free(t->buckets);
	t->buckets = buckets;
	t->mask = mask;
}

void htab_insert(struct htab *t, struct htab_node *n, uint64_t hash)
{
	if (t->count > t->mask)
		htab_grow(t);
	n->hash = hash;
	n->next = t->buckets[hash & t->mask];
	t->buckets[hash & t->mask] = n;
	t->count++;
}

void htab_remove(struct htab *t, struct htab_node *n)
{
	struct htab_node **p = &t->buckets[n->hash & t->mask];

	while (*p && *p != n)
		p = &(*p)->next;
	gild_assert(*p == n);
	*p = n->next;
	n->next = NULL;
	t->count--;
}

void htab_each(struct htab *t, void (*fn)(struct htab_node *n, void *arg), void *arg)
{
	size_t i;

	for (i = 0; i <= t->mask; i++) {
		struct htab_node *n = t->buckets[i], *next;

		for (; n; n = next) {
			next = n->next;
			fn(n, arg);
		}
	}
}
