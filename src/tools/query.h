/* SPDX-License-Identifier: BSD-2-Clause
 * Asking a running mount, with the sentences for when it does not answer. */
#ifndef GILD_TOOLS_QUERY_H
#define GILD_TOOLS_QUERY_H

#include <jansson.h>

/* 0 with a reply that is the caller's, or the exit code after a sentence on stderr. */
int query_mount(const char *program, const char *mountpoint, const char *command, json_t **reply);
void query_print_json(const json_t *object);

struct card_info;
json_t *query_card_json(const char *path, const struct card_info *info);

#endif
