/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Transactions on an environment.
 *
 * Read transactions cost a reader slot and a mutex to make, but little to use again: finished ones
 * are reset, which lets go of their snapshot, and kept in a small pool. MDB_NOTLS ties a slot to the
 * transaction instead of the thread, so any thread may take any of them.
 *
 * bytes_written is exact for the pages of a commit: pages written = pages copied + pages new; LMDB
 * records in its free list, under the transaction's number, the pages that became free = copied +
 * removed; the trees grew by new - removed. So written = freed + growth, and one meta page.
 */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "meta/meta_priv.h"

#define META_FREE_LIST 0 /* LMDB's own tables have fixed handles */
#define META_MAIN 1

struct meta_txn {
	struct meta *m;
	MDB_txn *txn;
	bool write;
	int error;            /* the first that LMDB gave to a change: the commit fails with it */
	uint64_t pages_before; /* of all trees */
};

static int meta_read_begin(struct meta *m, MDB_txn **out)
{
	MDB_txn *txn = NULL;
	int rc;

	lock_acquire(&m->lock);
	if (m->pooled)
		txn = m->pool[--m->pooled];
	lock_release(&m->lock);
	if (txn)
		rc = meta_error(mdb_txn_renew(txn));
	else
		rc = meta_error(mdb_txn_begin(m->env, NULL, MDB_RDONLY, &txn));
	if (rc == 0 && meta_is_lost(m))
		rc = -EIO;
	if (rc < 0) {
		mdb_txn_abort(txn); /* NULL-safe */
		txn = NULL;
	}
	*out = txn;
	return rc;
}

static void meta_read_end(struct meta *m, MDB_txn *txn)
{
	mdb_txn_reset(txn);
	lock_acquire(&m->lock);
	if (m->pooled < META_POOL) {
		m->pool[m->pooled++] = txn;
		txn = NULL;
	}
	lock_release(&m->lock);
	mdb_txn_abort(txn); /* NULL-safe */
}

static int meta_lookup(struct meta *m, MDB_txn *txn, unsigned table, const void *key,
		       size_t key_len, MDB_val *value)
{
	MDB_val k = {.mv_size = key_len, .mv_data = (void *)(uintptr_t)key};
	int rc;

	gild_assert(table < m->tables);
	if (key_len == 0 || key_len > META_KEY_MAX)
		return -EINVAL;
	rc = meta_error(mdb_get(txn, m->table[table], &k, value));
	return meta_is_lost(m) ? -EIO : rc;
}

int meta_get(struct meta *m, unsigned table, const void *key, size_t key_len, void *buf,
	     size_t *len)
{
	MDB_val value;
	MDB_txn *txn;
	int rc = meta_read_begin(m, &txn);

	if (rc < 0)
		return rc;
	rc = meta_lookup(m, txn, table, key, key_len, &value);
	if (rc == 0 && value.mv_size > *len)
		rc = -EOVERFLOW;
	if (rc == 0)
		memcpy(buf, value.mv_data, value.mv_size);
	if (meta_is_lost(m))
		rc = -EIO;
	if (rc == 0 || rc == -EOVERFLOW)
		*len = value.mv_size;
	meta_read_end(m, txn);
	return rc;
}

static uint64_t meta_tree_pages(MDB_txn *txn, MDB_dbi dbi)
{
	MDB_stat st;

	if (mdb_stat(txn, dbi, &st))
		return 0;
	return st.ms_branch_pages + st.ms_leaf_pages + st.ms_overflow_pages;
}

static uint64_t meta_all_pages(const struct meta *m, MDB_txn *txn)
{
	uint64_t n = meta_tree_pages(txn, META_FREE_LIST) + meta_tree_pages(txn, META_MAIN);
	unsigned i;

	for (i = 0; i < m->tables; i++)
		n += meta_tree_pages(txn, m->table[i]);
	return n;
}

static int meta_begin(struct meta *m, bool write, struct meta_txn **out)
{
	struct meta_txn *t = calloc(1, sizeof(*t));
	int rc;

	*out = NULL;
	if (!t)
		return -ENOMEM;
	t->m = m;
	t->write = write;
	if (write)
		rc = meta_error(mdb_txn_begin(m->env, NULL, 0, &t->txn));
	else
		rc = meta_read_begin(m, &t->txn);
	if (rc == 0 && write && meta_is_lost(m)) {
		mdb_txn_abort(t->txn);
		rc = -EIO;
	}
	if (rc < 0) {
		free(t);
		return rc;
	}
	if (write)
		t->pages_before = meta_all_pages(m, t->txn);
	*out = t;
	return 0;
}

int meta_begin_write(struct meta *m, struct meta_txn **out)
{
	return meta_begin(m, true, out);
}

int meta_begin_read(struct meta *m, struct meta_txn **out)
{
	return meta_begin(m, false, out);
}

int meta_txn_get(struct meta_txn *t, unsigned table, const void *key, size_t key_len,
		 struct meta_buf *value)
{
	MDB_val v;
	int rc = meta_lookup(t->m, t->txn, table, key, key_len, &v);

	*value = (struct meta_buf){0};
	if (rc == 0)
		*value = (struct meta_buf){.data = v.mv_data, .len = v.mv_size};
	return rc;
}

/* After a failed change LMDB refuses the commit with a code of its own; we keep the cause. */
static int meta_change_result(struct meta_txn *t, int rc)
{
	if (rc < 0 && rc != -ENOENT && rc != -EINVAL && !t->error)
		t->error = rc;
	return rc;
}

int meta_put(struct meta_txn *t, unsigned table, const void *key, size_t key_len, const void *value,
	     size_t len)
{
	MDB_val k = {.mv_size = key_len, .mv_data = (void *)(uintptr_t)key};
	MDB_val v = {.mv_size = len, .mv_data = (void *)(uintptr_t)value};

	gild_assert(t->write && table < t->m->tables);
	if (key_len == 0 || key_len > META_KEY_MAX)
		return -EINVAL;
	if (t->error)
		return t->error;
	return meta_change_result(t, meta_error(mdb_put(t->txn, t->m->table[table], &k, &v, 0)));
}

int meta_del(struct meta_txn *t, unsigned table, const void *key, size_t key_len)
{
	MDB_val k = {.mv_size = key_len, .mv_data = (void *)(uintptr_t)key};

	gild_assert(t->write && table < t->m->tables);
	if (key_len == 0 || key_len > META_KEY_MAX)
		return -EINVAL;
	if (t->error)
		return t->error;
	return meta_change_result(t, meta_error(mdb_del(t->txn, t->m->table[table], &k, NULL)));
}

int meta_clear(struct meta_txn *t, unsigned table)
{
	gild_assert(t->write && table < t->m->tables);
	if (t->error)
		return t->error;
	return meta_change_result(t, meta_error(mdb_drop(t->txn, t->m->table[table], 0)));
}

/* How many pages transaction `txn_id` set free. Only a cursor may look into the free list. */
static uint64_t meta_freed_pages(MDB_txn *txn, size_t txn_id)
{
	MDB_val key = {.mv_size = sizeof(txn_id), .mv_data = &txn_id}, freed;
	MDB_cursor *cursor;
	size_t count = 0; /* the value is a counted list of page numbers */

	if (mdb_cursor_open(txn, META_FREE_LIST, &cursor))
		return 0;
	if (mdb_cursor_get(cursor, &key, &freed, MDB_SET) == 0 && freed.mv_size >= sizeof(count))
		memcpy(&count, freed.mv_data, sizeof(count));
	mdb_cursor_close(cursor);
	return count;
}

static void meta_count_written(struct meta *m, uint64_t pages_before, size_t txn_id)
{
	uint64_t pages;
	MDB_txn *txn;

	if (meta_read_begin(m, &txn) < 0)
		return;
	pages = meta_freed_pages(txn, txn_id) + meta_all_pages(m, txn);
	meta_read_end(m, txn);
	if (pages > pages_before) {
		pages = pages - pages_before + 1; /* and one meta page */
		atomic_fetch_add_explicit(&m->bytes_written, pages * m->page_size,
					  memory_order_relaxed);
	}
}

static int meta_commit_write(struct meta_txn *t)
{
	struct meta *m = t->m;
	size_t txn_id = mdb_txn_id(t->txn);
	int rc = t->error;

	if (rc == 0 && meta_is_lost(m))
		rc = -EIO;
	if (rc == 0 && m->hook.before)
		rc = m->hook.before(m->hook.arg);
	if (rc < 0) {
		mdb_txn_abort(t->txn);
		return rc;
	}
	rc = meta_error(mdb_txn_commit(t->txn));
	if (rc == 0)
		rc = meta_extend_file(m);
	if (rc < 0) {
		log_error("meta", "%s: a commit failed: %s", m->dir, strerror(-rc));
		return rc;
	}
	meta_count_written(m, t->pages_before, txn_id);
	return m->hook.after ? m->hook.after(m->hook.arg) : 0;
}

int meta_commit(struct meta_txn *t)
{
	int rc = 0;

	if (t->write)
		rc = meta_commit_write(t);
	else
		meta_read_end(t->m, t->txn);
	if (!t->write && meta_is_lost(t->m))
		rc = -EIO; /* what was read may have been zeroes */
	free(t);
	return rc;
}

void meta_abort(struct meta_txn *t)
{
	if (!t)
		return;
	if (t->write)
		mdb_txn_abort(t->txn);
	else
		meta_read_end(t->m, t->txn);
	free(t);
}

static int meta_walk_cursor(struct meta *m, MDB_cursor *cursor, const void *from, size_t from_len,
			    int (*fn)(void *arg, const struct meta_buf *key,
				      const struct meta_buf *value),
			    void *arg)
{
	MDB_val k = {.mv_size = from_len, .mv_data = (void *)(uintptr_t)from}, v;
	int rc = mdb_cursor_get(cursor, &k, &v, from_len ? MDB_SET_RANGE : MDB_FIRST);

	while (rc == 0 && !meta_is_lost(m)) {
		struct meta_buf key = {.data = k.mv_data, .len = k.mv_size};
		struct meta_buf value = {.data = v.mv_data, .len = v.mv_size};
		int stop = fn(arg, &key, &value);

		if (stop)
			return stop;
		rc = mdb_cursor_get(cursor, &k, &v, MDB_NEXT);
	}
	if (meta_is_lost(m))
		return -EIO;
	return rc == MDB_NOTFOUND ? 0 : meta_error(rc);
}

int meta_walk(struct meta *m, unsigned table, const void *from, size_t from_len,
	      int (*fn)(void *arg, const struct meta_buf *key, const struct meta_buf *value),
	      void *arg)
{
	MDB_cursor *cursor;
	MDB_txn *txn;
	int rc;

	gild_assert(table < m->tables);
	rc = meta_read_begin(m, &txn);
	if (rc < 0)
		return rc;
	rc = meta_error(mdb_cursor_open(txn, m->table[table], &cursor));
	if (rc == 0) {
		rc = meta_walk_cursor(m, cursor, from, from_len, fn, arg);
		mdb_cursor_close(cursor);
	}
	meta_read_end(m, txn);
	return rc;
}

uint64_t meta_count(struct meta *m, unsigned table)
{
	MDB_stat st = {0};
	MDB_txn *txn;

	gild_assert(table < m->tables);
	if (meta_read_begin(m, &txn) < 0)
		return 0;
	mdb_stat(txn, m->table[table], &st);
	meta_read_end(m, txn);
	return st.ms_entries;
}

uint64_t meta_bytes_written(const struct meta *m)
{
	return m->bytes_written;
}

uint64_t meta_bytes_used(const struct meta *m)
{
	return meta_pages(m) * m->page_size;
}
