/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The control socket: how gild talks to a running mount. A UNIX stream socket under /run/gildfs (or
 * $XDG_RUNTIME_DIR/gildfs), named after the mount point; requests and replies are one JSON object a
 * line. Root and the mount's owner only.
 */
#ifndef GILD_TOOLS_CONTROL_H
#define GILD_TOOLS_CONTROL_H

#include <jansson.h>

struct control;

/* Answers one request; returns a new object. Runs on the control thread. */
typedef json_t *(*control_fn)(void *arg, const char *command, const json_t *args);

/* Where the sockets are; returns buf. */
const char *control_directory(char *buf, size_t len);
/* `mountpoint` as realpath(3) gives it, found before mounting: afterwards that would ask ourselves. */
int control_start(struct control **out, const char *mountpoint, control_fn fn, void *arg);
void control_stop(struct control *c); /* NULL-safe */
/* {"command": command} to the mount at `mountpoint`; the reply's reference is the caller's. -ENOENT:
 * no gildfs is mounted there. -EPERM: the socket is another user's. -ECONNREFUSED, -EPROTO,
 * -ETIMEDOUT. */
int control_query(const char *mountpoint, const char *command, json_t **reply);
/* The same with a path relative to the mount; -ENAMETOOLONG. */
int control_query_path(const char *mountpoint, const char *command, const char *path,
		       json_t **reply);
/* The path of a request, in `buf`; NULL: there is none. */
const char *control_path(const json_t *args, char *buf, size_t len);

#endif
