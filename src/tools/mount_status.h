/* SPDX-License-Identifier: BSD-2-Clause
 * What a running mount says of itself over the control socket. */
#ifndef GILD_TOOLS_MOUNT_STATUS_H
#define GILD_TOOLS_MOUNT_STATUS_H

#include "fs/fs.h"
#include "tools/control.h"
#include "tools/gildfs_options.h"
#include "tools/stack.h"

struct mount_status {
	struct stack *stack;
	struct fs *fs;
	const struct gildfs_options *options;
	uint64_t started_ns; /* monotonic */
};

void mount_status_init(struct mount_status *m, struct stack *s, struct fs *fs,
		       const struct gildfs_options *o);
/* A control_fn; `arg` is a struct mount_status. Commands: status, stats, prometheus, flush,
 * log, invalidate (with a path). */
json_t *mount_status_answer(void *arg, const char *command, const json_t *args);

#endif
