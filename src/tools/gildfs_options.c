/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Options come as every FUSE filesystem takes them: -o a,b=c (also from fstab), -f, -d, or as long
 * options of the same names. Mount flags the kernel knows are passed on; anything else is refused,
 * so that a misspelt option never silently does nothing. */
#include <config.h>

#include "tools/gildfs_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(struct gildfs_options, member)

static const char *const raid_choices[] = {"0", "1", "elastic", NULL};
static const char *const mode_choices[] = {"write-through", "write-around", "read-only", NULL};
static const char *const coherence_choices[] = {"ttl", "strict", "exclusive", NULL};
static const char *const admit_choices[] = {"freq", "always", "lru", NULL};
static const char *const log_choices[] = {"error", "warning", "info", "debug", NULL};

static const struct option_spec gildfs_specs[] = {
	{.name = "card", .kind = OPTION_LIST, .offset = AT(card), .arg = "PATH",
	 .help = "flash card made by gild format; without it an embedded one is made"},
	{.name = "card-size", .kind = OPTION_SIZE, .offset = AT(card_size), .arg = "SIZE",
	 .help = "size of the embedded card; 0: a tenth of the free space, at most 16G",
	 .fallback = "0"},
	{.name = "raid", .kind = OPTION_CHOICE, .offset = AT(raid), .arg = "LEVEL",
	 .choices = raid_choices, .fallback = "0", .help = "how several cards work together"},
	{.name = "mode", .kind = OPTION_CHOICE, .offset = AT(mode), .arg = "MODE",
	 .choices = mode_choices, .fallback = "write-through",
	 .help = "what a write does to the cache"},
	{.name = "coherence", .kind = OPTION_CHOICE, .offset = AT(coherence), .arg = "RULE",
	 .choices = coherence_choices, .fallback = "ttl",
	 .help = "how changes made behind the mount are noticed"},
	{.name = "ttl", .kind = OPTION_DURATION, .offset = AT(ttl), .arg = "TIME", .fallback = "1",
	 .help = "with coherence=ttl: how long attributes and names are believed"},
	{.name = "admit", .kind = OPTION_CHOICE, .offset = AT(admit), .arg = "POLICY",
	 .choices = admit_choices, .fallback = "freq",
	 .help = "which data is cached and which is kept"},
	{.name = "seq-cutoff", .kind = OPTION_SIZE, .offset = AT(seq_cutoff), .arg = "SIZE",
	 .fallback = "4M", .help = "a file read in order beyond this bypasses the cache; 0: never"},
	{.name = "publish-after", .kind = OPTION_DURATION, .offset = AT(publish_after),
	 .arg = "TIME", .fallback = "2",
	 .help = "quiet time before a written file's cached data counts over a restart"},
	{.name = "fsid", .kind = OPTION_STRING, .offset = AT(fsid), .arg = "NAME",
	 .help = "identity of the backing filesystem, where it has no stable UUID"},
	{.name = "allow-empty", .kind = OPTION_FLAG, .offset = AT(allow_empty),
	 .help = "mount although the backing is an empty directory"},
	{.name = "allow_other", .kind = OPTION_FLAG, .offset = AT(allow_other),
	 .help = "other users may use the mount (always so for root)"},
	{.name = "acl", .kind = OPTION_FLAG, .offset = AT(acl),
	 .help = "let the kernel check POSIX ACLs"},
	{.name = "ro", .kind = OPTION_FLAG, .offset = AT(readonly), .help = "read-only mount"},
	{.name = "log", .kind = OPTION_CHOICE, .offset = AT(log), .arg = "LEVEL",
	 .choices = log_choices, .fallback = "info", .help = "least severity that is logged"},
	{.name = "foreground", .letter = 'f', .kind = OPTION_FLAG, .offset = AT(foreground),
	 .help = "stay in the foreground, log to stderr"},
	{.name = "debug", .letter = 'd', .kind = OPTION_FLAG, .offset = AT(debug),
	 .help = "as -f, and print every FUSE request"},
	{.name = "version", .letter = 'V', .kind = OPTION_FLAG, .offset = AT(version),
	 .help = "print the version"},
	{0},
};

const struct option_usage gildfs_usage = {
	.program = "gildfs",
	.synopsis = "BACKING MOUNTPOINT [-o OPTION[,OPTION...]] [OPTION...]",
	.summary = "Mounts the directory BACKING again on MOUNTPOINT, at flash speed.",
	.notes = "Options may be given as -o name=value or as --name value. Unmount with umount(8) or "
		 "fusermount3 -u; gild status MOUNTPOINT shows how it is doing.",
	.specs = gildfs_specs,
};

/* Words of mount(8) and fstab. `pass`: libfuse and the kernel understand them. */
static const struct mount_word {
	const char *name;
	bool pass;
} mount_words[] = {
	{"rw", false}, {"dev", true}, {"nodev", true}, {"suid", true}, {"nosuid", true},
	{"exec", true}, {"noexec", true}, {"atime", true}, {"noatime", true}, {"sync", true},
	{"async", true}, {"dirsync", true}, {"defaults", false}, {"auto", false},
	{"noauto", false}, {"user", false}, {"users", false}, {"nouser", false},
	{"nofail", false}, {"_netdev", false}, {"default_permissions", false},
	{"auto_unmount", true},
	/* FUSE keeps no access times of its own. */
	{"relatime", false}, {"norelatime", false}, {"strictatime", false},
	{"nostrictatime", false}, {"diratime", false}, {"nodiratime", false},
	{"lazytime", false}, {"nolazytime", false},
};

static int gildfs_pass_on(struct gildfs_options *o, const char *word)
{
	size_t used = strlen(o->fuse_opts);
	int n = snprintf(o->fuse_opts + used, sizeof(o->fuse_opts) - used, "%s%s",
			 used ? "," : "", word);

	if (n < 0 || (size_t)n >= sizeof(o->fuse_opts) - used) {
		fprintf(stderr, "gildfs: too many mount options: leave some out\n");
		return -EINVAL;
	}
	return 0;
}

static int gildfs_set_word(struct gildfs_options *o, const char *word)
{
	int rc = options_set(&gildfs_usage, o, word);

	if (rc != -ENOENT)
		return rc;
	for (size_t i = 0; i < sizeof(mount_words) / sizeof(mount_words[0]); i++)
		if (strcmp(word, mount_words[i].name) == 0)
			return mount_words[i].pass ? gildfs_pass_on(o, word) : 0;
	if (strncmp(word, "x-", 2) == 0 || strncmp(word, "comment=", 8) == 0)
		return 0;
	if (strncmp(word, "fsname=", 7) == 0 || strncmp(word, "subtype=", 8) == 0)
		return 0; /* ours are shown; mount.fuse passes these */
	if (strncmp(word, "user=", 5) == 0)
		return 0; /* whom fstab's `user` let mount */
	if (o->remount)
		return 0; /* mount(8) says again what it reads in the mount table */
	fprintf(stderr, "gildfs: there is no option '%s': gildfs --help lists them\n", word);
	return -EINVAL;
}

static bool gildfs_has_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = text; p; p = strchr(p, ',')) {
		p += *p == ',';
		if (strncmp(p, word, len) == 0 && (p[len] == ',' || p[len] == '\0'))
			return true;
	}
	return false;
}

/* "-o a,b=c": the text is cut at its commas in place and stays alive with argv. */
static int gildfs_set_words(struct gildfs_options *o, char *text)
{
	bool after_card = false;

	o->remount |= gildfs_has_word(text, "remount");
	for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
		int rc;

		/* card=A,B: a path after a card is a further card */
		if (after_card && (*word == '/' || *word == '.') && !strchr(word, '=')) {
			char *again = malloc(strlen(word) + 6);

			if (!again)
				return -ENOMEM;
			sprintf(again, "card=%s", word);
			rc = options_set(&gildfs_usage, o, again);
		} else {
			after_card = strncmp(word, "card=", 5) == 0;
			rc = gildfs_set_word(o, word);
		}
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Takes -o WORDS and -oWORDS out of argv; the rest is left for options_parse. */
static int gildfs_take_o(struct gildfs_options *o, int *argc, char **argv)
{
	int kept = 1;

	for (int i = 1; i < *argc; i++) {
		int rc = 0;

		if (strcmp(argv[i], "--") == 0) {
			while (i < *argc)
				argv[kept++] = argv[i++];
			break;
		}
		if (strcmp(argv[i], "-o") == 0) {
			if (++i == *argc) {
				fprintf(stderr, "gildfs: -o needs an option after it\n");
				return -EINVAL;
			}
			rc = gildfs_set_words(o, argv[i]);
		} else if (strncmp(argv[i], "-o", 2) == 0) {
			rc = gildfs_set_words(o, argv[i] + 2);
		} else {
			argv[kept++] = argv[i];
		}
		if (rc < 0)
			return rc;
	}
	*argc = kept;
	argv[kept] = NULL;
	return 0;
}

static int gildfs_contradictions(const struct gildfs_options *o)
{
	const char *what = NULL;

	if (o->card.count && o->card_size)
		what = "card= and card-size= exclude each other: the size is the card's own";
	else if (o->raid != 0 && o->card.count < 2)
		what = "raid= needs at least two card=";
	else if (o->card.count > CARD_CONTROLLERS_MAX)
		what = "too many card=";
	if (what)
		fprintf(stderr, "gildfs: %s\n", what);
	return what ? -EINVAL : 0;
}

int gildfs_parse(struct gildfs_options *o, int argc, char **argv)
{
	int words = 0, rc;

	memset(o, 0, sizeof(*o));
	options_defaults(&gildfs_usage, o);
	rc = gildfs_take_o(o, &argc, argv);
	if (rc == 0)
		rc = options_parse(&gildfs_usage, o, argc, argv, &words);
	if (rc != 0)
		return rc;
	if (o->version) {
		printf("gildfs %s\n", PACKAGE_VERSION);
		return 1;
	}
	if (words != 2 || !argv[0][0] || !argv[1][0]) {
		fprintf(stderr, "gildfs: give a backing directory and a mount point: "
				"gildfs --help explains\n");
		return -EINVAL;
	}
	rc = gildfs_contradictions(o);
	if (rc < 0)
		return rc;
	if (!realpath(argv[0], o->backing)) {
		fprintf(stderr, "gildfs: the backing %s cannot be used: %s\n", argv[0],
			strerror(errno));
		return -ENOENT;
	}
	if (!realpath(argv[1], o->mountpoint)) {
		fprintf(stderr, "gildfs: the mount point %s cannot be used: %s\n", argv[1],
			strerror(errno));
		return -ENOENT;
	}
	if (o->debug)
		o->foreground = true;
	return 0;
}
