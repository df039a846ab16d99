/* SPDX-License-Identifier: BSD-2-Clause
 * Requests of gild slowdisk: reused buffers, answers, and the control file. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/htab.h"
#include "base/lock.h"
#include "tools/slowdisk.h"

#define POOL_CLASSES 10 /* none, then 4 KiB doubling up to 1 MiB */
#define POOL_ALIGN 4096

struct slow_pool {
	struct lock lock;
	struct slow_io *idle[POOL_CLASSES]; /* under lock */
};

static size_t slow_pool_bytes(unsigned size_class)
{
	return size_class ? (size_t)POOL_ALIGN << (size_class - 1) : 0;
}

int slow_pool_create(struct slow_pool **out)
{
	struct slow_pool *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	lock_init(&p->lock, "slowdisk pool", RANK_WORKQ);
	*out = p;
	return 0;
}

void slow_pool_destroy(struct slow_pool *p)
{
	if (!p)
		return;
	for (unsigned i = 0; i < POOL_CLASSES; i++) {
		while (p->idle[i]) {
			struct slow_io *io = p->idle[i];

			p->idle[i] = io->next;
			free(io->buf);
			free(io);
		}
	}
	lock_destroy(&p->lock);
	free(p);
}

static void slow_io_release(struct delay_item *item)
{
	slow_io_done(container_of(item, struct slow_io, item));
}

static struct slow_io *slow_io_new(struct slow_pool *p, unsigned size_class)
{
	struct slow_io *io = calloc(1, sizeof(*io));
	void *buf = NULL;

	if (!io)
		return NULL;
	if (size_class && posix_memalign(&buf, POOL_ALIGN, slow_pool_bytes(size_class)) != 0) {
		free(io);
		return NULL;
	}
	io->buf = buf;
	io->pool = p;
	io->size_class = size_class;
	io->item.done = slow_io_release;
	return io;
}

struct slow_io *slow_io_get(struct slow_pool *p, fuse_req_t req, size_t bytes)
{
	struct slow_io *io;
	unsigned c = 0;

	while (slow_pool_bytes(c) < bytes)
		c++;
	lock_acquire(&p->lock);
	io = p->idle[c];
	if (io)
		p->idle[c] = io->next;
	lock_release(&p->lock);
	if (!io)
		io = slow_io_new(p, c);
	if (!io)
		return NULL;
	io->req = req;
	io->error = 0;
	io->size = 0;
	io->unlook = NULL;
	return io;
}

void slow_io_done(struct slow_io *io)
{
	struct slow_pool *p = io->pool;
	int sent = 0;

	if (io->error || io->reply == SLOW_REPLY_ERROR)
		fuse_reply_err(io->req, io->error);
	else if (io->reply == SLOW_REPLY_DATA)
		fuse_reply_buf(io->req, io->buf, io->size);
	else if (io->reply == SLOW_REPLY_COUNT)
		fuse_reply_write(io->req, io->size);
	else
		sent = fuse_reply_entry(io->req, &io->entry);
	if (sent != 0 && io->unlook)
		io->unlook(io);
	lock_acquire(&p->lock);
	io->next = p->idle[io->size_class];
	p->idle[io->size_class] = io;
	lock_release(&p->lock);
}

void slow_io_begin(struct slow_io *io, struct delay *d, uint64_t offset, uint64_t length,
		   bool write)
{
	io->item.request.offset = offset;
	io->item.request.length = length;
	io->item.request.write = write;
	delay_begin(d, &io->item);
}

void slow_control_open(fuse_req_t req, struct fuse_file_info *fi, struct delay *d)
{
	json_t *report = delay_report(d);
	char *text = report ? json_dumps(report, JSON_INDENT(2)) : NULL;
	char *line = NULL;

	json_decref(report);
	if (text && (line = malloc(strlen(text) + 2)))
		strcat(strcpy(line, text), "\n");
	free(text);
	if (!line) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	fi->fh = (uintptr_t)line;
	fi->direct_io = 1;
	if (fuse_reply_open(req, fi) != 0)
		free(line);
}

void slow_control_read(fuse_req_t req, size_t size, off_t off, struct fuse_file_info *fi)
{
	const char *text = (const char *)(uintptr_t)fi->fh;
	size_t len = strlen(text);

	if ((size_t)off >= len)
		size = 0;
	else if (size > len - (size_t)off)
		size = len - (size_t)off;
	fuse_reply_buf(req, size ? text + off : NULL, size);
}

void slow_control_write(fuse_req_t req, const char *buf, size_t size, struct delay *d)
{
	size_t len = size;

	while (len > 0 && strchr(" \t\r\n", buf[len - 1]))
		len--;
	if (len == 2 && memcmp(buf, "on", 2) == 0)
		delay_switch(d, true);
	else if (len == 3 && memcmp(buf, "off", 3) == 0)
		delay_switch(d, false);
	else {
		fuse_reply_err(req, EINVAL);
		return;
	}
	fuse_reply_write(req, size);
}

void slow_control_release(fuse_req_t req, struct fuse_file_info *fi)
{
	free((void *)(uintptr_t)fi->fh);
	fuse_reply_err(req, 0);
}
