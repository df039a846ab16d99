/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Options: finding them in words, complaining, and --help.
 *
 * Long: "--name value" and "--name=value"; flags take no word of their own but "--name=off" works.
 * Short: "-s value", "-svalue", and flags in a bunch: "-fd". Names are not abbreviated, so that a
 * new option never breaks a script.
 */
#include <config.h>

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "base/options_priv.h"

#define OPTIONS_HELP_COLUMN 30

static const struct option_spec *options_by_name(const struct option_usage *u, const char *name,
						 size_t len)
{
	const struct option_spec *s;

	for (s = u->specs; s->name; s++)
		if (strncmp(s->name, name, len) == 0 && s->name[len] == '\0')
			return s;
	return NULL;
}

static const struct option_spec *options_by_letter(const struct option_usage *u, char letter)
{
	const struct option_spec *s;

	for (s = u->specs; s->name; s++)
		if (s->letter == letter)
			return s;
	return NULL;
}

static size_t options_min3(size_t a, size_t b, size_t c)
{
	size_t m = a < b ? a : b;

	return m < c ? m : c;
}

/* Levenshtein distance of a[0..len) and b, for names below 32 letters; else a big number. */
static size_t options_distance(const char *a, size_t len, const char *b)
{
	size_t row[33], blen = strlen(b), i, j;

	if (len > 32 || blen > 32)
		return 100;
	for (j = 0; j <= blen; j++)
		row[j] = j;
	for (i = 1; i <= len; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (j = 1; j <= blen; j++) {
			size_t above = row[j];

			row[j] = options_min3(row[j] + 1, row[j - 1] + 1,
					      diagonal + (a[i - 1] != b[j - 1]));
			diagonal = above;
		}
	}
	return row[blen];
}

static void options_unknown(const struct option_usage *u, const char *name, size_t len)
{
	const struct option_spec *s, *best = NULL;
	size_t best_distance = 3;

	for (s = u->specs; s->name; s++) {
		size_t d = options_distance(name, len, s->name);

		if (d < best_distance) {
			best_distance = d;
			best = s;
		}
	}
	if (best)
		fprintf(stderr, "%s: there is no option --%.*s; did you mean --%s?\n", u->program,
			(int)len, name, best->name);
	else
		fprintf(stderr, "%s: there is no option --%.*s; see %s --help\n", u->program,
			(int)len, name, u->program);
}

/* Stores and complains. `dashes`: how the option was written, "--" or "" (in -o). */
static int options_apply(const struct option_usage *u, const struct option_spec *s, void *into,
			 const char *dashes, const char *text)
{
	char expected[512];
	int rc = options_store(s, into, text);

	if (rc == 0)
		return 0;
	if (rc == -ENOMEM) {
		fprintf(stderr, "%s: no memory for option %s%s; give it fewer times\n", u->program,
			dashes, s->name);
		return -EINVAL;
	}
	options_expectation(s, expected, sizeof(expected));
	fprintf(stderr, "%s: %s%s cannot be \"%s\"; give %s\n", u->program, dashes, s->name,
		text ? text : "", expected);
	return -EINVAL;
}

static int options_missing(const struct option_usage *u, const struct option_spec *s,
			   const char *dashes)
{
	char expected[512];

	options_expectation(s, expected, sizeof(expected));
	fprintf(stderr, "%s: %s%s needs a value; give %s\n", u->program, dashes, s->name, expected);
	return -EINVAL;
}

void options_defaults(const struct option_usage *u, void *into)
{
	const struct option_spec *s;

	for (s = u->specs; s->name; s++) {
		options_zero(s, into);
		if (s->fallback)
			gild_assert(options_store(s, into, s->fallback) == 0);
	}
}

/* A list's default is a stand-in for what was not given: the first value given replaces it. */
static void options_drop_default(const struct option_spec *s, void *into)
{
	struct option_list *list = (void *)((char *)into + s->offset);

	if (s->kind == OPTION_LIST && s->fallback && list->count == 1 &&
	    list->items[0] == s->fallback)
		list->count = 0;
}

/* One word "--name..."; `next` is the word after it or NULL. Returns how many words were used. */
static int options_long(const struct option_usage *u, void *into, const char *word,
			const char *next)
{
	const char *name = word + 2, *equals = strchr(name, '=');
	size_t len = equals ? (size_t)(equals - name) : strlen(name);
	const struct option_spec *s = options_by_name(u, name, len);
	int rc;

	if (!s) {
		options_unknown(u, name, len);
		return -EINVAL;
	}
	options_drop_default(s, into);
	if (equals || s->kind == OPTION_FLAG) {
		rc = options_apply(u, s, into, "--", equals ? equals + 1 : NULL);
		return rc < 0 ? rc : 1;
	}
	if (!next)
		return options_missing(u, s, "--");
	rc = options_apply(u, s, into, "--", next);
	return rc < 0 ? rc : 2;
}

/* One word "-abc"; as options_long. */
static int options_short(const struct option_usage *u, void *into, const char *word,
			 const char *next)
{
	const char *p;
	int rc;

	for (p = word + 1; *p; p++) {
		const struct option_spec *s = options_by_letter(u, *p);

		if (!s) {
			fprintf(stderr, "%s: there is no option -%c; see %s --help\n", u->program,
				*p, u->program);
			return -EINVAL;
		}
		options_drop_default(s, into);
		if (s->kind == OPTION_FLAG) {
			rc = options_apply(u, s, into, "--", NULL);
			if (rc < 0)
				return rc;
			continue;
		}
		if (!p[1] && !next)
			return options_missing(u, s, "--");
		rc = options_apply(u, s, into, "--", p[1] ? p + 1 : next);
		if (rc < 0)
			return rc;
		return p[1] ? 1 : 2;
	}
	return 1;
}

int options_parse(const struct option_usage *u, void *into, int argc, char **argv, int *words)
{
	bool ended = false;
	int i = 1, used;

	*words = 0;
	while (i < argc) {
		char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;

		if (ended || word[0] != '-' || word[1] == '\0') {
			argv[(*words)++] = word;
			i++;
			continue;
		}
		if (strcmp(word, "--") == 0) {
			ended = true;
			i++;
			continue;
		}
		if (strcmp(word, "--help") == 0 ||
		    (strcmp(word, "-h") == 0 && !options_by_letter(u, 'h'))) {
			options_help(u, stdout);
			return 1;
		}
		if (word[1] == '-')
			used = options_long(u, into, word, next);
		else
			used = options_short(u, into, word, next);
		if (used < 0)
			return used;
		i += used;
	}
	return 0;
}

int options_set(const struct option_usage *u, void *into, const char *text)
{
	const char *equals = strchr(text, '=');
	size_t len = equals ? (size_t)(equals - text) : strlen(text);
	const struct option_spec *s = options_by_name(u, text, len);

	if (!s)
		return -ENOENT;
	if (!equals && s->kind != OPTION_FLAG)
		return options_missing(u, s, "");
	options_drop_default(s, into);
	return options_apply(u, s, into, "", equals ? equals + 1 : NULL);
}

static void options_help_one(const struct option_spec *s, FILE *to)
{
	char left[64];
	int i, n;

	n = snprintf(left, sizeof(left), s->letter ? "  -%c, " : "      ", s->letter);
	snprintf(left + n, sizeof(left) - (size_t)n, "--%s%s%s", s->name,
		 s->kind == OPTION_FLAG ? "" : " ",
		 s->kind == OPTION_FLAG ? "" : (s->arg ? s->arg : "VALUE"));
	if (strlen(left) + 1 > OPTIONS_HELP_COLUMN)
		fprintf(to, "%s\n%*s", left, OPTIONS_HELP_COLUMN, "");
	else
		fprintf(to, "%-*s", OPTIONS_HELP_COLUMN, left);
	fprintf(to, "%s", s->help);
	if (s->kind == OPTION_CHOICE) {
		fprintf(to, ": ");
		for (i = 0; s->choices[i]; i++)
			fprintf(to, "%s%s", i ? ", " : "", s->choices[i]);
	}
	if (s->kind == OPTION_LIST)
		fprintf(to, " (may be repeated)");
	if (s->fallback)
		fprintf(to, " (default %s)", s->fallback);
	fputc('\n', to);
}

void options_help(const struct option_usage *u, FILE *to)
{
	const struct option_spec *s;

	fprintf(to, "Usage: %s %s\n%s\n", u->program, u->synopsis, u->summary);
	fprintf(to, "\nOptions:\n");
	for (s = u->specs; s->name; s++)
		options_help_one(s, to);
	fprintf(to, "      %-*s%s\n", OPTIONS_HELP_COLUMN - 6, "--help", "print this and exit");
	if (u->notes)
		fprintf(to, "\n%s\n", u->notes);
}
