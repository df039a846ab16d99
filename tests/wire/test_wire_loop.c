/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What goes beyond one request: listings with references, xattrs that are remembered, changes found,
 * a backing that hangs, many requests at once, garbage, and the end.
 */
#include "config.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "wire.h"

static const struct fs_options plain = { .readers = 2, .pool_threads = 4 };

static void stop_clean(struct wire *w)
{
	ck_assert(wire_stop(w));
}

static uint64_t open_dir(struct wire *w, uint64_t node)
{
	struct fuse_open_in in = { 0 };
	struct fuse_open_out out;

	wire_begin(w);
	wire_put(w, &in, sizeof(in));
	ck_assert_int_eq(wire_call(w, FUSE_OPENDIR, node), 0);
	ck_assert_uint_eq(w->out_len, sizeof(out));
	memcpy(&out, w->out, sizeof(out));
	ck_assert_uint_eq(out.open_flags & FOPEN_CACHE_DIR, 0);
	return out.fh;
}

static void close_dir(struct wire *w, uint64_t node, uint64_t fh)
{
	struct fuse_release_in in = { .fh = fh };

	wire_begin(w);
	wire_put(w, &in, sizeof(in));
	ck_assert_int_eq(wire_call(w, FUSE_RELEASEDIR, node), 0);
}

static int read_dir(struct wire *w, uint32_t opcode, uint64_t fh, uint64_t off, uint32_t size)
{
	struct fuse_read_in in = { .fh = fh, .offset = off, .size = size };

	wire_begin(w);
	wire_put(w, &in, sizeof(in));
	return wire_call(w, opcode, FUSE_ROOT_ID);
}

#define LISTED 200

/* Walks one answer; counts each f%03d in `seen`, keeps the node ids. Returns the last position. */
static uint64_t take_listing(struct wire *w, bool plus, unsigned *seen, uint64_t *nodes)
{
	uint64_t next = 0;
	size_t at = 0;

	while (at < w->out_len) {
		const struct fuse_entry_out *e = (struct fuse_entry_out *)(w->out + at);
		const struct fuse_dirent *d =
			plus ? (const struct fuse_dirent *)(e + 1) : (struct fuse_dirent *)e;
		size_t head = (plus ? sizeof(*e) : 0) + FUSE_NAME_OFFSET;
		unsigned i = LISTED;

		next = d->off;
		if (d->name[0] == 'f') {
			ck_assert_int_eq(sscanf(d->name, "f%03u", &i), 1);
			seen[i]++;
			ck_assert_uint_eq(d->type, S_IFREG >> 12);
			if (plus) {
				nodes[i] = e->nodeid;
				ck_assert_uint_ne(e->nodeid, 0);
				ck_assert_uint_eq(e->attr.size, i);
				ck_assert_uint_eq(e->attr.ino, d->ino);
				ck_assert_uint_eq(e->attr_valid, 1);
			}
		} else {
			ck_assert_uint_eq(d->type, S_IFDIR >> 12);
			if (plus) /* "." and ".." are no references */
				ck_assert_uint_eq(e->nodeid, 0);
		}
		at += FUSE_DIRENT_ALIGN(head + d->namelen);
	}
	ck_assert_uint_eq(at, w->out_len);
	return next;
}

START_TEST(listing)
{
	bool plus = _i & 1;
	uint32_t opcode = plus ? FUSE_READDIRPLUS : FUSE_READDIR, size = _i & 2 ? 4096 : 400;
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	unsigned seen[LISTED] = { 0 };
	uint64_t nodes[LISTED], fh, off = 0;
	char zeroes[LISTED] = { 0 };

	for (unsigned i = 0; i < LISTED; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%03u", i);
		ram_file(w->cache, w->root, name, zeroes, i);
	}
	fh = open_dir(w, FUSE_ROOT_ID);
	do {
		ck_assert_int_eq(read_dir(w, opcode, fh, off, size), 0);
		ck_assert_uint_le(w->out_len, size);
		if (w->out_len)
			off = take_listing(w, plus, seen, nodes);
	} while (w->out_len);
	ck_assert_int_eq(read_dir(w, opcode, fh, 0, 16), -EINVAL); /* no room for one */
	close_dir(w, FUSE_ROOT_ID, fh);
	ck_assert_uint_eq(ram_references(w->cache), plus ? LISTED : 0);
	for (unsigned i = 0; i < LISTED; i++) {
		ck_assert_uint_eq(seen[i], 1);
		if (plus)
			wire_forget(w, nodes[i], 1);
	}
	stop_clean(w);
}
END_TEST

static int get_xattr(struct wire *w, uint64_t node, const char *name, uint32_t size)
{
	struct fuse_getxattr_in in = { .size = size };

	wire_begin(w);
	wire_put(w, &in, sizeof(in));
	if (name)
		wire_string(w, name);
	return wire_call(w, name ? FUSE_GETXATTR : FUSE_LISTXATTR, node);
}

static int set_xattr(struct wire *w, uint64_t node, const char *name, const char *value,
		     uint32_t size)
{
	struct {
		uint32_t size, flags;
	} in = { .size = size }; /* FUSE_COMPAT_SETXATTR_IN_SIZE */

	wire_begin(w);
	wire_put(w, &in, sizeof(in));
	wire_string(w, name);
	wire_put(w, value, strlen(value));
	return wire_call(w, FUSE_SETXATTR, node);
}

START_TEST(xattrs)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	struct fuse_entry_out e;

	ram_file(w->cache, w->root, "a", "", 0);
	ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "a", &e), 0);
	ck_assert_int_eq(get_xattr(w, e.nodeid, "user.x", 100), -ENODATA);
	ck_assert_int_eq(set_xattr(w, e.nodeid, "user.x", "12345", 5), 0);
	ck_assert_int_eq(get_xattr(w, e.nodeid, "user.x", 0), 0);
	ck_assert_uint_eq(((struct fuse_getxattr_out *)w->out)->size, 5);
	ck_assert_int_eq(get_xattr(w, e.nodeid, "user.x", 4), -ERANGE);
	ck_assert_int_eq(get_xattr(w, e.nodeid, "user.x", 100), 0);
	ck_assert_uint_eq(w->out_len, 5);
	ck_assert_mem_eq(w->out, "12345", 5);
	ck_assert_int_eq(get_xattr(w, e.nodeid, NULL, 100), 0);
	ck_assert_uint_eq(w->out_len, 7);
	ck_assert_mem_eq(w->out, "user.x", 7);
	ck_assert_int_eq(set_xattr(w, e.nodeid, "user.y", "1", 200), -EINVAL); /* beyond the message */
	ck_assert_uint_eq(w->notices, 0);
	/* an ACL is the mode, which the kernel does not expect to change */
	ck_assert_int_eq(set_xattr(w, e.nodeid, "system.posix_acl_access", "1", 1), 0);
	ck_assert(w->notice_first);
	ck_assert_uint_eq(w->notice.ino, e.nodeid);
	ck_assert_int_eq(w->notice.off, -1);
	wire_begin(w);
	wire_string(w, "user.x");
	ck_assert_int_eq(wire_call(w, FUSE_REMOVEXATTR, e.nodeid), 0);
	ck_assert_int_eq(get_xattr(w, e.nodeid, "user.x", 100), -ENODATA);
	wire_forget(w, e.nodeid, 1);
	stop_clean(w);
}
END_TEST

START_TEST(no_capability_is_remembered)
{
	static const char name[] = "security.capability";
	struct wire *w = wire_start(_i ? CACHE_STRICT : CACHE_TTL, &plain, true);
	atomic_uint *asked = &ram_switches(w->cache)->asked_capability;
	struct fuse_entry_out e;

	ram_file(w->cache, w->root, "a", "", 0);
	ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "a", &e), 0);
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(get_xattr(w, e.nodeid, name, 100), -ENODATA);
	if (_i) /* strict: nothing is remembered */
		ck_assert_uint_eq(atomic_load(asked), 10);
	else /* more than once only if this took seconds */
		ck_assert_uint_lt(atomic_load(asked), 10);
	ck_assert_int_eq(set_xattr(w, e.nodeid, name, "cap", 3), 0);
	ck_assert_int_eq(get_xattr(w, e.nodeid, name, 100), 0);
	ck_assert_uint_eq(w->out_len, 3);
	wire_forget(w, e.nodeid, 1);
	stop_clean(w);
}
END_TEST

START_TEST(changed_invalidates)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	struct ram_switches *s = ram_switches(w->cache);
	struct fuse_entry_out e;
	struct fuse_attr_out a;

	ram_file(w->cache, w->root, "a", "hello", 5);
	atomic_store(&s->cold, _i == 1);
	ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "a", &e), 0);
	ck_assert_uint_eq(w->notices, 0);
	/* who asks for attributes gets them after the pages are gone */
	atomic_store(&s->changed, true);
	ck_assert_int_eq(wire_getattr(w, e.nodeid, &a), 0);
	ck_assert(w->notice_first);
	ck_assert_uint_eq(w->notice.ino, e.nodeid);
	ck_assert_int_eq(w->notice.off, 0);
	ck_assert_int_eq(w->notice.len, 0);
	ck_assert_uint_eq(a.attr.size, 5);
	ck_assert(a.attr_valid == 0 && a.attr_valid_nsec > 0); /* less than when it was found */
	atomic_store(&s->changed, true);
	ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "a", &e), 0);
	ck_assert(w->notice_first);
	ck_assert_uint_eq(e.attr.size, 5);
	/* what the kernel sees by itself is left to it */
	atomic_store(&s->seen, true);
	atomic_store(&s->changed, true);
	ck_assert_int_eq(wire_getattr(w, e.nodeid, &a), 0);
	ck_assert_uint_eq(a.attr_valid, 1);
	ck_assert_uint_eq(w->notices, 0);
	/* a READ holds pages: it is answered first */
	atomic_store(&s->changed, true);
	ck_assert_int_eq(wire_read(w, e.nodeid, 0, 100), 0);
	ck_assert(!w->notice_first);
	ck_assert_mem_eq(w->out, "hello", 5);
	wire_wait_notice(w);
	ck_assert_uint_eq(w->notice.ino, e.nodeid);
	ck_assert_int_eq(wire_getattr(w, e.nodeid, &a), 0);
	ck_assert_uint_eq(w->notices, 0);
	wire_forget(w, e.nodeid, 2);
	stop_clean(w);
}
END_TEST

#define HUNG 40

START_TEST(hits_while_backing_hangs)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	struct ram_switches *s = ram_switches(w->cache);
	struct fuse_write_in in = { .size = 1 };
	bool answered[HUNG] = { false };
	uint64_t first = 0;
	struct fuse_entry_out e;
	struct fuse_attr_out a;
	struct fuse_out_header h;
	char buf[256];

	ram_file(w->cache, w->root, "a", "hello", 5);
	ck_assert_int_eq(wire_lookup(w, FUSE_ROOT_ID, "a", &e), 0);
	atomic_store(&s->hang, true);
	for (unsigned i = 0; i < HUNG; i++) { /* more than readers and pool threads together */
		uint64_t u;

		in.offset = i;
		wire_begin(w);
		wire_put(w, &in, sizeof(in));
		wire_put(w, "x", 1);
		u = wire_send(w, FUSE_WRITE, e.nodeid);
		first = i ? first : u;
	}
	while (atomic_load(&s->waiting) < plain.pool_threads)
		sched_yield();
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(wire_getattr(w, e.nodeid, &a), 0);
		ck_assert_int_eq(wire_read(w, e.nodeid, 0, 100), 0);
		ck_assert_mem_eq(w->out, "hello", 5);
	}
	atomic_store(&s->hang, false);
	for (unsigned i = 0; i < HUNG; i++) {
		ck_assert_int_gt(recv(w->fd, buf, sizeof(buf), 0), (ssize_t)sizeof(h));
		memcpy(&h, buf, sizeof(h));
		ck_assert_int_eq(h.error, 0);
		ck_assert(h.unique >= first && (h.unique - first) / 2 < HUNG);
		ck_assert(!answered[(h.unique - first) / 2]);
		answered[(h.unique - first) / 2] = true;
	}
	ck_assert_int_eq(wire_getattr(w, e.nodeid, &a), 0);
	ck_assert_uint_eq(a.attr.size, HUNG);
	wire_forget(w, e.nodeid, 1);
	stop_clean(w);
}
END_TEST

#define STORM_THREADS 4
#define STORM_REQUESTS 3000
#define STORM_FILES 16

struct storm {
	struct wire *w;
	uint64_t nodes[STORM_FILES];
	atomic_uchar answers[STORM_THREADS * STORM_REQUESTS];
	atomic_uint lookups[STORM_FILES];
	uint64_t seed;
	unsigned unknown;
};

struct storm_thread {
	struct storm *s;
	unsigned index;
	pthread_t id;
};

static size_t storm_request(struct storm *s, uint64_t r, uint64_t unique, char *buf)
{
	struct fuse_in_header h = { .unique = unique, .nodeid = s->nodes[r % STORM_FILES] };
	struct fuse_read_in rd = { .offset = (r >> 8) % 9000, .size = (r >> 24) % 20000 };
	struct fuse_write_in wr = { .offset = (r >> 8) % 9000, .size = (r >> 24) % 30000,
				    .flags = (r >> 40) % 4 ? 0 : O_APPEND };
	size_t n = sizeof(h);

	switch ((r >> 48) % 6) {
	case 0:
		h.opcode = FUSE_READ;
		memcpy(buf + n, &rd, sizeof(rd));
		n += sizeof(rd);
		break;
	case 1:
		h.opcode = FUSE_WRITE;
		memcpy(buf + n, &wr, sizeof(wr));
		n += sizeof(wr);
		memset(buf + n, (int)r & 0xff, wr.size);
		n += wr.size;
		break;
	case 2:
		h.opcode = FUSE_GETATTR;
		memset(buf + n, 0, sizeof(struct fuse_getattr_in));
		n += sizeof(struct fuse_getattr_in);
		break;
	case 3:
		h.opcode = FUSE_LOOKUP;
		h.nodeid = FUSE_ROOT_ID;
		n += (size_t)sprintf(buf + n, "f%03u", (unsigned)(r % STORM_FILES)) + 1;
		break;
	case 4: /* refused */
		h.opcode = FUSE_UNLINK;
		h.nodeid = FUSE_ROOT_ID;
		n += (size_t)sprintf(buf + n, "no such file") + 1;
		break;
	default: /* garbage: says another length than it has */
		h.opcode = (uint32_t)(r % 60);
		memset(buf + n, 0xff, 40);
		h.len = (uint32_t)(r >> 32) | 1u << 20;
		n += 40;
	}
	if (!h.len)
		h.len = (uint32_t)n;
	memcpy(buf, &h, sizeof(h));
	return n;
}

static void *storm_send(void *arg)
{
	struct storm_thread *t = arg;
	char *buf = malloc(65536);

	for (unsigned i = 0; i < STORM_REQUESTS; i++) {
		uint64_t number = t->index * STORM_REQUESTS + i;
		uint64_t r = hash_mix64(t->s->seed + number);
		size_t n = storm_request(t->s, r, (number + 1) << 1, buf);

		if (((struct fuse_in_header *)buf)->opcode == FUSE_LOOKUP &&
		    ((struct fuse_in_header *)buf)->len == n)
			atomic_fetch_add(&t->s->lookups[r % STORM_FILES], 1);
		if (i % 64 == 0) /* now hits, now misses */
			atomic_store(&ram_switches(t->s->w->cache)->cold, r >> 63);
		if (send(t->s->w->fd, buf, n, 0) != (ssize_t)n)
			break;
	}
	free(buf);
	return NULL;
}

static void storm_receive(struct storm *s)
{
	unsigned left = STORM_THREADS * STORM_REQUESTS;
	char *buf = malloc(1 << 17);

	while (left) {
		struct fuse_out_header h;
		ssize_t n = recv(s->w->fd, buf, 1 << 17, 0);

		ck_assert_int_ge(n, (ssize_t)sizeof(h));
		memcpy(&h, buf, sizeof(h));
		if (h.unique == 0) /* an append went elsewhere */
			continue;
		left--;
		if (h.unique / 2 - 1 < STORM_THREADS * STORM_REQUESTS)
			atomic_fetch_add(&s->answers[h.unique / 2 - 1], 1);
		else
			s->unknown++;
	}
	free(buf);
}

START_TEST(storm)
{
	struct storm *s = calloc(1, sizeof(*s));
	struct storm_thread t[STORM_THREADS];
	struct fuse_entry_out e;

	s->seed = (uint64_t)getpid() << 32 | (uint64_t)time(NULL);
	printf("storm: seed %llu\n", (unsigned long long)s->seed);
	s->w = wire_start(CACHE_TTL, &plain, true);
	for (unsigned i = 0; i < STORM_FILES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%03u", i);
		ram_file(s->w->cache, s->w->root, name, "0123456789", 10);
		ck_assert_int_eq(wire_lookup(s->w, FUSE_ROOT_ID, name, &e), 0);
		s->nodes[i] = e.nodeid;
	}
	for (unsigned i = 0; i < STORM_THREADS; i++) {
		t[i] = (struct storm_thread){ .s = s, .index = i };
		pthread_create(&t[i].id, NULL, storm_send, &t[i]);
	}
	storm_receive(s);
	for (unsigned i = 0; i < STORM_THREADS; i++)
		pthread_join(t[i].id, NULL);
	ck_assert_uint_eq(s->unknown, 0);
	for (unsigned i = 0; i < STORM_THREADS * STORM_REQUESTS; i++)
		ck_assert_uint_eq(s->answers[i], 1);
	for (unsigned i = 0; i < STORM_FILES; i++)
		wire_forget(s->w, s->nodes[i], 1 + atomic_load(&s->lookups[i]));
	ck_assert(wire_stop(s->w));
	free(s);
}
END_TEST

START_TEST(garbage)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	struct fuse_write_in wr = { .size = 5000 };
	struct fuse_in_header h = { .len = 10, .opcode = FUSE_GETATTR, .unique = 4242 };
	struct fuse_entry_out e;
	struct fuse_attr_out a;

	ram_file(w->cache, w->root, "a", "hello", 5);
	wire_send_raw(w, "short", 5); /* nobody to answer */
	wire_send_raw(w, &h, sizeof(h));
	ck_assert_int_eq(wire_wait(w, 4242), -EIO);
	h.len = 0;
	wire_send_raw(w, &h, sizeof(h));
	ck_assert_int_eq(wire_wait(w, 4242), -EIO);
	/* a name without its end, no name, an operation without its arguments */
	wire_begin(w);
	wire_put(w, "a", 1);
	ck_assert_int_eq(wire_call(w, FUSE_LOOKUP, FUSE_ROOT_ID), 0);
	memcpy(&e, w->out, sizeof(e));
	wire_begin(w);
	ck_assert_int_eq(wire_call(w, FUSE_UNLINK, FUSE_ROOT_ID), -ENOENT);
	wire_begin(w);
	ck_assert_int_eq(wire_call(w, FUSE_READ, e.nodeid), 0);
	/* more data announced than sent */
	wire_begin(w);
	wire_put(w, &wr, sizeof(wr));
	wire_put(w, "x", 1);
	ck_assert_int_eq(wire_call(w, FUSE_WRITE, e.nodeid), -EINVAL);
	ck_assert_int_eq(wire_getattr(w, e.nodeid, &a), 0);
	ck_assert_uint_eq(a.attr.size, 5);
	wire_forget(w, e.nodeid, 1);
	stop_clean(w);
}
END_TEST

START_TEST(request_before_init)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, false);
	struct fuse_attr_out a;

	ck_assert_int_eq(wire_getattr(w, FUSE_ROOT_ID, &a), -EIO);
	stop_clean(w);
}
END_TEST

START_TEST(stopping_idle_readers)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, _i == 0);

	fs_stop(w->fs);
	wire_join(w);
	ck_assert_int_eq(w->result, 0);
	stop_clean(w);
}
END_TEST

START_TEST(stopping_answers_what_was_read)
{
	struct wire *w = wire_start(CACHE_TTL, &plain, true);
	struct ram_switches *s = ram_switches(w->cache);
	struct fuse_fsync_in in = { 0 };
	uint64_t sent[3];
	unsigned answered = 0;

	atomic_store(&s->hang, true);
	for (int i = 0; i < 3; i++) {
		wire_begin(w);
		wire_put(w, &in, sizeof(in));
		sent[i] = wire_send(w, FUSE_FSYNC, FUSE_ROOT_ID);
	}
	while (atomic_load(&s->waiting) < 3)
		sched_yield();
	fs_stop(w->fs);
	atomic_store(&s->hang, false);
	while (answered < 3) {
		struct fuse_out_header h;

		ck_assert_int_eq(recv(w->fd, &h, sizeof(h), 0), (ssize_t)sizeof(h));
		ck_assert(h.unique >= sent[0] && h.unique <= sent[2]);
		ck_assert_int_eq(h.error, 0);
		answered++;
	}
	stop_clean(w);
}
END_TEST

static Suite *loop_suite(void)
{
	Suite *s = suite_create("wire_loop");
	TCase *tc = tcase_create("loop");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, listing, 0, 4);
	tcase_add_test(tc, xattrs);
	tcase_add_loop_test(tc, no_capability_is_remembered, 0, 2);
	tcase_add_loop_test(tc, changed_invalidates, 0, 2);
	tcase_add_test(tc, hits_while_backing_hangs);
	tcase_add_test(tc, storm);
	tcase_add_test(tc, garbage);
	tcase_add_test(tc, request_before_init);
	tcase_add_loop_test(tc, stopping_idle_readers, 0, 2);
	tcase_add_test(tc, stopping_answers_what_was_read);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *r = srunner_create(loop_suite());
	int failed;

	log_set_level(LOG_LV_ERROR); /* garbage is warned about */
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
