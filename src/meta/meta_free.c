/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Reading LMDB's free list from its file, to tell a short data.mdb from a truncated one.
 *
 * Only pages inside the file are read and nothing in them is trusted: numbers are compared with the
 * file's length, offsets with the page, and the walk ends after as many pages as the tree claims.
 */
#include <config.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_file.h"

#define META_SHORT_MAX (1u << 24) /* pages: more missing than this is truncated anyway */

struct meta_free_walk {
	int fd;
	uint32_t page_size;
	uint64_t pages;   /* in the file */
	uint64_t missing; /* pages from `pages` on that should be free */
	uint64_t found;
	uint64_t budget; /* tree pages still to be read */
	uint8_t *seen;   /* a byte for each missing page */
};

static void meta_free_note(struct meta_free_walk *w, uint64_t number)
{
	uint64_t i = number - w->pages;

	if (number < w->pages || i >= w->missing || w->seen[i])
		return;
	w->seen[i] = 1;
	w->found++;
}

/* `count` page numbers on overflow pages, from byte `at` of the file. */
static int meta_free_read_big(struct meta_free_walk *w, uint64_t at, uint64_t count)
{
	uint64_t some[512], i;
	int rc;

	while (count) {
		uint64_t n = count < 512 ? count : 512;

		rc = meta_file_pread(w->fd, some, (size_t)n * 8, at);
		if (rc < 0)
			return rc;
		for (i = 0; i < n; i++)
			meta_free_note(w, some[i]);
		at += n * 8;
		count -= n;
	}
	return 0;
}

/* A leaf's value is a counted list of page numbers. */
static int meta_free_read_leaf(struct meta_free_walk *w, const char *page, size_t at,
			       const struct meta_node *node)
{
	uint64_t size = node->lo | (uint64_t)node->hi << 16, count, number, i;
	size_t data = at + sizeof(*node) + node->key_size;
	bool big = node->flags & META_NODE_BIG;
	int rc;

	if (size < 8 || data + (big ? 8 : size) > w->page_size)
		return -EUCLEAN;
	memcpy(&count, page + data, 8); /* with META_NODE_BIG it is the page instead */
	if (big) {
		number = count;
		if (number >= w->pages)
			return -EUCLEAN;
		rc = meta_file_pread(w->fd, &count, 8,
				     number * w->page_size + sizeof(struct meta_page_header));
		if (rc < 0 || count > size / 8 - 1)
			return rc < 0 ? rc : -EUCLEAN;
		return meta_free_read_big(
			w, number * w->page_size + sizeof(struct meta_page_header) + 8, count);
	}
	if (count > size / 8 - 1)
		return -EUCLEAN;
	for (i = 1; i <= count; i++) {
		memcpy(&number, page + data + i * 8, 8);
		meta_free_note(w, number);
	}
	return 0;
}

static int meta_free_read_page(struct meta_free_walk *w, uint64_t number, unsigned depth)
{
	struct meta_page_header h;
	struct meta_node node;
	uint16_t at;
	size_t i;
	char *page;
	int rc;

	if (depth == 0 || w->budget == 0 || number < META_FIRST_PAGE || number >= w->pages)
		return -EUCLEAN;
	w->budget--;
	page = malloc(w->page_size);
	if (!page)
		return -ENOMEM;
	rc = meta_file_pread(w->fd, page, w->page_size, number * w->page_size);
	if (rc == 0) {
		memcpy(&h, page, sizeof(h));
		rc = meta_page_check(&h, number, w->page_size);
	}
	for (i = sizeof(h); rc == 0 && i + 2 <= h.lower; i += 2) {
		memcpy(&at, page + i, 2);
		if (at < h.upper || at + sizeof(node) > w->page_size) {
			rc = -EUCLEAN;
			break;
		}
		memcpy(&node, page + at, sizeof(node));
		if (h.flags & META_PAGE_LEAF)
			rc = meta_free_read_leaf(w, page, at, &node);
		else
			rc = meta_free_read_page(w,
						 node.lo | (uint64_t)node.hi << 16 |
							 (uint64_t)node.flags << 32,
						 depth - 1);
	}
	free(page);
	return rc;
}

int meta_check_length(int fd, const struct meta_page *newest, uint64_t pages)
{
	const struct meta_tree *t = &newest->tree[0];
	struct meta_free_walk w = {
		.fd = fd,
		.page_size = t->page_size,
		.pages = pages,
		.missing = newest->last_page + 1 - pages,
		.budget = t->branches + t->leaves,
	};
	int rc;

	if (pages > newest->last_page)
		return 0;
	if (w.missing > META_SHORT_MAX || t->root == META_NO_ROOT)
		return -EUCLEAN;
	w.seen = calloc(w.missing, 1);
	if (!w.seen)
		return -ENOMEM;
	rc = meta_free_read_page(&w, t->root, t->depth);
	if (rc == 0 && w.found != w.missing)
		rc = -EUCLEAN;
	free(w.seen);
	return rc;
}
