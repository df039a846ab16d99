/* SPDX-License-Identifier: BSD-2-Clause
 * The gildfs mount, if any, that a directory lies on, and what it says of itself. */
#ifndef GILD_TOOLS_REPLAY_MOUNT_H
#define GILD_TOOLS_REPLAY_MOUNT_H

#include <stdint.h>

#include <jansson.h>

/* The mount point of the gildfs that holds `path`, malloced. -ENOENT when it is another filesystem. */
int replay_mount_find(const char *path, char **mountpoint);
/* The same from the text of a mountinfo file: the innermost mount above `path` (absolute, without
 * symbolic links). */
int replay_mount_find_in(const char *mountinfo, const char *path, char **mountpoint);
/* The statistics {group: {name: value}}, a new reference. -ENOSYS in programs without the control
 * socket's client; the errors of control_query; -EPROTO for a reply without statistics. */
int replay_mount_stats(const char *mountpoint, json_t **stats);
/* Reads answered from flash alone, and reads in all, since the mount. -EPROTO when not there. */
int replay_mount_hits(const json_t *stats, uint64_t *hits, uint64_t *requests);

#endif
