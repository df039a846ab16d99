/* SPDX-License-Identifier: BSD-2-Clause
 * gildfs's command line: options, paths, and what contradicts what. */
#ifndef GILD_TOOLS_GILDFS_OPTIONS_H
#define GILD_TOOLS_GILDFS_OPTIONS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/options.h"
#include "tools/stack.h"

struct gildfs_options {
	struct option_list card; /* paths */
	uint64_t card_size;
	int raid, mode, coherence, admit, log;
	uint64_t ttl, seq_cutoff, publish_after;
	const char *fsid;
	bool foreground, debug, allow_other, acl, readonly, allow_empty, version;
	/* filled by gildfs_parse */
	bool remount;            /* asked for by mount(8): the kernel's flags change, nothing else */
	char backing[PATH_MAX], mountpoint[PATH_MAX]; /* absolute, resolved */
	char fuse_opts[1024];    /* what is passed on to mount */
};

extern const struct option_usage gildfs_usage;

/* 0; 1: help or version was printed, exit 0; -EINVAL: a sentence was printed, exit 2. Paths are
 * resolved but not judged. */
int gildfs_parse(struct gildfs_options *o, int argc, char **argv);
/* Judges backing, mount point and cards: exist, are directories, do not lie within each other.
 * 0, or the exit code (1, 2) after a sentence. */
int gildfs_check_paths(const struct gildfs_options *o);
/* The embedded card when no card= was given: its path is put into `path`; it is made, sized from
 * free space, when it is missing. 0 or the exit code after a sentence. */
int gildfs_default_card(const struct gildfs_options *o, char path[PATH_MAX]);

#endif
