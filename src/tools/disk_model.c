/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The array: striping, mirrors, queues.
 *
 * RAID10 near layout: chunk k of the content lies on mirror pair k mod P, as that pair's chunk
 * k / P. What a request needs of one pair is therefore always one contiguous run: one piece (two
 * for writes, one a mirror), whatever its length.
 *
 * Reading, the mirror is chosen that the controller would choose: the one already streaming this
 * place, else the one with the shorter queue, else the one whose head is nearer.
 *
 * A spindle serves one piece at a time. When the head is free it takes, of the first 32 that wait,
 * the one that can start first (seek and rotation: what drives do with tagged queues), but the
 * oldest once 128 others were preferred to it. Complete hits in the drive's buffer bypass the queue.
 *
 * States of a piece: queued -> active (planned; its end is known) -> done; or hit -> done.
 * Invariants: (1) an idle spindle has an empty queue; (2) busy_until of an active spindle lies
 * after every time the model was called with; (3) a request is on the done list once, when its
 * last piece is done; (4) time given by callers is only compared with, never stored over, the
 * model's own: a late call starts the next piece when the head was free, not when it was called.
 */
#include <config.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "tools/disk_model.h"

struct model_spindle {
	struct disk_drive drive;
	struct disk_model_piece *queue, **queue_end; /* by arrival */
	unsigned depth;                              /* queued, without the active one */
	struct disk_model_piece *active;
	struct disk_drive_plan plan; /* of the active piece */
	uint64_t begun_ns;
	uint64_t tail; /* where the piece that came last ends: a stream continues there */
	struct disk_model_spindle_stats stats;
};

struct disk_model {
	/* constant */
	const struct disk_model_kind_info *kind;
	uint64_t bytes;
	double stroke;
	unsigned pairs;

	struct model_spindle spindle[DISK_MODEL_SPINDLES];
	struct disk_model_piece *hits;                 /* by done_ns */
	struct disk_model_request *done, **done_end;
};

/* Seagate Cheetah 15K.5, 73 GB: the drive class of the published HDD-6 and HDD-24. */
static const struct disk_drive_sheet sheet_15k = {
	.text = "73 GB 15000 rpm SAS",
	.capacity = 73400000000ULL,
	.heads = 2,
	.turn_ns = 4000000,
	.seek_track_ns = 300000,
	.seek_average_ns = 3500000,
	.seek_full_ns = 7000000,
	.settle_write_ns = 500000,
	.switch_ns = 300000,
	.skew_ns = 500000,
	.command_ns = 150000,
	.rate_outer = 120e6,
	.rate_inner = 80e6,
	.rate_bus = 300e6,
	.readahead = 512 * 1024,
};

/* A 500 GB desktop drive of the same years. */
static const struct disk_drive_sheet sheet_7200 = {
	.text = "500 GB 7200 rpm SATA",
	.capacity = 500100000000ULL,
	.heads = 2,
	.turn_ns = 8333333,
	.seek_track_ns = 800000,
	.seek_average_ns = 8500000,
	.seek_full_ns = 17000000,
	.settle_write_ns = 1000000,
	.switch_ns = 800000,
	.skew_ns = 1000000,
	.command_ns = 150000,
	.rate_outer = 125e6,
	.rate_inner = 60e6,
	.rate_bus = 300e6,
	.readahead = 512 * 1024,
};

#define PUBLISHED_BYTES 40e9 /* the content of the published load */

static const struct disk_model_kind_info model_kinds[DISK_MODEL_KINDS] = {
	[DISK_MODEL_HDD6] = {"hdd-6", "6 x 73 GB 15000 rpm SAS, RAID10", 6, 2, 3 * 73400000000ULL,
			     PUBLISHED_BYTES / (3 * 73.4e9), &sheet_15k},
	[DISK_MODEL_HDD24] = {"hdd-24", "24 x 73 GB 15000 rpm SAS, RAID10", 24, 2,
			      12 * 73400000000ULL, PUBLISHED_BYTES / (12 * 73.4e9), &sheet_15k},
	[DISK_MODEL_HDD1] = {"hdd-1", "1 x 500 GB 7200 rpm SATA", 1, 1, 500100000000ULL,
			     PUBLISHED_BYTES / 500.1e9, &sheet_7200},
};

const struct disk_model_kind_info *disk_model_kind_info(enum disk_model_kind kind)
{
	return &model_kinds[kind];
}

int disk_model_create(struct disk_model **out, enum disk_model_kind kind, uint64_t bytes,
		      double stroke)
{
	const struct disk_model_kind_info *info = &model_kinds[kind];
	struct disk_model *m;
	uint64_t chunks;

	if (bytes < DISK_MODEL_MIN || !(stroke >= 0 && stroke <= 1))
		return -EINVAL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->kind = info;
	m->bytes = bytes;
	m->stroke = stroke > 0 ? stroke : info->stroke;
	m->pairs = info->spindles / info->mirrors;
	m->done_end = &m->done;
	chunks = (bytes + DISK_MODEL_CHUNK - 1) / DISK_MODEL_CHUNK;
	for (unsigned i = 0; i < info->spindles; i++) {
		struct model_spindle *s = &m->spindle[i];
		double phase = i * 0.6180339887;

		disk_drive_init(&s->drive, info->sheet,
				(chunks + m->pairs - 1) / m->pairs * DISK_MODEL_CHUNK, m->stroke,
				phase - floor(phase));
		s->queue_end = &s->queue;
	}
	*out = m;
	return 0;
}

void disk_model_destroy(struct disk_model *m)
{
	free(m);
}

static void model_finish_piece(struct disk_model *m, struct disk_model_piece *p)
{
	struct disk_model_request *r = p->request;

	if (p->done_ns > r->done_ns)
		r->done_ns = p->done_ns;
	if (--r->missing > 0)
		return;
	r->next = NULL;
	*m->done_end = r;
	m->done_end = &r->next;
}

/* The waiting piece to serve next at `now`, and its plan. */
static struct disk_model_piece **model_choose(struct model_spindle *s, uint64_t now,
					      struct disk_drive_plan *best)
{
	struct disk_model_piece **at = &s->queue, **chosen = NULL;
	unsigned window = s->queue->passed < DISK_MODEL_PASSES ? DISK_MODEL_DEPTH : 1;

	for (unsigned i = 0; *at && i < window; i++, at = &(*at)->next) {
		struct disk_model_piece *p = *at;
		struct disk_drive_plan plan;

		p->passed++;
		disk_drive_plan(&s->drive, now, p->arrival_ns, p->request->write, p->start, p->end,
				&plan);
		if (chosen && plan.ready_ns >= best->ready_ns)
			continue;
		chosen = at;
		*best = plan;
	}
	return chosen;
}

static void model_start_next(struct model_spindle *s, uint64_t now)
{
	struct disk_model_piece **at, *p;

	if (!s->queue)
		return;
	at = model_choose(s, now, &s->plan);
	p = *at;
	*at = p->next;
	if (!*at)
		s->queue_end = at;
	s->depth--;
	s->active = p;
	s->begun_ns = now;
	disk_drive_begin(&s->drive, now, &s->plan, p->end);
}

static void model_finish_active(struct disk_model *m, struct model_spindle *s)
{
	struct disk_model_piece *p = s->active;
	struct disk_model_spindle_stats *st = &s->stats;

	disk_drive_finish(&s->drive, &s->plan, p->request->write, p->start, p->end);
	st->seek_ns += s->plan.seek_ns;
	st->wait_ns += s->plan.wait_ns;
	st->transfer_ns += s->plan.transfer_ns;
	st->busy_ns += s->plan.done_ns - s->begun_ns;
	st->sequential += s->plan.sequential;
	p->done_ns = s->plan.done_ns;
	s->active = NULL;
	model_finish_piece(m, p);
}

static void model_advance(struct disk_model *m, uint64_t now)
{
	for (unsigned i = 0; i < m->kind->spindles; i++) {
		struct model_spindle *s = &m->spindle[i];

		while (s->active && s->plan.done_ns <= now) {
			uint64_t free_ns = s->plan.done_ns;

			model_finish_active(m, s);
			model_start_next(s, free_ns);
		}
	}
	while (m->hits && m->hits->done_ns <= now) {
		struct disk_model_piece *p = m->hits;

		m->hits = p->next;
		model_finish_piece(m, p);
	}
}

static void model_add_hit(struct disk_model *m, struct model_spindle *s, struct disk_model_piece *p)
{
	const struct disk_drive_sheet *sheet = s->drive.sheet;
	struct disk_model_piece **at = &m->hits;

	p->done_ns = p->arrival_ns + sheet->command_ns +
		     (uint64_t)((double)(p->end - p->start) / sheet->rate_bus * 1e9);
	while (*at && (*at)->done_ns <= p->done_ns)
		at = &(*at)->next;
	p->next = *at;
	*at = p;
	s->stats.hits++;
	s->stats.sequential++;
}

static void model_enqueue(struct disk_model *m, struct model_spindle *s, struct disk_model_piece *p)
{
	struct disk_model_spindle_stats *st = &s->stats;
	uint64_t now = p->arrival_ns, have;

	s->tail = p->end;
	st->bytes += p->end - p->start;
	if (p->request->write) {
		st->writes++;
		disk_drive_forget(&s->drive, now, p->start, p->end);
	} else {
		st->reads++;
		have = disk_drive_buffered(&s->drive, now, p->start, p->end);
		if (have == p->end - p->start) {
			disk_drive_use(&s->drive, now, p->start, p->end);
			model_add_hit(m, s, p);
			return;
		}
		p->start += have;
	}
	p->next = NULL;
	*s->queue_end = p;
	s->queue_end = &p->next;
	s->depth++;
	if (s->depth + (s->active != NULL) > st->queue_max)
		st->queue_max = s->depth + (s->active != NULL);
	if (!s->active)
		model_start_next(s, now);
}

/* The run of [offset, end) that lies on `pair`; false when there is none. */
static bool model_run(const struct disk_model *m, unsigned pair, uint64_t offset, uint64_t end,
		      uint64_t *start, uint64_t *stop)
{
	uint64_t first = offset / DISK_MODEL_CHUNK, last = (end - 1) / DISK_MODEL_CHUNK;
	uint64_t a = first + (pair + m->pairs - first % m->pairs) % m->pairs;
	uint64_t b;

	if (a > last)
		return false;
	b = last - (last % m->pairs + m->pairs - pair) % m->pairs;
	*start = a / m->pairs * DISK_MODEL_CHUNK + (a == first ? offset % DISK_MODEL_CHUNK : 0);
	*stop = b / m->pairs * DISK_MODEL_CHUNK +
		(b == last ? (end - 1) % DISK_MODEL_CHUNK + 1 : DISK_MODEL_CHUNK);
	return true;
}

static struct model_spindle *model_pick_mirror(struct disk_model *m, unsigned pair, uint64_t start,
					       uint64_t now)
{
	struct model_spindle *best = NULL;
	double near = 0;
	unsigned load = 0;

	for (unsigned i = 0; i < m->kind->mirrors; i++) {
		struct model_spindle *s = &m->spindle[pair * m->kind->mirrors + i];
		unsigned depth = s->depth + (s->active != NULL);
		uint64_t head = s->active ? s->active->end : s->drive.head;
		double far = fabs(disk_drive_cylinder(&s->drive, head) -
				  disk_drive_cylinder(&s->drive, start));

		if (start == s->tail || disk_drive_buffered(&s->drive, now, start, start + 1))
			return s;
		if (best && (depth > load || (depth == load && far >= near)))
			continue;
		best = s;
		load = depth;
		near = far;
	}
	return best;
}

void disk_model_submit(struct disk_model *m, struct disk_model_request *r, uint64_t now)
{
	gild_assert(r->length > 0 && r->offset < m->bytes && r->length <= m->bytes - r->offset);
	model_advance(m, now);
	r->submitted_ns = now;
	r->done_ns = 0;
	r->missing = 0;
	for (unsigned pair = 0; pair < m->pairs; pair++) {
		uint64_t start, stop;

		if (!model_run(m, pair, r->offset, r->offset + r->length, &start, &stop))
			continue;
		for (unsigned i = 0; i < (r->write ? m->kind->mirrors : 1); i++) {
			struct disk_model_piece *p = &r->piece[r->missing++];

			*p = (struct disk_model_piece){
				.request = r, .start = start, .end = stop, .arrival_ns = now};
			model_enqueue(m, r->write ? &m->spindle[pair * m->kind->mirrors + i] :
				      model_pick_mirror(m, pair, start, now), p);
		}
	}
}

struct disk_model_request *disk_model_take(struct disk_model *m, uint64_t now)
{
	struct disk_model_request *r;

	model_advance(m, now);
	r = m->done;
	if (!r)
		return NULL;
	m->done = r->next;
	if (!m->done)
		m->done_end = &m->done;
	return r;
}

uint64_t disk_model_next_ns(const struct disk_model *m)
{
	uint64_t next = m->hits ? m->hits->done_ns : UINT64_MAX;

	if (m->done)
		return 0;
	for (unsigned i = 0; i < m->kind->spindles; i++) {
		const struct model_spindle *s = &m->spindle[i];

		if (s->active && s->plan.done_ns < next)
			next = s->plan.done_ns;
	}
	return next;
}

unsigned disk_model_spindles(const struct disk_model *m)
{
	return m->kind->spindles;
}

double disk_model_stroke(const struct disk_model *m)
{
	return m->stroke;
}

void disk_model_stats(const struct disk_model *m, unsigned spindle,
		      struct disk_model_spindle_stats *out)
{
	const struct model_spindle *s = &m->spindle[spindle];

	*out = s->stats;
	out->queue = s->depth + (s->active != NULL);
}
