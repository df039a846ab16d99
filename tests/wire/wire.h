/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The kernel's side of the FUSE protocol over a socketpair, one request after the other.
 */
#ifndef GILD_TESTS_WIRE_WIRE_H
#define GILD_TESTS_WIRE_WIRE_H

#include <linux/fuse.h>
#include <pthread.h>
#include <stdint.h>

#include "fs/fs.h"
#include "ram_cache.h"

struct wire {
	struct cache *cache;
	struct stats *stats;
	struct fs *fs;
	struct cnode *root;  /* of the cache; its nodeid is FUSE_ROOT_ID */
	int fd;
	pthread_t server;
	bool joined;         /* the server has ended */
	int result;          /* of fs_run, once joined */
	atomic_uint ready;   /* times the ready function was called */
	uint64_t unique;
	uint32_t uid;        /* who asks */
	char *in;            /* request being made */
	size_t in_len;
	char *out;           /* last answer, without its header */
	size_t out_len;
	unsigned notices;    /* invalidations seen since the last request was sent */
	struct fuse_notify_inval_inode_out notice; /* the last one */
	bool notice_first;   /* it came before the answer */
	char *message;
};

/* Starts a server; `init` false: without the INIT exchange. */
struct wire *wire_start(enum cache_coherence coherence, const struct fs_options *o, bool init);
/* Closes the kernel's end, waits for the server. True if nothing is referenced any more. */
bool wire_stop(struct wire *w);
/* Waits for a server that was told to end. */
void wire_join(struct wire *w);

void wire_begin(struct wire *w);
void wire_put(struct wire *w, const void *p, size_t len);
void wire_string(struct wire *w, const char *s);
/* Sends what was put; returns its number. */
uint64_t wire_send(struct wire *w, uint32_t opcode, uint64_t node);
/* Waits for the answer to that request: 0 or a negative errno. */
int wire_wait(struct wire *w, uint64_t unique);
int wire_call(struct wire *w, uint32_t opcode, uint64_t node);
void wire_send_raw(struct wire *w, const void *p, size_t len);
/* Waits for an invalidation, if none was seen yet. */
void wire_wait_notice(struct wire *w);

/* The common requests, whole. */
int wire_init(struct wire *w, struct fuse_init_out *out, uint32_t flags);
int wire_lookup(struct wire *w, uint64_t parent, const char *name, struct fuse_entry_out *e);
int wire_getattr(struct wire *w, uint64_t node, struct fuse_attr_out *a);
int wire_read(struct wire *w, uint64_t node, uint64_t off, uint32_t size);
int wire_write(struct wire *w, uint64_t node, uint64_t off, const void *p, uint32_t size,
	       uint32_t flags, uint32_t write_flags);
int wire_create(struct wire *w, uint64_t parent, const char *name, uint32_t flags, uint32_t mode,
		struct fuse_entry_out *e);
void wire_forget(struct wire *w, uint64_t node, uint64_t count);

#endif
