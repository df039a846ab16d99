/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Inside the cache: its objects, who protects what, and the calls between its files.
 *
 * One file's life has two locks, because 1.5 million files must be known in little memory:
 *
 * - its *stripe* (one of CACHE_STRIPES mutexes, by address) protects the members of struct cnode.
 *   It is held for nanoseconds and never over a call to flash or backing.
 * - its *section* is one bit of the cnode: whoever is in it may sleep, on flash and on the backing.
 *   Everything that changes the file, its records or its lines on flash is done in the section, so
 *   flash's rule (overlapping calls do not run at once) holds. Readers never enter it. A thread in
 *   two sections entered that of the lower address first.
 *
 * Invariants of a regular file's cnode (G is n->gen, V the version in n's attributes: size, mtime,
 * ctime, inode number):
 *
 * 1. G is odd while a change of our own is under way, and only then; the changer is in the section.
 *    Every change of V or of the bytes passes through a new G.
 * 2. What flash holds under n->number are bytes of V, or is gone; while G is odd, of the version
 *    before or after the change. So attributes are replaced only where G did not move meanwhile,
 *    and with a V of somebody else's making n->number goes, too (cnode_learn).
 * 3. A file number never gets a second life: whatever makes its lines worthless as a whole takes
 *    the number out of the cnode. (An epoch floor could come back older after a power cut, since
 *    records of two controllers have no common order; a number nobody names cannot.)
 * 4. A file record on flash is trusted by a later mount only if its state is `published` and its V
 *    is what the backing says. CN_SAFE: no such record of this file can be durable on flash, or
 *    none that the backing can ever agree with. It holds before the first byte is written to the
 *    backing.
 * 5. A record is published only after the backing was synced, V was read again unchanged, and
 *    flash was flushed.
 */
#ifndef GILD_CACHE_PRIV_H
#define GILD_CACHE_PRIV_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/htab.h"
#include "base/lock.h"
#include "base/workq.h"
#include "cache/cache.h"
#include "cache/cache_policy.h"

#define CACHE_STRIPES 1024u
#define CACHE_FLIGHT_BUCKETS 64u
#define CACHE_SMALL_FILE (1u << 20)  /* files up to this are read in whole lines */
#define CACHE_SPAN (1u << 20)        /* most bytes of one step of a read */
#define CACHE_SPAN_SECTORS (CACHE_SPAN / FLASH_SECTOR)
#define CACHE_NUMBER_BLOCK 4096u     /* file numbers reserved at once */
#define CACHE_DURABLE_NS (120 * NS_PER_S) /* a change this old is on the backing's disk */
#define CACHE_GRANULE_NS (10 * NS_PER_MS) /* of the kernel's file timestamps */
#define CACHE_SETTLE_NS (250 * NS_PER_MS)
#define CACHE_FOREVER_NS (3600 * NS_PER_S) /* what the kernel may keep with CACHE_EXCLUSIVE */

enum cnode_flags {
	CN_ATTR = 1 << 0,    /* attributes were read at least once */
	CN_BUSY = 1 << 1,    /* somebody is in the section */
	CN_WAITED = 1 << 2,  /* somebody waits for it */
	CN_LOADED = 1 << 3,  /* flash was asked for the file's record */
	CN_RECORD = 1 << 4,  /* flash may have lines of `number`, and has a record of it, or ... */
	CN_OPEN = 1 << 5,    /* ... none or one of state `open`: n->open is the publisher's entry */
	CN_SAFE = 1 << 6,    /* invariant 4 */
	CN_CHANGED = 1 << 7, /* the data changed behind the mount and nobody was told yet */
	CN_OWN = 1 << 8,     /* the last change of the data was made through the mount */
	CN_GONE = 1 << 9,    /* its last link was removed through the mount */
	CN_UNSURE = 1 << 10, /* the attributes may have moved since `verified` */
	CN_UNTOLD = 1 << 11, /* size or mtime may differ from what the kernel was told last */
	CN_UNSEEN = 1 << 12, /* with CHANGED: cache_attr's `unseen` */
	CN_TOLD = 1 << 13,   /* with CHANGED: a READ said so already, or shall not */
	CN_YOUNG = 1 << 14,  /* bytes were given out while they could still move: see cversion_settles */
	CN_DROPPED = 1 << 15, /* the next change to be found needs no telling: see cache_invalidate */
	CN_SWEEP_SHIFT = 16, /* above: low bits of cache.sweeps when the record was put */
};

#define CN_SWEEP_MASK (0xffffu << CN_SWEEP_SHIFT)

struct cnode {
	struct htab_node node; /* in cache.nodes, by bnode; protected by cache.table_lock */
	struct bnode *bnode;   /* constant; held */
	_Atomic uint64_t refs; /* falls to 0 only under cache.table_lock */

	/* protected by the stripe */
	uint64_t ino, size;
	uint64_t blocks; /* of devices: st_rdev */
	int64_t asec, msec, csec;
	uint32_t ansec, mnsec, cnsec;
	uint32_t mode, nlink, uid, gid, blksize;
	uint64_t verified; /* monotonic: answers of the backing asked for later are newer than ours */
	uint64_t number;   /* 0: none */
	struct copen *open;
	uint32_t epoch, floor;
	uint32_t gen;
	uint32_t flags; /* enum cnode_flags */
};

struct cversion { /* what makes two states of a file the same */
	uint64_t ino, size;
	int64_t msec, csec;
	uint32_t mnsec, cnsec;
};

struct copen { /* the publisher's knowledge of a file whose record is open */
	struct copen *next; /* cache.open_lock */
	struct cnode *n;    /* held */
	uint64_t number;    /* constant: whose record was opened */
	uint64_t touched;   /* monotonic; protected by n's stripe */
	bool indexed;       /* it has a record FLASH_CTL_OPEN; in n's section */
};

struct cdead { /* a file number whose space can be had back */
	struct cdead *next;
	struct cnode *n; /* held, or NULL: its section orders the trim after whoever still writes */
	uint64_t number;
	struct hash128 key;
	bool forget; /* the object is gone: delete its record, too */
};

struct cstripe {
	struct lock lock;
	struct lock_cond cond; /* sections became free */
} __attribute__((aligned(128)));

struct cflight_bucket {
	struct lock lock;
	struct lock_cond cond; /* a read has come back */
	struct cflight *head;
};

#define CACHE_RECORD_LOCKS 16u
#define CACHE_UNTRUSTED 256u

#define CACHE_POOL_CLASSES 6 /* 64 KiB .. 2 MiB */

struct cpool { /* buffers are kept: touching fresh memory costs more than reading a hit */
	struct lock lock;
	void *free[CACHE_POOL_CLASSES];
	size_t kept, limit; /* bytes */
};

struct cache {
	/* constant after opening */
	struct flash *flash; /* NULL: everything passes through */
	struct backing *backing;
	struct stats *stats;
	struct cache_options o;
	struct cnode *root;
	struct policy *policy;
	struct workq *fills;
	uint64_t mount; /* random: tells records of this mount from older ones */
	struct cstripe *stripes;
	struct cflight_bucket *flights;

	_Atomic uint64_t stamp;      /* the last one drawn */
	_Atomic uint64_t fill_used;  /* bytes waiting in the fill queue */
	_Atomic uint64_t filled;     /* bytes, ever */
	_Atomic unsigned used_percent; /* of flash */
	_Atomic uint64_t sweeps;     /* moves when records may have been deleted (cache_sweep.c) */
	_Atomic uint64_t sweep_left; /* control records after the last sweep */
	_Atomic uint64_t flash_errors;
	_Atomic uint64_t bypass_until; /* monotonic; flash is not read or filled before that */
	_Atomic uint64_t warned;       /* when the last rate-limited warning was written */
	struct cpool pool;

	struct lock table_lock;
	struct htab nodes;

	struct lock record_locks[CACHE_RECORD_LOCKS]; /* by key; held over flash's ctl_put */
	/* Changes that took a file record's trust away: the last one by the key's first byte, all
	 * that were made, those that a commit covered (cache_file.c). */
	_Atomic uint64_t untrusted[CACHE_UNTRUSTED], untrusts, untrusts_durable;
	struct lock number_lock; /* held over flash's ctl_put and flush */
	uint64_t number_next, number_limit;

	struct lock commit_lock; /* group commit of flash flushes */
	struct lock_cond commit_cond;
	uint64_t commit_asked, commit_done;
	bool commit_running;
	int commit_error;

	struct lock stream_lock;
	struct cstream *streams;

	struct lock known_lock;
	struct cknown_slot *known;      /* NULL: none are kept */
	_Atomic uint64_t known_changes; /* rises under known_lock */

	struct lock round_lock; /* one publishing round at a time; held over flash and backing */
	pthread_t publisher;
	struct lock open_lock;
	struct lock_cond open_cond;
	struct copen *opens;
	struct cdead *deads;
	bool publisher_started, stopping, sweep_wanted;
};

/* ---- cache.c ---- */
uint64_t cache_stamp(struct cache *c);
/* Counts an error of flash; after several in a row flash is left alone for a while. */
void cache_flash_failed(struct cache *c, const char *what, int error);
void cache_flash_worked(struct cache *c);
bool cache_flash_usable(struct cache *c);
/* True at most once in ten seconds. */
bool cache_may_warn(struct cache *c);
void cache_note_usage(struct cache *c);
/* All flash calls that returned before this one are durable afterwards; concurrent callers share. */
int cache_commit(struct cache *c);

/* ---- cache_node.c ---- */
struct cstripe *cnode_stripe(struct cache *c, const struct cnode *n);
void cnode_lock(struct cache *c, struct cnode *n);
void cnode_unlock(struct cache *c, struct cnode *n);
/* Takes over the caller's reference of `b`. */
int cnode_get(struct cache *c, struct bnode *b, struct cnode **out);
struct cnode *cnode_find(struct cache *c, struct bnode *b); /* held, or NULL */
void cnode_enter(struct cache *c, struct cnode *n);
/* As cnode_enter, but false (and not in the section) as soon as n->gen is not `gen`. */
bool cnode_enter_gen(struct cache *c, struct cnode *n, uint32_t gen);
void cnode_leave(struct cache *c, struct cnode *n);
void cnode_leave_locked(struct cache *c, struct cnode *n);
/* With the stripe held: */
bool cnode_fresh(const struct cache *c, const struct cnode *n, uint64_t now);
void cnode_fill_attr(const struct cache *c, const struct cnode *n, uint64_t now,
		     struct cache_attr *out);
void cnode_set_attr(struct cnode *n, const struct battr *a, uint64_t start);
bool cnode_take_changed(struct cnode *n); /* for a READ: CHANGED stays for whoever asks for attributes */
/* The same for an answer that carries the attributes. */
void cnode_tell_changed(const struct cache *c, struct cnode *n, struct cache_attr *out);
/* The data moved from `was` to `is` behind the mount. */
void cnode_mark_changed(const struct cache *c, struct cnode *n, const struct cversion *was,
			const struct cversion *is);
void cnode_drop_lines(struct cache *c, struct cnode *n); /* invariant 3 */
void cnode_version(const struct cnode *n, struct cversion *out);
/* Without: */
void cversion_of(const struct battr *a, struct cversion *out);
bool cversion_same(const struct cversion *a, const struct cversion *b);
uint64_t cversion_ns(int64_t sec, uint32_t nsec); /* in terms of clock_file_ns() */
/* clock_file_ns() from which on the bytes are surely those of the version. A write behind the mount
 * stamps the file first and copies after: bytes read earlier may be older than the stamp. */
uint64_t cversion_settles(const struct cache *c, const struct cversion *v, bool own);
/* What the backing said when asked at `start`. False: it is another version than is known, and was
 * not taken over (see the top of cache_node.c). */
bool cnode_learn(struct cache *c, struct cnode *n, const struct battr *a, uint64_t start);
/* Asks the backing unless the attributes are fresh. */
int cnode_revalidate(struct cache *c, struct cnode *n, bool nowait);
/* The backing answered `err`: 0 if what is known of n is to be served all the same. */
int cnode_check_failed(struct cache *c, struct cnode *n, int err);
void cnode_unverify(struct cache *c, struct cnode *n);
bool cache_is_transport_error(int error);

/* ---- cache_file.c ---- */
int cfile_start(struct cache *c, bool unclean); /* numbers, recovery */
int cfile_stop(struct cache *c);
/* Asks flash for the record once; never blocks on the backing. */
void cfile_load(struct cache *c, struct cnode *n);
uint64_t cfile_number(struct cache *c); /* 0: none to be had now */
/* Gives a loaded file without a number one; returns what it has now. May flush. */
uint64_t cfile_need_number(struct cache *c, struct cnode *n);
/* Forgets the record of an object that is gone and has no cnode. */
void cfile_forget(struct cache *c, struct bnode *b);
/* In the section. Puts the record of n's number with version `v`; -ESTALE: n has not got `number` any
 * more. Not `open`: CN_SAFE is taken back, also when it fails. */
int cfile_put(struct cache *c, struct cnode *n, uint64_t number, const struct cversion *v, bool open);
int cfile_delete(struct cache *c, struct cnode *n);
int cfile_delete_key(struct cache *c, const uint8_t key[FLASH_CTL_KEY]);
void cfile_delete_open(struct cache *c, uint64_t number);
/* A number's space is to be had back; n may be NULL. Needs no lock. */
void cfile_bury(struct cache *c, struct cnode *n, uint64_t number, const struct hash128 *key,
		bool forget);
void cfile_bury_dead(struct cache *c, struct cdead *d); /* does it, frees d */

/* ---- cache_flight.c: backing reads under way, shared ---- */
struct cflight {
	struct cflight *next;
	struct cnode *n;    /* held */
	uint32_t gen;
	uint64_t off;       /* of buf, a multiple of a sector */
	size_t want;        /* bytes asked for */
	ssize_t got;        /* bytes or error, once done */
	uint64_t before;    /* clock_file_ns() before the read */
	void *buf;
	size_t room;
	unsigned refs;      /* bucket lock */
	bool done, listed;  /* bucket lock */
	struct work work;   /* of the fill */
	uint32_t lines;     /* bit i: fill the i-th line that buf touches */
	struct cache *c;
};
int cflight_start(struct cache *c);
void cflight_stop(struct cache *c);
/* Joins a read that covers `off` (and began not before file time `since`), or starts one of
 * [off, *end), at most CFLIGHT_MAX bytes: *mine says which. *end may be reduced, to where the read
 * or another one begins. NULL: no memory. */
#define CFLIGHT_MAX (2u << 20)
struct cflight *cflight_get(struct cache *c, struct cnode *n, uint32_t gen, uint64_t since,
			    uint64_t off, uint64_t *end, bool *mine);
void cflight_finish(struct cache *c, struct cflight *f, ssize_t got); /* wakes those who joined */
void cflight_wait(struct cache *c, struct cflight *f);
void cflight_unlist(struct cache *c, struct cflight *f); /* nobody joins any more */
void cflight_put(struct cache *c, struct cflight *f);
void *cpool_get(struct cache *c, size_t room); /* at most CFLIGHT_MAX; NULL: no memory */
void cpool_put(struct cache *c, void *buf, size_t room);

/* ---- cache_fill.c ---- */
/* Takes over a reference of `f`; `lines` of it go to flash, or not. */
void cfill_submit(struct cache *c, struct cflight *f, uint32_t lines);

/* ---- cache_stream.c ---- */
int cstream_start(struct cache *c);
void cstream_stop(struct cache *c);
/* A read that flash could not serve alone; true: it belongs to a stream that bypasses. */
bool cstream_note(struct cache *c, const struct cnode *n, uint64_t size, uint64_t off, size_t len);

/* ---- cache_known.c: names for when the backing does not answer ---- */
int cknown_start(struct cache *c);
void cknown_stop(struct cache *c);
uint64_t cknown_changes(struct cache *c); /* to be asked before the backing is */
void cknown_learn(struct cache *c, struct cnode *parent, const char *name, struct bnode *b,
		  uint64_t changes);
/* Before and after a change of the name; or there is no such name. */
void cknown_forget(struct cache *c, struct cnode *parent, const char *name);
struct cnode *cknown_find(struct cache *c, struct cnode *parent, const char *name); /* held, or NULL */

/* ---- cache_modify.c ---- */
struct cmodify {
	struct cache *c;
	struct cnode *n;
	bool regular, data, record;
	uint64_t number, old_size;
	uint32_t epoch;
	struct cversion before;
	bool before_known;
	bool append_only;
};
/* Between the two the caller is in n's section and n->gen is odd. `data`: bytes will change. */
void cmodify_begin(struct cmodify *m, struct cache *c, struct cnode *n, bool data);
/* Lines of [off, off+len) are no longer true (UINT64_MAX: to the end). Before cmodify_end. */
void cmodify_lose(struct cmodify *m); /* none of the lines is true any more */
void cmodify_drop(struct cmodify *m, uint64_t off, uint64_t len);
enum cmodify_how {
	CMODIFY_META,  /* size and mtime must be as before: the lines are kept */
	CMODIFY_TIMES, /* size must be */
	CMODIFY_DATA,  /* all may have moved, as far as size allows for `expect_size` */
	CMODIFY_LOST,  /* what happened is not known: no line survives */
};
/* `a`: attributes afterwards, read at `start`, or NULL: they are asked for. The state is copied to
 * *out if given. */
int cmodify_end(struct cmodify *m, enum cmodify_how how, uint64_t expect_size,
		const struct battr *a, uint64_t start, struct cache_attr *out);

/* ---- cache_sweep.c ---- */
void csweep_note(struct cache *c, const struct flash_stats *st);
void csweep_run(struct cache *c);

/* ---- cache_publish.c ---- */
void cpublish_want_sweep(struct cache *c);
int cpublish_start(struct cache *c);
int cpublish_stop(struct cache *c);
/* The file is open from now on: watches it until it can be published. In the section. -ENOMEM. */
int cpublish_watch(struct cache *c, struct cnode *n);
void cpublish_bury(struct cache *c, struct cdead *d);

#endif
