/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The mechanics of one hard drive: where a byte is, how long the head needs to get there, when it
 * passes below it. Pure arithmetic in model time; disk_model.h queues requests on it.
 *
 * All times are nanoseconds of one clock that only rises, all places are bytes from the start of
 * the part of the drive in use. Not thread safe.
 */
#ifndef GILD_TOOLS_DISK_DRIVE_H
#define GILD_TOOLS_DISK_DRIVE_H

#include <stdbool.h>
#include <stdint.h>

/* What a data sheet says. */
struct disk_drive_sheet {
	const char *text;         /* "73 GB 15000 rpm SAS" */
	uint64_t capacity;        /* bytes */
	unsigned heads;           /* tracks a cylinder */
	uint64_t turn_ns;         /* one revolution */
	uint64_t seek_track_ns;   /* seek to the next cylinder, settling included */
	uint64_t seek_average_ns; /* over random pairs of cylinders */
	uint64_t seek_full_ns;    /* from the first to the last cylinder */
	uint64_t settle_write_ns; /* a seek before a write takes this much longer */
	uint64_t switch_ns;       /* to another head of the same cylinder */
	uint64_t skew_ns;         /* a track starts this much after the one before; >= switch_ns */
	uint64_t command_ns;      /* command processing, overlapped when requests are queued */
	double rate_outer;        /* sustained bytes a second on the first cylinder */
	double rate_inner;        /* and on the last */
	double rate_bus;          /* from the drive's buffer */
	uint64_t readahead;       /* bytes read on after a read, into one buffer segment */
};

#define DISK_DRIVE_ZONES 16
#define DISK_DRIVE_SEGMENTS 16

struct disk_drive_zone {
	uint64_t start;       /* bytes */
	uint64_t track_bytes; /* bytes on each of its tracks */
	uint64_t first_track; /* number of its first track */
};

/* Bytes [start, end) in the drive's buffer; empty when equal. */
struct disk_drive_segment {
	uint64_t start, end;
	uint64_t used; /* for choosing the least recently used */
};

struct disk_drive {
	/* constant after disk_drive_init */
	const struct disk_drive_sheet *sheet;
	uint64_t bytes;    /* in use */
	double stroke;     /* the fraction of all cylinders these bytes are spread over */
	double root, line; /* seek = seek_track + root * sqrt(distance) + line * distance */
	uint64_t phase_ns; /* rotational position at time 0 */
	struct disk_drive_zone zone[DISK_DRIVE_ZONES + 1];

	/* The head was at the start of byte `head` at `head_ns`. While `reading_on` it follows the
	 * track from there into segment `live` until `limit`. */
	uint64_t head, head_ns;
	bool reading_on;
	unsigned live;
	uint64_t limit;
	uint64_t uses;
	struct disk_drive_segment segment[DISK_DRIVE_SEGMENTS];
};

/* What serving one request from the media takes. `ready_ns` is when its first byte passes the head
 * (what a scheduler wants small). */
struct disk_drive_plan {
	uint64_t seek_ns, wait_ns, transfer_ns;
	uint64_t ready_ns, done_ns;
	bool sequential; /* the head was there already */
	bool stream;     /* comes out of the running read-ahead */
	bool media_bound; /* a stream that waits for the platter, not for the bus */
};

/* `stroke` in (0, 1]; `phase` in [0, 1), a part of a turn. */
void disk_drive_init(struct disk_drive *d, const struct disk_drive_sheet *sheet, uint64_t bytes,
		     double stroke, double phase);

/* Seek time between two cylinders `distance` apart (fraction of all cylinders, > 0). */
uint64_t disk_drive_seek_ns(const struct disk_drive *d, double distance);
/* Cylinder of a byte as a fraction of all the drive's cylinders. */
double disk_drive_cylinder(const struct disk_drive *d, uint64_t at);
/* Media time of `length` bytes from `at` on, head switches included. */
uint64_t disk_drive_transfer_ns(const struct disk_drive *d, uint64_t at, uint64_t length);

/* Plans a request that arrived at `arrival` if the head is given to it at `now`; changes nothing. */
void disk_drive_plan(const struct disk_drive *d, uint64_t now, uint64_t arrival, bool write,
		     uint64_t start, uint64_t end, struct disk_drive_plan *plan);
/* The head starts on the plan at `now`; at plan->done_ns disk_drive_finish must follow. */
void disk_drive_begin(struct disk_drive *d, uint64_t now, const struct disk_drive_plan *plan,
		      uint64_t end);
void disk_drive_finish(struct disk_drive *d, const struct disk_drive_plan *plan, bool write,
		       uint64_t start, uint64_t end);

/* How much of [start, end) the buffer holds at `now`, counted from `start`. */
uint64_t disk_drive_buffered(const struct disk_drive *d, uint64_t now, uint64_t start,
			     uint64_t end);
/* A complete hit is taken from the buffer: keeps the segment, and the read-ahead going. */
void disk_drive_use(struct disk_drive *d, uint64_t now, uint64_t start, uint64_t end);
/* Drops what a write to [start, end) makes stale. */
void disk_drive_forget(struct disk_drive *d, uint64_t now, uint64_t start, uint64_t end);

#endif
