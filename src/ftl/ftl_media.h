/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The on-media format of one controller, version 1. All integers little endian. This header is the
 * whole truth about it; ftl_media.c encodes and decodes, nothing else touches these bytes.
 *
 *   medium   | super A (4 KiB) | super B (4 KiB) | unused up to one slice | EB 0 | EB 1 | ... |
 *
 *   EB       | header block 4 KiB | records, 8-byte aligned ... | free | footer index | trailer 4 KiB |
 *
 * An erase block (EB) is the unit of erasing and GC. Inside it addresses are *logical offsets*:
 * with parity off they are the physical ones; with parity on, a row of `dies` slices has one parity
 * slice (die (row % dies), rotating), which logical offsets skip. ftl_geom.c maps them.
 *
 * Record: header (FTL_RECORD_HEADER bytes), then stored_len bytes of payload, padded with zeros to 8
 * bytes. The header's CRC is seeded with the card's uuid, the controller, the EB's block sequence
 * and the record's offset, so an old lifetime's record, a misdirected one, or a copy of a medium
 * stored as data never passes. Where a flush (or the end of an EB) cut the log, the rest of the 4 KiB
 * block is zeros and the next record starts at the next 4 KiB boundary: a resynchronisation point.
 * Durable 4 KiB blocks are never written again before the EB is erased.
 *
 * lsn: one rising number per controller over all streams: the order of appends. Replay sorts by it.
 * stamp: the caller's order of changes. Per sector the highest stamp wins; of equal stamps (the same
 * data, relocated) the higher lsn.
 *
 * Durable hint: each record says how far behind its own lsn the log was durable when it was appended
 * (`undurable`). In an EB without a footer that tells rot from a torn write: a record below the
 * highest durable lsn its EB names was flushed, so if its payload is bad it is lost, not unwritten.
 *
 * Footer: copies of the record headers in short form, directly before the trailer. It is written
 * only after a media flush that covered every record of the EB, so a valid trailer means: these
 * records are durable. Appending stops where the footer of the records so far would begin. An EB is
 * appended to only by the session (open .. close) that opened it.
 *
 * Erased: an EB whose map references are gone, by a durable checkpoint, gets a header block of state
 * FTL_EB_ERASED, which is flushed before the EB counts as free. So a full scan never resurrects.
 */
#ifndef GILD_FTL_MEDIA_H
#define GILD_FTL_MEDIA_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define FTL_VERSION 1u
#define FTL_BLOCK 4096u
#define FTL_ALIGN 8u

#define FTL_MAGIC_SUPER 0x314c544644494c47ULL   /* "GLIDFTL1" */
#define FTL_MAGIC_EB 0x314b4c4245444c47ULL      /* "GLDEBLK1" */
#define FTL_MAGIC_TRAILER 0x31544f4f46444c47ULL /* "GLDFOOT1" */
#define FTL_MAGIC_RECORD 0x4c47u                /* "GL" */

/* Written alternately to A and B at every checkpoint; the higher valid `checkpoint` counts. */
struct ftl_media_super {
	uint64_t magic;
	uint32_t version;
	uint32_t crc;          /* crc32c of the 4 KiB block with this field 0 */
	uint8_t uuid[16];
	uint32_t controller, controllers;
	uint64_t raw_bytes;    /* of the medium as formatted */
	uint64_t first_eb;     /* byte offset of EB 0 */
	uint32_t erase_block;  /* bytes */
	uint32_t erase_blocks;
	uint32_t dies, slice;
	uint32_t parity;       /* 0 or 1 */
	uint32_t op_percent;
	uint32_t savings_spare; /* 0 or 1 */
	uint32_t clean;        /* 1: closed properly, nothing to replay */
	uint64_t volume_bytes;
	uint64_t checkpoint;   /* number of the last durable checkpoint */
	uint64_t format_time;  /* seconds since 1970 */
	/* At that checkpoint: all lsns below were durable; first unused block sequence; highest stamp.
	 * Erased EBs leave gaps among the lsns below, and take their sequences and stamps with them. */
	uint64_t lsn, seq, stamp;
	uint64_t void_lsn;     /* damage: what was clean in records below is not to be used */
};
static_assert(sizeof(struct ftl_media_super) == 144, "media format");

enum ftl_eb_media_state { FTL_EB_ERASED = 1, FTL_EB_OPEN = 2 };

/* Streams: which data shares erase blocks. Numbers are on the media; 3.. for finer classes. */
enum ftl_stream { FTL_HOST_HOT, FTL_HOST_COLD, FTL_RELOCATED, FTL_STREAMS };

struct ftl_media_eb { /* first 4 KiB of an erase block */
	uint64_t magic;
	uint32_t version;
	uint32_t crc;         /* of the 4 KiB block with this field 0 */
	uint8_t uuid[16];
	uint32_t controller;
	uint32_t state;       /* enum ftl_eb_media_state */
	uint64_t seq;         /* block sequence: rises with every opening, never reused; 1..;
			       * ERASED: of the lifetime that ended, 0 if there was none */
	uint32_t index;       /* of this EB: a misdirected write is seen */
	uint32_t stream;
	uint32_t erase_count;
	uint32_t pad;
	uint64_t first_lsn;   /* of the next append when it was opened */
	uint64_t checkpoint;  /* number of the last checkpoint when it was opened or erased */
};
static_assert(sizeof(struct ftl_media_eb) == 80, "media format");

/* A position names a byte in the log for ever: block sequence (39 bits), offset / 8 (25 bits). */
typedef uint64_t ftl_pos;
#define FTL_POS_NONE 0ULL
#define FTL_POS(seq, off) (((uint64_t)(seq) << 25) | ((uint64_t)(off) >> 3))
#define FTL_POS_SEQ(pos) ((pos) >> 25)
#define FTL_POS_OFF(pos) ((uint32_t)(((pos) & 0x1ffffffU) << 3))
/* Higher ones are nonsense, with whatever CRC: what is left above them no session can use up. */
#define FTL_SEQ_MAX ((1ULL << 39) - (1ULL << 32))
#define FTL_LSN_MAX (1ULL << 63)

enum ftl_record_type {
	FTL_REC_DATA = 1,     /* an extent: 1-16 sectors of one line */
	FTL_REC_TRIM = 2,     /* tombstone; payload: struct ftl_media_range */
	FTL_REC_CLEAN = 3,    /* mark_clean; payload: struct ftl_media_range */
	FTL_REC_CTL = 4,      /* control record; payload: struct ftl_media_ctl + value */
	FTL_REC_CTL_DEL = 5,  /* its deletion; payload: struct ftl_media_ctl */
};

enum ftl_record_flags {
	FTL_F_ZSTD = 1 << 0,      /* payload is one zstd frame; else as it is */
	FTL_F_CONST = 1 << 1,     /* payload is 8 bytes, repeated over raw_len */
	FTL_F_RELOCATED = 1 << 2, /* copied by GC from `source`; masks as of then */
	FTL_F_COLD = 1 << 3,
	FTL_F_LOST = 1 << 4,      /* no payload: these (dirty) sectors were found corrupt by GC */
};

#define FTL_RECORD_HEADER 80u
struct ftl_media_record {
	uint32_t header_crc;  /* seeded (above), of the header with this field 0 */
	uint16_t magic;
	uint8_t type, flags;
	uint64_t lsn;
	uint64_t stamp;
	uint64_t file;        /* DATA, TRIM, CLEAN: file number */
	uint64_t addr;        /* DATA: line << 8 | first << 4 | (count - 1); others 0 */
	uint32_t raw_len;     /* DATA: bytes before compression, byte exact; others = stored_len */
	uint32_t stored_len;  /* bytes of payload in the log */
	uint16_t valid;       /* DATA: sectors of the line (bit 0 = first of the line) that counted */
	uint16_t dirty;       /* DATA: of those, the dirty ones */
	uint32_t epoch;
	uint32_t payload_crc; /* crc32c of the stored payload */
	uint32_t undurable;   /* lsn - (all lsns below were durable at append), saturated */
	uint64_t payload_hash; /* XXH3-64 of the stored payload, independent of the CRC */
	ftl_pos source;       /* RELOCATED: where it was copied from */
};
static_assert(sizeof(struct ftl_media_record) == FTL_RECORD_HEADER, "media format");
static_assert(offsetof(struct ftl_media_record, source) == 72, "media format");

struct ftl_media_range { /* payload of TRIM and CLEAN */
	uint64_t first, count; /* sectors; count UINT64_MAX: to the end of the file */
};
static_assert(sizeof(struct ftl_media_range) == 16, "media format");

struct ftl_media_ctl { /* payload of CTL and CTL_DEL, followed by `len` bytes of value */
	uint32_t kind, len;
	uint8_t key[16];
};
static_assert(sizeof(struct ftl_media_ctl) == 24, "media format");

/* Footer index entry: one per record, in order of offset. */
struct ftl_media_index {
	uint64_t lsn, stamp, file, addr;
	ftl_pos source;
	uint32_t offset;      /* logical, of the record in the EB */
	uint32_t raw_len, stored_len, epoch;
	uint16_t valid, dirty;
	uint8_t type, flags;
	uint16_t pad;
};
static_assert(sizeof(struct ftl_media_index) == 64, "media format");

struct ftl_media_trailer { /* last 4 KiB of the EB's logical space */
	uint64_t magic;
	uint32_t crc;         /* of the 4 KiB block with this field 0 */
	uint32_t index_crc;   /* crc32c of all index entries */
	uint64_t seq;
	uint32_t index_offset; /* logical, 4 KiB aligned; the index ends at the trailer's block */
	uint32_t records;
	uint64_t used;        /* logical offset of the end of the last record */
	uint64_t host_bytes, gc_bytes, pad_bytes; /* what went into this EB */
	uint64_t max_stamp;
};
static_assert(sizeof(struct ftl_media_trailer) == 72, "media format");

#endif
