/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The table of known objects.
 *
 * A bnode is found by what the object is, never by its name: filesystem, inode number, type, and
 * the file handle (which holds the inode's generation) or else the birth time. So hard links meet
 * in one bnode, a renamed object keeps its own, and a reused inode number gets a new one while the
 * old is still held. Where a filesystem has neither handle nor birth time, only the type can tell.
 *
 * Each bnode remembers where it was seen last, a held parent and a name: the hint. It is only ever
 * a place to look; who opens by it checks what was found (backing_fd.c).
 *
 * Invariants:
 *   N1. No two bnodes in the table have the same key.
 *   N2. `refs` goes from 1 to 0 under backing.lock only, and the bnode leaves the table with it; so
 *       what is found in the table may be held. backing_hold needs no lock.
 *   N3. A bnode holds its hint's parent. Hints never form a ring: one that would close a ring is
 *       set by breaking the ring elsewhere, at the hint that must be stale.
 *   N4. After backing_rename returns, the hints of the objects it moved are right. A lookup that
 *       began before a rename ended does not replace a hint.
 *
 * Memory: 72 bytes and a malloc of the name, for ext4; see test_backing for the sum.
 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "backing/backing_priv.h"

_Static_assert(offsetof(struct bnode, bytes) <= 64, "a million of these are held");

int battr_read(int fd, struct battr *out)
{
	struct statx x;
	struct stat *st = &out->st;

	if (statx(fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT, STATX_BASIC_STATS | STATX_BTIME, &x) !=
	    0)
		return -errno;
	memset(out, 0, sizeof(*out));
	st->st_dev = makedev(x.stx_dev_major, x.stx_dev_minor);
	st->st_rdev = makedev(x.stx_rdev_major, x.stx_rdev_minor);
	st->st_ino = x.stx_ino;
	st->st_mode = x.stx_mode;
	st->st_nlink = x.stx_nlink;
	st->st_uid = x.stx_uid;
	st->st_gid = x.stx_gid;
	st->st_size = (off_t)x.stx_size;
	st->st_blksize = (blksize_t)x.stx_blksize;
	st->st_blocks = (blkcnt_t)x.stx_blocks;
	st->st_atim.tv_sec = x.stx_atime.tv_sec;
	st->st_atim.tv_nsec = x.stx_atime.tv_nsec;
	st->st_mtim.tv_sec = x.stx_mtime.tv_sec;
	st->st_mtim.tv_nsec = x.stx_mtime.tv_nsec;
	st->st_ctim.tv_sec = x.stx_ctime.tv_sec;
	st->st_ctim.tv_nsec = x.stx_ctime.tv_nsec;
	out->append_only = x.stx_attributes & STATX_ATTR_APPEND;
	if (x.stx_mask & STATX_BTIME) {
		out->btime.tv_sec = x.stx_btime.tv_sec;
		out->btime.tv_nsec = x.stx_btime.tv_nsec;
	}
	return 0;
}

static int bkey_read_handle(int fd, struct bkey *key)
{
	union {
		struct file_handle h;
		unsigned char room[sizeof(struct file_handle) + BKEY_BYTES];
	} u;
	int mount_id;

	u.h.handle_bytes = BKEY_BYTES;
	if (name_to_handle_at(fd, "", &u.h, &mount_id, AT_EMPTY_PATH) != 0)
		return errno == EOPNOTSUPP || errno == EOVERFLOW ? 0 : -errno;
	if (u.h.handle_type <= 0 || u.h.handle_type > UINT8_MAX || u.h.handle_bytes > BKEY_BYTES)
		return 0;
	key->kind = u.h.handle_type;
	key->len = u.h.handle_bytes;
	memcpy(key->bytes, u.h.f_handle, key->len);
	return 0;
}

static uint64_t bino_unique(const struct bfs *fs, uint64_t ino)
{
	return ino ^ (uint64_t)fs->index << 48;
}

int bkey_read(struct backing *b, int fd, struct bfs *near, struct bkey *key, struct battr *attr)
{
	int rc = battr_read(fd, attr);

	if (rc < 0)
		return rc;
	rc = bfs_get(b, fd, &attr->st, near, &key->fs);
	if (rc < 0)
		return rc;
	key->ino = attr->st.st_ino;
	key->type = attr->st.st_mode & S_IFMT;
	key->kind = BKEY_NONE;
	key->len = 0;
	if (key->fs->handles)
		rc = bkey_read_handle(fd, key);
	if (rc == 0 && key->len == 0 && (attr->btime.tv_sec || attr->btime.tv_nsec)) {
		int64_t sec = attr->btime.tv_sec;
		int32_t nsec = (int32_t)attr->btime.tv_nsec;

		key->kind = BKEY_BTIME;
		memcpy(key->bytes, &sec, sizeof(sec));
		memcpy(key->bytes + sizeof(sec), &nsec, sizeof(nsec));
		key->len = sizeof(sec) + sizeof(nsec);
	}
	attr->st.st_ino = bino_unique(key->fs, key->ino);
	return rc;
}

static uint8_t bkey_stored_kind(const struct bkey *key)
{
	return key->kind < 0 ? BNODE_KIND_BTIME : (uint8_t)key->kind;
}

bool bnode_is(const struct bnode *n, const struct bkey *key)
{
	return n->fs == key->fs && n->ino == key->ino && bnode_is_type(n, key->type) &&
	       n->kind == bkey_stored_kind(key) && n->len == key->len &&
	       memcmp(n->bytes, key->bytes, key->len) == 0;
}

static uint64_t bkey_hash(const struct bkey *key)
{
	return hash_mix64(bino_unique(key->fs, key->ino));
}

static struct bnode *bnode_find_locked(struct backing *b, const struct bkey *key)
{
	struct htab_node *at = htab_find(&b->nodes, bkey_hash(key));

	for (; at; at = htab_next(at)) {
		struct bnode *n = container_of(at, struct bnode, link);

		if (bnode_is(n, key))
			return n;
	}
	return NULL;
}

/* N3. The hint of the ancestor that points to n is the stale one: n is about to be seen below it.
 */
static struct bnode *bnode_break_ring_locked(struct bnode *n, struct bnode *parent)
{
	for (struct bnode *up = parent; up; up = up->parent)
		if (up->parent == n) {
			up->parent = NULL;
			free(up->name);
			up->name = NULL;
			return n;
		}
	return NULL;
}

/* Up to two bnodes that hints no longer hold, to be put without the lock. */
struct bnode_dropped {
	struct bnode *n[2];
};

static void bnode_learn_locked(struct backing *b, struct bnode *n, struct bnode *parent,
			       const char *name, struct bnode_dropped *dropped)
{
	char *copy;

	if (n == b->root || n == parent)
		return;
	if (n->parent == parent && strcmp(n->name, name) == 0)
		return;
	copy = strdup(name);
	if (!copy)
		return; /* a hint: the old one is as good as none */
	if (bnode_is_type(n, S_IFDIR))
		dropped->n[0] = bnode_break_ring_locked(n, parent);
	if (n->parent != parent) {
		dropped->n[1] = n->parent;
		backing_hold(parent);
		n->parent = parent;
	}
	free(n->name);
	n->name = copy;
}

static void bnode_drop(struct backing *b, const struct bnode_dropped *dropped)
{
	for (unsigned i = 0; i < 2; i++)
		if (dropped->n[i])
			backing_put(b, dropped->n[i]);
}

static struct bnode *bnode_make_locked(struct backing *b, const struct bkey *key)
{
	size_t size = offsetof(struct bnode, bytes) + key->len;
	struct bnode *n = calloc(1, size < sizeof(*n) ? sizeof(*n) : size);

	if (!n)
		return NULL;
	n->fs = key->fs;
	n->ino = key->ino;
	n->kind = bkey_stored_kind(key);
	n->len = (uint8_t)key->len;
	n->type = (uint8_t)(key->type >> 12);
	memcpy(n->bytes, key->bytes, key->len);
	htab_insert(&b->nodes, &n->link, bkey_hash(key));
	if (!n->fs->top)
		n->fs->top = n;
	return n;
}

int bnode_intern(struct backing *b, const struct bkey *key, struct bnode *parent, const char *name,
		 uint64_t seen, struct bnode **out)
{
	struct bnode_dropped dropped = {{NULL, NULL}};
	struct bnode *n;

	lock_acquire(&b->lock);
	n = bnode_find_locked(b, key);
	if (!n)
		n = bnode_make_locked(b, key);
	if (n) {
		atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed);
		if (parent && (!n->parent || seen == b->renames))
			bnode_learn_locked(b, n, parent, name, &dropped);
	}
	lock_release(&b->lock);
	bnode_drop(b, &dropped);
	*out = n;
	return n ? 0 : -ENOMEM;
}

void bnode_moved(struct backing *b, const struct bkey *key, struct bnode *parent, const char *name)
{
	struct bnode_dropped dropped = {{NULL, NULL}};
	struct bnode *n;

	lock_acquire(&b->lock);
	n = bnode_find_locked(b, key);
	if (n)
		bnode_learn_locked(b, n, parent, name, &dropped);
	lock_release(&b->lock);
	bnode_drop(b, &dropped);
}

uint64_t bnode_renames(struct backing *b)
{
	uint64_t renames;

	lock_acquire(&b->lock);
	renames = b->renames;
	lock_release(&b->lock);
	return renames;
}

void backing_hold(struct bnode *n)
{
	atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed);
}

/* False: this is the last reference (or was a moment ago), which only the lock may drop. */
static bool bnode_put_fast(struct bnode *n)
{
	uint32_t refs = atomic_load_explicit(&n->refs, memory_order_relaxed);

	while (refs > 1)
		if (atomic_compare_exchange_weak_explicit(
			    &n->refs, &refs, refs - 1, memory_order_release, memory_order_relaxed))
			return true;
	return false;
}

void backing_put(struct backing *b, struct bnode *n)
{
	/* A loop: the last child of a deep tree takes all its ancestors with it. */
	while (n && !bnode_put_fast(n)) {
		struct bnode *parent;
		struct bfile *f;

		lock_acquire(&b->lock);
		if (atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) > 1) {
			lock_release(&b->lock);
			return;
		}
		htab_remove(&b->nodes, &n->link);
		if (n->fs->top == n)
			n->fs->top = NULL;
		f = bfile_detach_locked(b, n);
		lock_release(&b->lock);
		if (f)
			bfile_close(b, f);
		parent = n->parent;
		free(n->name);
		free(n);
		n = parent;
	}
}

struct hash128 backing_identity(const struct bnode *n, bool *stable)
{
	struct {
		struct hash128 fs;
		uint64_t ino;
		uint32_t kind, len;
		unsigned char bytes[BKEY_BYTES];
	} id;

	memset(&id, 0, sizeof(id));
	id.fs = n->fs->id;
	id.ino = n->ino;
	id.kind = n->kind;
	id.len = n->len;
	memcpy(id.bytes, n->bytes, n->len);
	if (stable)
		*stable = n->fs->stable && n->len > 0;
	return hash_128(&id, sizeof(id));
}

int backing_home(struct backing *b, struct bnode *n, struct bnode **parent, char name[NAME_MAX + 1])
{
	int rc = -ENOENT;

	lock_acquire(&b->lock);
	if (n->parent && strlen(n->name) <= NAME_MAX) {
		strcpy(name, n->name);
		*parent = n->parent;
		backing_hold(n->parent);
		rc = 0;
	}
	lock_release(&b->lock);
	return rc;
}

bool backing_below(struct backing *b, const struct bnode *n, const struct bnode *top)
{
	lock_acquire(&b->lock);
	do
		n = n->parent;
	while (n && n != top);
	lock_release(&b->lock);
	return n != NULL;
}

mode_t backing_type(const struct bnode *n)
{
	return (mode_t)n->type << 12;
}

uint64_t backing_ino(const struct bnode *n)
{
	return bino_unique(n->fs, n->ino);
}

bool backing_same_fs(const struct bnode *n)
{
	return n->fs->index == 0;
}

struct bhandle {
	uint8_t version, kind, len, zero;
	uint32_t fs_hi;
	uint64_t fs_lo;
	unsigned char bytes[];
};
#define BHANDLE_VERSION 1

size_t backing_handle(struct backing *b, struct bnode *n, void *buf, size_t room)
{
	struct bhandle h = {BHANDLE_VERSION,        n->kind,     n->len, 0,
			    (uint32_t)n->fs->id.hi, n->fs->id.lo};

	(void)b;
	if (n->fs->index != 0 || n->kind == BNODE_KIND_BTIME || room < sizeof(h) + n->len)
		return 0;
	memcpy(buf, &h, sizeof(h));
	memcpy((char *)buf + sizeof(h), n->bytes, n->len);
	return sizeof(h) + n->len;
}

/* The bytes come from the caller's storage: nothing in them is trusted. */
static int bhandle_open(struct backing *b, const void *handle, size_t len)
{
	union {
		struct file_handle h;
		unsigned char room[sizeof(struct file_handle) + BKEY_BYTES];
	} u;
	const struct bfs *fs = b->root->fs;
	struct bhandle h;
	int fd;

	if (len < sizeof(h))
		return -EINVAL;
	memcpy(&h, handle, sizeof(h));
	if (h.version != BHANDLE_VERSION || h.zero != 0 || h.kind == BNODE_KIND_BTIME ||
	    h.len > BKEY_BYTES || len != sizeof(h) + h.len)
		return -EINVAL;
	if (!fs->handles)
		return -EOPNOTSUPP;
	if (h.fs_lo != fs->id.lo || h.fs_hi != (uint32_t)fs->id.hi)
		return -ESTALE;
	if (!fs->by_handle)
		return -EPERM;
	u.h.handle_type = h.kind;
	u.h.handle_bytes = h.len;
	memcpy(u.h.f_handle, (const char *)handle + sizeof(h), h.len);
	do
		fd = open_by_handle_at(b->root_fd, &u.h, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	while (fd < 0 && bopen_retry(b, errno));
	return fd < 0 ? -errno : fd;
}

int backing_from_handle(struct backing *b, const void *handle, size_t len, struct bnode **out,
			struct battr *attr)
{
	struct bkey key;
	int fd = bhandle_open(b, handle, len);
	int rc;

	if (fd < 0)
		return fd;
	rc = bkey_read(b, fd, b->root->fs, &key, attr);
	if (rc == 0 && key.fs != b->root->fs)
		rc = -ESTALE;
	if (rc == 0)
		rc = bnode_intern(b, &key, NULL, NULL, 0, out);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	bfile_attach(b, *out, fd, BFILE_PATH);
	return 0;
}
