/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Everything is admitted and nothing survives GC: first in, first out by erase block. The least
 * memory (none) and the most flash writes; the baseline for the others.
 */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "cache/cache_policy.h"

static int always_create(struct policy **out, uint64_t lines)
{
	(void)lines;
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : -ENOMEM;
}

static void always_destroy(struct policy *p)
{
	free(p);
}

static void always_touch(struct policy *p, uint64_t key)
{
	(void)p;
	(void)key;
}

static bool always_admit(struct policy *p, uint64_t key, unsigned used_percent, unsigned visits)
{
	(void)p;
	(void)key;
	(void)used_percent;
	(void)visits;
	return true;
}

static bool always_hot(struct policy *p, uint64_t key)
{
	(void)p;
	(void)key;
	return true;
}

static enum flash_verdict always_reclaim(struct policy *p, uint64_t key, uint64_t stamp,
					 unsigned pressure)
{
	(void)p;
	(void)key;
	(void)stamp;
	(void)pressure;
	return FLASH_DROP;
}

const struct policy_ops policy_always = {
	.name = "always",
	.create = always_create,
	.destroy = always_destroy,
	.touch = always_touch,
	.admit = always_admit,
	.hot = always_hot,
	.reclaim = always_reclaim,
};
