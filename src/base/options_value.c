/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Options: from the text of a value to what is stored. Nothing here prints.
 */
#include <config.h>

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/options.h"
#include "base/options_priv.h"

/* Reads "123" exactly or "1.5" as a double times `unit_of(suffix)`; the product must fit. */
static int options_parse_scaled(const char *text, uint64_t (*unit_of)(const char *suffix),
				uint64_t *value)
{
	unsigned long long whole;
	uint64_t unit;
	double x;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	whole = strtoull(text, &end, 10);
	if (errno)
		return -EINVAL;
	if (*end != '.') {
		unit = unit_of(end);
		if (unit == 0 || whole > UINT64_MAX / unit)
			return -EINVAL;
		*value = whole * unit;
		return 0;
	}
	if (!isdigit((unsigned char)end[1]))
		return -EINVAL;
	for (end++; isdigit((unsigned char)*end);)
		end++;
	unit = unit_of(end);
	if (unit == 0)
		return -EINVAL;
	x = strtod(text, NULL) * (double)unit;
	if (!(x < 0x1p64))
		return -EINVAL;
	*value = (uint64_t)x;
	return 0;
}

static uint64_t options_size_unit(const char *s)
{
	static const char letters[] = "KMGTP";
	const char *at;

	if (*s == ' ')
		s++;
	if (*s == '\0' || strcmp(s, "B") == 0)
		return 1;
	at = strchr(letters, toupper((unsigned char)*s));
	if (!at || (s[1] != '\0' && strcmp(s + 1, "iB") != 0))
		return 0;
	return 1ULL << 10 * (at - letters + 1);
}

int options_parse_size(const char *text, uint64_t *bytes)
{
	return options_parse_scaled(text, options_size_unit, bytes);
}

static uint64_t options_duration_unit(const char *s)
{
	static const struct {
		const char *suffix;
		uint64_t ns;
	} units[] = {{"", NS_PER_S}, {"s", NS_PER_S}, {"ms", NS_PER_MS}, {"m", 60 * NS_PER_S},
		     {"h", 3600 * NS_PER_S}};
	size_t i;

	for (i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(s, units[i].suffix) == 0)
			return units[i].ns;
	return 0;
}

int options_parse_duration(const char *text, uint64_t *ns)
{
	return options_parse_scaled(text, options_duration_unit, ns);
}

const char *options_format_size(uint64_t bytes, char *buf, size_t len)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double x = (double)bytes;
	unsigned u = 0;

	while (x >= 1023.95 && u < 6) {
		x /= 1024;
		u++;
	}
	if (u == 0 || x == floor(x))
		snprintf(buf, len, "%.0f %s", x, units[u]);
	else
		snprintf(buf, len, "%.1f %s", x, units[u]);
	return buf;
}

static bool options_in_range(const struct option_spec *s, double x)
{
	return x >= s->min && (s->max == 0 || x <= s->max);
}

static int options_store_number(const struct option_spec *s, void *to, const char *text)
{
	unsigned long long n;
	uint64_t value = 0;
	char *end;
	int rc = 0;

	if (s->kind == OPTION_SIZE) {
		rc = options_parse_size(text, &value);
	} else if (s->kind == OPTION_DURATION) {
		rc = options_parse_duration(text, &value);
	} else {
		errno = 0;
		n = strtoull(text, &end, 10);
		if (!isdigit((unsigned char)text[0]) || *end || errno)
			rc = -EINVAL;
		value = n;
	}
	if (rc < 0)
		return rc;
	if (!options_in_range(s, (double)value))
		return -ERANGE;
	*(uint64_t *)to = value;
	return 0;
}

static int options_store_double(const struct option_spec *s, void *to, const char *text)
{
	char *end;
	double x = strtod(text, &end);

	if (end == text || *end || isspace((unsigned char)text[0]) || !isfinite(x))
		return -EINVAL;
	if (!options_in_range(s, x))
		return -ERANGE;
	*(double *)to = x;
	return 0;
}

static int options_store_flag(void *to, const char *text)
{
	if (!text || strcmp(text, "on") == 0)
		*(bool *)to = true;
	else if (strcmp(text, "off") == 0)
		*(bool *)to = false;
	else
		return -EINVAL;
	return 0;
}

static int options_store_choice(const struct option_spec *s, void *to, const char *text)
{
	int i;

	for (i = 0; s->choices[i]; i++) {
		if (strcmp(s->choices[i], text) == 0) {
			*(int *)to = i;
			return 0;
		}
	}
	return -EINVAL;
}

static int options_store_list(struct option_list *list, const char *text)
{
	const char **items = realloc(list->items, (list->count + 1) * sizeof(*items));

	if (!items)
		return -ENOMEM;
	items[list->count] = text;
	list->items = items;
	list->count++;
	return 0;
}

int options_store(const struct option_spec *s, void *into, const char *text)
{
	void *to = (char *)into + s->offset;

	switch (s->kind) {
	case OPTION_FLAG:
		return options_store_flag(to, text);
	case OPTION_UINT:
	case OPTION_SIZE:
	case OPTION_DURATION:
		return options_store_number(s, to, text);
	case OPTION_DOUBLE:
		return options_store_double(s, to, text);
	case OPTION_STRING:
		*(const char **)to = text;
		return 0;
	case OPTION_CHOICE:
		return options_store_choice(s, to, text);
	case OPTION_LIST:
		return options_store_list(to, text);
	}
	return -EINVAL;
}

void options_zero(const struct option_spec *s, void *into)
{
	static const size_t size[] = {
		[OPTION_FLAG] = sizeof(bool),
		[OPTION_UINT] = sizeof(uint64_t),
		[OPTION_SIZE] = sizeof(uint64_t),
		[OPTION_DURATION] = sizeof(uint64_t),
		[OPTION_DOUBLE] = sizeof(double),
		[OPTION_STRING] = sizeof(const char *),
		[OPTION_CHOICE] = sizeof(int),
		[OPTION_LIST] = sizeof(struct option_list),
	};

	memset((char *)into + s->offset, 0, size[s->kind]);
}

static void options_format_bound(const struct option_spec *s, double x, char *buf, size_t len)
{
	if (s->kind == OPTION_SIZE)
		options_format_size((uint64_t)x, buf, len);
	else if (s->kind == OPTION_DURATION)
		snprintf(buf, len, "%g s", x / (double)NS_PER_S);
	else
		snprintf(buf, len, "%.15g", x);
}

static void options_append(char *buf, size_t len, const char *a, const char *b)
{
	size_t at = strlen(buf);

	snprintf(buf + at, len - at, "%s%s", a, b);
}

/* "a size such as 512M or 10G, from 4 KiB to 1 TiB" */
void options_expectation(const struct option_spec *s, char *buf, size_t len)
{
	static const char *const kinds[] = {
		[OPTION_FLAG] = "on or off",
		[OPTION_UINT] = "a whole number",
		[OPTION_SIZE] = "a size such as 512M or 10G",
		[OPTION_DURATION] = "a duration such as 500ms, 10s or 2h",
		[OPTION_DOUBLE] = "a number",
		[OPTION_STRING] = "a text",
		[OPTION_LIST] = "a text",
	};
	char bound[32];
	int i;

	buf[0] = '\0';
	if (s->kind == OPTION_CHOICE) {
		options_append(buf, len, "one of ", "");
		for (i = 0; s->choices[i]; i++)
			options_append(buf, len, i ? ", " : "", s->choices[i]);
		return;
	}
	options_append(buf, len, kinds[s->kind], "");
	if (s->kind == OPTION_FLAG || s->kind == OPTION_STRING || s->kind == OPTION_LIST)
		return;
	if (s->min != 0) {
		options_format_bound(s, s->min, bound, sizeof(bound));
		options_append(buf, len, s->max != 0 ? ", from " : ", at least ", bound);
	}
	if (s->max != 0) {
		options_format_bound(s, s->max, bound, sizeof(bound));
		options_append(buf, len, s->min != 0 ? " to " : ", at most ", bound);
	}
}
