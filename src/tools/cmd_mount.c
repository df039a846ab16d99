/* SPDX-License-Identifier: BSD-2-Clause
 * Subcommands that ask a running mount: stats, flush. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "tools/control.h"
#include "tools/gild.h"
#include "tools/query.h"

int query_mount(const char *program, const char *mountpoint, const char *command, json_t **reply)
{
	const char *error;
	int rc = control_query(mountpoint, command, reply);

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
