/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Inside one controller. Reading order: this file, ftl.c (open, close, the operations), ftl_log.c
 * (append, flush), ftl_map.c and ftl_range.c (what is where), ftl_read.c, ftl_write.c, ftl_ckpt.c,
 * ftl_gc.c, then ftl_scan.c, ftl_replay.c and ftl_recover.c (after a crash), ftl_audit.c.
 *
 * Erase block states and who moves them:
 *
 *     FREE --open--> OPEN --full, or close()--> CLOSED --GC emptied it--> PENDING
 *       ^    (log)         (log)                       (gc)                  | checkpoint without
 *       |                                                                    v references is durable
 *       +------ media flush, discard (ckpt) <---- ERASING: header "erased" (ckpt)
 *
 * Invariants
 *  1. An EB is reused only after a durable checkpoint and superblock that do not refer to it, and
 *     after its ERASED header is durable.
 *  2. A checkpoint is committed only after a media flush that covered the log up to its position.
 *  3. Every record in the log that is not what the map says (dead, or with other masks) has a stamp
 *     >= min_dead of its EB, until the EB is FREE. A tombstone (or a control record's deletion) holds
 *     back records that were appended before it took effect: once no EB that was opened before then
 *     has a min_dead up to its stamp, it guards against nothing and may go.
 *  4. A clean extent is dropped without a record only if no older version of its sectors can be in
 *     the log: FTL_X_OLDER is not set, or its stamp is below every min_dead. Else the drop is a
 *     tombstone with the extent's stamp. (A silently dropped extent can reappear after a recovery;
 *     something older than it must not.)
 *  5. Readers do not hold an EB: they check the record's seeded CRCs, and afterwards that the EB has
 *     the same block sequence (it changes before anything of a new lifetime is written). If not, or
 *     if the record is not there, they look the line up again.
 *  6. An append and the change of the map it stands for happen under one hold of the lock.
 *  7. No media I/O, LMDB call or compression under the lock.
 */
#ifndef GILD_FTL_FTL_PRIV_H
#define GILD_FTL_FTL_PRIV_H

#include <stdatomic.h>

#include "base/htab.h"
#include "base/lock.h"
#include "flash.h"
#include "ftl/ftl.h"
#include "ftl/ftl_media.h"

#define FTL_MODULE "ftl"
#define FTL_CHUNKS_MAX 6 /* closed chunks waiting for the media before appenders wait */
#define FTL_RECORD_MAX (FTL_RECORD_HEADER + FLASH_LINE)
#define FTL_IO_BYTES (FLASH_LINE + 4 * FTL_BLOCK) /* a record, block aligned */
#define FTL_ZIP_BYTES (FLASH_LINE + FTL_BLOCK)

#define FTL_ADDR(line, first, count) ((uint64_t)(line) << 8 | (uint64_t)(first) << 4 | ((count)-1))
#define FTL_ADDR_LINE(addr) ((addr) >> 8)
#define FTL_ADDR_FIRST(addr) ((unsigned)((addr) >> 4 & 15))
#define FTL_ADDR_COUNT(addr) ((unsigned)((addr)&15) + 1)

static inline uint16_t ftl_mask(unsigned first, unsigned count)
{
	return (uint16_t)(((1u << count) - 1) << first);
}

static inline uint32_t ftl_round(uint64_t x, uint32_t to)
{
	return (uint32_t)((x + to - 1) / to * to);
}

static inline uint32_t ftl_record_bytes(uint32_t stored_len)
{
	return ftl_round(FTL_RECORD_HEADER + stored_len, FTL_ALIGN);
}

static inline uint64_t ftl_index_bytes(uint32_t records)
{
	return ((uint64_t)records * sizeof(struct ftl_media_index) + FTL_BLOCK - 1) / FTL_BLOCK *
	       FTL_BLOCK;
}

enum ftl_table { FTL_T_MAP, FTL_T_CTL, FTL_T_TOMBS, FTL_T_EBS, FTL_T_STATE };

/* ---- geometry (ftl_geom.c) ---- */

struct ftl_geom {
	uint64_t raw_bytes, first_eb;
	uint32_t eb_bytes, ebs, dies, slice;
	uint32_t logical; /* bytes of an EB's logical space */
	bool parity;
};

/* -EINVAL, -ENOSPC (fewer than 16 erase blocks). */
int ftl_geom_init(struct ftl_geom *g, uint64_t raw_bytes, const struct ftl_geometry *in);
/* Medium offset of a logical offset; *run: bytes from there that are contiguous in both. */
uint64_t ftl_geom_map(const struct ftl_geom *g, uint32_t eb, uint32_t off, uint32_t *run);
/* Medium offset of the parity slice of a row. */
uint64_t ftl_geom_parity(const struct ftl_geom *g, uint32_t eb, uint32_t row);
int ftl_geom_read(const struct ftl_geom *g, struct media *m, uint32_t eb, uint32_t off, void *buf,
		  uint32_t len);
int ftl_geom_write(const struct ftl_geom *g, struct media *m, uint32_t eb, uint32_t off,
		   const void *buf, uint32_t len);

struct ftl_space { /* what a geometry leaves (ftl_format.c) */
	uint32_t reserve_gc, reserve_ctl;
	uint32_t low_water, high_water; /* GC begins below and ends at */
	uint64_t usable;
};

void ftl_space(const struct ftl_geom *g, uint32_t op_percent, struct ftl_space *out);
int ftl_super_read(struct media *m, struct ftl_media_super *out, int *slot);
int ftl_super_geom(const struct ftl_media_super *s, struct media *m, struct ftl_geom *g);
int ftl_meta_clear(struct meta *meta);
int ftl_ckpt_init(struct meta *meta, const struct ftl_media_super *s, const struct ftl_geom *g);

/* ---- media format (ftl_media.c): put_* fill a 4 KiB block, get_* check one ---- */

void ftl_media_put_super(void *block, const struct ftl_media_super *s);
/* -ENODATA not a superblock, -EUCLEAN damaged, -EPROTO newer. */
int ftl_media_get_super(const void *block, struct ftl_media_super *s);
void ftl_media_put_eb(void *block, const struct ftl_media_eb *h);
/* -ENODATA: not a header of this controller and EB; -EUCLEAN: damaged beyond one bit. */
int ftl_media_get_eb(void *block, const uint8_t uuid[16], uint32_t controller, uint32_t index,
		     struct ftl_media_eb *h);
void ftl_media_put_trailer(void *block, const struct ftl_media_trailer *t);
int ftl_media_get_trailer(const void *block, uint64_t seq, uint32_t logical,
			  struct ftl_media_trailer *t);
uint32_t ftl_media_seed(const uint8_t uuid[16], uint32_t controller, uint64_t seq);
void ftl_media_put_record(void *at, struct ftl_media_record *h, uint32_t seed, uint32_t off);
int ftl_media_get_record(const void *at, uint32_t seed, uint32_t off, struct ftl_media_record *h);
bool ftl_media_payload_ok(const struct ftl_media_record *h, const void *payload);
void ftl_media_index_of(const struct ftl_media_record *h, uint32_t off, struct ftl_media_index *x);
uint32_t ftl_index_crc(const void *idx, uint32_t records);
bool ftl_media_index_sane(const struct ftl_media_index *x, uint32_t used);
int ftl_media_get_range(const void *payload, struct ftl_media_range *r);
int ftl_media_get_ctl(const void *payload, uint32_t stored_len, struct ftl_media_ctl *c);

/* ---- compression (ftl_zip.c) ---- */

struct ftl_scratch { /* what one operation needs besides the caller's buffer */
	struct ftl_scratch *next;
	struct ZSTD_CCtx_s *cctx;
	struct ZSTD_DCtx_s *dctx;
	uint8_t *io;  /* FTL_IO_BYTES */
	uint8_t *raw; /* FLASH_LINE */
	uint8_t *zip; /* FTL_ZIP_BYTES */
};

struct ftl_packed {
	const void *data; /* in the scratch or the input */
	uint32_t len, raw_len, crc;
	uint64_t hash;
	uint8_t flags;
};

int ftl_scratch_new(struct ftl_scratch **out, int level);
void ftl_scratch_free(struct ftl_scratch *s); /* NULL-safe */
void ftl_zip_pack(struct ftl_scratch *s, const void *data, uint32_t len, struct ftl_packed *out);
int ftl_zip_unpack(struct ftl_scratch *s, unsigned flags, const void *stored, uint32_t stored_len,
		   void *dst, uint32_t raw_len);

/* ---- state ---- */

enum ftl_eb_state { EB_FREE, EB_OPEN, EB_CLOSED, EB_PENDING, EB_ERASING };

struct ftl_eb {
	struct htab_node by_seq; /* in ftl.seqs unless FREE */
	uint64_t seq;       /* read without the lock by ftl_eb_is() */
	uint64_t live;      /* bytes of records that map, tombstones or control table refer to */
	uint64_t waste;     /* of those, what dead sectors of partly live records take */
	uint64_t min_dead;  /* invariant 3 */
	uint64_t first_lsn, end_lsn; /* of its records: >= first (0: not known), < end */
	uint64_t age;       /* ftl.clock when it was closed */
	uint64_t max_stamp;
	uint64_t host_bytes, gc_bytes, pad_bytes;
	uint64_t barren;    /* the gc_epoch in which GC found too little to gain */
	uint64_t pending_ckpt; /* PENDING: erasable once this checkpoint is durable */
	uint32_t index, erase_count, stream;
	uint32_t used;      /* logical end of the last record */
	uint32_t records;
	uint8_t state;
	bool footer;        /* CLOSED: the footer is on the media */
	bool drops;         /* GC dropped extents of it silently */
	bool drops_old;     /* the same, in an earlier session: nobody remembers which */
	bool changed;       /* since the last freeze */
	uint64_t scan_durable; /* not 0: idx was read and is not settled (ftl_scan.c) */
	struct ftl_media_index *idx; /* of all its records, until the footer is written */
	uint32_t idx_cap;
	struct ftl_chunk *chunks; /* parts not on the media yet */
};

struct ftl_chunk { /* a run of an open EB, on its way to the media */
	struct ftl_chunk *next;    /* in ftl.ready */
	struct ftl_chunk *pending; /* in ftl.pending: closed, not on the media */
	struct ftl_chunk *eb_next; /* in eb->chunks */
	struct ftl_eb *eb;
	uint64_t first_lsn;
	uint32_t start, len, cap;
	unsigned refs; /* one of the log's, one a reader; under the lock */
	uint8_t *buf;
};

struct ftl_head { /* where a stream appends */
	struct ftl_eb *eb;
	struct ftl_chunk *chunk;
	uint32_t off;
};

#define FTL_X_OLDER 0x80 /* invariant 4; in the map only, the other flags are the record's */

struct ftl_extent { /* in LMDB as it is: a host-private format */
	ftl_pos pos;
	uint64_t stamp;
	uint32_t epoch, stored_len, raw_len;
	uint16_t valid, dirty; /* of the line's 16 sectors */
	uint8_t first, count;  /* sectors of the line the record covers */
	uint8_t flags, pad;
	uint32_t crc;          /* in LMDB, in a line's first: of key and value; else 0 */
};
static_assert(sizeof(struct ftl_extent) == 40, "extent");

struct ftl_value { /* a line's extents; their valid masks are disjoint and not empty */
	unsigned n;
	struct ftl_extent x[FLASH_LINE_SECTORS];
};

struct ftl_line { /* one in an overlay */
	struct htab_node node;
	uint64_t file, line;
	struct ftl_ofile *owner;
	struct ftl_line *next, *prev; /* of the same file */
	struct ftl_extent *x;
	uint8_t n, cap;
};

struct ftl_ofile {
	struct htab_node node;
	uint64_t file;
	struct ftl_line *lines;
};

struct ftl_ctlkey {
	uint8_t kind, key[FLASH_CTL_KEY];
};

struct ftl_ctlmeta { /* head of a control record in LMDB, its value follows */
	ftl_pos pos;
	uint64_t stamp;
	uint32_t len, deleted;
	uint64_t lsn; /* deleted: next lsn when it took effect */
	uint32_t crc, pad; /* in LMDB: of key, this and the value */
};

struct ftl_ctlent { /* one in an overlay */
	struct htab_node node;
	struct ftl_ctlkey key;
	bool gone; /* to be removed from the table: a retired deletion */
	struct ftl_ctlmeta m;
	uint8_t value[];
};

struct ftl_tombkey {
	uint8_t type; /* FTL_REC_TRIM or CLEAN */
	uint64_t file, first, count;
};

struct ftl_tombfile {
	struct htab_node node;
	uint64_t file;
	struct ftl_tomb *tombs;
};

struct ftl_tomb {
	struct htab_node node; /* by file and line, or by file if it spans several */
	struct ftl_tombkey key;
	uint64_t stamp;
	uint64_t lsn; /* next one when all of its range had been dealt with */
	ftl_pos pos;
	struct ftl_tombfile *owner;
	struct ftl_tomb *next, *prev; /* of the same file */
};

struct ftl_tombvalue { /* in LMDB */
	ftl_pos pos;
	uint64_t stamp, lsn;
	uint32_t crc, pad;
};

struct ftl_tombchange {
	struct ftl_tombkey key;
	uint64_t stamp, lsn;
	ftl_pos pos; /* FTL_POS_NONE: removed */
};

struct ftl_overlay { /* what changed since a checkpoint */
	struct htab lines, files, ctl;
	struct ftl_tombchange *tombs;
	size_t ntombs, tombs_cap;
};

struct ftl_counters { /* persisted in the state record; names as in flash_stats */
	uint64_t host_reads, host_read_bytes, host_writes, host_write_bytes;
	uint64_t stored_bytes, flash_write_bytes, flash_read_bytes;
	uint64_t gc_copied_bytes, gc_dropped_bytes, pad_bytes, footer_bytes, meta_bytes;
	uint64_t gc_runs, checkpoints, flushes, trims, erases;
	uint64_t corrupt_sectors, media_errors, replayed_records, unsafe_shutdowns;
};

struct ftl_state { /* the one value of the state table */
	uint32_t version, crc;
	uint8_t uuid[16];
	uint32_t controller, ebs;
	uint64_t checkpoint, next_lsn, next_seq, max_stamp, clock;
	uint64_t live_sectors, dirty_sectors, volume_sectors, volume_dirty, ctl_records;
	uint64_t ctl_deletions;
	struct ftl_counters c;
};

struct ftl_ebmeta { /* an EB in the ebs table */
	uint64_t seq, live, waste, min_dead, first_lsn, end_lsn, age, max_stamp;
	uint32_t erase_count, stream, used, records;
	uint32_t state, footer, drops, crc;
};

struct ftl {
	struct flash base;
	/* constant after open */
	struct media *media;
	struct meta *meta;
	struct ftl_options opt;
	struct ftl_geom geom;
	struct ftl_media_super super; /* what checkpoints change in it: under ckpt_lock */
	struct ftl_space space;
	uint32_t chunk_bytes;

	bool tolerant; /* ftl_recover: what cannot be read is not there */

	struct lock gc_lock, ckpt_lock, lock, pool_lock;
	struct lock_cond cond;  /* chunk written, flush over, thaw; with `lock` */
	struct lock_cond wake;  /* the background thread's; with `lock` */

	/* under lock */
	struct ftl_eb *ebs;
	struct htab seqs;
	uint32_t nfree, npending;
	struct ftl_head heads[FTL_STREAMS];
	struct ftl_chunk *ready, *pending;
	unsigned nchunks; /* in `pending` */
	uint64_t next_lsn, durable_lsn, next_seq, max_stamp, clock;
	bool flushing, footers_unflushed;
	int failed; /* negative errno once a media write or flush failed */
	uint64_t unflushed_since; /* clock_mono_ns, 0: nothing */
	uint64_t changed_since;   /* of the first change after the last freeze, 0: none */
	uint64_t log_bytes;       /* appended since the last freeze */
	uint64_t ckpt_retry;      /* a checkpoint failed: not again before */

	struct ftl_overlay *cur, *frozen;
	unsigned long drops_of_frozen; /* counts: what was read from LMDB before may be old */
	unsigned busy;   /* range operations under way: no freeze */
	bool freezing;
	struct htab tombs, tombfiles;
	uint64_t max_tomb_stamp;
	struct htab dropped; /* lines GC dropped silently from EBs that are not FREE yet */
	bool drops_unknown;  /* as above, but nobody remembers which */

	flash_reclaim_fn reclaim;
	void *reclaim_arg;
	bool gc_filling;    /* below the high water mark on the way up */
	bool gc_tombs;      /* too many tombstones: make them retire, .. */
	uint64_t gc_tombs_lsn; /* .. those there were at this lsn */
	bool tombs_due;     /* a checkpoint, after which some may */
	bool ctl_due;       /* the same for deletions */
	uint32_t gc_best;   /* most FREE and PENDING EBs seen since a host stream took one, .. */
	unsigned gc_futile; /* .. and rounds since that gained none */
	bool gc_stuck;      /* no victim gains enough; cleared by any change */
	uint64_t gc_stuck_since, gc_epoch;
	uint64_t live_bytes, live_sectors, dirty_sectors, ctl_records;
	uint64_t ctl_deletions; /* still kept */
	uint64_t volume_sectors, volume_dirty; /* of those, the volume's */
	enum flash_state health;
	struct ftl_counters c;
	uint64_t meta_base; /* meta_bytes_written() at open */
	bool unclean, stop, running, kick;
	int super_slot; /* of the newest superblock; under ckpt_lock */
	pthread_t thread;

	/* under pool_lock */
	struct ftl_scratch *scratch;
	unsigned nscratch;

	_Atomic uint64_t a_reads, a_read_bytes, a_flash_read, a_corrupt;
};

static inline struct ftl *ftl_of(struct flash *f)
{
	return container_of(f, struct ftl, base);
}

/* ---- scratch pool, failures, counters (ftl_util.c) ---- */

struct ftl_scratch *ftl_scratch_get(struct ftl *f); /* NULL: no memory */
void ftl_scratch_put(struct ftl *f, struct ftl_scratch *s);
/* Lock held. The medium failed a write or flush: read-only from now on. Logs. */
void ftl_fail(struct ftl *f, int err, const char *what, uint64_t at);
int ftl_media_flush(struct ftl *f); /* fails the controller on error; lock not held */
/* Reads; counts; a failure is logged and counted, and does not fail the controller. */
int ftl_media_read(struct ftl *f, const struct ftl_eb *eb, uint32_t off, void *buf, uint32_t len);
/* Writes; counts; fails the controller on error. Lock not held. */
int ftl_media_write(struct ftl *f, uint32_t eb, uint32_t off, const void *buf, uint32_t len);
uint64_t ftl_hash2(uint64_t a, uint64_t b);
void ftl_changed(struct ftl *f); /* lock held: something for the next checkpoint */
void ftl_kick(struct ftl *f);    /* lock held: background thread, look again */

/* ---- erase blocks (ftl_eb.c), lock held unless said ---- */

int ftl_eb_init(struct ftl *f); /* table, all FREE; no lock */
void ftl_eb_destroy(struct ftl *f);
struct ftl_eb *ftl_eb_find(struct ftl *f, ftl_pos pos); /* NULL: no such block sequence */
void ftl_eb_set_seq(struct ftl *f, struct ftl_eb *eb, uint64_t seq);
/* No lock: the EB still has this lifetime, so what was read from it before is of it. */
bool ftl_eb_is(const struct ftl_eb *eb, uint64_t seq);
void ftl_eb_clear_seq(struct ftl *f, struct ftl_eb *eb);
void ftl_eb_set_state(struct ftl *f, struct ftl_eb *eb, enum ftl_eb_state state);
void ftl_eb_add(struct ftl *f, ftl_pos pos, uint32_t bytes);
/* A record, or part of it, is not what the table says any more. `bytes` 0: partly. */
void ftl_eb_sub(struct ftl *f, ftl_pos pos, uint32_t bytes, uint64_t stamp);
/* The same for records that cannot resurrect anything: tombstones. */
void ftl_eb_sub_tomb(struct ftl *f, ftl_pos pos, uint32_t bytes);
uint64_t ftl_eb_min_dead(struct ftl *f); /* over all EBs */
/* May there be anything that a tombstone or deletion holds back (invariant 3)? */
bool ftl_eb_guarded(struct ftl *f, uint64_t stamp, uint64_t lsn);
struct ftl_eb *ftl_eb_take(struct ftl *f); /* the least worn FREE one or NULL */
uint32_t ftl_eb_limit(const struct ftl *f, uint32_t records); /* logical end of record space */
int ftl_eb_index_add(struct ftl_eb *eb, const struct ftl_media_index *x); /* -ENOMEM */
void ftl_eb_free_index(struct ftl_eb *eb);

/* ---- log (ftl_log.c) ---- */

/* New control records (PUT) leave half of their reserve to what makes space: trims, mark_cleans,
 * deletions (CTL). */
enum ftl_class { FTL_FOR_DATA, FTL_FOR_PUT, FTL_FOR_CTL, FTL_FOR_GC };

/* Lock held, may be dropped: waits while too many chunks are on their way. */
void ftl_log_throttle(struct ftl *f);
/* Lock held, never dropped. Fills lsn and CRCs in `h` (payload_crc is the caller's), writes header
 * and payload into the open chunk. -ENOSPC, -ENOMEM, -EIO. */
int ftl_log_append(struct ftl *f, enum ftl_stream s, enum ftl_class cls, struct ftl_media_record *h,
		   const void *payload, ftl_pos *pos);
void ftl_log_write_ready(struct ftl *f); /* lock held, dropped meanwhile */
void ftl_log_close_head(struct ftl *f, enum ftl_stream s); /* lock held: EB becomes CLOSED */
void ftl_log_pad(struct ftl *f); /* lock held: ends open chunks; lsns so far are in `pending` */
int ftl_log_flush(struct ftl *f); /* no lock; -EIO */
/* The halves of a flush, lock held. begin (drops the lock meanwhile): 1 when a media flush must
 * follow, 0 when all is durable. */
int ftl_log_begin(struct ftl *f, uint64_t *cover);
int ftl_log_end(struct ftl *f, uint64_t cover, int err);
/* Of CLOSED EBs whose records are durable. gc_lock held: GC reads the index that this frees. */
int ftl_log_footers(struct ftl *f);
struct ftl_chunk *ftl_log_chunk(struct ftl_eb *eb, uint32_t off); /* lock held; a reference */
void ftl_log_unref(struct ftl *f, struct ftl_chunk *c); /* lock held */
void ftl_log_destroy(struct ftl *f);

/* ---- map (ftl_map.c), lock held ---- */

struct ftl_line *ftl_overlay_line(struct ftl_overlay *o, uint64_t file, uint64_t line);
int ftl_overlay_new(struct ftl_overlay **out);
void ftl_overlay_free(struct ftl_overlay *o); /* NULL-safe */
/* Drops and retakes the lock on the way. */
int ftl_map_read(struct ftl *f, uint64_t file, uint64_t line, struct ftl_value *v);
/* The line in the current overlay with room for `extra` more extents. Drops and retakes the lock. */
int ftl_map_edit(struct ftl *f, uint64_t file, uint64_t line, unsigned extra,
		 struct ftl_line **out);
/* Sectors that a record of this stamp must not replace. `equal`: the same stamp counts as newer. */
uint16_t ftl_map_newer(const struct ftl_line *l, uint64_t stamp, bool equal);
void ftl_map_set(struct ftl *f, struct ftl_line *l, const struct ftl_extent *e);
/* Removes sectors of `mask` with stamps <= stamp; returns those removed. */
uint16_t ftl_map_cut(struct ftl *f, struct ftl_line *l, uint16_t mask, uint64_t stamp);
void ftl_map_clean(struct ftl *f, struct ftl_line *l, uint16_t mask, uint64_t stamp);
struct ftl_extent *ftl_map_at(struct ftl_line *l, ftl_pos pos); /* the extent there or NULL */
/* A checkpoint failed: what was frozen is current again where nothing newer is. -ENOMEM. */
int ftl_map_thaw(struct ftl *f);
/* Takes `mask` off the extent; it may go. */
void ftl_map_take(struct ftl *f, struct ftl_line *l, struct ftl_extent *x, uint16_t mask);
/* Bytes of the record that its dead sectors take, where GC would win them back. */
uint32_t ftl_extent_waste(const struct ftl_extent *x);
bool ftl_map_check(const struct ftl_extent *x, unsigned n); /* an LMDB value is sane */
/* Keys of the lines there are from `from` to `to`, both included, sorted. Caller frees. No lock
 * held. Some may be empty by then. */
struct ftl_linekey {
	uint64_t file, line;
};
int ftl_map_keys(struct ftl *f, struct ftl_linekey from, struct ftl_linekey to,
		 struct ftl_linekey **keys, size_t *n);

/* The n-th line of the table from `from` on; the highest key there can be when there are fewer. */
int ftl_map_bound(struct ftl *f, struct ftl_linekey from, size_t n, struct ftl_linekey *to);

/* ---- tombstones (ftl_tomb.c), lock held ---- */

#define FTL_TOMB_BYTES ftl_record_bytes(sizeof(struct ftl_media_range))
#define FTL_TOMB_COST (FTL_TOMB_BYTES + (uint32_t)sizeof(struct ftl_media_index))

/* Takes note of a tombstone in the log at `pos`; those it makes superfluous go. -ENOMEM. */
int ftl_tomb_add(struct ftl *f, const struct ftl_tombkey *k, uint64_t stamp, ftl_pos pos);
int ftl_tomb_load(struct ftl *f); /* from LMDB; no lock */
struct ftl_tomb *ftl_tomb_find(struct ftl *f, const struct ftl_tombkey *k);
int ftl_tomb_move(struct ftl *f, struct ftl_tomb *t, ftl_pos pos); /* GC copied it */
int ftl_tomb_remove(struct ftl *f, struct ftl_tomb *t);
int ftl_tomb_settle(struct ftl *f, const struct ftl_tombkey *k, uint64_t stamp); /* lsn is now */
int ftl_tomb_rescue(struct ftl *f, uint64_t seq); /* logs again those of an EB; no lock */
void ftl_tomb_retire(struct ftl *f); /* those that have nothing to hold back any more */
/* Sectors of a line's `mask` under a tombstone of this type with stamp >= `stamp`. */
uint16_t ftl_tomb_cover(struct ftl *f, unsigned type, uint64_t file, uint64_t line, uint16_t mask,
			uint64_t stamp);
/* Lock held: one tombstone or deletion more. Too many: GC makes them superfluous. */
void ftl_tomb_pressure(struct ftl *f, uint64_t stamp);
uint64_t ftl_tomb_bytes(const struct ftl *f); /* lock held: what they take, deletions too */
void ftl_tomb_key(const struct ftl_tombkey *k, uint8_t out[25]);
int ftl_tomb_list(struct ftl *f, struct ftl_tomb **out, size_t *n); /* sorted copy; caller frees */
void ftl_tomb_destroy(struct ftl *f);

/* ---- trim and mark_clean (ftl_range.c) ---- */

int ftl_range_log(struct ftl *f, unsigned type, uint64_t file, uint64_t first, uint64_t count,
		  uint64_t stamp);
/* The map's side of it, also for replay. No lock held. */
int ftl_range_apply(struct ftl *f, unsigned type, uint64_t file, uint64_t first, uint64_t count,
		    uint64_t stamp);
/* Lock held: appends a tombstone and takes note of it. */
int ftl_range_append(struct ftl *f, enum ftl_class cls, const struct ftl_tombkey *k, uint64_t stamp,
		     ftl_pos source);

/* ---- control records (ftl_ctl.c) ---- */

int ftl_ctl_put(struct ftl *f, unsigned kind, const uint8_t *key, const void *value, size_t len,
		uint64_t stamp);
int ftl_ctl_get(struct ftl *f, unsigned kind, const uint8_t *key, void *value, size_t *len,
		uint64_t *stamp);
int ftl_ctl_walk(struct ftl *f, unsigned kind,
		 int (*fn)(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value,
			   size_t len, uint64_t stamp),
		 void *arg);
/* Lock held, dropped and retaken: the current entry. *m as in the table; value may be NULL.
 * -ENOENT when there is none (a deleted one is found). */
int ftl_ctl_find(struct ftl *f, const struct ftl_ctlkey *k, struct ftl_ctlmeta *m, void *value);
/* Lock held: replaces the entry (accounting the old one's record). -ENOMEM. `old` as found. */
int ftl_ctl_set(struct ftl *f, const struct ftl_ctlkey *k, const struct ftl_ctlmeta *old,
		const struct ftl_ctlmeta *m, const void *value, bool gone);
/* Every entry, deletions too; no lock. */
int ftl_ctl_each(struct ftl *f,
		 int (*fn)(void *arg, const struct ftl_ctlkey *k, const struct ftl_ctlmeta *m),
		 void *arg);
/* Removes the deletions that have nothing to hold back any more; no lock. */
int ftl_ctl_retire(struct ftl *f);
int ftl_ctl_rescue(struct ftl *f, uint64_t seq); /* logs again those of an EB; no lock */
void ftl_ctl_thaw(struct ftl *f); /* as ftl_map_thaw */
/* Lock held: appends the record and sets the entry. */
int ftl_ctl_append(struct ftl *f, enum ftl_class cls, const struct ftl_ctlkey *k,
		   const struct ftl_ctlmeta *old, struct ftl_ctlmeta *m, const void *value,
		   ftl_pos source);
static inline uint32_t ftl_ctl_bytes(uint32_t len)
{
	return ftl_record_bytes((uint32_t)sizeof(struct ftl_media_ctl) + len);
}

/* ---- reads and writes (ftl_read.c, ftl_write.c) ---- */

int ftl_read(struct ftl *f, uint64_t file, uint64_t sector, uint32_t count, uint32_t min_epoch,
	     void *buf, struct flash_sector *state);
/* Header and payload of a record, checked; *payload in the scratch or the chunk. No lock.
 * -EUCLEAN: not there or damaged. `c` may be NULL. */
int ftl_read_record(struct ftl *f, const struct ftl_eb *eb, struct ftl_chunk *c, ftl_pos pos,
		    uint32_t stored_len, struct ftl_scratch *s, struct ftl_media_record *h,
		    const uint8_t **payload);
int ftl_write(struct ftl *f, const struct flash_write *w);
/* Lock held: may there be older versions of these sectors in the log (invariant 4)? */
bool ftl_write_older(struct ftl *f, const struct ftl_line *l, uint16_t valid);
void ftl_extent_of(const struct ftl_media_record *h, ftl_pos pos, struct ftl_extent *e);
void ftl_record_of(const struct ftl_extent *x, uint64_t file, uint64_t line,
		   struct ftl_media_record *h);
int ftl_walk(struct ftl *f, enum flash_kind kind, uint64_t file, uint64_t sector,
	     int (*fn)(void *arg, const struct flash_extent *e), void *arg);

/* ---- checkpoint (ftl_ckpt.c) ---- */

/* No lock held. `clean`: the last one; the superblock will say so. */
int ftl_ckpt_run(struct ftl *f, bool clean);
bool ftl_ckpt_due(struct ftl *f, uint64_t now); /* lock held */
int ftl_ckpt_load(struct ftl *f); /* state, erase blocks, tombstones from LMDB */
#define FTL_STATE_VERSION 1u
/* Sets the crc `field` of a record that goes to LMDB; returns it. */
uint32_t ftl_ckpt_crc(void *s, size_t len, uint32_t *field);
/* The same for a keyed value. */
uint32_t ftl_ckpt_crc_key(const void *key, size_t key_len, void *s, size_t len, uint32_t *field);
/* What the next superblock says of the log. */
void ftl_ckpt_bounds(struct ftl *f, const struct ftl_state *s);
/* ckpt_lock held: writes and flushes a superblock; erases PENDING EBs that may go. */
int ftl_ckpt_super(struct ftl *f, uint64_t checkpoint, bool clean);
int ftl_ckpt_erase(struct ftl *f);
/* Recovery: moves the overlay into LMDB without a state record. */
int ftl_ckpt_spill(struct ftl *f);

/* ---- GC (ftl_gc.c) ---- */

/* One victim. 1: something was freed, 0: nothing to do, or an error. No lock held. */
int ftl_gc_round(struct ftl *f);
bool ftl_gc_wanted(struct ftl *f); /* lock held */
bool ftl_gc_short(struct ftl *f); /* lock held: space is short, whether or not GC can help */
/* Lock held, dropped meanwhile: waits for the background thread to free an EB; false: it will not. */
bool ftl_gc_wait(struct ftl *f);
void ftl_gc_spent(struct ftl *f); /* lock held: a host stream opened an EB */
void ftl_gc_retry(struct ftl *f, bool now); /* lock held: a write met -ENOSPC */
void ftl_gc_unstick(struct ftl *f); /* lock held: something died or was cleaned */
void ftl_gc_forget(struct ftl *f, struct ftl_eb *eb); /* lock held: it is FREE now */
bool ftl_gc_was_dropped(struct ftl *f, uint64_t file, uint64_t line); /* lock held */

void ftl_gc_destroy(struct ftl *f);

/* ---- opening (ftl.c), background (ftl_thread.c) ---- */

/* A controller without its state: superblock, geometry, locks, empty tables. Logs errors. */
int ftl_new(struct ftl **out, struct media *m, struct meta *meta, const struct ftl_options *o);
void ftl_free(struct ftl *f);
/* Closes the open EBs, flushes, writes footers and a checkpoint. The error is the flush's. */
int ftl_settle(struct ftl *f, bool clean);
/* One round of whatever is due; 1: there may be more. */
int ftl_thread_round(struct ftl *f);
int ftl_thread_start(struct ftl *f);
void ftl_thread_stop(struct ftl *f);

/* ---- after a crash (ftl_scan.c, ftl_replay.c) ---- */

struct ftl_found { /* a record found in the log */
	struct ftl_media_index x;
	struct ftl_eb *eb;
};

struct ftl_foundlist {
	struct ftl_found *v;
	size_t n, cap;
};

#define REPLAY_SPILL 65536 /* recovery: lines in memory before they go to LMDB */

/* The EB's idx, used, records, footer and byte counts: from its footer, else by reading all of it.
 * No lock. ftl_scan_read leaves an EB without footer unsettled. */
int ftl_scan_index(struct ftl *f, struct ftl_eb *eb);
int ftl_scan_read(struct ftl *f, struct ftl_eb *eb);
/* Takes out what was never written: damaged records with an lsn >= durable, all from `cut` on. */
void ftl_scan_settle(struct ftl *f, struct ftl_eb *eb, uint64_t durable, uint64_t cut);
/* The index's records from offset `from` on. -ENOMEM. */
int ftl_scan_found(struct ftl_eb *eb, uint32_t from, struct ftl_foundlist *out);
int ftl_scan_header(struct ftl *f, uint32_t index, struct ftl_media_eb *h); /* -ENODATA, -EUCLEAN */
/* The footer's index; caller frees. -ENODATA, -EUCLEAN, -EIO, -ENOMEM. */
int ftl_scan_footer(struct ftl *f, const struct ftl_eb *eb, struct ftl_media_index **idx,
		    struct ftl_media_trailer *t);
/* EBs in state OPEN: settles them, see ftl_replay.c. `from`: offset by EB index, NULL: all. Fills
 * `out` with their records in the order of lsn, and those already there. */
int ftl_replay_cut(struct ftl *f, const uint32_t *from, bool full, struct ftl_foundlist *out);
int ftl_replay_apply(struct ftl *f, struct ftl_foundlist *l, bool full);
/* Flushed records are missing, so any clean data may be older than what was acknowledged. */
int ftl_replay_drop_clean(struct ftl *f);
/* OPEN EBs become CLOSED; lsns and sequences skip ahead. `full`: further, past what several crashes
 * that only the lost environment knew of may have used. */
void ftl_replay_close(struct ftl *f, bool full);
int ftl_replay_tail(struct ftl *f);

#endif
