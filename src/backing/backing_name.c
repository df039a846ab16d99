/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The namespace: lookups, and everything that makes, moves or removes a name.
 *
 * Creation. A daemon that is root makes objects for others. The object is made with the plain
 * permission bits only, then given to its owner, then given its suid, sgid and sticky bits: at no
 * moment is there a suid file of root's. If any step fails the object is removed again. What the
 * parent decides stays as the kernel made it: the group, where that is inherited (a setgid parent,
 * or a mount with grpid), a new directory's own setgid bit, and the mode where the parent has a
 * default ACL. Else the mode is that of the caller's umask, not of the process.
 *
 * Files are made with O_EXCL and kept open, so ownership goes to what was made. Other types can
 * only be found again by name, and somebody who may write to the directory behind the mount could
 * have put another object there (a directory of root's that lies beside it, say, to be given it);
 * root hands over only what looks freshly made by itself, and was born after the call began.
 *
 * rename() and its hints are one step for everybody who waits for `names` (bnode.c N4).
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "backing/backing_priv.h"

#define BNAME_TRIES 8

bool bname_valid(const char *name)
{
	return name[0] != '\0' && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
	       strchr(name, '/') == NULL;
}

/* Takes fd over. `name` NULL: there is none, so fd is kept. */
static int bname_intern(struct backing *b, struct bnode *parent, const char *name, int fd,
			unsigned mode, uint64_t seen, struct bnode **out, struct battr *attr)
{
	struct bkey key;
	int rc = bkey_read(b, fd, parent->fs, &key, attr);

	if (rc == 0)
		rc = bnode_intern(b, &key, name ? parent : NULL, name, seen, out);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	if (name) {
		bfile_attach(b, *out, fd, mode);
		return 0;
	}
	rc = bfile_attach_pinned(b, *out, fd, mode);
	if (rc < 0)
		backing_put(b, *out);
	return rc;
}

int backing_lookup(struct backing *b, struct bnode *parent, const char *name, struct bnode **out,
		   struct battr *attr)
{
	struct bfile *dir;
	uint64_t seen;
	int rc, fd;

	if (!bname_valid(name))
		return -EINVAL;
	if (!bnode_is_type(parent, S_IFDIR))
		return -ENOTDIR;
	rc = bfile_get(b, parent, BFILE_PATH, &dir);
	if (rc < 0)
		return rc;
	seen = bnode_renames(b);
	fd = bopen_at(b, dir->fd, name, O_PATH, 0);
	bfile_put(b, dir);
	if (fd < 0)
		return fd;
	return bname_intern(b, parent, name, fd, BFILE_PATH, seen, out, attr);
}

/* The descriptor is kept for directories only, which the next lookups need: many lookups end here,
 * and few of them are followed by a call that needs the object's own. */
int backing_lookup_cached(struct backing *b, struct bnode *parent, const char *name,
			  struct bnode **out, struct battr *attr)
{
	struct bfile *dir;
	struct bkey key;
	uint64_t seen;
	int rc, fd;

	if (!parent->fs->local || !bname_valid(name) || !bnode_is_type(parent, S_IFDIR))
		return -EAGAIN;
	dir = bfile_get_open(b, parent);
	if (!dir)
		return -EAGAIN;
	seen = bnode_renames(b);
	fd = bopen_at_cached(dir->fd, name);
	bfile_put(b, dir);
	if (fd < 0)
		return fd;
	rc = bkey_read(b, fd, parent->fs, &key, attr);
	if (rc == 0)
		rc = bnode_intern(b, &key, parent, name, seen, out);
	if (rc == 0 && bnode_is_type(*out, S_IFDIR))
		bfile_attach(b, *out, fd, BFILE_PATH);
	else
		close(fd);
	return rc;
}

struct bnew {
	struct backing *b;
	struct bnode *parent;
	struct bfile *dir; /* parent's, in use */
	const char *name; /* NULL: it gets none */
	mode_t type; /* S_IFMT bits */
	mode_t mode; /* as asked, without type */
	const struct bcred *cred;
	bool acl; /* the parent has a default ACL */
	dev_t rdev;
	time_t begun; /* as the filesystem stamps what is made from now on, or a second more */
};

static bool bnew_parent_has_acl(const struct bnew *w)
{
	char path[PROC_FD_LEN];

	return getxattr(bfd_path(w->dir->fd, path), "system.posix_acl_default", NULL, 0) > 0;
}

static int bnew_begin(struct bnew *w, struct backing *b, struct bnode *parent, const char *name,
		      mode_t type, mode_t mode, const struct bcred *cred)
{
	struct timespec now;
	int rc;

	if (b->readonly)
		return -EROFS;
	if (name && !bname_valid(name))
		return -EINVAL;
	if (!bnode_is_type(parent, S_IFDIR))
		return -ENOTDIR;
	memset(w, 0, sizeof(*w));
	rc = bfile_get(b, parent, BFILE_PATH, &w->dir);
	if (rc < 0)
		return rc;
	w->b = b;
	w->parent = parent;
	w->name = name;
	w->type = type;
	w->mode = mode & 07777;
	w->cred = cred;
	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	w->begun = now.tv_sec;
	/* Without a bit that the umask would take away both rules say the same. */
	if (mode & cred->umask & 0777)
		w->acl = bnew_parent_has_acl(w);
	if (!w->acl)
		w->mode &= ~(cred->umask & 0777);
	atomic_store_explicit(&parent->fs->wrote, true, memory_order_relaxed);
	return 0;
}

/* What mkdirat and its like are given. */
static mode_t bnew_first_mode(const struct bnew *w)
{
	return w->mode & 0777;
}

/* Another machine's clock would be no measure, so only where this one's stamps. */
static bool bnew_was_there(const struct bnew *w, int fd)
{
	struct battr a;

	return w->parent->fs->local && battr_read(fd, &a) == 0 && a.btime.tv_sec != 0 &&
	       a.btime.tv_sec + 1 < w->begun;
}

static bool bnew_is_fresh(const struct bnew *w, int fd, const struct stat *st)
{
	if ((st->st_mode & S_IFMT) != w->type)
		return false;
	if (!w->b->as_root || w->type == S_IFREG)
		return true;
	if (w->type == S_IFDIR ? st->st_nlink > 2 : st->st_nlink != 1)
		return false;
	if ((w->type == S_IFCHR || w->type == S_IFBLK) && st->st_rdev != w->rdev)
		return false;
	if (bnew_was_there(w, fd))
		return false;
	return st->st_uid == w->b->euid || st->st_uid == w->cred->uid || !w->parent->fs->owners;
}

static int bnew_own(const struct bnew *w, int fd, const struct stat *st)
{
	struct stat dir;
	uid_t uid = w->cred->uid;
	gid_t gid = w->cred->gid;

	if (!w->b->as_root || !w->parent->fs->owners)
		return 0;
	if (st->st_gid != w->b->egid) {
		gid = st->st_gid;
	} else if (gid != st->st_gid) {
		if (fstat(w->dir->fd, &dir) != 0)
			return -errno;
		if (dir.st_mode & S_ISGID)
			gid = st->st_gid;
	}
	if (uid == st->st_uid && gid == st->st_gid)
		return 0;
	return fchownat(fd, "", uid, gid, AT_EMPTY_PATH) == 0 ? 0 : -errno;
}

static int bnew_chmod(const struct bnew *w, int fd, const struct stat *st)
{
	char path[PROC_FD_LEN];
	mode_t have = st->st_mode & 07777;
	mode_t inherited = w->type == S_IFDIR ? have & S_ISGID : 0;
	mode_t want = w->mode | inherited;

	if (w->type == S_IFLNK || !w->parent->fs->owners || want == have)
		return 0;
	if (w->acl || bnew_parent_has_acl(w))
		want = (have & 0777) | (w->mode & 07000) | inherited;
	if (want == have)
		return 0;
	return chmod(bfd_path(fd, path), want) == 0 ? 0 : -errno;
}

/* Gives the new object behind fd (taken over) to its owner and makes it known, or removes it. */
static int bnew_finish(struct bnew *w, int fd, unsigned mode, struct bnode **out,
		       struct battr *attr)
{
	struct backing *b = w->b;
	struct stat st;
	int rc = fd;

	if (fd >= 0) {
		rc = fstat(fd, &st) == 0 ? 0 : -errno;
		if (rc == 0 && !bnew_is_fresh(w, fd, &st)) {
			/* Not ours to remove. */
			close(fd);
			return -ESTALE;
		}
		if (rc == 0)
			rc = bnew_own(w, fd, &st);
		if (rc == 0)
			rc = bnew_chmod(w, fd, &st);
		if (rc == 0)
			rc = bname_intern(b, w->parent, w->name, fd, mode, bnode_renames(b), out,
					  attr);
		else
			close(fd);
	}
	if (rc < 0 && w->name)
		unlinkat(w->dir->fd, w->name, w->type == S_IFDIR ? AT_REMOVEDIR : 0);
	return rc;
}

static int bnew_finish_by_name(struct bnew *w, struct bnode **out, struct battr *attr)
{
	int fd = bopen_at(w->b, w->dir->fd, w->name, O_PATH, 0);

	if (fd == -ENOENT)
		return -ENOENT; /* somebody removed it at once */
	return bnew_finish(w, fd, BFILE_PATH, out, attr);
}

static int bnew_file(struct bnew *w, struct bnode **out, struct battr *attr)
{
	int fd = bopen_at(w->b, w->dir->fd, w->name, O_CREAT | O_EXCL | O_RDWR, bnew_first_mode(w));

	if (fd < 0)
		return fd;
	return bnew_finish(w, fd, BFILE_READ | BFILE_WRITE, out, attr);
}

int backing_create(struct backing *b, struct bnode *parent, const char *name, mode_t mode,
		   const struct bcred *cred, bool excl, struct bnode **out, struct battr *attr)
{
	struct bnew w;
	int rc = bnew_begin(&w, b, parent, name, S_IFREG, mode, cred);

	if (rc < 0)
		return rc;
	/* Between the two calls the name may come and go. */
	for (unsigned i = 0; i < BNAME_TRIES; i++) {
		rc = bnew_file(&w, out, attr);
		if (rc != -EEXIST || excl)
			break;
		rc = backing_lookup(b, parent, name, out, attr);
		if (rc == 0 && !bnode_is_type(*out, S_IFREG)) {
			rc = bnode_is_type(*out, S_IFDIR) ? -EISDIR : -EEXIST;
			backing_put(b, *out);
		}
		if (rc != -ENOENT)
			break;
	}
	bfile_put(b, w.dir);
	return rc;
}

int backing_tmpfile(struct backing *b, struct bnode *parent, mode_t mode, const struct bcred *cred,
		    struct bnode **out, struct battr *attr)
{
	struct bnew w;
	int rc = bnew_begin(&w, b, parent, NULL, S_IFREG, mode, cred);
	int fd;

	if (rc < 0)
		return rc;
	fd = bopen_at(b, w.dir->fd, ".", O_TMPFILE | O_RDWR, bnew_first_mode(&w));
	rc = fd < 0 ? fd : bnew_finish(&w, fd, BFILE_READ | BFILE_WRITE, out, attr);
	bfile_put(b, w.dir);
	return rc;
}

int backing_mknod(struct backing *b, struct bnode *parent, const char *name, mode_t mode,
		  dev_t rdev, const struct bcred *cred, struct bnode **out, struct battr *attr)
{
	mode_t type = mode & S_IFMT ? mode & S_IFMT : S_IFREG;
	struct bnew w;
	int rc;

	if (type == S_IFDIR || type == S_IFLNK)
		return -EINVAL;
	rc = bnew_begin(&w, b, parent, name, type, mode, cred);
	if (rc < 0)
		return rc;
	w.rdev = rdev;
	if (type == S_IFREG) {
		rc = bnew_file(&w, out, attr);
	} else {
		rc = mknodat(w.dir->fd, name, type | bnew_first_mode(&w), rdev) == 0 ? 0 : -errno;
		if (rc == 0)
			rc = bnew_finish_by_name(&w, out, attr);
	}
	bfile_put(b, w.dir);
	return rc;
}

int backing_mkdir(struct backing *b, struct bnode *parent, const char *name, mode_t mode,
		  const struct bcred *cred, struct bnode **out, struct battr *attr)
{
	struct bnew w;
	int rc = bnew_begin(&w, b, parent, name, S_IFDIR, mode, cred);

	if (rc < 0)
		return rc;
	rc = mkdirat(w.dir->fd, name, bnew_first_mode(&w)) == 0 ? 0 : -errno;
	if (rc == 0)
		rc = bnew_finish_by_name(&w, out, attr);
	bfile_put(b, w.dir);
	return rc;
}

int backing_symlink(struct backing *b, struct bnode *parent, const char *name, const char *target,
		    const struct bcred *cred, struct bnode **out, struct battr *attr)
{
	struct bnew w;
	int rc = bnew_begin(&w, b, parent, name, S_IFLNK, 0777, cred);

	if (rc < 0)
		return rc;
	rc = symlinkat(target, w.dir->fd, name) == 0 ? 0 : -errno;
	if (rc == 0)
		rc = bnew_finish_by_name(&w, out, attr);
	bfile_put(b, w.dir);
	return rc;
}

static int bname_begin_change(struct backing *b, struct bnode *parent, const char *name,
			      struct bfile **dir)
{
	if (b->readonly)
		return -EROFS;
	if (!bname_valid(name))
		return -EINVAL;
	if (!bnode_is_type(parent, S_IFDIR))
		return -ENOTDIR;
	atomic_store_explicit(&parent->fs->wrote, true, memory_order_relaxed);
	return bfile_get(b, parent, BFILE_PATH, dir);
}

static void bname_count_rename(struct backing *b)
{
	lock_acquire(&b->lock);
	b->renames++;
	lock_release(&b->lock);
}

/* Who is known by that name now learns it. Under `names`. Counted before, so that a lookup from
 * before the change does not undo this, and after, so that who found the old hint tries again. */
static void bname_teach(struct backing *b, struct bnode *parent, struct bfile *dir,
			const char *name)
{
	struct bkey key;
	struct battr attr;
	int fd;

	bname_count_rename(b);
	fd = bopen_at(b, dir->fd, name, O_PATH, 0);
	if (fd >= 0) {
		if (bkey_read(b, fd, parent->fs, &key, &attr) == 0)
			bnode_moved(b, &key, parent, name);
		close(fd);
	}
	bname_count_rename(b);
}

int backing_link(struct backing *b, struct bnode *n, struct bnode *parent, const char *name,
		 struct battr *attr)
{
	char path[PROC_FD_LEN];
	struct bfile *f = NULL, *dir = NULL;
	int rc = bname_begin_change(b, parent, name, &dir);

	if (rc == 0)
		rc = bfile_get(b, n, BFILE_PATH, &f);
	/* AT_EMPTY_PATH would need a capability; the magic link leads to the object all the same.
	 */
	if (rc == 0 &&
	    linkat(AT_FDCWD, bfd_path(f->fd, path), dir->fd, name, AT_SYMLINK_FOLLOW) != 0)
		rc = -errno;
	if (rc == 0) {
		/* The old name is the one that will go, when a file is moved by link and unlink. */
		lock_acquire(&b->names);
		bname_teach(b, parent, dir, name);
		lock_release(&b->names);
		bfile_unpin(b, f); /* it can be reached again */
		rc = backing_getattr(b, n, attr);
	}
	bfile_put(b, f);
	bfile_put(b, dir);
	return rc;
}

static int bname_remove(struct backing *b, struct bnode *parent, const char *name, int flags)
{
	struct bfile *dir;
	int rc = bname_begin_change(b, parent, name, &dir);

	if (rc < 0)
		return rc;
	rc = unlinkat(dir->fd, name, flags) == 0 ? 0 : -errno;
	bfile_put(b, dir);
	return rc;
}

int backing_unlink(struct backing *b, struct bnode *parent, const char *name)
{
	return bname_remove(b, parent, name, 0);
}

int backing_rmdir(struct backing *b, struct bnode *parent, const char *name)
{
	return bname_remove(b, parent, name, AT_REMOVEDIR);
}

static int bname_rename(struct bfile *from, const char *name, struct bfile *to,
			const char *new_name, unsigned flags)
{
	int rc = flags ? renameat2(from->fd, name, to->fd, new_name, flags)
		       : renameat(from->fd, name, to->fd, new_name);

	return rc == 0 ? 0 : -errno;
}

int backing_rename(struct backing *b, struct bnode *from, const char *name, struct bnode *to,
		   const char *new_name, unsigned flags)
{
	struct bfile *from_dir = NULL, *to_dir = NULL;
	int rc;

	if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT))
		return -EINVAL;
	rc = bname_begin_change(b, from, name, &from_dir);
	if (rc == 0)
		rc = bname_begin_change(b, to, new_name, &to_dir);
	if (rc == 0) {
		lock_acquire(&b->names);
		rc = bname_rename(from_dir, name, to_dir, new_name, flags);
		if (rc == 0) {
			bname_teach(b, to, to_dir, new_name);
			if (flags == RENAME_EXCHANGE)
				bname_teach(b, from, from_dir, name);
		}
		lock_release(&b->names);
	}
	bfile_put(b, to_dir);
	bfile_put(b, from_dir);
	return rc;
}
