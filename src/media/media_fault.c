/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The fault injector: a medium with a volatile write cache, a power switch and bad luck.
 *
 * The lower medium is the durable image. Writes and discards are entries of a list, the volatile
 * cache, in the order of the calls; a read is the image with the list laid over it; a flush brings
 * the list into the image and empties it. A power cut decides for each entry, and for each of its
 * 512-byte pieces, whether it reached the image. All luck comes from one seeded generator that is
 * only asked under the lock, so a single-threaded test repeats exactly.
 *
 * 1. the image changes only in flush, restore and flip; what a true flush brought in stays;
 * 2. entries settle in list order, so of two writes to one piece the later one wins if both do;
 * 3. a call is counted before anything else about it is decided; a dead or cut medium counts none;
 * 4. a failing write may have written any of its pieces; a failing flush has lost any of the
 *    entries; a discarded range reads as before, as zeros or as rubbish: callers are promised
 *    nothing in these cases, and get the worst of it here.
 *
 * The lock is held over calls into the lower medium, so that an entry settles in one step; the file
 * medium's lock ranks above. A fault injector over another one is not supported.
 */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/log.h"
#include "media/media_priv.h"

#define MEDIA_PIECE 512          /* what a device writes whole or not at all */
#define MEDIA_CHUNK (256u << 10) /* an entry settles in chunks of this */
#define MEDIA_RUBBISH 0xd5

enum media_tear { MEDIA_WHOLE, MEDIA_TORN_PREFIX, MEDIA_TORN_PIECES };

struct media_entry {
	struct media_entry *next;
	uint64_t off, len;
	char *data; /* aligned; NULL: every byte is `fill` */
	unsigned char fill;
};

struct media_fault {
	struct media base;
	struct media *lower;

	struct lock lock; /* protects the members below */
	uint64_t random;
	struct media_entry *head, **tail;
	uint64_t entries;
	uint64_t calls, cut_at;
	bool cut, dead, lying;
	uint64_t delay_ns;
	struct {
		uint64_t nth; /* 0: not armed */
		int error;
	} fail[MEDIA_OPS];
	uint64_t misdirect_nth;
	int64_t misdirect_shift;
	char *chunk; /* MEDIA_CHUNK bytes for settling */
};

/* splitmix64 */
static uint64_t media_fault_random(struct media_fault *f, uint64_t below)
{
	f->random += 0x9e3779b97f4a7c15ULL;
	return hash_mix64(f->random) % below;
}

static void media_fault_pause(struct media_fault *f)
{
	struct timespec ts;
	uint64_t ns;

	lock_acquire(&f->lock);
	ns = f->delay_ns;
	lock_release(&f->lock);
	if (!ns)
		return;
	ts.tv_sec = (time_t)(ns / NS_PER_S);
	ts.tv_nsec = (long)(ns % NS_PER_S);
	while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
		;
}

/* Counts a call. 0: go on; *cut: the power goes during this very call. */
static int media_fault_enter(struct media_fault *f, enum media_fault_op op, bool *cut)
{
	*cut = false;
	if (f->dead || f->cut)
		return -EIO;
	if (op != MEDIA_OP_READ) {
		f->calls++;
		if (f->cut_at && f->calls >= f->cut_at) {
			f->cut = true;
			*cut = true;
			return -EIO;
		}
	}
	if (f->fail[op].nth && --f->fail[op].nth == 0)
		return f->fail[op].error;
	return 0;
}

static void media_entry_free(struct media_entry *e)
{
	free(e->data);
	free(e);
}

static struct media_entry *media_entry_new(const void *data, unsigned char fill, uint64_t len,
					   uint64_t off)
{
	struct media_entry *e = calloc(1, sizeof(*e));
	void *copy;

	if (!e)
		return NULL;
	e->off = off;
	e->len = len;
	e->fill = fill;
	if (data) {
		if (posix_memalign(&copy, MEDIA_ALIGN, len)) {
			free(e);
			return NULL;
		}
		e->data = memcpy(copy, data, len);
	}
	return e;
}

static void media_fault_append(struct media_fault *f, struct media_entry *e)
{
	*f->tail = e;
	f->tail = &e->next;
	f->entries++;
}

/* Copies bytes [at, at+n) of the entry to `to`. */
static void media_entry_copy(const struct media_entry *e, uint64_t at, char *to, size_t n)
{
	if (e->data)
		memcpy(to, e->data + at, n);
	else
		memset(to, e->fill, n);
}

/* Lays the list over [off, off+len) of the image. */
static void media_fault_overlay(const struct media_fault *f, char *buf, size_t len, uint64_t off)
{
	const struct media_entry *e;

	for (e = f->head; e; e = e->next) {
		uint64_t from = e->off > off ? e->off : off;
		uint64_t to = e->off + e->len < off + len ? e->off + e->len : off + len;

		if (from < to)
			media_entry_copy(e, from - e->off, buf + (from - off), (size_t)(to - from));
	}
}

static int media_fault_view(struct media_fault *f, char *buf, size_t len, uint64_t off)
{
	int rc = media_read(f->lower, buf, len, off);

	if (rc == 0)
		media_fault_overlay(f, buf, len, off);
	return rc;
}

/* Brings an entry into the image; torn, only the first `prefix` pieces or a coin's choice. */
static int media_fault_settle(struct media_fault *f, const struct media_entry *e,
			      enum media_tear tear, uint64_t prefix)
{
	uint64_t at;
	int rc = 0;

	for (at = 0; at < e->len && rc == 0; at += MEDIA_CHUNK) {
		size_t n = e->len - at < MEDIA_CHUNK ? (size_t)(e->len - at) : MEDIA_CHUNK, i;

		if (tear == MEDIA_WHOLE) {
			media_entry_copy(e, at, f->chunk, n);
		} else {
			rc = media_read(f->lower, f->chunk, n, e->off + at);
			for (i = 0; i < n && rc == 0; i += MEDIA_PIECE) {
				bool kept = tear == MEDIA_TORN_PREFIX
						    ? (at + i) / MEDIA_PIECE < prefix
						    : media_fault_random(f, 2) == 1;

				if (kept)
					media_entry_copy(e, at + i, f->chunk + i, MEDIA_PIECE);
			}
		}
		if (rc == 0)
			rc = media_write(f->lower, f->chunk, n, e->off + at);
	}
	return rc;
}

static void media_fault_clear(struct media_fault *f)
{
	struct media_entry *e;

	while ((e = f->head)) {
		f->head = e->next;
		media_entry_free(e);
	}
	f->tail = &f->head;
	f->entries = 0;
}

static int media_fault_read(struct media *m, void *buf, size_t len, uint64_t off)
{
	struct media_fault *f = (struct media_fault *)m;
	bool cut;
	int rc;

	media_fault_pause(f);
	lock_acquire(&f->lock);
	rc = media_fault_enter(f, MEDIA_OP_READ, &cut);
	if (rc == 0)
		rc = media_fault_view(f, buf, len, off);
	lock_release(&f->lock);
	return rc;
}

/* Where the next write lands. UINT64_MAX: off the medium, so the write is lost. */
static uint64_t media_fault_aim(struct media_fault *f, uint64_t off, uint64_t len)
{
	uint64_t to;

	if (!f->misdirect_nth || --f->misdirect_nth)
		return off;
	to = off + (uint64_t)f->misdirect_shift;
	return to < f->base.size && len <= f->base.size - to ? to : UINT64_MAX;
}

/* What a failing write leaves behind: nothing, or some of its pieces between the old ones. */
static int media_fault_mangle(struct media_fault *f, struct media_entry *e)
{
	uint64_t i;
	int rc;

	for (i = 0; i < e->len; i += MEDIA_PIECE) {
		if (media_fault_random(f, 2))
			continue;
		rc = media_fault_view(f, e->data + i, MEDIA_PIECE, e->off + i);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int media_fault_write_locked(struct media_fault *f, const void *buf, size_t len,
				    uint64_t off)
{
	struct media_entry *e;
	bool cut;
	int rc = media_fault_enter(f, MEDIA_OP_WRITE, &cut);

	if (rc < 0 && !cut && (f->dead || f->cut || media_fault_random(f, 2)))
		return rc;
	if (rc == 0)
		off = media_fault_aim(f, off, len);
	if (off == UINT64_MAX)
		return 0;
	e = media_entry_new(buf, 0, len, off);
	if (!e)
		return -ENOMEM;
	if (rc < 0 && !cut && media_fault_mangle(f, e) < 0)
		media_entry_free(e);
	else
		media_fault_append(f, e);
	return rc;
}

static int media_fault_write(struct media *m, const void *buf, size_t len, uint64_t off)
{
	struct media_fault *f = (struct media_fault *)m;
	int rc;

	media_fault_pause(f);
	lock_acquire(&f->lock);
	rc = media_fault_write_locked(f, buf, len, off);
	lock_release(&f->lock);
	return rc;
}

/* Each entry is lost with a chance of one half; the rest stay for the next flush. */
static void media_fault_lose_some(struct media_fault *f)
{
	struct media_entry **p = &f->head, *e;

	while ((e = *p)) {
		if (media_fault_random(f, 2)) {
			p = &e->next;
			continue;
		}
		*p = e->next;
		media_entry_free(e);
		f->entries--;
	}
	f->tail = p;
}

static int media_fault_flush_locked(struct media_fault *f)
{
	struct media_entry *e;
	bool cut;
	int rc = media_fault_enter(f, MEDIA_OP_FLUSH, &cut);

	if (rc < 0) {
		if (!f->cut && !f->dead)
			media_fault_lose_some(f);
		return rc;
	}
	if (f->lying)
		return 0;
	for (e = f->head; e && rc == 0; e = e->next)
		rc = media_fault_settle(f, e, MEDIA_WHOLE, 0);
	if (rc == 0)
		rc = media_flush(f->lower);
	if (rc == 0)
		media_fault_clear(f);
	return rc;
}

static int media_fault_flush(struct media *m)
{
	struct media_fault *f = (struct media_fault *)m;
	int rc;

	media_fault_pause(f);
	lock_acquire(&f->lock);
	rc = media_fault_flush_locked(f);
	lock_release(&f->lock);
	return rc;
}

static int media_fault_discard_locked(struct media_fault *f, uint64_t off, uint64_t len)
{
	static const unsigned char fill[] = {0, MEDIA_RUBBISH};
	struct media_entry *e;
	uint64_t choice;
	bool cut;
	int rc = media_fault_enter(f, MEDIA_OP_DISCARD, &cut);

	if (rc < 0 && !cut)
		return rc;
	choice = media_fault_random(f, 3);
	if (choice == 2) /* the old bytes stay */
		return rc;
	e = media_entry_new(NULL, fill[choice], len, off);
	if (!e)
		return -ENOMEM;
	media_fault_append(f, e);
	return rc;
}

static int media_fault_discard(struct media *m, uint64_t off, uint64_t len)
{
	struct media_fault *f = (struct media_fault *)m;
	int rc;

	media_fault_pause(f);
	lock_acquire(&f->lock);
	rc = media_fault_discard_locked(f, off, len);
	lock_release(&f->lock);
	return rc;
}

static void media_fault_close(struct media *m)
{
	struct media_fault *f = (struct media_fault *)m;

	media_fault_clear(f);
	media_close(f->lower);
	lock_destroy(&f->lock);
	free(f->chunk);
	free(f);
}

static const struct media_ops media_fault_ops = {
	.read = media_fault_read,
	.write = media_fault_write,
	.flush = media_fault_flush,
	.discard = media_fault_discard,
	.close = media_fault_close,
};

int media_open_fault(struct media **out, struct media_fault **ctl, struct media *lower,
		     uint64_t seed)
{
	struct media_fault *f = calloc(1, sizeof(*f));
	void *chunk;

	*out = NULL;
	*ctl = NULL;
	if (!f || posix_memalign(&chunk, MEDIA_ALIGN, MEDIA_CHUNK)) {
		free(f);
		return -ENOMEM;
	}
	f->base.ops = &media_fault_ops;
	f->base.size = lower->size;
	f->base.readonly = lower->readonly;
	f->lower = lower;
	f->random = seed;
	f->tail = &f->head;
	f->chunk = chunk;
	lock_init(&f->lock, "media fault", RANK_MEDIA);
	*out = &f->base;
	*ctl = f;
	return 0;
}

uint64_t media_fault_calls(const struct media_fault *f)
{
	struct lock *l = (struct lock *)(uintptr_t)&f->lock;
	uint64_t n;

	lock_acquire(l);
	n = f->calls;
	lock_release(l);
	return n;
}

void media_fault_cut_at(struct media_fault *f, uint64_t call)
{
	lock_acquire(&f->lock);
	f->cut_at = call;
	lock_release(&f->lock);
}

bool media_fault_is_cut(const struct media_fault *f)
{
	struct lock *l = (struct lock *)(uintptr_t)&f->lock;
	bool cut;

	lock_acquire(l);
	cut = f->cut;
	lock_release(l);
	return cut;
}

static int media_fault_survive(struct media_fault *f, const struct media_entry *e, uint64_t index,
			       uint64_t prefix, enum media_cut_keep keep)
{
	switch (keep) {
	case MEDIA_KEEP_NONE:
		return 0;
	case MEDIA_KEEP_ALL:
		return media_fault_settle(f, e, MEDIA_WHOLE, 0);
	case MEDIA_KEEP_PREFIX:
		if (index >= prefix)
			return 0;
		if (index + 1 < prefix)
			return media_fault_settle(f, e, MEDIA_WHOLE, 0);
		return media_fault_settle(f, e, MEDIA_TORN_PREFIX,
					  media_fault_random(f, e->len / MEDIA_PIECE + 1));
	case MEDIA_KEEP_SUBSET:
		switch (media_fault_random(f, 4)) {
		case 0:
			return media_fault_settle(f, e, MEDIA_TORN_PIECES, 0);
		case 1:
			return media_fault_settle(f, e, MEDIA_WHOLE, 0);
		default:
			return 0;
		}
	}
	return 0;
}

void media_fault_restore(struct media_fault *f, enum media_cut_keep keep)
{
	struct media_entry *e;
	uint64_t prefix, i = 0;

	lock_acquire(&f->lock);
	prefix = keep == MEDIA_KEEP_PREFIX ? media_fault_random(f, f->entries + 1) : 0;
	for (e = f->head; e; e = e->next)
		gild_assert(media_fault_survive(f, e, i++, prefix, keep) == 0);
	media_fault_clear(f);
	f->cut = false;
	f->cut_at = 0;
	lock_release(&f->lock);
}

int media_fault_event(struct media_fault *f)
{
	bool cut;
	int rc;

	media_fault_pause(f);
	lock_acquire(&f->lock);
	rc = media_fault_enter(f, MEDIA_OP_EVENT, &cut);
	lock_release(&f->lock);
	return rc;
}

void media_fault_fail(struct media_fault *f, enum media_fault_op op, uint64_t nth, int error)
{
	gild_assert(op < MEDIA_OPS && error < 0);
	lock_acquire(&f->lock);
	f->fail[op].nth = nth;
	f->fail[op].error = error;
	lock_release(&f->lock);
}

void media_fault_flip(struct media_fault *f, uint64_t byte_off, unsigned bit)
{
	uint64_t page = media_align_down(byte_off);

	gild_assert(byte_off < f->base.size && bit < 8);
	lock_acquire(&f->lock);
	gild_assert(media_read(f->lower, f->chunk, MEDIA_ALIGN, page) == 0);
	f->chunk[byte_off - page] = (char)((unsigned char)f->chunk[byte_off - page] ^ 1u << bit);
	gild_assert(media_write(f->lower, f->chunk, MEDIA_ALIGN, page) == 0);
	lock_release(&f->lock);
}

void media_fault_kill(struct media_fault *f, bool dead)
{
	lock_acquire(&f->lock);
	f->dead = dead;
	lock_release(&f->lock);
}

void media_fault_delay(struct media_fault *f, uint64_t ns)
{
	lock_acquire(&f->lock);
	f->delay_ns = ns;
	lock_release(&f->lock);
}

void media_fault_lie(struct media_fault *f, bool on)
{
	lock_acquire(&f->lock);
	f->lying = on;
	lock_release(&f->lock);
}

void media_fault_misdirect(struct media_fault *f, uint64_t nth_write, int64_t shift)
{
	gild_assert(shift % MEDIA_ALIGN == 0);
	lock_acquire(&f->lock);
	f->misdirect_nth = nth_write;
	f->misdirect_shift = shift;
	lock_release(&f->lock);
}
