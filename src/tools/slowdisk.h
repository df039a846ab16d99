/* SPDX-License-Identifier: BSD-2-Clause
 *
 * gild slowdisk: what its two forms (an image, a directory) share, and their entry points. The only
 * part of src/tools besides gildfs that includes fuse headers.
 */
#ifndef GILD_TOOLS_SLOWDISK_H
#define GILD_TOOLS_SLOWDISK_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/slowdisk_delay.h"

#define SLOW_MAX_IO (1024 * 1024) /* largest FUSE request */

struct slow_pool;

/* One answer being prepared: reply is sent and the io returned to its pool by slow_io_done. */
enum slow_reply { SLOW_REPLY_DATA, SLOW_REPLY_COUNT, SLOW_REPLY_ENTRY, SLOW_REPLY_ERROR };

struct slow_io {
	struct delay_item item;
	struct slow_pool *pool;
	struct slow_io *next; /* the pool's */
	unsigned size_class;
	fuse_req_t req;
	enum slow_reply reply;
	int error;   /* positive errno, 0: none; it goes before any other reply */
	size_t size; /* DATA, COUNT */
	struct fuse_entry_param entry;
	/* ENTRY: undoes the lookup when the kernel did not take the answer; may be NULL */
	void (*unlook)(struct slow_io *io);
	void *owner; /* for unlook */
	char *buf;   /* aligned for O_DIRECT */
};

/* Buffers are kept and reused: fresh memory costs more than the copy into it. */
int slow_pool_create(struct slow_pool **out); /* -ENOMEM */
void slow_pool_destroy(struct slow_pool *p);  /* NULL-safe; all returned */
/* With room for `bytes` (0..SLOW_MAX_IO). NULL: no memory. */
struct slow_io *slow_io_get(struct slow_pool *p, fuse_req_t req, size_t bytes);
void slow_io_done(struct slow_io *io);
/* Charges the model with one access and answers when both it and the caller are done. */
void slow_io_begin(struct slow_io *io, struct delay *d, uint64_t offset, uint64_t length,
		   bool write);

/* Waits, mounted and ready, in both forms. */
struct slow_session {
	const char *mountpoint;
	bool foreground, allow_other;
	const struct fuse_lowlevel_ops *ops;
	void *userdata;
	struct delay *delay;
	bool handed_over; /* out: a child serves (or served) the mount, not this process */
};
/* Mounts, goes to the background, serves until unmounted or signalled. In the parent it returns
 * when the mount answers. Returns the exit code; on failure a sentence was printed and nothing is
 * left mounted. */
int slow_session_run(struct slow_session *s);
void slow_session_init_conn(struct fuse_conn_info *conn); /* for ops.init */

/* The control file. open answers the request. */
void slow_control_open(fuse_req_t req, struct fuse_file_info *fi, struct delay *d);
void slow_control_read(fuse_req_t req, size_t size, off_t off, struct fuse_file_info *fi);
void slow_control_write(fuse_req_t req, const char *buf, size_t size, struct delay *d);
void slow_control_release(fuse_req_t req, struct fuse_file_info *fi);

/* The two forms. They check their input, print one sentence for an error, return the exit code. */
struct slow_args {
	const char *source;     /* image or directory */
	const char *mountpoint;
	uint64_t size;          /* image to create; 0: it must exist */
	enum disk_model_kind kind;
	double stroke;          /* (0, 1]; 0: default */
	bool delays, foreground, allow_other;
};
int slow_image_run(const struct slow_args *a);
int slow_files_run(const struct slow_args *a);

#endif
