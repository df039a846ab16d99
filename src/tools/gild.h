/* SPDX-License-Identifier: BSD-2-Clause
 * gild's subcommands: each parses its own argv (argv[0] is the subcommand), prints one sentence for
 * an error, and returns the exit code: 0 done, 1 failed, 2 used wrongly. */
#ifndef GILD_TOOLS_GILD_H
#define GILD_TOOLS_GILD_H

int cmd_format(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_stats(int argc, char **argv);
int cmd_flush(int argc, char **argv);
int cmd_invalidate(int argc, char **argv);
int cmd_recover(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_slowdisk(int argc, char **argv);

#endif
