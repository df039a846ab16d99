/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A byte store of fixed size: file, block device, RAM, a region of another one, and the fault
 * injector over any of them. Knows nothing of flash.
 *
 * Offsets and lengths are bytes. Writes and reads that are aligned to MEDIA_ALIGN in offset,
 * length and memory go straight to the device (O_DIRECT where it works); others are taken too,
 * through a bounce buffer, except writes, which must be aligned. All functions are thread safe.
 * Errors: negative errno of the device; a short transfer is -EIO; beyond the end is -EINVAL.
 */
#ifndef GILD_MEDIA_MEDIA_H
#define GILD_MEDIA_MEDIA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct media;

#define MEDIA_ALIGN 4096 /* of every write's offset, length and memory */

struct media_stats {
	uint64_t reads, read_bytes, writes, write_bytes, flushes, discards, errors;
};

enum media_flags {
	MEDIA_CREATE = 1 << 0,   /* make the file, preallocate `size`; fails with -EEXIST */
	MEDIA_DIRECT = 1 << 1,   /* O_DIRECT where the file takes it */
	MEDIA_READONLY = 1 << 2,
	MEDIA_DISCARD = 1 << 3,  /* media_discard punches holes in files; on devices it always works */
	MEDIA_PEEK = 1 << 4,     /* with MEDIA_READONLY: no lock, the owner may write meanwhile */
};

/* A regular file or block device. `size` 0: what is there. -ENOSPC when the filesystem cannot hold
 * `size` (nothing is left behind), -EINVAL for other kinds of file or a too small one. Takes an
 * exclusive lock on the file (flock; O_EXCL on devices): -EBUSY when somebody has it. */
int media_open_file(struct media **out, const char *path, uint64_t size, unsigned flags);
int media_open_ram(struct media **out, uint64_t size); /* zeroed */
/* [off, off+len) of `parent`, which must outlive it and is not closed with it. A flush of a region
 * is a flush of the parent; concurrent ones share one. */
int media_open_region(struct media **out, struct media *parent, uint64_t off, uint64_t len);

int media_read(struct media *m, void *buf, size_t len, uint64_t off);
int media_write(struct media *m, const void *buf, size_t len, uint64_t off);
/* Everything written before the call is durable on return. After a failed flush the data written
 * since the last good one must be treated as lost (the kernel forgets the error). */
int media_flush(struct media *m);
/* The range may read as anything afterwards. 0 also where it is not supported. */
int media_discard(struct media *m, uint64_t off, uint64_t len);
uint64_t media_size(const struct media *m);
void media_get_stats(const struct media *m, struct media_stats *out);
void media_close(struct media *m); /* NULL-safe; does not flush */

/* The fault injector (media_fault.c): a medium with a volatile write cache and bad luck. A range
 * discarded through it reads as before, as zeros or as rubbish, as the seed has it. */

struct media_fault;

enum media_cut_keep { /* which unflushed writes survive a power cut */
	MEDIA_KEEP_NONE,
	MEDIA_KEEP_ALL,
	MEDIA_KEEP_PREFIX,  /* a random number of the oldest, the last one torn at 512 bytes */
	MEDIA_KEEP_SUBSET,  /* any random subset, each possibly torn: any of its 512-byte pieces */
};

enum media_fault_op { MEDIA_OP_READ, MEDIA_OP_WRITE, MEDIA_OP_FLUSH, MEDIA_OP_DISCARD,
		      MEDIA_OP_EVENT, MEDIA_OPS };

/* Wraps `lower` (owned: closed with *out; not another injector). Writes stay in memory until a
 * flush; reads see them. Calls are numbered from 1: every read is free, every write, flush, discard
 * and event counts. */
int media_open_fault(struct media **out, struct media_fault **ctl, struct media *lower,
		     uint64_t seed);
uint64_t media_fault_calls(const struct media_fault *f);
/* Call number `call` and everything after it fails with -EIO, as if the power had gone; a write
 * that is cut joins the unflushed ones. 0: never. */
void media_fault_cut_at(struct media_fault *f, uint64_t call);
bool media_fault_is_cut(const struct media_fault *f);
/* Power returns: unflushed writes are kept or lost per `keep` and the seed, then calls work and no
 * cut is set. Without a cut before: the power goes and comes between two calls. */
void media_fault_restore(struct media_fault *f, enum media_cut_keep keep);
/* A step outside the medium (an LMDB commit) in the same order; -EIO when cut. */
int media_fault_event(struct media_fault *f);
/* The n-th next call of this kind fails once with `error` (negative errno); 0: disarms. A write
 * that fails may have written any of its 512-byte pieces; a flush that fails loses any of the
 * unflushed writes; events and reads just fail. */
void media_fault_fail(struct media_fault *f, enum media_fault_op op, uint64_t nth, int error);
void media_fault_flip(struct media_fault *f, uint64_t byte_off, unsigned bit); /* durable image */
void media_fault_kill(struct media_fault *f, bool dead); /* every call -EIO while dead */
void media_fault_delay(struct media_fault *f, uint64_t ns); /* each call sleeps that long */
void media_fault_lie(struct media_fault *f, bool on); /* flush answers 0 and does nothing */
/* The n-th next write lands `shift` bytes away (a multiple of MEDIA_ALIGN), once, and answers 0. A
 * place outside the medium makes it a lost write. */
void media_fault_misdirect(struct media_fault *f, uint64_t nth_write, int64_t shift);

#endif
