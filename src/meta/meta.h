/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Ordered maps of bytes to bytes with transactions: the only place that knows LMDB.
 *
 * One struct meta is one environment (a directory with data.mdb); a process opens each once. A
 * write transaction is durable when meta_commit returns 0. One writer at a time; readers never
 * wait. Read transactions are short: no one is kept open across calls into other layers, for an old
 * reader pins every page freed since.
 *
 * All errors are negative errno: -ENOENT key or environment absent, -EEXIST, -ENOSPC map or disk
 * full, -EUCLEAN damaged, not ours or without one of the tables, -EIO. Keys <= META_KEY_MAX bytes,
 * order is memcmp's.
 */
#ifndef GILD_META_META_H
#define GILD_META_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define META_KEY_MAX 64
#define META_TABLES 8 /* tables per environment */

struct meta;
struct meta_txn;

struct meta_buf { /* memory of the environment: valid until the transaction ends or changes it */
	const void *data;
	size_t len;
};

/* Called around every durable commit; the fault injector's clock. before != 0 aborts the commit
 * with that error; after != 0 is returned from meta_commit although the commit is durable. */
struct meta_hook {
	int (*before)(void *arg);
	int (*after)(void *arg);
	void *arg;
};

/* `dir` exists or is created (0700) when `create`. `tables`: names, NULL-terminated, at most
 * META_TABLES, created when missing and `create`. `map_bytes`: most the environment may hold
 * (address space only). A damaged file gives -EUCLEAN and stays untouched. */
int meta_open(struct meta **out, const char *dir, const char *const *tables, uint64_t map_bytes,
	      bool create);
/* For the program, once, after other handlers of SIGBUS were installed: an environment whose file is
 * cut short while it is open then answers -EIO for good, instead of ending the process. */
void meta_catch_bus_errors(void);
/* Looks at an environment without opening or changing it: 0, -ENOENT, -EUCLEAN (logged), -EIO. */
int meta_check(const char *dir);
void meta_close(struct meta *m); /* NULL-safe; no transaction may be open */
void meta_set_hook(struct meta *m, const struct meta_hook *hook);
uint64_t meta_bytes_written(const struct meta *m); /* estimate: dirty pages + meta pages committed */
uint64_t meta_bytes_used(const struct meta *m);

/* Point reads use a reader slot kept per thread; `*len` is the room on entry, the value's size on
 * return. -ENOENT; -EOVERFLOW: larger than the room (nothing copied). */
int meta_get(struct meta *m, unsigned table, const void *key, size_t key_len, void *buf,
	     size_t *len);

int meta_begin_write(struct meta *m, struct meta_txn **out); /* waits for the other writer */
int meta_begin_read(struct meta *m, struct meta_txn **out);
int meta_txn_get(struct meta_txn *t, unsigned table, const void *key, size_t key_len,
		 struct meta_buf *value);
int meta_put(struct meta_txn *t, unsigned table, const void *key, size_t key_len, const void *value,
	     size_t len);
int meta_del(struct meta_txn *t, unsigned table, const void *key, size_t key_len); /* -ENOENT */
int meta_clear(struct meta_txn *t, unsigned table); /* empties it */
int meta_commit(struct meta_txn *t);                /* ends t, also on error */
void meta_abort(struct meta_txn *t);                /* NULL-safe; also ends read transactions */

/* Walks entries with key >= `from` in order; fn returns 0 to go on, else the walk ends with that
 * value. A read transaction is held meanwhile: fn must be quick and not write. */
int meta_walk(struct meta *m, unsigned table, const void *from, size_t from_len,
	      int (*fn)(void *arg, const struct meta_buf *key, const struct meta_buf *value),
	      void *arg);
uint64_t meta_count(struct meta *m, unsigned table);

#endif
