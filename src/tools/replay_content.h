/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The content of a web-server load: which files of a tree are pages and which are images.
 *
 * Paths are relative to the root, sorted by bytes, so that the same tree gives the same numbering
 * whatever filesystem it is read from. Symbolic links are left out: the three trees of a
 * comparison must not lead to one file, and each file counts once. After loading, a content is
 * constant and any thread may use it.
 */
#ifndef GILD_TOOLS_REPLAY_CONTENT_H
#define GILD_TOOLS_REPLAY_CONTENT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define REPLAY_IMAGES 3 /* images of one page view */

struct replay_content;

/* What a scan or a list held. */
struct replay_counts {
	uint64_t pages, images;
	uint64_t others;     /* files that are neither */
	uint64_t skipped;    /* links, special files and names that a list cannot hold */
	uint64_t unreadable; /* directories that could not be read */
};

/* One page view: an HTML page and three different images. The strings belong to the content. */
struct replay_view {
	const char *page;
	const char *images[REPLAY_IMAGES];
};

/* Walks the tree below `root_fd` without a stat per file. Unreadable directories are counted and
 * passed over, except the root: its error is returned. -ENOMEM. */
int replay_content_scan(struct replay_content **out, int root_fd);
/* Reads a list: one path a line, relative to the root or absolute. -errno from open or read,
 * -EINVAL when it holds a NUL byte. */
int replay_content_load(struct replay_content **out, const char *list_path);
/* Writes the list beside `list_path` and renames it into place. 0 or -errno. */
int replay_content_save(const struct replay_content *c, const char *list_path);
void replay_content_destroy(struct replay_content *c); /* NULL-safe */

const struct replay_counts *replay_content_counts(const struct replay_content *c);
/* The i-th page or image (below the counts above). */
const char *replay_content_page(const struct replay_content *c, uint64_t i);
const char *replay_content_image(const struct replay_content *c, uint64_t i);

/* Page view number `view` of the sequence `seed`: a pure function, so clients share one sequence
 * and a run can be repeated with any number of them. Every page is equally likely, and so is every
 * set of three images. Needs one page and three images. */
void replay_content_pick(const struct replay_content *c, uint64_t seed, uint64_t view,
			 struct replay_view *v);

#endif
