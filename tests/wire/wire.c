/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire.h"

#define WIRE_ROOM (1 << 20)

static void wire_ready(void *arg)
{
	struct wire *w = arg;

	atomic_fetch_add(&w->ready, 1);
}

static void *wire_serve(void *arg)
{
	struct wire *w = arg;

	w->result = fs_run(w->fs);
	return NULL;
}

struct wire *wire_start(enum cache_coherence coherence, const struct fs_options *o, bool init)
{
	struct wire *w = calloc(1, sizeof(*w));
	int fds[2];

	signal(SIGPIPE, SIG_IGN);
	w->in = malloc(WIRE_ROOM);
	w->message = malloc(WIRE_ROOM);
	w->cache = ram_cache_open(coherence);
	w->root = cache_root(w->cache);
	w->stats = calloc(1, sizeof(*w->stats));
	stats_init(w->stats);
	ck_assert_int_eq(fs_create(&w->fs, w->cache, w->stats, o), 0);
	fs_on_ready(w->fs, wire_ready, w);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	w->fd = fds[0];
	ck_assert_int_eq(fs_attach(w->fs, fds[1]), 0);
	ck_assert_int_eq(pthread_create(&w->server, NULL, wire_serve, w), 0);
	if (init) {
		struct fuse_init_out out;

		ck_assert_int_eq(wire_init(w, &out, UINT32_MAX & ~FUSE_INIT_EXT), 0);
	}
	return w;
}

void wire_join(struct wire *w)
{
	if (!w->joined)
		pthread_join(w->server, NULL);
	w->joined = true;
}

bool wire_stop(struct wire *w)
{
	bool clean;

	shutdown(w->fd, SHUT_RDWR);
	wire_join(w);
	close(w->fd);
	fs_destroy(w->fs);
	clean = ram_cache_close(w->cache);
	free(w->stats);
	free(w->message);
	free(w->in);
	free(w);
	return clean;
}

void wire_begin(struct wire *w)
{
	w->in_len = sizeof(struct fuse_in_header);
}

void wire_put(struct wire *w, const void *p, size_t len)
{
	ck_assert_uint_le(w->in_len + len, WIRE_ROOM);
	if (len)
		memcpy(w->in + w->in_len, p, len);
	w->in_len += len;
}

void wire_string(struct wire *w, const char *s)
{
	wire_put(w, s, strlen(s) + 1);
}

void wire_send_raw(struct wire *w, const void *p, size_t len)
{
	ck_assert_int_eq(send(w->fd, p, len, 0), (ssize_t)len);
}

uint64_t wire_send(struct wire *w, uint32_t opcode, uint64_t node)
{
	struct fuse_in_header h = {
		.len = (uint32_t)w->in_len, .opcode = opcode, .nodeid = node, .uid = w->uid, .pid = 1
	};

	h.unique = w->unique += 2;
	memcpy(w->in, &h, sizeof(h));
	w->notices = 0;
	wire_send_raw(w, w->in, w->in_len);
	return h.unique;
}

static struct fuse_out_header wire_receive(struct wire *w)
{
	struct fuse_out_header h;
	ssize_t n = recv(w->fd, w->message, WIRE_ROOM, 0);

	ck_assert_int_ge(n, (ssize_t)sizeof(h));
	memcpy(&h, w->message, sizeof(h));
	ck_assert_uint_eq(h.len, (size_t)n);
	w->out = w->message + sizeof(h);
	w->out_len = (size_t)n - sizeof(h);
	if (h.unique == 0) {
		ck_assert_int_eq(h.error, FUSE_NOTIFY_INVAL_INODE);
		ck_assert_uint_eq(w->out_len, sizeof(w->notice));
		memcpy(&w->notice, w->out, sizeof(w->notice));
		w->notices++;
	}
	return h;
}

int wire_wait(struct wire *w, uint64_t unique)
{
	struct fuse_out_header h;

	do {
		h = wire_receive(w);
	} while (h.unique == 0);
	ck_assert_uint_eq(h.unique, unique);
	ck_assert_int_le(h.error, 0);
	ck_assert_int_gt(h.error, -1000);
	if (h.error)
		ck_assert_uint_eq(w->out_len, 0);
	w->notice_first = w->notices > 0;
	return h.error;
}

void wire_wait_notice(struct wire *w)
{
	if (!w->notices)
		ck_assert_uint_eq(wire_receive(w).unique, 0);
}

int wire_call(struct wire *w, uint32_t opcode, uint64_t node)
{
	return wire_wait(w, wire_send(w, opcode, node));
}

/* Takes the answer, which must have exactly this size. */
static int wire_take(struct wire *w, int err, void *out, size_t len)
{
	if (!err) {
		ck_assert_uint_eq(w->out_len, len);
		memcpy(out, w->out, len);
	}
	return err;
}

int wire_init(struct wire *w, struct fuse_init_out *out, uint32_t flags)
{
	struct fuse_init_in in = { .major = 7, .minor = 38, .max_readahead = 8 << 20 };

	in.flags = flags;
	wire_begin(w);
	wire_put(w, &in, sizeof(in));
	return wire_take(w, wire_call(w, FUSE_INIT, 0), out, sizeof(*out));
}

int wire_lookup(struct wire *w, uint64_t parent, const char *name, struct fuse_entry_out *e)
{
	wire_begin(w);
	wire_string(w, name);
	return wire_take(w, wire_call(w, FUSE_LOOKUP, parent), e, sizeof(*e));
}

int wire_getattr(struct wire *w, uint64_t node, struct fuse_attr_out *a)
{
	struct fuse_getattr_in in = { 0 };

	wire_begin(w);
	wire_put(w, &in, sizeof(in));
	return wire_take(w, wire_call(w, FUSE_GETATTR, node), a, sizeof(*a));
}

int wire_read(struct wire *w, uint64_t node, uint64_t off, uint32_t size)
{
	struct fuse_read_in in = { .offset = off, .size = size };

	wire_begin(w);
	wire_put(w, &in, sizeof(in));
	return wire_call(w, FUSE_READ, node);
}

int wire_write(struct wire *w, uint64_t node, uint64_t off, const void *p, uint32_t size,
	       uint32_t flags, uint32_t write_flags)
{
	struct fuse_write_in in = {
		.offset = off, .size = size, .flags = flags, .write_flags = write_flags
	};
	struct fuse_write_out out;
	int err;

	wire_begin(w);
	wire_put(w, &in, sizeof(in));
	wire_put(w, p, size);
	err = wire_take(w, wire_call(w, FUSE_WRITE, node), &out, sizeof(out));
	return err ? err : (int)out.size;
}

int wire_create(struct wire *w, uint64_t parent, const char *name, uint32_t flags, uint32_t mode,
		struct fuse_entry_out *e)
{
	struct fuse_create_in in = { .flags = flags, .mode = S_IFREG | mode, .umask = 022 };
	struct {
		struct fuse_entry_out e;
		struct fuse_open_out o;
	} out;
	int err;

	wire_begin(w);
	wire_put(w, &in, sizeof(in));
	wire_string(w, name);
	err = wire_take(w, wire_call(w, FUSE_CREATE, parent), &out, sizeof(out));
	if (!err) {
		ck_assert_uint_eq(out.o.fh, 0);
		ck_assert_uint_ne(out.o.open_flags & FOPEN_KEEP_CACHE, 0);
		*e = out.e;
	}
	return err;
}

void wire_forget(struct wire *w, uint64_t node, uint64_t count)
{
	struct fuse_forget_in in = { .nlookup = count };

	wire_begin(w);
	wire_put(w, &in, sizeof(in));
	wire_send(w, FUSE_FORGET, node);
}
