/* SPDX-License-Identifier: BSD-2-Clause
 * gild: everything but mounting. This file finds the subcommand; each has a file of its own. */
#include <config.h>

#include <stdio.h>
#include <string.h>

#include "tools/gild.h"

static const struct gild_command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} gild_commands[] = {
	{"format", cmd_format, "make a card"},
	{"status", cmd_status, "show how a mount or a card is doing"},
	{"stats", cmd_stats, "print every counter of a mount"},
	{"flush", cmd_flush, "make everything written through a mount durable"},
	{"invalidate", cmd_invalidate, "distrust what a mount knows of files"},
	{"recover", cmd_recover, "rebuild a card's map from its log"},
	{"replay", cmd_replay, "run a web server's load over a directory"},
	{"report", cmd_report, "draw results as one HTML page"},
	{"slowdisk", cmd_slowdisk, "show a file as a disk behind a disk-array model"},
};
#define GILD_COMMANDS (sizeof(gild_commands) / sizeof(gild_commands[0]))

static void gild_help(FILE *to)
{
	fprintf(to, "Usage: gild COMMAND [ARGUMENT...]\n"
		    "Manages gildfs mounts and their flash cards; gildfs(1) mounts.\n\n");
	for (size_t i = 0; i < GILD_COMMANDS; i++)
		fprintf(to, "  %-10s %s\n", gild_commands[i].name, gild_commands[i].summary);
	fprintf(to, "\ngild COMMAND --help explains one. Exit codes: 0 done, 1 failed, "
		    "2 used wrongly.\n");
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		gild_help(stderr);
		return 2;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		gild_help(stdout);
		return 0;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("gild %s\n", PACKAGE_VERSION);
		return 0;
	}
	for (size_t i = 0; i < GILD_COMMANDS; i++)
		if (strcmp(argv[1], gild_commands[i].name) == 0)
			return gild_commands[i].run(argc - 1, argv + 1);
	fprintf(stderr, "gild: there is no command '%s': gild --help lists them\n", argv[1]);
	return 2;
}
