/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Mechanics of a drive.
 *
 * Seek. a + b*sqrt(x) + c*x over the distance x (Lee's three-point form: the root dominates short
 * seeks, where the arm only accelerates and brakes, the line long ones, where it coasts). a, b and
 * c come from the three numbers every data sheet has: next cylinder, average, full stroke. For
 * uniformly random pairs of cylinders E[sqrt x] = 8/15 and E[x] = 1/3.
 *
 * Place. The bytes in use fill tracks of 16 zones, outermost first. Tracks hold what gives the
 * zone's sustained rate when each costs one turn plus the skew. When the bytes do not fill the
 * part of the stroke they are spread over, the tracks lie wider apart: distances, and so seeks,
 * are those of the full content, while a track still streams into the next.
 *
 * Rotation. The angle of the platter follows the clock; byte `at` passes the head once a turn, at
 * its place in the track plus the skew of all tracks before it.
 *
 * Buffer. After a read the head goes on reading into a segment until something else needs it
 * (invariant: reading_on implies segment[live].end is the point the head started from; the filled
 * part is computed from the clock). This is what lets a reader with one request at a time stream.
 * There is no write cache: a write is done when it is on the platter.
 */
#include <config.h>

#include <math.h>

#include "base/log.h"
#include "tools/disk_drive.h"

/* A place found this little of a turn behind the head counts as just under it: rounding. */
#define DRIVE_SLACK 200

static const struct disk_drive_zone *drive_zone(const struct disk_drive *d, uint64_t at)
{
	unsigned i = DISK_DRIVE_ZONES - 1;

	while (i > 0 && at < d->zone[i].start)
		i--;
	return &d->zone[i];
}

static uint64_t drive_track(const struct disk_drive *d, uint64_t at)
{
	const struct disk_drive_zone *z = drive_zone(d, at);

	return z->first_track + (at - z->start) / z->track_bytes;
}

static void drive_lay_zones(struct disk_drive *d)
{
	const struct disk_drive_sheet *s = d->sheet;
	double track[DISK_DRIVE_ZONES], sum = 0, before = 0;
	uint64_t tracks = 0;

	for (unsigned i = 0; i < DISK_DRIVE_ZONES; i++) {
		double x = d->stroke * (i + 0.5) / DISK_DRIVE_ZONES;
		double rate = s->rate_outer + (s->rate_inner - s->rate_outer) * x;

		track[i] = floor(rate * (double)(s->turn_ns + s->skew_ns) / 1e9);
		sum += track[i];
	}
	for (unsigned i = 0; i < DISK_DRIVE_ZONES; i++) {
		struct disk_drive_zone *z = &d->zone[i];

		z->start = (uint64_t)((double)d->bytes * before / sum);
		before += track[i];
		z->track_bytes = (uint64_t)track[i];
		z->first_track = tracks;
		d->zone[i + 1].start = i + 1 < DISK_DRIVE_ZONES ?
			(uint64_t)((double)d->bytes * before / sum) : d->bytes;
		tracks += (d->zone[i + 1].start - z->start) / z->track_bytes + 1;
	}
}

void disk_drive_init(struct disk_drive *d, const struct disk_drive_sheet *sheet, uint64_t bytes,
		     double stroke, double phase)
{
	double rise = (double)(sheet->seek_full_ns - sheet->seek_track_ns);

	gild_assert(bytes > 0 && stroke > 0 && stroke <= 1);
	*d = (struct disk_drive){.sheet = sheet, .bytes = bytes, .stroke = stroke};
	d->root = 5 * ((double)(sheet->seek_average_ns - sheet->seek_track_ns) - rise / 3);
	d->line = rise - d->root;
	gild_assert(d->root >= 0 && d->line >= 0);
	d->phase_ns = (uint64_t)(phase * (double)sheet->turn_ns);
	drive_lay_zones(d);
}

uint64_t disk_drive_seek_ns(const struct disk_drive *d, double distance)
{
	return d->sheet->seek_track_ns + (uint64_t)(d->root * sqrt(distance) + d->line * distance);
}

double disk_drive_cylinder(const struct disk_drive *d, uint64_t at)
{
	const struct disk_drive_zone *z = drive_zone(d, at);
	uint64_t span = z[1].start - z->start;
	double part = span ? (double)(at - z->start) / (double)span : 0;

	return d->stroke * ((double)(z - d->zone) + part) / DISK_DRIVE_ZONES;
}

uint64_t disk_drive_transfer_ns(const struct disk_drive *d, uint64_t at, uint64_t length)
{
	const struct disk_drive_zone *z = drive_zone(d, at);
	uint64_t in = (at - z->start) % z->track_bytes;
	uint64_t crossings = length ? (in + length - 1) / z->track_bytes : 0;

	return (uint64_t)((double)length / (double)z->track_bytes * (double)d->sheet->turn_ns) +
	       crossings * d->sheet->skew_ns;
}

/* How long from `now` until byte `at` passes the head that is on its track. */
static uint64_t drive_wait_ns(const struct disk_drive *d, uint64_t now, uint64_t at)
{
	const struct disk_drive_zone *z = drive_zone(d, at);
	uint64_t turn = d->sheet->turn_ns;
	uint64_t track = z->first_track + (at - z->start) / z->track_bytes;
	uint64_t in = (at - z->start) % z->track_bytes;
	uint64_t place = (uint64_t)((double)in / (double)z->track_bytes * (double)turn);
	uint64_t wait;

	place = (place + track % turn * (d->sheet->skew_ns % turn)) % turn;
	wait = (place + turn - (now + d->phase_ns) % turn) % turn;
	return wait > turn - turn / DRIVE_SLACK ? 0 : wait;
}

/* The byte the read-ahead has reached at `now`. */
static uint64_t drive_filled(const struct disk_drive *d, uint64_t now)
{
	const struct disk_drive_sheet *s = d->sheet;
	const struct disk_drive_zone *z = drive_zone(d, d->head);
	double track = (double)z->track_bytes, step = (double)(s->turn_ns + s->skew_ns);
	uint64_t in = (d->head - z->start) % z->track_bytes, reached;
	double t, whole, rest;

	if (!d->reading_on || now <= d->head_ns)
		return d->head;
	t = (double)(now - d->head_ns) + (double)in / track * (double)s->turn_ns;
	whole = floor(t / step);
	rest = fmin((t - whole * step) / (double)s->turn_ns, 1);
	reached = d->head - in + (uint64_t)((whole + rest) * track);
	return reached < d->limit ? reached : d->limit;
}

/* Seek from where the head is to `at`, 0 when it is there. */
static uint64_t drive_seek_to(const struct disk_drive *d, uint64_t from, uint64_t at, bool write)
{
	uint64_t a = drive_track(d, from), b = drive_track(d, at);
	unsigned heads = d->sheet->heads;

	if (a == b)
		return 0;
	if (a / heads == b / heads)
		return d->sheet->switch_ns;
	return disk_drive_seek_ns(d, fabs(disk_drive_cylinder(d, from) - disk_drive_cylinder(d, at))) +
	       (write ? d->sheet->settle_write_ns : 0);
}

static uint64_t drive_later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Where a segment that was filled up to `stop` begins: it holds two read-aheads, one of them behind
 * the reader. */
static uint64_t drive_kept_from(const struct disk_drive *d, const struct disk_drive_segment *seg,
				uint64_t stop)
{
	uint64_t room = 2 * d->sheet->readahead;

	return stop > seg->start + room ? stop - room : seg->start;
}

/* The running read-ahead has the start and has or will reach the end. */
static bool drive_streams(const struct disk_drive *d, uint64_t filled, uint64_t start, uint64_t end)
{
	return d->reading_on && start >= drive_kept_from(d, &d->segment[d->live], filled) &&
	       start <= filled && (filled < d->limit || end <= filled);
}

void disk_drive_plan(const struct disk_drive *d, uint64_t now, uint64_t arrival, bool write,
		     uint64_t start, uint64_t end, struct disk_drive_plan *plan)
{
	uint64_t go = drive_later(now, arrival + d->sheet->command_ns);
	uint64_t filled = drive_filled(d, go);

	*plan = (struct disk_drive_plan){0};
	if (!write && drive_streams(d, filled, start, end)) {
		uint64_t bus = (uint64_t)((double)(end - start) / d->sheet->rate_bus * 1e9);
		uint64_t media = disk_drive_transfer_ns(d, d->head, end - d->head);

		plan->stream = plan->sequential = true;
		plan->ready_ns = go;
		plan->done_ns = go + bus;
		plan->media_bound = end > filled && d->head_ns + media >= plan->done_ns;
		if (plan->media_bound)
			plan->done_ns = d->head_ns + media;
		plan->transfer_ns = plan->done_ns - go;
		return;
	}
	/* No seek onto the next track either: the skew that the wait contains covers the switch. */
	plan->sequential = start == filled;
	plan->seek_ns = plan->sequential ? 0 : drive_seek_to(d, filled, start, write);
	plan->wait_ns = drive_wait_ns(d, go + plan->seek_ns, start);
	plan->transfer_ns = disk_drive_transfer_ns(d, start, end - start);
	plan->ready_ns = go + plan->seek_ns + plan->wait_ns;
	plan->done_ns = plan->ready_ns + plan->transfer_ns;
}

/* The read-ahead stops at `now`; the segment keeps what it has. */
static void drive_stop_reading(struct disk_drive *d, uint64_t now)
{
	struct disk_drive_segment *seg = &d->segment[d->live];
	uint64_t filled = drive_filled(d, now);

	if (!d->reading_on)
		return;
	seg->end = filled;
	seg->start = drive_kept_from(d, seg, filled);
	d->head = filled;
	d->head_ns = now;
	d->reading_on = false;
}

/* The reader took everything up to `end`: the read-ahead may go on, after a turn's wait if it had
 * stopped at its limit. */
static void drive_raise_limit(struct disk_drive *d, uint64_t now, uint64_t end)
{
	uint64_t limit = end + d->sheet->readahead;

	if (limit > d->bytes)
		limit = d->bytes;
	if (limit <= d->limit)
		return;
	if (drive_filled(d, now) == d->limit) {
		d->head = d->limit;
		d->head_ns = now + drive_wait_ns(d, now, d->head);
	}
	d->limit = limit;
}

void disk_drive_begin(struct disk_drive *d, uint64_t now, const struct disk_drive_plan *plan,
		      uint64_t end)
{
	if (plan->stream)
		drive_raise_limit(d, now, end);
	else
		drive_stop_reading(d, now);
}

/* The segment that `start` continues, else the one unused for longest. */
static unsigned drive_pick_segment(struct disk_drive *d, uint64_t start)
{
	unsigned oldest = 0;

	for (unsigned i = 0; i < DISK_DRIVE_SEGMENTS; i++) {
		const struct disk_drive_segment *seg = &d->segment[i];

		if (seg->end > seg->start && seg->end == start)
			return i;
		if (seg->used < d->segment[oldest].used)
			oldest = i;
	}
	d->segment[oldest].start = start;
	return oldest;
}

void disk_drive_finish(struct disk_drive *d, const struct disk_drive_plan *plan, bool write,
		       uint64_t start, uint64_t end)
{
	if (plan->stream && d->reading_on) {
		d->segment[d->live].used = ++d->uses;
		if (plan->media_bound) {
			d->head = end; /* moves the reference on, so that it stays in its zone */
			d->head_ns = plan->done_ns;
		}
		return;
	}
	d->head = end;
	d->head_ns = plan->done_ns;
	d->reading_on = !write;
	if (write)
		return;
	d->live = drive_pick_segment(d, start);
	d->segment[d->live].end = end;
	d->segment[d->live].used = ++d->uses;
	d->limit = end;
	drive_raise_limit(d, d->head_ns, end);
}

/* The segment with the most of [start, end) from `start` on; *have is how much. */
static unsigned drive_find(const struct disk_drive *d, uint64_t now, uint64_t start, uint64_t end,
			   uint64_t *have)
{
	uint64_t best = start;
	unsigned found = DISK_DRIVE_SEGMENTS;

	for (unsigned i = 0; i < DISK_DRIVE_SEGMENTS; i++) {
		const struct disk_drive_segment *seg = &d->segment[i];
		bool live = d->reading_on && i == d->live;
		uint64_t stop = live ? drive_filled(d, now) : seg->end;

		if (start >= drive_kept_from(d, seg, stop) && start < stop && stop > best) {
			best = stop < end ? stop : end;
			found = i;
		}
	}
	*have = best - start;
	return found;
}

uint64_t disk_drive_buffered(const struct disk_drive *d, uint64_t now, uint64_t start, uint64_t end)
{
	uint64_t have;

	drive_find(d, now, start, end, &have);
	return have;
}

void disk_drive_use(struct disk_drive *d, uint64_t now, uint64_t start, uint64_t end)
{
	uint64_t have;
	unsigned found = drive_find(d, now, start, end, &have);

	if (found == DISK_DRIVE_SEGMENTS)
		return;
	d->segment[found].used = ++d->uses;
	if (d->reading_on && found == d->live)
		drive_raise_limit(d, now, end);
}

void disk_drive_forget(struct disk_drive *d, uint64_t now, uint64_t start, uint64_t end)
{
	for (unsigned i = 0; i < DISK_DRIVE_SEGMENTS; i++) {
		struct disk_drive_segment *seg = &d->segment[i];
		bool live = d->reading_on && i == d->live;

		if (start >= (live ? d->limit : seg->end) || end <= seg->start)
			continue;
		if (live)
			drive_stop_reading(d, now);
		seg->start = seg->end = 0;
	}
}
