/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The flash contract: a sparse, cache-aware address space. ftl (one controller), card (several) and
 * array (several cards) all offer it, so they stack and any can stand in for another in a test.
 *
 * An address is (file number, sector): 64 bits each, a sector is 4 KiB. The space is sparse; the
 * caller needs no allocator and no second map. A file's 16 aligned sectors are a line, the unit of
 * mapping and eviction; a call may span lines.
 *
 * Stamps. Every change carries a 64-bit stamp that the caller draws from one rising counter, over
 * the life of the card set (start above flash_stats.max_stamp, plus a gap after an unclean stop).
 * It is stored with the data and returned. Per sector the highest stamp wins, everywhere: replay,
 * recovery, mirrors. The caller orders calls on the same sectors itself: of two calls that overlap,
 * the one with the higher stamp starts after the other returned. A call with an old stamp is not an
 * error (legs are reconciled that way): where the map or a control record (or its kept deletion)
 * already has a higher stamp it changes nothing. Only tombstones are not looked up by a write: who
 * replays old data applies the tombstones first.
 *
 * Epochs. Data carries the 32-bit epoch of its file as the caller gave it; reads return it and skip
 * what is older than they ask for. That is how a caller drops a whole file in one step: it raises
 * the file's floor in its own (control) record, and reclaim() lets GC collect the remains.
 *
 * A drop is not durable. GC may drop a clean line that reclaim() gives up without writing a record,
 * and the line may reappear after a recovery. A trim is durable (after a flush): a logged tombstone,
 * also where nothing is present, kept until no erase block can hold an older record of the range.
 *
 * Control records are small keyed values of the caller (file table entries and the like) that live
 * in the same log, survive loss of the map, and are never dropped by GC.
 *
 * Every operation is required, thread safe, and may block on the media, but never on space: when
 * there is none, write answers -ENOSPC at once and GC goes on in the background. trim, mark_clean
 * and ctl_put have a reserve of their own and meet -ENOSPC only when the card is misused (more
 * control records than its reserve holds). Errors: -ENOSPC; -EIO the media failed (the card is then
 * failed or read-only: see health); -EUCLEAN the map is damaged there, not the media (gild recover makes
 * it anew); -EINVAL; -ENOMEM.
 */
#ifndef GILD_FLASH_H
#define GILD_FLASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLASH_SECTOR 4096u
#define FLASH_LINE_SECTORS 16u
#define FLASH_LINE (FLASH_SECTOR * FLASH_LINE_SECTORS)
#define FLASH_SECTOR_MAX ((1ULL << 52) - 1) /* highest sector: 2^64 byte files */
#define FLASH_TO_END UINT64_MAX             /* a trim's count: to the end of the file */
#define FLASH_VOLUME 0ULL                   /* the file number of a card's volume */

enum flash_sector_flags {
	FLASH_PRESENT = 1 << 0,
	FLASH_DIRTY = 1 << 1,   /* with PRESENT */
	FLASH_CORRUPT = 1 << 2, /* with PRESENT: mapped, but its bytes cannot be had */
};

struct flash_sector { /* what a read found */
	uint64_t stamp;
	uint32_t epoch;
	uint8_t flags; /* 0: absent; its bytes in the buffer are then unspecified */
};

struct flash_write {
	uint64_t file, sector;
	uint32_t count;   /* sectors, 1 .. */
	uint32_t len;     /* bytes of data: (count-1)*4096 < len <= count*4096; the rest reads as 0 */
	const void *data;
	uint64_t stamp;
	uint32_t epoch;
	bool dirty;       /* the backing does not have these bytes */
	bool cold;        /* hint: rarely used, or written once (a stream of its own) */
};

enum flash_kind { /* of what walk() reports */
	FLASH_WALK_DATA,
	FLASH_WALK_TRIM,  /* a tombstone still kept */
	FLASH_WALK_CLEAN, /* a mark_clean still kept */
};

struct flash_extent {
	enum flash_kind kind;
	uint64_t file, sector, count; /* count may be FLASH_TO_END for a trim */
	uint64_t stamp;
	uint32_t epoch;
	bool dirty;
	uint32_t stored; /* bytes on flash, header included, of the whole record */
};

/* Kinds of control record. The number is on the media: never reuse one. */
enum flash_ctl {
	FLASH_CTL_FILE = 1,   /* file table entry, keyed by identity */
	FLASH_CTL_OPEN = 2,   /* file being written: its epoch is not published; keyed by file number */
	FLASH_CTL_ATTR = 3,   /* size and mtime of a dirty file */
	FLASH_CTL_CLEANING = 4, /* "cleaning F from version V" */
	FLASH_CTL_MEMBER = 5, /* array membership generation */
	FLASH_CTL_CACHE = 6,  /* the cache's own: file number blocks, backing identity */
	FLASH_CTL_CARD = 7,   /* the card's own: controllers out of use */
	FLASH_CTL_KINDS = 16,
};
#define FLASH_CTL_KEY 16     /* bytes of a key */
#define FLASH_CTL_VALUE 1024 /* most bytes of a value */

enum flash_verdict { FLASH_DROP, FLASH_KEEP_HOT, FLASH_KEEP_COLD };

/* The one upcall: GC is about to copy a clean line's record. Must not block or take a lock; ftl
 * checks the stamp again after the answer. */
typedef enum flash_verdict (*flash_reclaim_fn)(void *arg, uint64_t file, uint64_t line,
					       uint64_t stamp, uint32_t epoch);

struct flash_stats { /* totals since format; bytes unless said */
	uint64_t host_reads, host_read_bytes, host_writes, host_write_bytes; /* uncompressed */
	uint64_t stored_bytes;        /* what host writes became in the log, headers included */
	uint64_t flash_write_bytes;   /* all that went to the media: data, GC, padding, footers, map */
	uint64_t flash_read_bytes;
	uint64_t gc_copied_bytes, gc_dropped_bytes, pad_bytes, footer_bytes, meta_bytes;
	uint64_t gc_runs, checkpoints, flushes, trims, erases;
	uint64_t corrupt_sectors, media_errors;
	uint64_t replayed_records, unsafe_shutdowns;
	/* now */
	uint64_t raw_bytes, usable_bytes; /* of the media; what live data may take */
	uint64_t live_bytes;              /* stored bytes the map points to */
	uint64_t live_sectors, dirty_sectors, free_bytes, ctl_records;
	uint64_t erase_blocks, erase_block_bytes, max_erase_count, total_erase_count;
	uint64_t max_stamp;
	bool unclean; /* this opening followed an unclean stop */
};

enum flash_state { FLASH_OK, FLASH_DEGRADED, FLASH_READONLY, FLASH_FAILED };

struct flash_health {
	enum flash_state state;
	unsigned life_left_percent; /* of rated erase cycles */
	unsigned spare_percent;     /* erase blocks still usable, of the original spare */
	uint64_t media_errors, corrupt_sectors, retired_blocks;
	uint64_t generation;        /* membership */
};

struct flash;

struct flash_ops {
	/* `state` has `count` entries, `buf` count * 4096 bytes. Sectors with an epoch below
	 * `min_epoch` count as absent. 0 also when some are absent or corrupt. */
	int (*read)(struct flash *f, uint64_t file, uint64_t sector, uint32_t count,
		    uint32_t min_epoch, void *buf, struct flash_sector *state);
	int (*write)(struct flash *f, const struct flash_write *w);
	/* No effect on sectors whose stamp is above `stamp`; logged. */
	int (*mark_clean)(struct flash *f, uint64_t file, uint64_t sector, uint64_t count,
			  uint64_t stamp);
	int (*trim)(struct flash *f, uint64_t file, uint64_t sector, uint64_t count, uint64_t stamp);
	/* All that was acknowledged before the call is durable. */
	int (*flush)(struct flash *f);
	/* Control records; len 0 deletes (logged, durable after flush like the rest). */
	int (*ctl_put)(struct flash *f, enum flash_ctl kind, const uint8_t key[FLASH_CTL_KEY],
		       const void *value, size_t len, uint64_t stamp);
	/* *len: room on entry, size on return. -ENOENT: *stamp is then that of the deletion while
	 * it is still kept, else 0. -EOVERFLOW: *len says what is needed, nothing is copied. */
	int (*ctl_get)(struct flash *f, enum flash_ctl kind, const uint8_t key[FLASH_CTL_KEY],
		       void *value, size_t *len, uint64_t *stamp);
	/* Each record of the kind once, in any order; fn != 0 ends the walk with that value. fn may
	 * call every other operation; what it puts or deletes may or may not be walked. */
	int (*ctl_walk)(struct flash *f, enum flash_ctl kind,
			int (*fn)(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value,
				  size_t len, uint64_t stamp),
			void *arg);
	/* Everything of one kind whose first sector is (file, sector) or later, in that order; not
	 * a snapshot. fn as above. */
	int (*walk)(struct flash *f, enum flash_kind kind, uint64_t file, uint64_t sector,
		    int (*fn)(void *arg, const struct flash_extent *e), void *arg);
	void (*set_reclaim)(struct flash *f, flash_reclaim_fn fn, void *arg); /* NULL: keep all */
	void (*stats)(struct flash *f, struct flash_stats *out);
	void (*health)(struct flash *f, struct flash_health *out);
	/* Stops background work, flushes, checkpoints, frees. Frees in any case; the error says
	 * whether everything acknowledged is durable. */
	int (*close)(struct flash *f);
};

struct flash { /* first member of every implementation */
	const struct flash_ops *ops;
};

#endif
