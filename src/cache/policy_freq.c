/* SPDX-License-Identifier: BSD-2-Clause
 *
 * By frequency: while flash has room everything is admitted; later only what was asked for before,
 * so that a scan (a backup, a crawler) does not push out what is used. GC keeps lines that were
 * used at least twice within the sketch's memory; each level of pressure asks for one more.
 */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "base/htab.h"
#include "cache/cache_policy.h"
#include "cache/cache_sketch.h"

#define FREQ_KEEP 2u
#define FREQ_HOT 4u

struct freq {
	struct policy policy;
	struct sketch sketch;
};

static int freq_create(struct policy **out, uint64_t lines)
{
	struct freq *f = calloc(1, sizeof(*f));
	int err;

	if (!f)
		return -ENOMEM;
	err = sketch_init(&f->sketch, lines);
	if (err) {
		free(f);
		return err;
	}
	*out = &f->policy;
	return 0;
}

static void freq_destroy(struct policy *p)
{
	struct freq *f = container_of(p, struct freq, policy);

	sketch_destroy(&f->sketch);
	free(f);
}

static void freq_touch(struct policy *p, uint64_t key)
{
	sketch_touch(&container_of(p, struct freq, policy)->sketch, key);
}

static bool freq_admit(struct policy *p, uint64_t key, unsigned used_percent)
{
	return used_percent < POLICY_EAGER_PERCENT ||
	       sketch_count(&container_of(p, struct freq, policy)->sketch, key) >= 1;
}

static bool freq_hot(struct policy *p, uint64_t key)
{
	return sketch_count(&container_of(p, struct freq, policy)->sketch, key) >= FREQ_KEEP;
}

static enum flash_verdict freq_reclaim(struct policy *p, uint64_t key, uint64_t stamp,
				       unsigned pressure)
{
	unsigned n = sketch_count(&container_of(p, struct freq, policy)->sketch, key);

	(void)stamp;
	if (n < FREQ_KEEP + pressure)
		return FLASH_DROP;
	return n >= FREQ_HOT + pressure ? FLASH_KEEP_HOT : FLASH_KEEP_COLD;
}

const struct policy_ops policy_freq = {
	.name = "freq",
	.create = freq_create,
	.destroy = freq_destroy,
	.touch = freq_touch,
	.admit = freq_admit,
	.hot = freq_hot,
	.reclaim = freq_reclaim,
};
