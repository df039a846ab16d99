/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Options as data: one table gives the parser, --help, the manual's list and its check.
 *
 * A program or subcommand describes its options as an array of struct option_spec that store into
 * one plain struct. The same table serves `--long value`, `-s value` and `-o name=value,...`.
 * Errors are printed as one sentence on stderr naming the option and the remedy; the caller exits
 * with 2.
 */
#ifndef GILD_BASE_OPTIONS_H
#define GILD_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_kind {
	OPTION_FLAG,     /* bool; no argument (in -o also name=on|off) */
	OPTION_UINT,     /* uint64_t, decimal, min..max */
	OPTION_SIZE,     /* uint64_t bytes; suffixes K M G T (1024), min..max */
	OPTION_DURATION, /* uint64_t nanoseconds; suffixes ms s m h, plain number = seconds */
	OPTION_DOUBLE,   /* double, min..max */
	OPTION_STRING,   /* const char *, points into argv (or into memory owned by the process) */
	OPTION_CHOICE,   /* int, index into `choices` */
	OPTION_LIST,     /* struct option_list, repeatable; each value appended */
};

struct option_list {
	size_t count;
	const char **items; /* the array is malloced, the strings are as OPTION_STRING */
};

struct option_spec {
	const char *name;    /* long name, without dashes */
	char letter;         /* short name or 0 */
	enum option_kind kind;
	size_t offset;       /* offsetof() in the struct parsed into */
	const char *arg;     /* argument's name in help, e.g. "SIZE"; NULL for flags */
	const char *fallback; /* default as text, parsed like user input; NULL: leave zero */
	const char *help;    /* one line, no full stop */
	double min, max;     /* for numbers; max 0 = no bound */
	const char *const *choices; /* OPTION_CHOICE, NULL-terminated */
};

struct option_usage {
	const char *program;   /* "gild format" */
	const char *synopsis;  /* "PATH... [OPTION...]" */
	const char *summary;   /* one sentence */
	const char *notes;     /* further paragraphs of --help or NULL */
	const struct option_spec *specs; /* ended by a NULL name */
};

/* Fills `into` with the defaults. A bad default is a bug and aborts. */
void options_defaults(const struct option_usage *u, void *into);
/* Parses argv[1..]: options store into `into`, other words are gathered in argv[0] to
 * argv[*words - 1] (over the program's name). "--" ends the options. --help prints to stdout and
 * returns 1 (the caller exits 0); 0 = parsed; -EINVAL = one sentence was printed (the caller exits
 * 2). */
int options_parse(const struct option_usage *u, void *into, int argc, char **argv, int *words);
/* One "name=value" or "name" as in -o; `text` must stay alive. -ENOENT: no such option (nothing is
 * printed), -EINVAL: bad value (a sentence was printed). */
int options_set(const struct option_usage *u, void *into, const char *text);
void options_help(const struct option_usage *u, FILE *to);

/* Parse helpers, also for paths outside the tables. 0 or -EINVAL, nothing printed. */
int options_parse_size(const char *text, uint64_t *bytes);
int options_parse_duration(const char *text, uint64_t *ns);
/* "1.5 GiB" into buf; returns buf. */
const char *options_format_size(uint64_t bytes, char *buf, size_t len);

#endif
