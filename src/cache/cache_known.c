/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Known names, for the time when the backing does not answer.
 *
 * With ttl the version that was verified last is served while checks cannot be made. The kernel asks
 * for names anew when their ttl is over; so the last good answers are kept here: a direct-mapped table
 * of (directory, name) -> object, good for nothing but that, which may forget at any time. What the
 * kernel has forgotten is not served: keeping it here would need memory for each, and descriptors of
 * removed files would stay open.
 *
 * 1. A slot says what the backing answered last: "no such name" and another object empty or replace
 *    it, and so does every change of the name through the mount, before and after it is made.
 * 2. An answer that was asked for before such a change ended is not kept (`changes`).
 * 3. A slot holds nothing. Its object is used only if it is alive and, by identity, still the same;
 *    so is the directory, whose identity is part of the tag.
 */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cache/cache_priv.h"

#define CKNOWN_SLOTS (1u << 18)

struct cknown_slot {
	uint64_t tag, id;
	struct bnode *b; /* not held */
};

int cknown_start(struct cache *c)
{
	lock_init(&c->known_lock, "cache names", RANK_CACHE_POLICY);
	if (c->o.coherence == CACHE_STRICT)
		return 0;
	c->known = calloc(CKNOWN_SLOTS, sizeof(*c->known));
	return c->known ? 0 : -ENOMEM;
}

void cknown_stop(struct cache *c)
{
	free(c->known);
	if (c->known_lock.name)
		lock_destroy(&c->known_lock);
}

static uint64_t cknown_tag(const struct cnode *parent, const char *name)
{
	struct hash128 dir = backing_identity(parent->bnode, NULL);

	return hash_64(name, strlen(name)) ^ hash_mix64(dir.lo);
}

static struct cknown_slot *cknown_slot(struct cache *c, uint64_t tag)
{
	return &c->known[hash_mix64(tag) % CKNOWN_SLOTS];
}

uint64_t cknown_changes(struct cache *c)
{
	return atomic_load(&c->known_changes);
}

void cknown_learn(struct cache *c, struct cnode *parent, const char *name, struct bnode *b,
		  uint64_t changes)
{
	struct cknown_slot s;

	if (!c->known)
		return;
	s = (struct cknown_slot){cknown_tag(parent, name), backing_identity(b, NULL).lo, b};
	lock_acquire(&c->known_lock);
	if (changes == atomic_load(&c->known_changes))
		*cknown_slot(c, s.tag) = s;
	lock_release(&c->known_lock);
}

void cknown_forget(struct cache *c, struct cnode *parent, const char *name)
{
	struct cknown_slot *s;
	uint64_t tag;

	if (!c->known)
		return;
	tag = cknown_tag(parent, name);
	s = cknown_slot(c, tag);
	lock_acquire(&c->known_lock);
	atomic_fetch_add(&c->known_changes, 1);
	if (s->tag == tag)
		memset(s, 0, sizeof(*s));
	lock_release(&c->known_lock);
}

struct cnode *cknown_find(struct cache *c, struct cnode *parent, const char *name)
{
	struct cknown_slot s;
	struct cnode *n;
	uint64_t tag;

	if (!c->known)
		return NULL;
	tag = cknown_tag(parent, name);
	lock_acquire(&c->known_lock);
	s = *cknown_slot(c, tag);
	lock_release(&c->known_lock);
	n = s.b && s.tag == tag ? cnode_find(c, s.b) : NULL;
	if (n && backing_identity(n->bnode, NULL).lo != s.id) {
		cache_forget(c, n, 1);
		n = NULL;
	}
	return n;
}
