/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Descriptors: a bounded set of open ones, and how the others are opened again.
 *
 * A bfile is one open descriptor of a bnode. It starts as O_PATH, which opens anything without side
 * effects (a FIFO does not block, a device is not touched, a directory needs no permission to be
 * listed), and what it leads to is checked there. Reading and writing open the same object again
 * through /proc/self/fd, which goes by the object and not by a name, and the new descriptor takes
 * the old one's place.
 *
 *   (none) --reopen--> O_PATH --read--> O_RDONLY --write--> O_RDWR
 *      ^                  |                |                  |
 *      +------- closed as the least recently used idle one ---+      (not while pinned)
 *
 * Reopening goes by file handle on the root's filesystem where that is permitted, and else through
 * the hint: parent's descriptor and name. Handles are not used on filesystems mounted below,
 * because they need a descriptor there which would keep the filesystem from being unmounted.
 *
 * Invariants:
 *   D1. A bnode has at most one bfile of its own (n->file). Replaced ones live on until their last
 *       user gives them back, so a system call never runs on a number that was given to another.
 *   D2. A bfile is in the idle list if and only if it is a bnode's, has no users, is not pinned.
 *   D3. More than max_fds are open only while all are in use or pinned. EMFILE closes an idle one
 *       and tries again.
 *   D4. What was opened by name is used only if it is the object that the bnode stands for. A miss
 *       is -ESTALE, but only after every rename that was under way has set its hints.
 *   D5. The mode of a bnode's bfile only grows; what cannot be had together with what is open
 *       already is opened for one call.
 *   D6. An error of close() on what was written (network filesystems write back there) is kept for
 *       the bnode's next fsync.
 */
#include "config.h"

#include <errno.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backing/backing_priv.h"

#define BFILE_WALK_TRIES 64
#define BOPEN_MOVES 1000

static void bfile_unidle_locked(struct backing *b, struct bfile *f)
{
	if (!f->idle)
		return;
	if (S_ISDIR(backing_type(f->n)))
		b->idle_dir_count--;
	f->prev->next = f->next;
	f->next->prev = f->prev;
	f->idle = false;
}

/* Directories lead to many files and are few: reading through a large tree must not push them out.
 * They may take half. NULL: nothing is idle. */
static struct bfile *bfile_oldest_locked(struct backing *b)
{
	struct bfile *file = b->idle.next, *dir = b->idle_dirs.next;

	if (file != &b->idle && (b->idle_dir_count <= b->max_fds / 2 || dir == &b->idle_dirs))
		return file;
	return dir == &b->idle_dirs ? NULL : dir;
}

static struct bfile *bfile_evict_locked(struct backing *b)
{
	struct bfile *f = bfile_oldest_locked(b);

	if (!f)
		return NULL;
	bfile_unidle_locked(b, f);
	f->n->file = NULL;
	/* bfile_close may have an error to leave there. */
	backing_hold(f->n);
	return f;
}

static bool bfile_evict(struct backing *b)
{
	struct bfile *f;
	struct bnode *n;

	lock_acquire(&b->lock);
	f = bfile_evict_locked(b);
	lock_release(&b->lock);
	if (!f)
		return false;
	n = f->n;
	bfile_close(b, f);
	backing_put(b, n);
	return true;
}

static void bfile_trim(struct backing *b)
{
	bool over;

	do {
		lock_acquire(&b->lock);
		over = b->open_fds > b->max_fds && bfile_oldest_locked(b);
		lock_release(&b->lock);
	} while (over && bfile_evict(b));
}

bool bopen_retry(struct backing *b, int err)
{
	if (err == EINTR)
		return true;
	return (err == EMFILE || err == ENFILE) && bfile_evict(b);
}

int bopen_at(struct backing *b, int dir, const char *name, int flags, mode_t mode)
{
	struct open_how how = {
		.flags = (unsigned)(flags | O_CLOEXEC | O_NOFOLLOW |
				    (flags & O_PATH ? 0 : O_LARGEFILE)),
		.mode = mode,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	unsigned moved = 0;
	int fd;

	do {
		fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
		/* Old kernels and valgrind; a single component cannot leave `dir` by itself. */
		if (fd < 0 && errno == ENOSYS)
			fd = openat(dir, name, (int)how.flags, mode);
		/* RESOLVE_BENEATH found the object moved to another directory after it was looked
		 * up: either the name has gone since, or another object has it. */
	} while (fd < 0 && (bopen_retry(b, errno) || (errno == EXDEV && moved++ < BOPEN_MOVES)));
	if (fd < 0)
		return errno == EXDEV ? -ENOENT : -errno;
	return fd;
}

int bopen_at_cached(int dir, const char *name)
{
#ifdef RESOLVE_CACHED
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
			   RESOLVE_NO_XDEV | RESOLVE_CACHED,
	};
	int fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));

	/* What does not work by memory alone works, or fails for good, the other way. */
	return fd >= 0 ? fd : errno == ENOENT ? -ENOENT : -EAGAIN;
#else
	(void)dir;
	(void)name;
	return -EAGAIN;
#endif
}

const char *bfd_path(int fd, char *buf)
{
	snprintf(buf, PROC_FD_LEN, "/proc/self/fd/%d", fd);
	return buf;
}

int bopen_again(struct backing *b, int fd, int flags)
{
	char path[PROC_FD_LEN];
	int again;

	bfd_path(fd, path);
	flags |= O_CLOEXEC | O_NOCTTY | O_NOATIME;
	do {
		again = open(path, flags);
		if (again < 0 && errno == EPERM && (flags & O_NOATIME)) {
			flags &= ~O_NOATIME; /* only for owners */
			again = open(path, flags);
		}
	} while (again < 0 && bopen_retry(b, errno));
	return again < 0 ? -errno : again;
}

static struct bfile *bfile_new(struct backing *b, struct bnode *n, int fd, unsigned mode)
{
	struct bfile *f = calloc(1, sizeof(*f));

	if (!f) {
		close(fd);
		return NULL;
	}
	f->n = n;
	f->fd = fd;
	f->mode = mode;
	f->users = 1;
	lock_acquire(&b->lock);
	b->open_fds++;
	lock_release(&b->lock);
	return f;
}

static void bfile_use_locked(struct backing *b, struct bfile *f)
{
	bfile_unidle_locked(b, f);
	f->users++;
}

static void bfile_idle_locked(struct backing *b, struct bfile *f, bool cold)
{
	bool dir = S_ISDIR(backing_type(f->n));
	struct bfile *head = dir ? &b->idle_dirs : &b->idle;
	struct bfile *before = cold ? head : head->prev;

	if (dir)
		b->idle_dir_count++;
	f->prev = before;
	f->next = before->next;
	before->next->prev = f;
	before->next = f;
	f->idle = true;
}

/* D6. `n` NULL: there is nobody left to tell. */
static void bfile_keep_error(struct backing *b, struct bnode *n, int err)
{
	unsigned flag = err == ENOSPC ? BNODE_ENOSPC : err == EDQUOT ? BNODE_EDQUOT : BNODE_EIO;

	if (!n) {
		log_error("backing", "closing a written file in %s failed: %s", b->path,
			  strerror(err));
		return;
	}
	lock_acquire(&b->lock);
	n->flags |= (uint8_t)flag;
	lock_release(&b->lock);
	log_error("backing", "closing inode %llu in %s failed: %s", (unsigned long long)n->ino,
		  b->path, strerror(err));
}

void bfile_close(struct backing *b, struct bfile *f)
{
	int err = close(f->fd) == 0 ? 0 : errno;

	lock_acquire(&b->lock);
	b->open_fds--;
	lock_release(&b->lock);
	if (err != 0 && err != EINTR && (f->mode & BFILE_WRITE))
		bfile_keep_error(b, f->n, err);
	free(f);
}

struct bfile *bfile_detach_locked(struct backing *b, struct bnode *n)
{
	struct bfile *f = n->file;

	(void)b;
	if (!f)
		return NULL;
	gild_assert(f->users == 0);
	bfile_use_locked(b, f);
	f->n = NULL;
	n->file = NULL;
	return f;
}

int bfile_take_error(struct backing *b, struct bnode *n)
{
	unsigned flags;

	lock_acquire(&b->lock);
	flags = n->flags;
	n->flags &= (uint8_t) ~(BNODE_EIO | BNODE_ENOSPC | BNODE_EDQUOT);
	lock_release(&b->lock);
	if (flags & BNODE_EIO)
		return -EIO;
	if (flags & BNODE_ENOSPC)
		return -ENOSPC;
	return flags & BNODE_EDQUOT ? -EDQUOT : 0;
}

static void bfile_release(struct backing *b, struct bfile *f, bool cold)
{
	bool trim = false, orphan = false;

	if (!f)
		return;
	lock_acquire(&b->lock);
	if (--f->users == 0) {
		orphan = f->n->file != f;
		if (!orphan && !(f->n->flags & BNODE_PINNED)) {
			bfile_idle_locked(b, f, cold);
			trim = b->open_fds > b->max_fds;
		}
	}
	lock_release(&b->lock);
	if (orphan)
		bfile_close(b, f);
	if (trim)
		bfile_trim(b);
}

void bfile_put(struct backing *b, struct bfile *f)
{
	bfile_release(b, f, false);
}

void bfile_put_cold(struct backing *b, struct bfile *f)
{
	bfile_release(b, f, true);
}

/* f (one user: the caller) becomes n's descriptor, unless n has got as good a one meanwhile (then f
 * is closed) or one that f would take something from (then f stays private). Returns what to use.
 */
static struct bfile *bfile_install(struct backing *b, struct bnode *n, struct bfile *f)
{
	struct bfile *old, *doomed = NULL;

	lock_acquire(&b->lock);
	old = n->file;
	if (old && (old->mode & f->mode) == f->mode) {
		bfile_use_locked(b, old);
		doomed = f;
		f = old;
	} else if (!old || (old->mode & f->mode) == old->mode) {
		if (old && old->users == 0) {
			bfile_use_locked(b, old);
			doomed = old;
		}
		n->file = f;
	}
	lock_release(&b->lock);
	if (doomed)
		bfile_close(b, doomed);
	bfile_trim(b);
	return f;
}

void bfile_attach(struct backing *b, struct bnode *n, int fd, unsigned mode)
{
	struct bfile *f = bfile_new(b, n, fd, mode);

	if (f)
		bfile_put(b, bfile_install(b, n, f));
}

int bfile_attach_pinned(struct backing *b, struct bnode *n, int fd, unsigned mode)
{
	struct bfile *f = bfile_new(b, n, fd, mode);

	if (!f)
		return -ENOMEM;
	f = bfile_install(b, n, f);
	lock_acquire(&b->lock);
	n->flags |= BNODE_PINNED;
	lock_release(&b->lock);
	bfile_put(b, f);
	return 0;
}

static bool bnode_by_handle(const struct bnode *n)
{
	return n->fs->by_handle && n->kind != BNODE_KIND_BTIME;
}

static int breopen_by_handle(struct backing *b, struct bnode *n)
{
	union {
		struct file_handle h;
		unsigned char room[sizeof(struct file_handle) + BKEY_BYTES];
	} u;
	int fd;

	u.h.handle_type = n->kind;
	u.h.handle_bytes = n->len;
	memcpy(u.h.f_handle, n->bytes, n->len);
	do
		fd = open_by_handle_at(b->root_fd, &u.h, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	while (fd < 0 && bopen_retry(b, errno));
	return fd < 0 ? -errno : fd;
}

static bool breopen_is_miss(int rc)
{
	return rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP || rc == -ESTALE;
}

/* By the hint; -ESTALE when something else, or nothing, is there. */
static int breopen_in(struct backing *b, struct bnode *n, struct bfile *dir, const char *name)
{
	struct bkey key;
	struct battr attr;
	int fd = bopen_at(b, dir->fd, name, O_PATH, 0);
	int rc;

	if (fd < 0)
		return breopen_is_miss(fd) ? -ESTALE : fd;
	rc = bkey_read(b, fd, n->fs, &key, &attr);
	if (rc == 0 && !bnode_is(n, &key))
		rc = -ESTALE;
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

/* One step of a walk: the topmost bnode on the way up from n that can be opened now. Held. */
struct bstep {
	struct bnode *n;
	struct bnode *up;  /* its parent, held; NULL: by handle */
	struct bfile *dir; /* the parent's, in use */
	char name[NAME_MAX + 1];
	uint64_t seen;
};

static int bstep_find(struct backing *b, struct bnode *n, struct bstep *s)
{
	int rc = 0;

	lock_acquire(&b->lock);
	while (!bnode_by_handle(n) && n->parent && !n->parent->file)
		n = n->parent;
	s->n = n;
	s->up = NULL;
	s->dir = NULL;
	s->seen = b->renames;
	if (!bnode_by_handle(n)) {
		if (n->parent && strlen(n->name) <= NAME_MAX) {
			s->up = n->parent;
			backing_hold(s->up);
			s->dir = n->parent->file;
			bfile_use_locked(b, s->dir);
			memcpy(s->name, n->name, strlen(n->name) + 1);
		} else {
			rc = -ESTALE;
		}
	}
	if (rc == 0)
		backing_hold(n);
	lock_release(&b->lock);
	return rc;
}

/* D4: true when a rename has ended since the step was chosen, so its hint was old. */
static bool bstep_is_old(struct backing *b, const struct bstep *s)
{
	lock_acquire(&b->names);
	lock_release(&b->names);
	return bnode_renames(b) != s->seen;
}

static int breopen_step(struct backing *b, struct bstep *s)
{
	int fd = -EPERM;

	if (!s->dir) {
		fd = breopen_by_handle(b, s->n);
		if (fd == -EPERM || fd == -EOPNOTSUPP) {
			/* The capability was given up after the backing was opened. */
			lock_acquire(&b->lock);
			s->n->fs->by_handle = false;
			lock_release(&b->lock);
			return -EAGAIN;
		}
		return fd;
	}
	fd = breopen_in(b, s->n, s->dir, s->name);
	if (fd == -ESTALE && bstep_is_old(b, s))
		fd = -EAGAIN;
	return fd;
}

static void bstep_end(struct backing *b, struct bstep *s, struct bfile *f)
{
	bfile_put(b, f);
	bfile_put(b, s->dir);
	if (s->up)
		backing_put(b, s->up);
	backing_put(b, s->n);
}

static int bstep_run(struct backing *b, struct bstep *s, struct bfile **out)
{
	int fd = breopen_step(b, s);
	struct bfile *f;

	*out = NULL;
	if (fd < 0)
		return fd;
	f = bfile_new(b, s->n, fd, BFILE_PATH);
	if (!f)
		return -ENOMEM;
	*out = bfile_install(b, s->n, f);
	return 0;
}

/* An O_PATH descriptor of n. Ancestors are opened on the way, from the top, one a step; a loop,
 * because a tree may be deeper than the stack. What a step opened stays in use until the next one
 * is done, so that the bound on idle descriptors cannot take it away. */
static int breopen(struct backing *b, struct bnode *n, struct bfile **out)
{
	struct bstep last = {0}, s;
	struct bfile *last_f = NULL, *f = NULL;
	unsigned again = 0;
	int rc;

	do {
		rc = bstep_find(b, n, &s);
		if (rc < 0)
			break;
		rc = bstep_run(b, &s, &f);
		if (rc == 0) {
			if (last.n)
				bstep_end(b, &last, last_f);
			last = s;
			last_f = f;
		} else {
			bstep_end(b, &s, NULL);
		}
	} while ((rc == 0 && last.n != n) || (rc == -EAGAIN && again++ < BFILE_WALK_TRIES));
	if (rc == 0) {
		*out = last_f;
		last_f = NULL;
	}
	if (last.n)
		bstep_end(b, &last, last_f);
	return rc == -EAGAIN ? -ESTALE : rc;
}

static int bfile_flags(unsigned mode)
{
	if (mode == (BFILE_READ | BFILE_WRITE))
		return O_RDWR;
	return mode == BFILE_WRITE ? O_WRONLY : O_RDONLY;
}

/* D5. Writing asks for both, as most who write also read; a file that may only be written, or only
 * be read, gives what was asked for. */
static int bfile_upgrade(struct backing *b, struct bnode *n, struct bfile *base, unsigned want,
			 struct bfile **out)
{
	unsigned full = base->mode | want | (want & BFILE_WRITE ? BFILE_READ : 0);
	struct bfile *f;
	unsigned mode = full;
	int fd;

	if (!bnode_is_type(n, S_IFREG))
		return bnode_is_type(n, S_IFDIR) ? -EISDIR : -EINVAL;
	fd = bopen_again(b, base->fd, bfile_flags(full));
	if (fd < 0 && full != want) {
		mode = want;
		fd = bopen_again(b, base->fd, bfile_flags(want));
	}
	if (fd < 0)
		return fd;
	f = bfile_new(b, n, fd, mode);
	if (!f)
		return -ENOMEM;
	*out = bfile_install(b, n, f);
	return 0;
}

struct bfile *bfile_get_open(struct backing *b, struct bnode *n)
{
	struct bfile *f;

	lock_acquire(&b->lock);
	f = n->file;
	if (f)
		bfile_use_locked(b, f);
	lock_release(&b->lock);
	return f;
}

int bfile_get(struct backing *b, struct bnode *n, unsigned want, struct bfile **out)
{
	struct bfile *f, *better;
	int rc = 0;

	if (want & BFILE_WRITE) {
		if (b->readonly)
			return -EROFS;
		atomic_store_explicit(&n->fs->wrote, true, memory_order_relaxed);
	}
	f = bfile_get_open(b, n);
	if (!f)
		rc = breopen(b, n, &f);
	if (rc == 0 && (f->mode & want) != want) {
		rc = bfile_upgrade(b, n, f, want, &better);
		bfile_put(b, f);
		f = better;
	}
	*out = rc == 0 ? f : NULL;
	return rc;
}

int bfile_get_append(struct backing *b, struct bnode *n, struct bfile **out)
{
	struct bfile *f;
	int rc = bfile_get(b, n, BFILE_WRITE, out);
	int fd;

	/* An append-only file (chattr +a) cannot be opened for writing otherwise. */
	if (rc != -EPERM)
		return rc;
	rc = bfile_get(b, n, BFILE_PATH, &f);
	if (rc < 0)
		return rc;
	fd = bopen_again(b, f->fd, O_WRONLY | O_APPEND);
	bfile_put(b, f);
	if (fd < 0)
		return fd;
	*out = bfile_new(b, n, fd, BFILE_WRITE);
	return *out ? 0 : -ENOMEM;
}

static bool bfile_pin_locked(struct backing *b, struct bnode *n)
{
	if (!n->file)
		return false;
	n->flags |= BNODE_PINNED;
	bfile_unidle_locked(b, n->file);
	return true;
}

int bfile_pin(struct backing *b, struct bnode *n)
{
	unsigned wants[] = {BFILE_READ | BFILE_WRITE, BFILE_READ, BFILE_WRITE, BFILE_PATH};
	/* Root can go from O_PATH to anything later, whatever the mode; others hold what they get.
	 */
	unsigned first = b->as_root || !bnode_is_type(n, S_IFREG) ? 3 : b->readonly ? 1 : 0;
	struct bfile *f;
	bool pinned = false;
	int rc = -EACCES;

	for (unsigned i = first; i < 4 && !pinned; i++) {
		rc = bfile_get(b, n, wants[i], &f);
		if (rc < 0)
			continue;
		lock_acquire(&b->lock);
		pinned = bfile_pin_locked(b, n);
		lock_release(&b->lock);
		bfile_put(b, f);
	}
	return pinned ? 0 : rc;
}

void bfile_unpin(struct backing *b, struct bfile *f)
{
	lock_acquire(&b->lock);
	gild_assert(f->users > 0);
	f->n->flags &= (uint8_t)~BNODE_PINNED;
	lock_release(&b->lock);
}

void backing_forbid_handles(struct backing *b)
{
	lock_acquire(&b->lock);
	for (unsigned i = 0; i < b->fs_count; i++)
		b->fs[i]->by_handle = false;
	lock_release(&b->lock);
}

void backing_close_idle(struct backing *b)
{
	while (bfile_evict(b))
		;
}
