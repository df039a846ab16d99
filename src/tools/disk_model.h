/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A disk array in model time: what would six 15K drives do with this request?
 *
 * Pure and deterministic: it reads no clock, moves no data and takes no lock. The caller enters
 * requests with the time they arrive and asks for those that are done. Times are nanoseconds of
 * one clock that must not run backwards between calls. Not thread safe.
 */
#ifndef GILD_TOOLS_DISK_MODEL_H
#define GILD_TOOLS_DISK_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/disk_drive.h"

#define DISK_MODEL_SPINDLES 24          /* at most */
#define DISK_MODEL_DEPTH 32             /* requests a drive chooses from; more wait in line */
#define DISK_MODEL_PASSES 128           /* choices after which the oldest is served anyway */
#define DISK_MODEL_CHUNK (64 * 1024ULL) /* bytes of a stripe on one mirror pair */
#define DISK_MODEL_MIN (1024 * 1024ULL) /* smallest content modelled */

enum disk_model_kind { DISK_MODEL_HDD6, DISK_MODEL_HDD24, DISK_MODEL_HDD1, DISK_MODEL_KINDS };

struct disk_model_kind_info {
	const char *name;       /* "hdd-6" */
	const char *text;       /* one line for people */
	unsigned spindles;      /* total */
	unsigned mirrors;       /* drives a stripe member consists of: 2 (RAID10) or 1 */
	uint64_t usable;        /* bytes the array would offer */
	double stroke;          /* default: the part of the stroke 40 GB occupy */
	const struct disk_drive_sheet *sheet;
};

const struct disk_model_kind_info *disk_model_kind_info(enum disk_model_kind kind);

struct disk_model;
struct disk_model_request;

/* The part of a request that one spindle serves; owned by the model while queued. */
struct disk_model_piece {
	struct disk_model_request *request;
	struct disk_model_piece *next;
	uint64_t start, end; /* bytes of the spindle */
	uint64_t arrival_ns, done_ns;
	unsigned passed; /* choices of the drive it was part of */
};

struct disk_model_request {
	/* set by the caller; any length, within the content; untouched until it is taken back */
	uint64_t offset, length;
	bool write;
	/* valid when taken back */
	uint64_t submitted_ns, done_ns;
	/* the model's */
	struct disk_model_request *next;
	unsigned missing; /* pieces not done */
	struct disk_model_piece piece[DISK_MODEL_SPINDLES];
};

struct disk_model_spindle_stats {
	uint64_t reads, writes, bytes;
	uint64_t hits;        /* answered from the drive's buffer without the head */
	uint64_t sequential;  /* began where the head was, or in the buffer */
	uint64_t seek_ns, wait_ns, transfer_ns; /* of what the head did */
	uint64_t busy_ns;     /* the three, and command time not overlapped */
	unsigned queue;       /* now, with the one being served */
	unsigned queue_max;
};

/* `bytes` >= DISK_MODEL_MIN; `stroke` in (0, 1], or 0 for the kind's default. -EINVAL, -ENOMEM. */
int disk_model_create(struct disk_model **out, enum disk_model_kind kind, uint64_t bytes,
		      double stroke);
void disk_model_destroy(struct disk_model *m); /* NULL-safe; requests inside are forgotten */

/* `r` arrives at `now`. It must stay where it is until disk_model_take returns it. */
void disk_model_submit(struct disk_model *m, struct disk_model_request *r, uint64_t now);
/* A request that is done at `now`, or NULL; in no particular order, done_ns tells. */
struct disk_model_request *disk_model_take(struct disk_model *m, uint64_t now);
/* When to call disk_model_take next; UINT64_MAX: nothing is going on. */
uint64_t disk_model_next_ns(const struct disk_model *m);

unsigned disk_model_spindles(const struct disk_model *m);
double disk_model_stroke(const struct disk_model *m);
void disk_model_stats(const struct disk_model *m, unsigned spindle,
		      struct disk_model_spindle_stats *out);

#endif
