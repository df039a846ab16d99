/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Reading directories: each bdir has a descriptor of its own, because the position is part of it.
 * Positions are the filesystem's own cookies (d_off); a later call may start at any of them. The
 * entry that stopped a call is kept: going on there costs no second system call.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "backing/backing_priv.h"

struct bdir {
	DIR *dir;
	uint64_t ino_mask; /* as backing_ino() of what is on the same filesystem */
	/* A plain mutex: it is held over calls to fn, which may take locks of any layer above. */
	pthread_mutex_t mutex;
	off_t pos;              /* of the entry that comes next */
	struct dirent *pending; /* that entry, when it was read already; in `dir`'s buffer */
};

int backing_opendir(struct backing *b, struct bnode *n, struct bdir **out)
{
	struct bdir *d = calloc(1, sizeof(*d));
	struct bfile *f;
	int fd, rc;

	if (!d)
		return -ENOMEM;
	rc = bfile_get(b, n, BFILE_PATH, &f);
	if (rc == 0) {
		fd = bopen_again(b, f->fd, O_RDONLY | O_DIRECTORY);
		bfile_put(b, f);
		d->dir = fd < 0 ? NULL : fdopendir(fd);
		if (!d->dir)
			rc = fd < 0 ? fd : -errno;
		if (!d->dir && fd >= 0)
			close(fd);
	}
	if (rc < 0) {
		free(d);
		return rc;
	}
	d->ino_mask = backing_ino(n) ^ n->ino;
	pthread_mutex_init(&d->mutex, NULL);
	*out = d;
	return 0;
}

static void bdir_seek(struct bdir *d, off_t off)
{
	if (off == 0)
		rewinddir(d->dir); /* also where it stands at 0: a new listing sees new entries */
	else if (off != d->pos)
		seekdir(d->dir, off);
	else
		return;
	d->pos = off;
	d->pending = NULL;
}

/* NULL with *rc 0: the end. */
static struct dirent *bdir_next(struct bdir *d, int *rc)
{
	*rc = 0;
	if (d->pending)
		return d->pending;
	errno = 0;
	d->pending = readdir(d->dir);
	if (!d->pending)
		*rc = -errno;
	return d->pending;
}

int backing_readdir(struct bdir *d, off_t off,
		    int (*fn)(void *arg, const char *name, uint64_t ino, mode_t type, off_t next),
		    void *arg)
{
	struct dirent *de;
	int rc;

	pthread_mutex_lock(&d->mutex);
	bdir_seek(d, off);
	while ((de = bdir_next(d, &rc)) != NULL) {
		mode_t type = de->d_type == DT_UNKNOWN ? 0 : DTTOIF(de->d_type);

		if (fn(arg, de->d_name, de->d_ino ^ d->ino_mask, type, de->d_off) != 0)
			break;
		d->pos = de->d_off;
		d->pending = NULL;
	}
	pthread_mutex_unlock(&d->mutex);
	return rc;
}

void backing_closedir(struct bdir *d)
{
	if (!d)
		return;
	closedir(d->dir);
	pthread_mutex_destroy(&d->mutex);
	free(d);
}
