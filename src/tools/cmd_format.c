/* SPDX-License-Identifier: BSD-2-Clause
 * gild format and gild recover: the two that write to a card nobody has open. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/options.h"
#include "card/card.h"
#include "tools/gild.h"
#include "tools/query.h"

struct format_options {
	uint64_t size, controllers;
	const char *device;
	int savings;
	const char *op;
	bool force, json;
};

#define AT(member) offsetof(struct format_options, member)
static const char *const savings_choices[] = {"capacity", "spare", NULL};

static const struct option_spec format_specs[] = {
	{.name = "size", .letter = 's', .kind = OPTION_SIZE, .offset = AT(size), .arg = "SIZE",
	 .help = "flash space to take; must be given unless --device is"},
	{.name = "device", .kind = OPTION_STRING, .offset = AT(device), .arg = "DEVICE",
	 .help = "block device to use as the medium, instead of a file in the card's directory"},
	{.name = "controllers", .kind = OPTION_UINT, .offset = AT(controllers), .arg = "N",
	 .fallback = "4", .min = 1, .max = CARD_CONTROLLERS_MAX,
	 .help = "flash controllers working side by side"},
	{.name = "op", .kind = OPTION_STRING, .offset = AT(op), .arg = "LEVEL",
	 .fallback = "nominal",
	 .help = "over-provisioning: nominal (28 %), performance (72 %) or a percentage"},
	{.name = "savings", .kind = OPTION_CHOICE, .offset = AT(savings), .arg = "USE",
	 .choices = savings_choices, .fallback = "capacity",
	 .help = "what compression gains: more capacity, or more spare"},
	{.name = "force", .kind = OPTION_FLAG, .offset = AT(force),
	 .help = "also over an existing card: all it holds is lost"},
	{.name = "json", .kind = OPTION_FLAG, .offset = AT(json),
	 .help = "print the new card as a JSON object"},
	{0},
};

static const struct option_usage format_usage = {
	.program = "gild format",
	.synopsis = "CARD [OPTION...]",
	.summary = "Makes the directory CARD a flash card.",
	.specs = format_specs,
};

static int format_parse_op(const char *text, unsigned *percent)
{
	char end;

	if (strcmp(text, "nominal") == 0)
		*percent = 28;
	else if (strcmp(text, "performance") == 0)
		*percent = 72;
	else if (sscanf(text, "%u%c", percent, &end) != 1 || *percent < 7 || *percent > 400)
		return -EINVAL;
	return 0;
}

static void format_print(const char *path, const struct card_info *info)
{
	char a[32], b[32], c[32], d[32];

	printf("%s: %u controllers, raw %s, usable %s (over-provisioning %u %%), spare %s, erase "
	       "blocks of %s\n",
	       path, info->controllers, options_format_size(info->raw_bytes, a, sizeof(a)),
	       options_format_size(info->usable_bytes, b, sizeof(b)), info->op_percent,
	       options_format_size(info->raw_bytes - info->usable_bytes, c, sizeof(c)),
	       options_format_size(info->erase_block, d, sizeof(d)));
}

json_t *query_card_json(const char *path, const struct card_info *info)
{
	char uuid[33];

	for (int i = 0; i < 16; i++)
		snprintf(uuid + 2 * i, 3, "%02x", info->uuid[i]);
	return json_pack("{s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:s, s:b, s:s}", "card", path,
			 "uuid", uuid, "version", (int)info->version, "controllers",
			 (int)info->controllers, "op_percent", (int)info->op_percent, "size",
			 (json_int_t)info->size, "raw_bytes", (json_int_t)info->raw_bytes,
			 "usable_bytes", (json_int_t)info->usable_bytes, "erase_block",
			 (json_int_t)info->erase_block, "savings",
			 savings_choices[info->savings_spare], "clean", (int)info->clean, "medium",
			 info->medium);
}

static int format_show(const char *path, bool json)
{
	struct card_info info;
	json_t *object;

	if (card_describe(path, &info) < 0)
		return 1;
	if (!json) {
		format_print(path, &info);
		return 0;
	}
	object = query_card_json(path, &info);
	query_print_json(object);
	json_decref(object);
	return 0;
}

int cmd_format(int argc, char **argv)
{
	struct format_options o = {0};
	struct card_format f;
	int words, rc;
	unsigned op = 0;

	options_defaults(&format_usage, &o);
	rc = options_parse(&format_usage, &o, argc, argv, &words);
	if (rc != 0)
		return rc > 0 ? 0 : 2;
	if (words != 1 || !argv[0][0]) {
		fprintf(stderr, "gild format: give one directory for the card\n");
		return 2;
	}
	if (!o.size && !o.device) {
		fprintf(stderr, "gild format: give --size, for example --size 10G, or --device\n");
		return 2;
	}
	if (format_parse_op(o.op, &op) < 0) {
		fprintf(stderr, "gild format: --op takes nominal, performance or a percentage from 7 "
				"to 400, not '%s'\n", o.op);
		return 2;
	}
	umask(0); /* the card's files have modes of their own */
	f = (struct card_format){.size = o.size, .device = o.device,
				 .controllers = (unsigned)o.controllers, .op_percent = op,
				 .savings_spare = o.savings == 1, .force = o.force};
	if (card_format(argv[0], &f) < 0)
		return 1;
	return format_show(argv[0], o.json);
}

static const struct option_spec recover_specs[] = {{0}};

static const struct option_usage recover_usage = {
	.program = "gild recover",
	.synopsis = "CARD",
	.summary = "Rebuilds the card's map from its log, for when the map is lost or damaged.",
	.notes = "The card must not be in use. What the log holds is kept; what of the map remains is "
		 "replaced only once the new one is complete.",
	.specs = recover_specs,
};

int cmd_recover(int argc, char **argv)
{
	int words, unused = 0;
	int rc = options_parse(&recover_usage, &unused, argc, argv, &words);

	if (rc != 0)
		return rc > 0 ? 0 : 2;
	if (words != 1) {
		fprintf(stderr, "gild recover: give one card\n");
		return 2;
	}
	umask(0);
	if (card_recover(argv[0]) < 0)
		return 1;
	printf("%s: the map is rebuilt\n", argv[0]);
	return 0;
}
