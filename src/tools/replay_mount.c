/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "tools/replay_mount.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/control.h"

/* Present where the control socket's client is linked: in gild, not in the unit tests. */
#pragma weak control_query

/* Undoes mountinfo's \ooo. */
static void mount_unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		unsigned code;

		if (*s == '\\' && sscanf(s, "\\%3o", &code) == 1 && s[1] && s[2] && s[3]) {
			*to++ = (char)code;
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

static bool mount_is_above(const char *point, const char *path)
{
	size_t len = strlen(point);

	if (!strcmp(point, "/"))
		return true;
	return !strncmp(point, path, len) && (path[len] == '/' || !path[len]);
}

/* One line: "id parent major:minor root POINT options... - TYPE source options". */
static bool mount_parse(char *line, char **point, const char **type)
{
	char *save = NULL, *word = strtok_r(line, " ", &save);
	int n = 0;

	*point = NULL;
	for (; word && strcmp(word, "-"); word = strtok_r(NULL, " ", &save))
		if (n++ == 4)
			*point = word;
	*type = word ? strtok_r(NULL, " ", &save) : NULL;
	return *point && *type;
}

int replay_mount_find_in(const char *mountinfo, const char *path, char **mountpoint)
{
	char *copy = strdup(mountinfo), *save = NULL, *line;
	char *found = NULL;
	bool gildfs = false;
	int err = 0;

	*mountpoint = NULL;
	if (!copy)
		return -ENOMEM;
	for (line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		const char *type;
		char *point;

		if (!mount_parse(line, &point, &type))
			continue;
		mount_unescape(point);
		/* Of two mounts on one point the later covers the earlier. */
		if (!mount_is_above(point, path) || (found && strlen(point) < strlen(found)))
			continue;
		found = point;
		gildfs = !strcmp(type, "fuse.gildfs") || !strcmp(type, "gildfs");
	}
	if (!found || !gildfs)
		err = -ENOENT;
	else if (!(*mountpoint = strdup(found)))
		err = -ENOMEM;
	free(copy);
	return err;
}

int replay_mount_find(const char *path, char **mountpoint)
{
	char *real = realpath(path, NULL), *text = NULL;
	size_t size = 0;
	FILE *f = NULL;
	int err = 0;

	*mountpoint = NULL;
	if (!real)
		return -errno;
	f = fopen("/proc/self/mountinfo", "re");
	if (!f)
		err = -errno;
	else if (getdelim(&text, &size, '\0', f) < 0)
		err = -ENOENT;
	else
		err = replay_mount_find_in(text, real, mountpoint);
	if (f)
		fclose(f);
	free(text);
	free(real);
	return err;
}

/* The statistics may be the reply or a member of it. */
static json_t *mount_pick_stats(json_t *reply)
{
	const char *key;
	json_t *value;

	if (json_is_object(json_object_get(reply, "read")))
		return reply;
	json_object_foreach(reply, key, value)
		if (json_is_object(json_object_get(value, "read")))
			return value;
	return NULL;
}

int replay_mount_stats(const char *mountpoint, json_t **stats)
{
	json_t *reply = NULL;
	int err;

	*stats = NULL;
	if (!control_query)
		return -ENOSYS;
	err = control_query(mountpoint, "stats", &reply);
	if (err)
		return err;
	*stats = json_incref(mount_pick_stats(reply));
	json_decref(reply);
	return *stats ? 0 : -EPROTO;
}

int replay_mount_hits(const json_t *stats, uint64_t *hits, uint64_t *requests)
{
	static const char *const kinds[] = {"hits", "partial", "misses", "bypass"};
	const json_t *read = json_object_get(stats, "read");

	*hits = *requests = 0;
	for (int i = 0; i < 4; i++) {
		const json_t *j = json_object_get(read, kinds[i]);

		if (!json_is_integer(j) || json_integer_value(j) < 0)
			return -EPROTO;
		*requests += (uint64_t)json_integer_value(j);
		if (!i)
			*hits = (uint64_t)json_integer_value(j);
	}
	return 0;
}
