/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef GILD_TESTS_WIRE_RAM_PRIV_H
#define GILD_TESTS_WIRE_RAM_PRIV_H

#include <pthread.h>
#include <time.h>

#include "base/htab.h"
#include "ram_cache.h"

struct ram_dent {
	struct htab_node node;
	struct cnode *dir, *object;
	struct ram_dent *next; /* in the directory, newest first */
	char name[];
};

struct ram_xattr {
	struct ram_xattr *next;
	size_t len;
	char *name;
	char value[]; /* the name follows */
};

struct cnode {
	struct stat st;
	uint64_t refs, *counter;
	char *data;    /* of a file, or a symlink's target */
	size_t room;
	struct ram_dent *entries;
	struct ram_xattr *xattrs;
	int flags;     /* of FS_IOC_GETFLAGS */
};

struct cache {
	pthread_mutex_t lock;
	struct cnode root;
	struct htab names;
	uint64_t inodes, refs;
	enum cache_coherence coherence;
	struct ram_switches switches;
};

int ram_enter(struct cache *c, unsigned flags);
bool ram_changed(struct cache *c);
void ram_fill_attr(struct cache *c, struct cnode *n, struct cache_attr *a);
void ram_touch(struct cnode *n, bool data);
struct cnode *ram_new(struct cache *c, mode_t mode);
void ram_release(struct cache *c, struct cnode *n);
struct ram_dent *ram_find(struct cache *c, struct cnode *dir, const char *name);
int ram_enter_name(struct cache *c, struct cnode *dir, const char *name, struct cnode *n);
void ram_drop_name(struct cache *c, struct ram_dent *d);
/* -ENOMEM; grows the file. */
int ram_put_bytes(struct cnode *n, const void *data, size_t len, uint64_t off);
int ram_resize(struct cnode *n, uint64_t size);

#endif
