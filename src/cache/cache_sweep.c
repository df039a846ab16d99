/* SPDX-License-Identifier: BSD-2-Clause
 *
 * File records whose lines are all gone.
 *
 * Eviction drops lines and leaves the record, since nobody counts lines per file; files that vanish
 * behind the mount leave theirs, too. Records are never dropped by GC, so in the end they would
 * take the room of data. When they are many, and twice as many as the last sweep left, the publisher
 * walks flash's data once for the numbers that have any (8 bytes each in memory), then the records,
 * and deletes those whose number has none.
 *
 * A deletion is always safe (a file without a record starts cold), but a cnode may believe its record
 * to be there still. Each cnode keeps the number of the sweep in which it put it (the upper half of
 * n->flags); a fill that finds another one puts the record again. The count moves before the walk
 * and after it, since a record put during the walk may be seen before its first line is there.
 */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "cache/cache_file.h"
#include "cache/cache_priv.h"

#define CSWEEP_SHARE 16u          /* records may take 1/16 of flash ... */
#define CSWEEP_RECORD_BYTES 512u  /* ... at this size, copies included, at a guess */

struct csweep {
	struct cache *c;
	uint64_t *numbers; /* with data, rising */
	size_t count, room;
	uint64_t seen, deleted;
};

void csweep_note(struct cache *c, const struct flash_stats *st)
{
	uint64_t floor = st->usable_bytes / CSWEEP_SHARE / CSWEEP_RECORD_BYTES;
	uint64_t left = atomic_load_explicit(&c->sweep_left, memory_order_relaxed);

	if (st->ctl_records > floor && st->ctl_records / 2 > left)
		cpublish_want_sweep(c);
}

static int csweep_extent(void *arg, const struct flash_extent *e)
{
	struct csweep *s = arg;
	uint64_t *more;

	if (s->count && s->numbers[s->count - 1] == e->file)
		return 0;
	if (s->count == s->room) {
		s->room = s->room ? s->room * 2 : 1024;
		more = realloc(s->numbers, s->room * sizeof(*more));
		if (!more)
			return -ENOMEM;
		s->numbers = more;
	}
	s->numbers[s->count++] = e->file;
	return 0;
}

static bool csweep_has_data(const struct csweep *s, uint64_t number)
{
	size_t lo = 0, hi = s->count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (s->numbers[mid] < number)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < s->count && s->numbers[lo] == number;
}

static int csweep_record(void *arg, const uint8_t key[FLASH_CTL_KEY], const void *value, size_t len,
			 uint64_t stamp)
{
	struct csweep *s = arg;
	struct cfile_record rec;

	(void)stamp;
	s->seen++;
	if (!cfile_decode(value, len, &rec) && csweep_has_data(s, rec.number))
		return 0;
	if (!cfile_delete_key(s->c, key))
		s->deleted++;
	return 0;
}

void csweep_run(struct cache *c)
{
	struct csweep s = {.c = c};
	struct flash_stats st;
	int err;

	atomic_fetch_add(&c->sweeps, 1);
	err = c->flash->ops->walk(c->flash, FLASH_WALK_DATA, 0, 0, csweep_extent, &s);
	if (!err)
		err = c->flash->ops->ctl_walk(c->flash, FLASH_CTL_FILE, csweep_record, &s);
	atomic_fetch_add(&c->sweeps, 1);
	free(s.numbers);
	c->flash->ops->stats(c->flash, &st);
	atomic_store(&c->sweep_left, st.ctl_records);
	if (err < 0)
		cache_flash_failed(c, "walk its file records", err);
	log_debug("cache", "%llu of %llu file records had no data left",
		  (unsigned long long)s.deleted, (unsigned long long)s.seen);
}
