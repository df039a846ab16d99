/* SPDX-License-Identifier: BSD-2-Clause
 * Between meta.c (transactions), meta_open.c (environments) and meta_check.c (their files). */
#ifndef GILD_META_META_PRIV_H
#define GILD_META_META_PRIV_H

#include <stdatomic.h>

#include <lmdb.h>

#include "base/lock.h"
#include "meta/meta.h"

#define META_POOL 128     /* idle read transactions kept */
#define META_READERS 1024 /* reader slots of an environment */

struct meta {
	/* constant after open */
	char *dir;
	MDB_env *env;
	int fd; /* data.mdb, LMDB's own descriptor */
	unsigned page_size;
	unsigned tables;
	MDB_dbi table[META_TABLES];
	struct meta_hook hook; /* set before use by several threads */

	_Atomic uint64_t bytes_written;
	atomic_bool lost, lost_told; /* meta_guard.c */

	struct lock lock; /* protects the pool */
	unsigned pooled;
	MDB_txn *pool[META_POOL];
};

/* LMDB's code as ours; the only place that translates. */
int meta_error(int rc);
/* How many pages the environment has, used or free, from the last page ever used. */
uint64_t meta_pages(const struct meta *m);
/* Gives data.mdb the length its last page number claims; see meta_check.c. */
int meta_extend_file(const struct meta *m);

/* From here on the mappings of m may lose their file; meta_is_lost() tells. */
void meta_guard(struct meta *m);
void meta_unguard(struct meta *m);
/* Whether what was read may be zeroes instead of the file's bytes; logged once. */
bool meta_is_lost(struct meta *m);

/* Is this a sound data.mdb? 0, -ENOENT, -EUCLEAN, -EIO. Reads with pread(2) only. */
int meta_check_file(const char *path);

#endif
