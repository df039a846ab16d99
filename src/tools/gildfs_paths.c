/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What gildfs demands of its paths before anything is opened or made. Nesting is judged by walking
 * up ".." and comparing (device, inode), so bind mounts and odd spellings are seen too. */
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "tools/gildfs_options.h"

#define DEFAULT_CARD_MAX (16ULL << 30)
#define DEFAULT_CARD_MIN (64ULL << 20)

/* Is `path` the directory `top` or below it? -errno when it cannot be told. */
static int path_is_within(const char *path, const char *top)
{
	struct stat st, want;
	int fd, up, rc = -1;

	if (stat(top, &want) < 0)
		return -errno;
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (;;) {
		dev_t dev;
		ino_t ino;

		if (fstat(fd, &st) < 0)
			break;
		if (st.st_dev == want.st_dev && st.st_ino == want.st_ino) {
			rc = 1;
			break;
		}
		dev = st.st_dev;
		ino = st.st_ino;
		up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (up < 0)
			break;
		close(fd);
		fd = up;
		if (fstat(fd, &st) == 0 && st.st_dev == dev && st.st_ino == ino) {
			rc = 0; /* the root */
			break;
		}
	}
	if (rc < 0)
		rc = -errno;
	close(fd);
	return rc;
}

/* One path lies in another: `why` ends the sentence. */
static int path_refuse(const char *what, const char *path, const char *where, const char *other,
		       const char *why)
{
	fprintf(stderr, "gildfs: the %s %s lies %s %s%s\n", what, path, where, other, why);
	return 2;
}

/* The existing part of a path that need not exist yet. */
static void path_existing_parent(const char *path, char out[PATH_MAX])
{
	char copy[PATH_MAX];

	snprintf(copy, sizeof(copy), "%s", path);
	while (!realpath(copy, out)) {
		char *slash = strrchr(copy, '/');

		if (!slash || slash == copy) {
			strcpy(out, slash ? "/" : ".");
			return;
		}
		*slash = 0;
	}
}

static int path_check_card(const struct gildfs_options *o, const char *card)
{
	char real[PATH_MAX];

	path_existing_parent(card, real);
	if (path_is_within(real, o->backing) == 1)
		return path_refuse("card", card, "inside the backing", o->backing,
				   ": put it on the flash disk, outside");
	if (path_is_within(real, o->mountpoint) == 1)
		return path_refuse("card", card, "below the mount point", o->mountpoint,
				   ", which would hide it: put it elsewhere");
	return 0;
}

static bool path_is_empty_directory(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int others = 0;

	if (!d)
		return false;
	while ((e = readdir(d)))
		others += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	closedir(d);
	return others == 0;
}

static int path_check_directory(const char *what, const char *path, int access_mode)
{
	struct stat st;

	if (stat(path, &st) < 0 || access(path, access_mode) < 0) {
		fprintf(stderr, "gildfs: the %s %s cannot be used: %s\n", what, path,
			strerror(errno));
		return 1;
	}
	if (!S_ISDIR(st.st_mode)) {
		fprintf(stderr, "gildfs: the %s %s is not a directory\n", what, path);
		return 1;
	}
	return 0;
}

/* A second mount on top would take the first one's control socket from it; and a mount whose daemon
 * has died is found here, too. */
static int path_check_mounted(const char *mountpoint)
{
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	struct mntent *m;
	bool found = false;

	if (!mounts)
		return 0;
	while ((m = getmntent(mounts)))
		if (strcmp(m->mnt_dir, mountpoint) == 0)
			found = strcmp(m->mnt_type, "fuse.gildfs") == 0;
	endmntent(mounts);
	if (found)
		fprintf(stderr, "gildfs: gildfs is mounted on %s already: unmount it first\n",
			mountpoint);
	return found;
}

int gildfs_check_paths(const struct gildfs_options *o)
{
	int rc = path_check_directory("backing", o->backing, R_OK | X_OK);

	if (rc == 0)
		rc = path_check_mounted(o->mountpoint);
	if (rc == 0)
		rc = path_check_directory("mount point", o->mountpoint, F_OK);
	if (rc)
		return rc;
	if (path_is_within(o->mountpoint, o->backing) == 1)
		return path_refuse("mount point", o->mountpoint, "inside the backing", o->backing,
				   ": mount outside of it");
	if (path_is_within(o->backing, o->mountpoint) == 1)
		return path_refuse("backing", o->backing, "below the mount point", o->mountpoint,
				   ", which would hide it: mount elsewhere");
	if (!o->allow_empty && path_is_empty_directory(o->backing)) {
		fprintf(stderr, "gildfs: the backing %s is empty: is its disk mounted? -o allow-empty "
				"mounts it all the same\n", o->backing);
		return 1;
	}
	for (size_t i = 0; i < o->card.count && rc == 0; i++)
		rc = path_check_card(o, o->card.items[i]);
	return rc;
}

static int default_card_directory(char *out, size_t len)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int n;

	if (geteuid() == 0)
		n = snprintf(out, len, "/var/cache/gildfs");
	else if (cache && *cache == '/')
		n = snprintf(out, len, "%s/gildfs", cache);
	else if (home && *home == '/')
		n = snprintf(out, len, "%s/.cache/gildfs", home);
	else
		n = (int)len;
	return n < (int)len ? 0 : -ENAMETOOLONG;
}

/* mkdir -p: a new user's home may be without .cache. The name of what is made in it can be guessed:
 * nobody else may put something there. */
static int default_card_mkdir(const char *dir)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s", dir);
	for (char *slash = path + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = 0;
		(void)mkdir(path, 0700);
	}
	if ((mkdir(dir, 0700) < 0 && errno != EEXIST) || lstat(dir, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022))
		return 0;
	errno = EPERM;
	return -EPERM;
}

static int default_card_make(const struct gildfs_options *o, const char *dir, const char *path)
{
	struct card_format f = {.size = o->card_size};
	struct statvfs vfs;
	char size[32];

	if (default_card_mkdir(dir) < 0 || statvfs(dir, &vfs) < 0) {
		fprintf(stderr, "gildfs: no place for the embedded card at %s (%s): give card=PATH\n",
			dir, strerror(errno));
		return 1;
	}
	if (f.size == 0) {
		f.size = (uint64_t)vfs.f_bavail * vfs.f_frsize / 10;
		if (f.size > DEFAULT_CARD_MAX)
			f.size = DEFAULT_CARD_MAX;
		f.size &= ~(uint64_t)((1 << 20) - 1);
	}
	if (f.size < DEFAULT_CARD_MIN) {
		fprintf(stderr, "gildfs: too little free space for an embedded card at %s: give "
				"card=PATH on a flash disk, or card-size=64M or more\n", dir);
		return 1;
	}
	if (card_format(path, &f) < 0)
		return 1;
	fprintf(stderr, "gildfs: made an embedded card of %s at %s\n",
		options_format_size(f.size, size, sizeof(size)), path);
	return 0;
}

int gildfs_default_card(const struct gildfs_options *o, char path[PATH_MAX])
{
	char dir[PATH_MAX - 32], json[PATH_MAX + 16];
	int rc = default_card_directory(dir, sizeof(dir));

	if (rc < 0) {
		fprintf(stderr, "gildfs: no home for an embedded card: give card=PATH\n");
		return 1;
	}
	snprintf(path, PATH_MAX, "%s/%016" PRIx64, dir, hash_64(o->backing, strlen(o->backing)));
	rc = path_check_card(o, path);
	if (rc)
		return rc;
	snprintf(json, sizeof(json), "%s/card.json", path);
	if (access(json, F_OK) == 0)
		return 0;
	return default_card_make(o, dir, path);
}
