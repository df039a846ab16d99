/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One thread sleeps until the model's next event, takes what is done and releases it. It is woken
 * early only when a new request brings the next event forward. Being woken late (some 60 us) does
 * not add up: the model goes on from the time the head was free.
 */
#include <config.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/htab.h"
#include "base/lock.h"
#include "base/log.h"
#include "tools/slowdisk_delay.h"

struct delay {
	/* constant */
	enum disk_model_kind kind;
	uint64_t bytes;

	struct lock lock;
	struct lock_cond wake;
	/* under lock */
	struct disk_model *model;
	uint64_t sleeps_until; /* the thread's; 0 while it is awake */
	unsigned inside, inside_max; /* requests in the model */
	uint64_t late_ns, late_max_ns, released;
	bool on, stop;

	pthread_t thread;
	bool started;
};

int delay_create(struct delay **out, enum disk_model_kind kind, uint64_t bytes, double stroke,
		 bool on)
{
	struct delay *d = calloc(1, sizeof(*d));
	int err;

	if (!d)
		return -ENOMEM;
	err = disk_model_create(&d->model, kind, bytes, stroke);
	if (err) {
		free(d);
		return err;
	}
	d->kind = kind;
	d->bytes = bytes;
	d->on = on;
	lock_init(&d->lock, "slowdisk delay", RANK_TOOLS);
	lock_cond_init(&d->wake);
	*out = d;
	return 0;
}

static void delay_part_over(struct delay_item *item)
{
	if (atomic_fetch_sub(&item->waiting, 1) == 1)
		item->done(item);
}

/* Everything done at `now`, as a chain; the clock is the caller's, UINT64_MAX empties the model. */
static struct disk_model_request *delay_take_locked(struct delay *d, uint64_t now)
{
	struct disk_model_request *first = NULL, **last = &first, *r;

	while ((r = disk_model_take(d->model, now))) {
		uint64_t late = now > r->done_ns ? now - r->done_ns : 0;

		if (!d->stop) {
			d->late_ns += late;
			if (late > d->late_max_ns)
				d->late_max_ns = late;
		}
		d->released++;
		d->inside--;
		r->next = NULL;
		*last = r;
		last = &r->next;
	}
	return first;
}

static void delay_release(struct disk_model_request *r)
{
	while (r) {
		struct disk_model_request *next = r->next;

		delay_part_over(container_of(r, struct delay_item, request));
		r = next;
	}
}

static void *delay_main(void *arg)
{
	struct delay *d = arg;
	struct disk_model_request *due;

	prctl(PR_SET_NAME, "slowdisk-delay");
	prctl(PR_SET_TIMERSLACK, 1UL);
	lock_acquire(&d->lock);
	for (;;) {
		d->sleeps_until = 0;
		due = delay_take_locked(d, d->stop ? UINT64_MAX : clock_mono_ns());
		if (due) {
			lock_release(&d->lock);
			delay_release(due);
			lock_acquire(&d->lock);
			continue;
		}
		if (d->stop)
			break;
		d->sleeps_until = disk_model_next_ns(d->model);
		if (d->sleeps_until == UINT64_MAX)
			lock_cond_wait(&d->wake, &d->lock);
		else
			lock_cond_wait_until(&d->wake, &d->lock, d->sleeps_until);
	}
	lock_release(&d->lock);
	return NULL;
}

int delay_start(struct delay *d)
{
	int err = pthread_create(&d->thread, NULL, delay_main, d);

	if (err)
		return -err;
	d->started = true;
	return 0;
}

void delay_stop(struct delay *d)
{
	if (!d->started)
		return;
	lock_acquire(&d->lock);
	d->stop = true;
	lock_cond_signal(&d->wake);
	lock_release(&d->lock);
	pthread_join(d->thread, NULL);
	d->started = false;
}

void delay_destroy(struct delay *d)
{
	if (!d)
		return;
	gild_assert(!d->started);
	disk_model_destroy(d->model);
	lock_cond_destroy(&d->wake);
	lock_destroy(&d->lock);
	free(d);
}

void delay_begin(struct delay *d, struct delay_item *item)
{
	lock_acquire(&d->lock);
	gild_assert(!d->stop);
	if (!d->on) {
		atomic_store(&item->waiting, 1);
		lock_release(&d->lock);
		return;
	}
	atomic_store(&item->waiting, 2);
	disk_model_submit(d->model, &item->request, clock_mono_ns());
	if (++d->inside > d->inside_max)
		d->inside_max = d->inside;
	if (d->sleeps_until && disk_model_next_ns(d->model) < d->sleeps_until)
		lock_cond_signal(&d->wake);
	lock_release(&d->lock);
}

void delay_end(struct delay_item *item)
{
	delay_part_over(item);
}

void delay_switch(struct delay *d, bool on)
{
	lock_acquire(&d->lock);
	d->on = on;
	lock_release(&d->lock);
}

static json_t *delay_report_spindle(const struct disk_model_spindle_stats *s)
{
	uint64_t requests = s->reads + s->writes;

	return json_pack("{sI sI sI sI sf sf sf sf sf si si}", "reads", (json_int_t)s->reads,
			 "writes", (json_int_t)s->writes, "bytes", (json_int_t)s->bytes,
			 "buffer_hits", (json_int_t)s->hits, "busy_ms", (double)s->busy_ns / 1e6,
			 "seek_ms", (double)s->seek_ns / 1e6, "rotation_ms",
			 (double)s->wait_ns / 1e6, "transfer_ms", (double)s->transfer_ns / 1e6,
			 "sequential_share",
			 requests ? (double)s->sequential / (double)requests : 0.0, "queue",
			 (int)s->queue, "queue_max", (int)s->queue_max);
}

json_t *delay_report(struct delay *d)
{
	const struct disk_model_kind_info *info = disk_model_kind_info(d->kind);
	json_t *root, *spindles = json_array();

	lock_acquire(&d->lock);
	for (unsigned i = 0; i < disk_model_spindles(d->model); i++) {
		struct disk_model_spindle_stats s;

		disk_model_stats(d->model, i, &s);
		json_array_append_new(spindles, delay_report_spindle(&s));
	}
	root = json_pack("{ss ss sb sI sf si si sI sf sf}", "model", info->name, "array",
			 info->text, "delays", d->on, "bytes", (json_int_t)d->bytes,
			 "stroke_percent", disk_model_stroke(d->model) * 100, "outstanding",
			 (int)d->inside, "outstanding_max", (int)d->inside_max, "delayed",
			 (json_int_t)d->released, "late_mean_ms",
			 d->released ? (double)d->late_ns / 1e6 / (double)d->released : 0.0,
			 "late_max_ms", (double)d->late_max_ns / 1e6);
	lock_release(&d->lock);
	if (root)
		json_object_set_new(root, "spindles", spindles);
	else
		json_decref(spindles);
	return root;
}
