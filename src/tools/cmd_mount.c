/* SPDX-License-Identifier: BSD-2-Clause
 * Subcommands that ask a running mount: stats, flush, invalidate. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "tools/control.h"
#include "tools/gild.h"
#include "tools/query.h"

static int query_result(const char *program, const char *mountpoint, int rc, json_t **reply)
{
	const char *error;

	if (rc < 0) {
		fprintf(stderr, "%s: no gildfs answers on %s (%s): is it mounted there?\n", program,
			mountpoint, strerror(-rc));
		return 1;
	}
	error = json_string_value(json_object_get(*reply, "error"));
	if (error) {
		fprintf(stderr, "%s: %s: %s\n", program, mountpoint, error);
		json_decref(*reply);
		return 1;
	}
	return 0;
}

int query_mount(const char *program, const char *mountpoint, const char *command, json_t **reply)
{
	return query_result(program, mountpoint, control_query(mountpoint, command, reply), reply);
}

void query_print_json(const json_t *object)
{
	json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	putchar('\n');
}

struct stats_options {
	bool json, prometheus;
};

static const struct option_spec stats_specs[] = {
	{.name = "json", .kind = OPTION_FLAG, .offset = offsetof(struct stats_options, json),
	 .help = "print one JSON object"},
	{.name = "prometheus", .kind = OPTION_FLAG,
	 .offset = offsetof(struct stats_options, prometheus),
	 .help = "print in Prometheus' text format"},
	{0},
};

static const struct option_usage stats_usage = {
	.program = "gild stats",
	.synopsis = "MOUNTPOINT [OPTION...]",
	.summary = "Prints every counter and latency histogram of a mount.",
	.specs = stats_specs,
};

int cmd_stats(int argc, char **argv)
{
	struct stats_options o = {0};
	json_t *reply;
	int words, rc;

	options_defaults(&stats_usage, &o);
	rc = options_parse(&stats_usage, &o, argc, argv, &words);
	if (rc != 0)
		return rc > 0 ? 0 : 2;
	if (words != 1 || (o.json && o.prometheus)) {
		fprintf(stderr, "gild stats: give one mount point, and one of --json and "
				"--prometheus\n");
		return 2;
	}
	rc = query_mount("gild stats", argv[0],
			 o.json ? "stats" : o.prometheus ? "prometheus" : "stats-text", &reply);
	if (rc)
		return rc;
	if (o.json)
		query_print_json(reply);
	else
		fputs(json_string_value(json_object_get(reply, "text")), stdout);
	json_decref(reply);
	return 0;
}

static const struct option_spec flush_specs[] = {{0}};

static const struct option_usage flush_usage = {
	.program = "gild flush",
	.synopsis = "MOUNTPOINT",
	.summary = "Makes everything written through the mount durable, on backing and flash.",
	.specs = flush_specs,
};

int cmd_flush(int argc, char **argv)
{
	json_t *reply;
	int words, unused = 0;
	int rc = options_parse(&flush_usage, &unused, argc, argv, &words);

	if (rc != 0)
		return rc > 0 ? 0 : 2;
	if (words != 1) {
		fprintf(stderr, "gild flush: give one mount point\n");
		return 2;
	}
	rc = query_mount("gild flush", argv[0], "flush", &reply);
	if (rc == 0)
		json_decref(reply);
	return rc;
}

static const struct option_usage invalidate_usage = {
	.program = "gild invalidate",
	.synopsis = "MOUNTPOINT [PATH...]",
	.summary = "Makes a mount look again at files, directories with all below them, or everything.",
	.specs = flush_specs,
};

/* `path` relative to the mount; NULL: it is not below it. */
static const char *invalidate_relative(const char *mountpoint, const char *path)
{
	char real[PATH_MAX];
	const char *tops[] = {mountpoint, realpath(mountpoint, real)};

	if (*path != '/')
		return path;
	for (int i = 0; i < 2; i++) {
		size_t len = tops[i] ? strlen(tops[i]) : 0;

		while (len > 0 && tops[i][len - 1] == '/')
			len--;
		if (len && strncmp(path, tops[i], len) == 0 && (!path[len] || path[len] == '/'))
			return path + len;
	}
	return NULL;
}

static int invalidate_one(const char *mountpoint, const char *path)
{
	const char *below = invalidate_relative(mountpoint, path);
	json_t *reply;
	int rc;

	if (!below) {
		fprintf(stderr, "gild invalidate: %s is not below %s\n", path, mountpoint);
		return 2;
	}
	rc = control_query_path(mountpoint, "invalidate", below, &reply);
	if (rc == -ENAMETOOLONG) {
		fprintf(stderr, "gild invalidate: %s is too long: name a directory above it\n", path);
		return 1;
	}
	rc = query_result("gild invalidate", mountpoint, rc, &reply);
	if (rc == 0)
		json_decref(reply);
	return rc;
}

int cmd_invalidate(int argc, char **argv)
{
	int words, unused = 0;
	int rc = options_parse(&invalidate_usage, &unused, argc, argv, &words);

	if (rc != 0)
		return rc > 0 ? 0 : 2;
	if (words < 1) {
		fprintf(stderr, "gild invalidate: give a mount point, and paths below it\n");
		return 2;
	}
	if (words == 1)
		return invalidate_one(argv[0], "");
	for (int i = 1; i < words && rc == 0; i++)
		rc = invalidate_one(argv[0], argv[i]);
	return rc;
}
