/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A medium in RAM, for tests. Memory is taken when it is first written, given back by discard.
 */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "media/media_priv.h"

struct media_ram {
	struct media base;
	char *memory;
};

static int media_ram_read(struct media *m, void *buf, size_t len, uint64_t off)
{
	memcpy(buf, ((struct media_ram *)m)->memory + off, len);
	return 0;
}

static int media_ram_write(struct media *m, const void *buf, size_t len, uint64_t off)
{
	memcpy(((struct media_ram *)m)->memory + off, buf, len);
	return 0;
}

static int media_ram_flush(struct media *m)
{
	(void)m;
	return 0;
}

static int media_ram_discard(struct media *m, uint64_t off, uint64_t len)
{
	madvise(((struct media_ram *)m)->memory + off, len, MADV_DONTNEED);
	return 0;
}

static void media_ram_close(struct media *m)
{
	munmap(((struct media_ram *)m)->memory, m->size);
	free(m);
}

static const struct media_ops media_ram_ops = {
	.read = media_ram_read,
	.write = media_ram_write,
	.flush = media_ram_flush,
	.discard = media_ram_discard,
	.close = media_ram_close,
};

int media_open_ram(struct media **out, uint64_t size)
{
	struct media_ram *r;

	*out = NULL;
	if (size == 0 || size % MEDIA_ALIGN)
		return -EINVAL;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->base.ops = &media_ram_ops;
	r->base.size = size;
	r->memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (r->memory == MAP_FAILED) {
		free(r);
		return -ENOMEM;
	}
	*out = &r->base;
	return 0;
}
