/* SPDX-License-Identifier: BSD-2-Clause
 * gild slowdisk: the command line. */
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/options.h"
#include "tools/gild.h"
#include "tools/slowdisk.h"

struct slowdisk_options {
	bool files, foreground, allow_other;
	int model, delays;
	uint64_t size;
	double stroke;
};

static const char *const slowdisk_models[] = {"hdd-6", "hdd-24", "hdd-1", NULL};
static const char *const slowdisk_switch[] = {"on", "off", NULL};

#define OPT(field) offsetof(struct slowdisk_options, field)

static const struct option_spec slowdisk_specs[] = {
	{.name = "model", .letter = 'm', .kind = OPTION_CHOICE, .offset = OPT(model),
	 .arg = "MODEL", .fallback = "hdd-6", .choices = slowdisk_models,
	 .help = "the disk array to model"},
	{.name = "size", .kind = OPTION_SIZE, .offset = OPT(size), .arg = "SIZE",
	 .min = DISK_MODEL_MIN, .max = 0x1p62,
	 .help = "create IMAGE with this size if it does not exist"},
	{.name = "stroke", .kind = OPTION_DOUBLE, .offset = OPT(stroke), .arg = "PCT", .min = 0.1,
	 .max = 100,
	 .help = "part of the drives' stroke the content spans; default: what 40 GB take"},
	{.name = "delays", .kind = OPTION_CHOICE, .offset = OPT(delays), .arg = "STATE",
	 .fallback = "on", .choices = slowdisk_switch,
	 .help = "whether answers are delayed from the start"},
	{.name = "files", .kind = OPTION_FLAG, .offset = OPT(files),
	 .help = "slow down a directory, file by file, instead of an image"},
	{.name = "allow-other", .kind = OPTION_FLAG, .offset = OPT(allow_other),
	 .help = "let other users use the mount"},
	{.name = "foreground", .letter = 'f', .kind = OPTION_FLAG, .offset = OPT(foreground),
	 .help = "stay in the foreground"},
	{0},
};

static const struct option_usage slowdisk_usage = {
	.program = "gild slowdisk",
	.synopsis = "IMAGE DIR [OPTION...]\n       gild slowdisk --files SOURCE DIR [OPTION...]",
	.summary = "Shows an image as DIR/disk, or a directory as DIR, at the pace of a disk array",
	.notes =
		"Models: hdd-6 (6 drives of 73 GB, 15000 rpm, RAID10), hdd-24 (24 of them), hdd-1 "
		"(one\n500 GB, 7200 rpm drive). Seek by distance, rotation, transfer by zone, one "
		"reordering\nqueue a drive, read-ahead in the drive, no write cache.\n\n"
		"Put a real filesystem on DIR/disk, by a loop device with direct I/O, so that its\n"
		"metadata pays too; fill it with the delays off. gild-slowdisk(1) has the commands.\n"
		"DIR/control switches the delays (on, off) and shows the counters as JSON; with --files\n"
		"it is DIR/.slowdisk. umount DIR ends it.\n\n"
		"The content, whatever its size, spans the part of the drives that 40 GB take: 18 %\n"
		"(hdd-6), 5 % (hdd-24), 8 % (hdd-1). --stroke 100 spreads it over the whole drives.",
	.specs = slowdisk_specs,
};

static int slowdisk_fail(int code, const char *what, const char *why)
{
	fprintf(stderr, "gild slowdisk: %s: %s\n", what, why);
	return code;
}

static bool slowdisk_inside(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0' || len == 1);
}

/* 0, or the exit code of what is wrong with the mount point. */
static int slowdisk_check_mountpoint(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	bool empty = true;

	if (!dir)
		return slowdisk_fail(1, path, strerror(errno));
	while (empty && (e = readdir(dir)))
		empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
	closedir(dir);
	return empty ? 0 : slowdisk_fail(1, path, "not an empty directory");
}

/* `source` and `dir` are resolved paths of the file form. */
static int slowdisk_check_source(const char *source, const char *dir)
{
	struct stat st;

	if (stat(source, &st) != 0)
		return slowdisk_fail(1, source, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return slowdisk_fail(1, source, "not a directory");
	if (slowdisk_inside(dir, source) || slowdisk_inside(source, dir))
		return slowdisk_fail(1, dir, "must lie outside of the directory it shows");
	return 0;
}

static int slowdisk_dispatch(const struct slowdisk_options *o, struct slow_args *a)
{
	char *dir, *source = NULL;
	int code = slowdisk_check_mountpoint(a->mountpoint);

	if (code)
		return code;
	dir = realpath(a->mountpoint, NULL);
	if (!dir)
		return slowdisk_fail(1, a->mountpoint, strerror(errno));
	a->mountpoint = dir;
	if (!o->files) {
		code = slow_image_run(a);
	} else if (!(source = realpath(a->source, NULL))) {
		code = slowdisk_fail(1, a->source, strerror(errno));
	} else {
		a->source = source;
		code = slowdisk_check_source(source, dir);
		if (!code)
			code = slow_files_run(a);
	}
	free(source);
	free(dir);
	return code;
}

int cmd_slowdisk(int argc, char **argv)
{
	struct slowdisk_options o;
	struct slow_args a;
	int words, err;

	options_defaults(&slowdisk_usage, &o);
	err = options_parse(&slowdisk_usage, &o, argc, argv, &words);
	if (err)
		return err > 0 ? 0 : 2;
	if (words != 2)
		return slowdisk_fail(2, "two names are needed",
				     o.files ? "SOURCE DIR (see --help)" : "IMAGE DIR (see --help)");
	if (o.files && o.size)
		return slowdisk_fail(2, "--size", "is for an image, not for --files");
	if (o.size % 512)
		return slowdisk_fail(2, "--size", "must be a multiple of 512 bytes");
	a = (struct slow_args){.source = argv[0],
			       .mountpoint = argv[1],
			       .size = o.size,
			       .kind = (enum disk_model_kind)o.model,
			       .stroke = o.stroke / 100,
			       .delays = o.delays == 0,
			       .foreground = o.foreground,
			       .allow_other = o.allow_other};
	return slowdisk_dispatch(&o, &a);
}
