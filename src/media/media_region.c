/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A part of another medium: one SSD carries several controllers, whose flushes it shares.
 */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "media/media_priv.h"

struct media_region {
	struct media base;
	struct media *parent;
	uint64_t start;
};

static int media_region_read(struct media *m, void *buf, size_t len, uint64_t off)
{
	struct media_region *r = (struct media_region *)m;

	return media_read(r->parent, buf, len, r->start + off);
}

static int media_region_write(struct media *m, const void *buf, size_t len, uint64_t off)
{
	struct media_region *r = (struct media_region *)m;

	return media_write(r->parent, buf, len, r->start + off);
}

static int media_region_flush(struct media *m)
{
	return media_flush(((struct media_region *)m)->parent);
}

static int media_region_discard(struct media *m, uint64_t off, uint64_t len)
{
	struct media_region *r = (struct media_region *)m;

	return media_discard(r->parent, r->start + off, len);
}

static void media_region_close(struct media *m)
{
	free(m);
}

static const struct media_ops media_region_ops = {
	.read = media_region_read,
	.write = media_region_write,
	.flush = media_region_flush,
	.discard = media_region_discard,
	.close = media_region_close,
};

int media_open_region(struct media **out, struct media *parent, uint64_t off, uint64_t len)
{
	struct media_region *r;

	*out = NULL;
	if (len == 0 || (off | len) % MEDIA_ALIGN || off > parent->size ||
	    len > parent->size - off)
		return -EINVAL;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->base.ops = &media_region_ops;
	r->base.size = len;
	r->base.readonly = parent->readonly;
	r->parent = parent;
	r->start = off;
	*out = &r->base;
	return 0;
}
