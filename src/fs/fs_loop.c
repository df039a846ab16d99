/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Who serves a request.
 *
 * Readers, one a core, read /dev/fuse and answer what memory or flash can answer. They must not be
 * held up: a backing that hangs must not stop hits. Requests come in three kinds:
 *
 *   QUICK  never blocks: served by the reader.
 *   TRY    served by the reader with CACHE_NOWAIT. If it would block, the operation calls fs_defer()
 *          and returns; the message then goes to the pool and is parsed and served from the start,
 *          so that nothing but the message itself is ever carried from one thread to the other.
 *   POOL   may block on the backing: goes to the pool at once.
 *   LONG   the same, and takes its time also where the backing is fast: says nothing about that.
 *
 * A reader that reads flash sleeps for most of the time, and with many clients so do all of them
 * while requests wait. But readers that wait in the kernel's queue are woken in turn, on whatever
 * core: with one client two of them are faster than four. So there are as many helpers as readers,
 * which sleep elsewhere; a reader that begins a READ while no other waits for requests wakes one,
 * and it serves until there is nothing left to read.
 *
 * A message goes to the pool whole: small ones as a copy, large ones by swapping buffers.
 *
 * Going to the pool costs a thread switch, about 20 us, which is most of what a write or a miss on
 * a fast backing costs. So a reader runs what may block by itself while another reader is idle and
 * the backing has been quick lately (LONG apart): after a call that took longer than FS_QUICK_NS, none is run by
 * a reader for FS_PENALTY times as long (ten seconds at most). On a slow disk that is next to never,
 * and with a hanging backing one reader hangs and another goes on; a single reader runs none.
 *
 * Invariants:
 *   1. A request is answered exactly once: by the operation that did not call fs_defer(), or here
 *      when no operation saw it (garbage, INTERRUPT, no memory).
 *   2. A reader serves with `nowait` set, unless the kind is QUICK, or fs_may_inline(), or the pool
 *      cannot take the message (stopping, or too much memory in flight already: then blocking is the
 *      back-pressure).
 *   3. Fewer threads than there are readers run what may block at a time (fs_may_inline): one always
 *      comes back to read.
 *   4. READ and WRITE never wait for an invalidation: those have their own queue (fs_park.c).
 *
 * INTERRUPT is answered with ENOSYS: the kernel then sends no more of them and waits for the answer
 * it gets anyway. All reading is by plain read(2) of the session's descriptor, libfuse parses and
 * answers; so its own receive path (splice, allocation per request) is not used. A cloned
 * descriptor per reader would gain nothing measurable.
 *
 * Readers are stopped by a signal whose default is to be ignored (SIGURG): read(2) returns EINTR.
 * The signal is repeated until the thread is seen to end, so there is no race to lose; polling
 * beside each read would cost a system call a request.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/htab.h"
#include "base/log.h"
#include "base/signals.h"
#include "fs/fs_priv.h"

#define FS_WAKE_SIGNAL SIGURG
#define FS_OPCODE_TMPFILE 51 /* FUSE_TMPFILE, missing in older headers */
#define FS_WAKE_AGAIN_NS 10000000
#define FS_QUICK_NS 500000
#define FS_PENALTY 100
#define FS_PENALTY_MAX_NS (10 * NS_PER_S)

enum fs_kind { FS_QUICK, FS_TRY, FS_POOL, FS_LONG };

static enum fs_kind fs_kind_of(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_LOOKUP:
	case FUSE_GETATTR:
	case FUSE_READ:
	case FUSE_GETXATTR:
		return FS_TRY;
	case FUSE_INIT:
	case FUSE_DESTROY:
	case FUSE_OPEN:
	case FUSE_FLUSH:
	case FUSE_RELEASE:
	case FUSE_INTERRUPT:
		return FS_QUICK;
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
		return FS_LONG;
	default:
		return FS_POOL;
	}
}

/* TMPFILE has the form of CREATE, in question and answer, and O_TMPFILE among its flags, by which the
 * operation knows it. libfuse before 3.17 does not know it. */
static void fs_tmpfile_as_create(struct fs_msg *m, struct fuse_in_header *in)
{
	struct fuse_create_in c;

	if (m->len < sizeof(*in) + sizeof(c))
		return;
	memcpy(&c, m->data + sizeof(*in), sizeof(c));
	if ((c.flags & O_TMPFILE) != O_TMPFILE)
		return;
	in->opcode = FUSE_CREATE;
	memcpy(m->data, in, sizeof(*in));
}

static void fs_count(struct fs *f, uint32_t opcode)
{
	stats_inc(f->stats, fuse_requests);
	if (opcode == FUSE_LOOKUP)
		stats_inc(f->stats, fuse_lookups);
	else if (opcode == FUSE_GETATTR)
		stats_inc(f->stats, fuse_getattrs);
	else if (opcode == FUSE_READ)
		stats_inc(f->stats, fuse_reads);
}

static void fs_reply_raw(struct fs *f, uint64_t unique, int err)
{
	struct fuse_out_header out = { .len = sizeof(out), .error = -err, .unique = unique };

	if (write(fuse_session_fd(f->session), &out, sizeof(out)) < 0)
		log_debug("fs", "a request was gone before it was refused: %m");
}

void fs_thread_free(void *arg)
{
	struct fs_thread *t = arg;

	free(t->reply);
	free(t);
}

struct fs_thread *fs_self(struct fs *f)
{
	struct fs_thread *t = pthread_getspecific(f->self);

	if (t)
		return t;
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->fs = f;
	t->reply = malloc(FS_MAX_IO);
	if (!t->reply || pthread_setspecific(f->self, t) != 0) {
		fs_thread_free(t);
		return NULL;
	}
	return t;
}

bool fs_defer(struct fs_thread *t, fuse_req_t req, long err)
{
	if (err != -EAGAIN || !t->nowait)
		return false;
	t->again = true;
	fuse_reply_none(req);
	return true;
}

bool fs_within(const struct fs_thread *t, const void *p, size_t len)
{
	size_t at = (size_t)((const char *)p - t->msg->data);

	return at <= t->msg->len && len <= t->msg->len - at;
}

static void fs_serve(struct fs_thread *t, struct fs_msg *m, bool nowait)
{
	struct fuse_buf buf = { .size = m->len, .mem = m->data };

	t->msg = m;
	t->nowait = nowait;
	t->again = false;
	fuse_session_process_buf(t->fs->session, &buf);
}

static void fs_pool_run(struct work *w)
{
	struct fs_msg *m = container_of(w, struct fs_msg, work);
	struct fs *f = m->fs;
	struct fs_thread *t = fs_self(f);

	if (t)
		fs_serve(t, m, false);
	else
		fs_reply_raw(f, ((struct fuse_in_header *)m->data)->unique, ENOMEM);
	fs_msg_put(m);
}

/* Claims the right to block: `idle` alone is a guess, for who is counted there may have a message
 * already and claim as well. Fewer than there are readers may, so one is always left to read. */
static bool fs_may_inline(struct fs *f)
{
	if (atomic_load(&f->idle) == 0 || clock_mono_ns() < atomic_load(&f->inline_from))
		return false;
	if (atomic_fetch_add(&f->inlining, 1) + 1 < f->readers)
		return true;
	atomic_fetch_sub(&f->inlining, 1);
	return false;
}

/* Times the calling thread gave up its core to wait for something. */
static long fs_waits(void)
{
	struct rusage u;

	return getrusage(RUSAGE_THREAD, &u) == 0 ? u.ru_nvcsw : 0;
}

static void fs_serve_inline(struct fs_thread *t)
{
	struct fs *f = t->fs;
	uint64_t start = clock_mono_ns(), end;
	long waits = fs_waits();

	fs_serve(t, t->msg, false);
	atomic_fetch_sub(&f->inlining, 1);
	end = clock_mono_ns();
	/* A busy machine is no slow backing: only who waited has waited for it. */
	if (end - start > FS_QUICK_NS && fs_waits() != waits) {
		uint64_t penalty = (end - start) * FS_PENALTY;

		atomic_store(&f->inline_from,
			     end + (penalty < FS_PENALTY_MAX_NS ? penalty : FS_PENALTY_MAX_NS));
	}
}

/* Hands the reader's message to the pool; serves it here if the pool cannot take it. */
static void fs_to_pool(struct fs_thread *t)
{
	struct fs *f = t->fs;
	struct fs_msg *m = t->msg, *other;
	bool copied = m->len <= FS_MSG_COPY;

	other = copied ? fs_msg_copy(m) : fs_msg_get_big(f);
	if (!other) {
		fs_serve(t, m, false);
		return;
	}
	stats_inc(f->stats, fuse_pooled);
	if (copied) {
		other->work.run = fs_pool_run;
		if (workq_submit(f->pool, &other->work) == 0)
			return;
	} else {
		m->work.run = fs_pool_run;
		if (workq_submit(f->pool, &m->work) == 0) {
			t->msg = other;
			return;
		}
	}
	fs_msg_put(other);
	fs_serve(t, m, false);
}

static void fs_serve_blocking(struct fs_thread *t)
{
	if (fs_may_inline(t->fs))
		fs_serve_inline(t);
	else
		fs_to_pool(t);
}

static void fs_before_init(struct fs *f, const struct fs_msg *m)
{
	struct fuse_init_in init = { 0 };
	size_t have = m->len - sizeof(struct fuse_in_header);

	memcpy(&init, m->data + sizeof(struct fuse_in_header),
	       have < sizeof(init) ? have : sizeof(init));
	if (init.flags & FUSE_PARALLEL_DIROPS)
		atomic_store(&f->init_unique,
			     ((const struct fuse_in_header *)m->data)->unique);
}

static void fs_after_init(struct fs *f)
{
	atomic_store(&f->init_unique, 0);
	if (atomic_exchange(&f->initialised, true))
		return; /* a second INIT: libfuse has refused it */
	if (fuse_session_exited(f->session)) {
		atomic_store(&f->error, -EPROTO);
		atomic_store(&f->ended, true);
	} else {
		atomic_store(&f->ready, true);
	}
	sem_post(&f->wake);
}

static void fs_wake_helper(struct fs *f)
{
	unsigned n = atomic_load(&f->asleep);

	if (n && !atomic_load(&f->idle) && atomic_compare_exchange_strong(&f->asleep, &n, n - 1))
		sem_post(&f->help);
}

static void fs_dispatch(struct fs_thread *t)
{
	struct fs *f = t->fs;
	struct fs_msg *m = t->msg;
	struct fuse_in_header in;
	enum fs_kind kind;

	if (m->len < sizeof(in)) {
		log_warning("fs", "a request of %zu bytes has no header: ignored", m->len);
		return;
	}
	memcpy(&in, m->data, sizeof(in));
	if (in.len != m->len) {
		log_warning("fs", "request %u says %u bytes but has %zu: refused", in.opcode,
			    in.len, m->len);
		fs_reply_raw(f, in.unique, EIO);
		return;
	}
	memset(m->data + m->len, 0, FS_MSG_SLACK);
	if (in.opcode == FS_OPCODE_TMPFILE)
		fs_tmpfile_as_create(m, &in);
	fs_count(f, in.opcode);
	kind = fs_kind_of(in.opcode);
	if (in.opcode == FUSE_INIT)
		fs_before_init(f, m);
	if (in.opcode == FUSE_READ)
		fs_wake_helper(f);
	if (in.opcode == FUSE_INTERRUPT) {
		fs_reply_raw(f, in.unique, ENOSYS);
	} else if (kind == FS_POOL) {
		fs_serve_blocking(t);
	} else if (kind == FS_LONG) {
		fs_to_pool(t);
	} else {
		fs_serve(t, m, kind == FS_TRY);
		if (t->again)
			fs_serve_blocking(t);
	}
	if (in.opcode == FUSE_INIT)
		fs_after_init(f);
}

/* Bytes read; 0 at the end of the connection or when told to stop; or an error. */
static ssize_t fs_receive(struct fs *f, struct fs_msg *m)
{
	while (!atomic_load(&f->ended)) {
		ssize_t n;
		int err;

		atomic_fetch_add(&f->idle, 1);
		n = read(fuse_session_fd(f->session), m->data, FS_MSG_ROOM);
		err = errno;
		atomic_fetch_sub(&f->idle, 1);
		if (n >= 0)
			return n;
		if (err == ENODEV || err == ECONNABORTED || err == ECONNRESET)
			return 0;
		/* ENOENT: the request was interrupted before it was read. */
		if (err != EINTR && err != ENOENT && err != EAGAIN)
			return -err;
	}
	return 0;
}

/* Until there is something to read; false: told to stop. */
static bool fs_helper_wait(struct fs *f)
{
	struct pollfd p = { .fd = fuse_session_fd(f->session), .events = POLLIN };

	while (!atomic_load(&f->ended)) {
		if (poll(&p, 1, 0) > 0)
			return true;
		atomic_fetch_add(&f->asleep, 1);
		while (sem_wait(&f->help) < 0 && !atomic_load(&f->ended))
			continue;
	}
	return false;
}

static void *fs_reader_run(void *arg)
{
	struct fs_thread *t = arg;
	struct fs *f = t->fs;
	ssize_t n = 0;

	pthread_setspecific(f->self, t);
	while ((!t->helper || fs_helper_wait(f)) && (n = fs_receive(f, t->msg)) > 0) {
		t->msg->len = (size_t)n;
		fs_dispatch(t);
	}
	if (n < 0) {
		log_error("fs", "reading requests failed: %s", strerror((int)-n));
		atomic_store(&f->error, (int)n);
	}
	pthread_setspecific(f->self, NULL);
	atomic_store(&f->ended, true);
	atomic_store(&t->done, true);
	sem_post(&f->wake);
	return NULL;
}

static void fs_wake_handler(int sig)
{
	(void)sig;
}

static int fs_reader_start(struct fs *f, struct fs_thread *t)
{
	t->fs = f;
	t->msg = fs_msg_get_big(f);
	t->reply = fs_buffer_map(FS_MAX_IO);
	if (!t->msg || !t->reply)
		return -ENOMEM;
	if (pthread_create(&t->id, NULL, fs_reader_run, t) != 0)
		return -EAGAIN;
	t->started = true;
	pthread_setname_np(t->id, "gild-reader");
	return 0;
}

int fs_loop_start(struct fs *f)
{
	struct sigaction wake = { .sa_handler = fs_wake_handler };
	sigset_t wakes, old;
	int err = 0;

	f->threads = calloc(f->readers + f->helpers, sizeof(*f->threads));
	if (!f->threads)
		return -ENOMEM;
	sigaction(FS_WAKE_SIGNAL, &wake, &f->old_action);
	/* Everything else is for the thread in fs_run. */
	signals_block(&old);
	sigemptyset(&wakes);
	sigaddset(&wakes, FS_WAKE_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &wakes, NULL);
	for (unsigned i = 0; i < f->readers + f->helpers && !err; i++) {
		f->threads[i].helper = i >= f->readers;
		err = fs_reader_start(f, &f->threads[i]);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}

static void fs_reader_stop(struct fs *f, struct fs_thread *t)
{
	while (t->started && !atomic_load(&t->done)) {
		struct timespec until;

		pthread_kill(t->id, FS_WAKE_SIGNAL);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += FS_WAKE_AGAIN_NS;
		if (until.tv_nsec >= 1000000000) {
			until.tv_sec++;
			until.tv_nsec -= 1000000000;
		}
		(void)sem_timedwait(&f->wake, &until);
	}
	if (t->started)
		pthread_join(t->id, NULL);
	fs_msg_put(t->msg);
	fs_buffer_unmap(t->reply, FS_MAX_IO);
}

void fs_loop_stop(struct fs *f)
{
	atomic_store(&f->ended, true);
	for (unsigned i = 0; f->threads && i < f->readers + f->helpers; i++)
		fs_reader_stop(f, &f->threads[i]);
	if (f->threads)
		sigaction(FS_WAKE_SIGNAL, &f->old_action, NULL);
	free(f->threads);
	f->threads = NULL;
}
