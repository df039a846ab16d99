/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The session: options, mounting, running, stopping.
 *
 * Files in reading order: fs_init.c what is agreed with the kernel; fs_loop.c who serves a request;
 * fs_park.c dropping the kernel's pages; fs_attr.c, fs_name.c, fs_data.c, fs_dir.c, fs_xattr.c,
 * fs_ioctl.c the operations.
 *
 * Stopping. Unmounting from outside ends every reader's read with ENODEV. fs_stop() unmounts from
 * here while the readers still serve, because the kernel may write out mapped pages first. If the
 * mount is busy, mapped pages are written out, and the connection is closed under those who use it.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/htab.h"
#include "base/log.h"
#include "fs/fs_priv.h"

#define FS_POOL_THREADS 16
#define FS_PARK_THREADS 2
#define FS_SYNC_WAIT_S 5

extern char **environ;

const struct fuse_lowlevel_ops fs_ops = {
	.init = fs_op_init,
	.lookup = fs_op_lookup,
	.forget = fs_op_forget,
	.forget_multi = fs_op_forget_multi,
	.getattr = fs_op_getattr,
	.setattr = fs_op_setattr,
	.readlink = fs_op_readlink,
	.mknod = fs_op_mknod,
	.mkdir = fs_op_mkdir,
	.unlink = fs_op_unlink,
	.rmdir = fs_op_rmdir,
	.symlink = fs_op_symlink,
	.rename = fs_op_rename,
	.link = fs_op_link,
	.create = fs_op_create,
	.open = fs_op_open,
	.flush = fs_op_flush,
	.read = fs_op_read,
	.write = fs_op_write,
	.fsync = fs_op_fsync,
	.opendir = fs_op_opendir,
	.readdir = fs_op_readdir,
	.readdirplus = fs_op_readdirplus,
	.releasedir = fs_op_releasedir,
	.fsyncdir = fs_op_fsync,
	.statfs = fs_op_statfs,
	.getxattr = fs_op_getxattr,
	.listxattr = fs_op_listxattr,
	.setxattr = fs_op_setxattr,
	.removexattr = fs_op_removexattr,
	.ioctl = fs_op_ioctl,
	.fallocate = fs_op_fallocate,
	.lseek = fs_op_lseek,
	.copy_file_range = fs_op_copy_file_range,
};

static int fs_session_create(struct fs *f, const struct fs_options *o)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	char *opts = NULL, *source = NULL;
	bool bad;

	bad = asprintf(&source, "fsname=%s", o->source ? o->source : "gildfs") < 0;
	bad = bad || fuse_opt_add_opt(&opts, "subtype=gildfs,default_permissions") ||
	      fuse_opt_add_opt(&opts, "max_read=1048576") ||
	      fuse_opt_add_opt_escaped(&opts, source) ||
	      (o->readonly && fuse_opt_add_opt(&opts, "ro")) ||
	      (o->allow_other && fuse_opt_add_opt(&opts, "allow_other")) ||
	      (o->debug && fuse_opt_add_opt(&opts, "debug")) ||
	      (o->fuse_opts && o->fuse_opts[0] && fuse_opt_add_opt(&opts, o->fuse_opts)) ||
	      fuse_opt_add_arg(&args, "gildfs") || fuse_opt_add_arg(&args, "-o") ||
	      fuse_opt_add_arg(&args, opts);
	if (!bad)
		f->session = fuse_session_new(&args, &fs_ops, sizeof(fs_ops), f);
	fuse_opt_free_args(&args);
	free(opts);
	free(source);
	return bad ? -ENOMEM : f->session ? 0 : -EINVAL;
}

static int fs_queues_create(struct fs *f, unsigned threads)
{
	int err = workq_create(&f->pool, "gild-pool", threads, 0);

	return err ? err : workq_create(&f->park, "gild-park", FS_PARK_THREADS, 0);
}

static unsigned fs_default_readers(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : (unsigned)n;
}

static void fs_cache_limits(struct fs *f)
{
	struct cache_options co;

	cache_options_get(f->cache, &co);
	f->exclusive = co.coherence == CACHE_EXCLUSIVE;
	f->nocap_ttl = f->exclusive ? UINT64_MAX : co.coherence == CACHE_TTL ? co.ttl_ns : 0;
}

int fs_create(struct fs **out, struct cache *c, struct stats *stats, const struct fs_options *o)
{
	struct fs *f = calloc(1, sizeof(*f));
	int err;

	*out = NULL;
	if (!f)
		return -ENOMEM;
	f->cache = c;
	f->stats = stats;
	f->acl = o->acl;
	f->readers = o->readers ? o->readers : fs_default_readers();
	f->helpers = f->readers;
	fs_cache_limits(f);
	lock_init(&f->lock, "fs", RANK_FS_TABLE);
	sem_init(&f->wake, 0, 0);
	sem_init(&f->help, 0, 0);
	if (pthread_key_create(&f->self, fs_thread_free) != 0) {
		lock_destroy(&f->lock);
		free(f);
		return -EAGAIN;
	}
	err = fs_session_create(f, o);
	if (!err)
		err = fs_queues_create(f, o->pool_threads ? o->pool_threads : FS_POOL_THREADS);
	if (err)
		fs_destroy(f);
	else
		*out = f;
	return err;
}

void fs_destroy(struct fs *f)
{
	if (!f)
		return;
	workq_destroy(f->pool);
	workq_destroy(f->park);
	if (f->session) {
		if (f->mountpoint)
			fuse_session_unmount(f->session);
		fuse_session_destroy(f->session);
	}
	fs_msg_free_all(f);
	pthread_key_delete(f->self);
	sem_destroy(&f->wake);
	sem_destroy(&f->help);
	lock_destroy(&f->lock);
	free(f->mountpoint);
	free(f);
}

static ssize_t fs_io_read(int fd, void *buf, size_t len, void *userdata)
{
	(void)userdata;
	return read(fd, buf, len);
}

static ssize_t fs_io_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	fs_patch_init(userdata, iov, count);
	return writev(fd, iov, count);
}

int fs_attach(struct fs *f, int fd)
{
	static const struct fuse_custom_io io = { .read = fs_io_read, .writev = fs_io_writev };

	return fuse_session_custom_io(f->session, &io, fd);
}

int fs_mount(struct fs *f, const char *mountpoint)
{
	int err;

	f->mountpoint = realpath(mountpoint, NULL);
	if (!f->mountpoint)
		return -errno;
	errno = 0;
	if (fuse_session_mount(f->session, f->mountpoint) == 0)
		return fs_attach(f, fuse_session_fd(f->session));
	err = errno ? -errno : -EIO;
	free(f->mountpoint);
	f->mountpoint = NULL;
	return err;
}

void fs_on_ready(struct fs *f, void (*fn)(void *arg), void *arg)
{
	f->ready_fn = fn;
	f->ready_arg = arg;
}

void fs_stop(struct fs *f)
{
	atomic_store(&f->stopping, true);
	sem_post(&f->wake);
}

static int fs_unmount_plain(const char *mountpoint)
{
	const char *argv[] = { "fusermount3", "-u", "-q", "--", mountpoint, NULL };
	int status;
	pid_t pid;

	if (umount2(mountpoint, UMOUNT_NOFOLLOW) == 0)
		return 0;
	if (errno != EPERM)
		return -errno;
	if (posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)(uintptr_t)argv, environ) != 0)
		return -EPERM;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

struct fs_syncing {
	struct work work;
	sem_t done;
	atomic_int users;
	char mountpoint[];
};

static void fs_syncing_put(struct fs_syncing *s)
{
	if (atomic_fetch_sub(&s->users, 1) == 1) {
		sem_destroy(&s->done);
		free(s);
	}
}

static void fs_syncing_run(struct work *w)
{
	struct fs_syncing *s = container_of(w, struct fs_syncing, work);
	int fd = open(s->mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0) {
		if (syncfs(fd) < 0)
			log_warning("fs", "writing out mapped pages of %s: %m", s->mountpoint);
		close(fd);
	}
	sem_post(&s->done);
	fs_syncing_put(s);
}

/* Lets the kernel write out mapped pages; not for ever, in case the backing hangs. */
static void fs_sync_mapped(struct fs *f)
{
	size_t len = strlen(f->mountpoint) + 1;
	struct fs_syncing *s = calloc(1, sizeof(*s) + len);
	struct timespec until;

	if (!s)
		return;
	memcpy(s->mountpoint, f->mountpoint, len);
	sem_init(&s->done, 0, 0);
	atomic_store(&s->users, 2);
	s->work.run = fs_syncing_run;
	if (workq_submit(f->park, &s->work) == 0) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += FS_SYNC_WAIT_S;
		while (sem_timedwait(&s->done, &until) < 0 && errno == EINTR)
			continue;
	} else {
		fs_syncing_put(s);
	}
	fs_syncing_put(s);
}

static void fs_unmount(struct fs *f)
{
	int err = fs_unmount_plain(f->mountpoint);

	if (err == -EBUSY) {
		log_warning("fs", "%s is in use: detached under its users", f->mountpoint);
		fs_sync_mapped(f);
	} else if (err) {
		log_debug("fs", "unmounting %s: %s", f->mountpoint, strerror(-err));
	}
}

int fs_run(struct fs *f)
{
	int err = fs_loop_start(f);

	if (err)
		log_error("fs", "no threads to serve requests: %s", strerror(-err));
	while (!err && !atomic_load(&f->stopping) && !atomic_load(&f->ended)) {
		while (sem_wait(&f->wake) < 0 && errno == EINTR)
			continue;
		if (atomic_exchange(&f->ready, false)) {
			if (f->mountpoint)
				fs_raise_readahead(f->mountpoint);
			if (f->ready_fn)
				f->ready_fn(f->ready_arg);
		}
	}
	if (f->mountpoint && !atomic_load(&f->ended))
		fs_unmount(f);
	fs_loop_stop(f);
	workq_drain(f->pool);
	workq_drain(f->park);
	return err ? err : atomic_load(&f->error);
}
