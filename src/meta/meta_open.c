/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Opening and closing an environment.
 *
 * The file is judged by meta_check_file() before LMDB sees it. A new environment is durable, with
 * its directory entry, before meta_open() returns.
 */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "meta/meta_priv.h"

int meta_error(int rc)
{
	switch (rc) {
	case MDB_SUCCESS:
		return 0;
	case MDB_NOTFOUND:
		return -ENOENT;
	case MDB_KEYEXIST:
		return -EEXIST;
	case MDB_MAP_FULL:
	case MDB_DBS_FULL:
	case MDB_TXN_FULL:
	case EDQUOT:
		return -ENOSPC;
	case MDB_PAGE_NOTFOUND:
	case MDB_CORRUPTED:
	case MDB_PANIC:
	case MDB_VERSION_MISMATCH:
	case MDB_INVALID:
	case MDB_PAGE_FULL:
	case MDB_CURSOR_FULL:
	case MDB_INCOMPATIBLE:
		return -EUCLEAN;
	case MDB_READERS_FULL:
	case MDB_TLS_FULL:
	case MDB_MAP_RESIZED:
		return -EAGAIN;
	case MDB_BAD_VALSIZE:
	case MDB_BAD_DBI:
		return -EINVAL;
	default:
		return rc > 0 ? -rc : -EIO;
	}
}

static int meta_sync_directory(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;

	if (fd < 0)
		return -errno;
	rc = fsync(fd) == 0 ? 0 : -errno;
	close(fd);
	return rc;
}

static int meta_join(char *buf, size_t len, const char *dir, const char *name)
{
	return snprintf(buf, len, "%s/%s", dir, name) < (int)len ? 0 : -ENAMETOOLONG;
}

int meta_check(const char *dir)
{
	char path[4096];
	struct stat st;
	int rc = meta_join(path, sizeof(path), dir, "data.mdb");

	if (rc < 0)
		return rc;
	if (stat(path, &st) < 0)
		return errno == ENOTDIR ? -ENOTDIR : -errno;
	return meta_check_file(path);
}

/* Opens the tables, and with that proves that the main table can be read. */
static int meta_open_tables(struct meta *m, const char *const *tables, bool create)
{
	unsigned flags = create ? MDB_CREATE : 0, i;
	MDB_txn *txn;
	int rc;

	rc = meta_error(mdb_txn_begin(m->env, NULL, create ? 0 : MDB_RDONLY, &txn));
	if (rc < 0)
		return rc;
	for (i = 0; tables[i] && rc == 0; i++) {
		gild_assert(i < META_TABLES);
		rc = meta_error(mdb_dbi_open(txn, tables[i], flags, &m->table[i]));
		m->tables = i + 1;
	}
	if (rc < 0) {
		mdb_txn_abort(txn);
		return rc == -ENOENT ? -EUCLEAN : rc; /* tables are made with the environment */
	}
	return meta_error(mdb_txn_commit(txn));
}

static int meta_open_env(struct meta *m, const char *dir, unsigned flags,
			 const char *const *tables, uint64_t map_bytes, bool create)
{
	int rc, dead;
	MDB_stat st;

	rc = mdb_env_create(&m->env);
	if (rc)
		return meta_error(rc);
	map_bytes = (map_bytes + 65535) & ~(uint64_t)65535;
	if ((rc = mdb_env_set_maxdbs(m->env, META_TABLES)) ||
	    (rc = mdb_env_set_maxreaders(m->env, META_READERS)) ||
	    (rc = mdb_env_set_mapsize(m->env, map_bytes)) ||
	    (rc = mdb_env_open(m->env, dir, flags | MDB_NOTLS | MDB_NORDAHEAD, 0600)) ||
	    (rc = mdb_reader_check(m->env, &dead)) || (rc = mdb_env_get_fd(m->env, &m->fd)) ||
	    (rc = mdb_env_stat(m->env, &st)))
		return meta_error(rc);
	m->page_size = st.ms_psize;
	return meta_open_tables(m, tables, create);
}

/* A new environment is made complete, tables and all, in a directory of its own and moved here, so
 * that a power cut leaves none or a whole one: a data.mdb without its first pages is always damage. */
static int meta_create(const char *dir, const char *const *tables, uint64_t map_bytes)
{
	char path[4096], room[4096], fresh[4096], parent[4096];
	struct meta m = {0};
	int rc;

	if (meta_join(path, sizeof(path), dir, "data.mdb") < 0 ||
	    meta_join(room, sizeof(room), dir, "new") < 0 ||
	    meta_join(fresh, sizeof(fresh), room, "data.mdb") < 0 ||
	    meta_join(parent, sizeof(parent), dir, "..") < 0)
		return -ENAMETOOLONG;
	if ((mkdir(dir, 0700) < 0 && errno != EEXIST) || (mkdir(room, 0700) < 0 && errno != EEXIST))
		return -errno;
	if (unlink(fresh) < 0 && errno != ENOENT)
		return -errno;
	rc = meta_open_env(&m, room, MDB_NOLOCK, tables, map_bytes, true);
	if (rc == 0)
		rc = meta_error(mdb_env_sync(m.env, 1));
	if (m.env)
		mdb_env_close(m.env);
	if (rc == 0 && rename(fresh, path) < 0)
		rc = -errno;
	if (rc < 0)
		unlink(fresh);
	rmdir(room);
	if (rc == 0)
		rc = meta_sync_directory(dir);
	return rc < 0 ? rc : meta_sync_directory(parent);
}

static int meta_open_existing(struct meta **out, const char *dir, const char *const *tables,
			      uint64_t map_bytes, bool create)
{
	struct meta *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return -ENOMEM;
	lock_init(&m->lock, "meta", RANK_META);
	m->dir = strdup(dir);
	rc = m->dir ? meta_open_env(m, dir, 0, tables, map_bytes, create) : -ENOMEM;
	if (rc == 0)
		rc = meta_extend_file(m);
	if (rc < 0) {
		meta_close(m);
		return rc;
	}
	meta_guard(m);
	*out = m;
	return 0;
}

int meta_open(struct meta **out, const char *dir, const char *const *tables, uint64_t map_bytes,
	      bool create)
{
	int rc;

	*out = NULL;
	rc = meta_check(dir);
	if (rc == -ENOENT && create)
		rc = meta_create(dir, tables, map_bytes);
	else if (rc < 0)
		return rc; /* damage is logged, absence is the caller's business */
	if (rc == 0)
		rc = meta_open_existing(out, dir, tables, map_bytes, create);
	if (rc < 0)
		log_error("meta", "%s cannot be opened: %s", dir, strerror(-rc));
	return rc;
}

void meta_close(struct meta *m)
{
	unsigned i;

	if (!m)
		return;
	for (i = 0; i < m->pooled; i++)
		mdb_txn_abort(m->pool[i]);
	if (m->env)
		mdb_env_close(m->env);
	meta_unguard(m);
	lock_destroy(&m->lock);
	free(m->dir);
	free(m);
}

void meta_set_hook(struct meta *m, const struct meta_hook *hook)
{
	m->hook = hook ? *hook : (struct meta_hook){0};
}
