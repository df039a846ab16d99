/* SPDX-License-Identifier: BSD-2-Clause
 * gild status: a mount, a card that is not mounted, or all mounts. */
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/options.h"
#include "card/card.h"
#include "tools/control.h"
#include "tools/gild.h"
#include "tools/query.h"

struct status_options {
	bool json;
};

static const struct option_spec status_specs[] = {
	{.name = "json", .kind = OPTION_FLAG, .offset = offsetof(struct status_options, json),
	 .help = "print one JSON object"},
	{0},
};

static const struct option_usage status_usage = {
	.program = "gild status",
	.synopsis = "[MOUNTPOINT|CARD] [OPTION...]",
	.summary = "Shows how a mount is doing, or what a card is; without argument, all mounts.",
	.specs = status_specs,
};

static double get_real(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static const char *get_size(const json_t *object, const char *key, char *buf, size_t len)
{
	double bytes = get_real(object, key);

	/* The reply is somebody else's: a conversion out of range is undefined. */
	return options_format_size(bytes > 0 && bytes < 1e18 ? (uint64_t)bytes : 0, buf, len);
}

static void status_print_latency(const json_t *latency, const char *kind)
{
	const json_t *h = json_object_get(latency, kind);

	printf("  %-8s %10.0f  %9.3f %9.3f %9.3f %9.3f\n", kind, get_real(h, "count"),
	       get_real(h, "mean") / 1e6, get_real(h, "p50") / 1e6, get_real(h, "p99") / 1e6,
	       get_real(h, "max") / 1e6);
}

static void status_print_flash(const json_t *f)
{
	char a[32], b[32], c[32];

	if (!json_is_object(f)) {
		printf("Flash     none: everything passes through\n");
		return;
	}
	printf("Flash     %s, %s live of %s (%.1f %%)\n",
	       json_string_value(json_object_get(f, "state")), get_size(f, "live_bytes", a, sizeof(a)),
	       get_size(f, "raw_bytes", b, sizeof(b)),
	       get_real(f, "raw_bytes") > 0
		       ? 100 * get_real(f, "live_bytes") / get_real(f, "raw_bytes") : 0.0);
	printf("          written %s by the cache, %s to flash: write amplification %.2f, "
	       "compression %.2f : 1\n",
	       get_size(f, "host_write_bytes", a, sizeof(a)),
	       get_size(f, "flash_write_bytes", c, sizeof(c)), get_real(f, "write_amplification"),
	       get_real(f, "compression_ratio"));
}

static void status_print(const json_t *s)
{
	const json_t *r = json_object_get(s, "requests"), *b = json_object_get(s, "bytes");
	const json_t *latency = json_object_get(s, "latency_ns");
	char hit[32], backing[32];

	printf("Mount     %s over %s, %s, coherence %s, policy %s, up %.0f s\n",
	       json_string_value(json_object_get(s, "mountpoint")),
	       json_string_value(json_object_get(s, "backing")),
	       json_string_value(json_object_get(s, "mode")),
	       json_string_value(json_object_get(s, "coherence")),
	       json_string_value(json_object_get(s, "policy")), get_real(s, "uptime_s"));
	printf("Reads     %.0f: %.0f hits (%.1f %%), %.0f partial, %.0f misses, %.0f bypass\n",
	       get_real(r, "total"), get_real(r, "hits"), 100 * get_real(r, "hit_ratio"),
	       get_real(r, "partial"), get_real(r, "misses"), get_real(r, "bypass"));
	printf("Bytes     %s from flash, %s from the backing (%.1f %% hits)\n",
	       get_size(b, "hit", hit, sizeof(hit)), get_size(b, "backing", backing, sizeof(backing)),
	       100 * get_real(b, "hit_ratio"));
	status_print_flash(json_object_get(s, "flash"));
	printf("Latency        count    mean ms    p50 ms    p99 ms    max ms\n");
	status_print_latency(latency, "hit");
	status_print_latency(latency, "partial");
	status_print_latency(latency, "miss");
	status_print_latency(latency, "write");
}

static void status_print_card(const char *path, const struct card_info *info)
{
	char a[32], b[32], c[32];

	printf("Card      %s, %u controllers on %s\n", path, info->controllers, info->medium);
	printf("Space     raw %s, usable %s, over-provisioning %u %%, erase blocks of %s\n",
	       options_format_size(info->raw_bytes, a, sizeof(a)),
	       options_format_size(info->usable_bytes, b, sizeof(b)), info->op_percent,
	       options_format_size(info->erase_block, c, sizeof(c)));
	printf("State     %s\n", info->clean ? "closed cleanly" :
	       "not closed cleanly: it is in use, or will replay its log when it is mounted");
}

static int status_card(const char *path, bool json)
{
	struct card_info info;
	json_t *object;

	if (card_describe(path, &info) < 0)
		return 1;
	if (!json) {
		status_print_card(path, &info);
		return 0;
	}
	object = query_card_json(path, &info);
	query_print_json(object);
	json_decref(object);
	return 0;
}

static int status_mount(const char *path, bool json)
{
	json_t *reply;
	int rc = query_mount("gild status", path, "status", &reply);

	if (rc)
		return rc;
	if (json)
		query_print_json(reply);
	else
		status_print(reply);
	json_decref(reply);
	return 0;
}

static bool read_mount_note(const char *dir, const char *name, char path[PATH_MAX])
{
	char note[PATH_MAX];
	const char *dot = strrchr(name, '.');
	FILE *f;
	bool ok;

	if (!dot || strcmp(dot, ".mount") != 0)
		return false;
	snprintf(note, sizeof(note), "%s/%s", dir, name);
	f = fopen(note, "re");
	if (!f)
		return false;
	ok = fgets(path, PATH_MAX, f) != NULL;
	fclose(f);
	return ok;
}

/* One line a mount that answers; those left by killed daemons are passed over. */
static int status_all(bool json)
{
	char dir[80], path[PATH_MAX];
	json_t *list = json_array(), *reply;
	DIR *d = opendir(control_directory(dir, sizeof(dir)));
	struct dirent *e;

	while (d && (e = readdir(d))) {
		if (!read_mount_note(dir, e->d_name, path) ||
		    control_query(path, "status", &reply) < 0)
			continue;
		if (!json)
			printf("%s over %s: %.1f %% hits\n", path,
			       json_string_value(json_object_get(reply, "backing")),
			       100 * get_real(json_object_get(reply, "requests"), "hit_ratio"));
		json_array_append_new(list, reply);
	}
	if (d)
		closedir(d);
	if (json)
		query_print_json(list);
	else if (json_array_size(list) == 0)
		printf("no gildfs is mounted\n");
	json_decref(list);
	return 0;
}

int cmd_status(int argc, char **argv)
{
	struct status_options o = {0};
	char json_path[PATH_MAX];
	int words, rc;

	options_defaults(&status_usage, &o);
	rc = options_parse(&status_usage, &o, argc, argv, &words);
	if (rc != 0)
		return rc > 0 ? 0 : 2;
	if (words == 0)
		return status_all(o.json);
	if (words != 1) {
		fprintf(stderr, "gild status: give one mount point or card\n");
		return 2;
	}
	snprintf(json_path, sizeof(json_path), "%s/card.json", argv[0]);
	if (access(json_path, F_OK) == 0)
		return status_card(argv[0], o.json);
	return status_mount(argv[0], o.json);
}
