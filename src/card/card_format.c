/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Making a card.
 *
 *   check everything --> (replace: card.json goes first) --> medium, environments --> card.json
 *
 * 1. Nothing is written before all checks passed, besides the directory and the lock.
 * 2. A directory with a card.json is a complete card: it is the last thing written, and when a card
 *    is replaced the first thing removed, each with an fsync of the directory.
 * 3. When it fails, what was made is removed again.
 */
#include <config.h>

#include "card_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/options.h"

#define CARD_DEFAULT_CONTROLLERS 4u
#define CARD_DEFAULT_OP 28u

struct card_maker {
	const char *dir;
	const struct card_format *f;
	struct card_config cfg;
	char medium[4096];
	int dir_fd, lock_fd;
	bool made_dir, there; /* there: leftovers of a card, or a whole one */
	bool touched;         /* the destructive part has begun */
};

static const char *card_size_text(uint64_t bytes, char buf[32])
{
	return options_format_size(bytes, buf, 32);
}

/* The smallest region a controller can live in. */
static uint64_t card_region_min(void)
{
	struct ftl_geometry g;
	uint64_t low = 0, high = 1 << 20;

	while (ftl_choose_geometry(high, &g) < 0 && high < CARD_SIZE_MAX)
		high *= 2;
	while (high - low > 1 << 20) {
		uint64_t middle = (low + high) / 2;

		middle -= middle % (1 << 20);
		if (ftl_choose_geometry(middle, &g) < 0)
			low = middle;
		else
			high = middle;
	}
	return high;
}

static int card_make_check_numbers(struct card_maker *m)
{
	struct card_config *c = &m->cfg;
	struct ftl_geometry g;
	struct ftl_format share;
	uint64_t usable, region;
	char a[32], b[32];

	if (c->controllers > CARD_CONTROLLERS_MAX) {
		log_error("card", "%s: a card has at most %u controllers, not %u", m->dir,
			  CARD_CONTROLLERS_MAX, c->controllers);
		return -EINVAL;
	}
	if (c->op_percent > CARD_OP_MAX || c->size > CARD_SIZE_MAX) {
		log_error("card", "%s: the size may be at most %s and the over-provisioning %u %%",
			  m->dir, card_size_text(CARD_SIZE_MAX, a), CARD_OP_MAX);
		return -EINVAL;
	}
	region = card_region_bytes(c->size, c->controllers);
	if (ftl_choose_geometry(region, &g) < 0) {
		log_error("card", "%s: %s is too small for %u controllers, at least %s is needed: give "
			  "more space or fewer controllers", m->dir, card_size_text(c->size, a),
			  c->controllers, card_size_text(card_region_min() * c->controllers, b));
		return -ENOSPC;
	}
	usable = ftl_usable_bytes(region, &g, c->op_percent) * c->controllers;
	card_ftl_format(c, 0, &share);
	if (share.volume_bytes * c->controllers > usable) {
		log_error("card", "%s: a volume of %s does not fit, %s of the card is usable", m->dir,
			  card_size_text(c->volume_bytes, a), card_size_text(usable, b));
		return -ENOSPC;
	}
	return 0;
}

static const struct card_signature {
	uint32_t off;
	uint32_t len;
	const char *bytes;
	const char *name;
} card_signatures[] = {
	{1080, 2, "\x53\xef", "an ext2/3/4 filesystem"},
	{0, 4, "XFSB", "an XFS filesystem"},
	{65600, 8, "_BHRfS_M", "a btrfs filesystem"},
	{1024, 4, "\x10\x20\xf5\xf2", "an F2FS filesystem"},
	{3, 8, "NTFS    ", "an NTFS filesystem"},
	{32769, 5, "CD001", "an ISO 9660 filesystem"},
	{4086, 10, "SWAPSPACE2", "swap space"},
	{0, 6, "LUKS\xba\xbe", "an encrypted volume (LUKS)"},
	{512, 8, "LABELONE", "an LVM physical volume"},
	{4096, 4, "\xfc\x4e\x2b\xa9", "a member of a RAID array (md)"},
	{4120, 16, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "bcache"},
	{512, 8, "EFI PART", "a partition table (GPT)"},
	{4096, 8, "EFI PART", "a partition table (GPT)"},
	{510, 2, "\x55\xaa", "a partition table or FAT filesystem"},
};

/* Does the device hold something that somebody may want? */
static int card_make_check_signatures(struct card_maker *m, struct media *device)
{
	struct ftl_identity id;
	char found[16];
	size_t i;
	int r;

	for (i = 0; i < sizeof(card_signatures) / sizeof(card_signatures[0]); i++) {
		const struct card_signature *s = &card_signatures[i];

		if (s->off + s->len > media_size(device))
			continue;
		r = media_read(device, found, s->len, s->off);
		if (r < 0)
			return r;
		if (memcmp(found, s->bytes, s->len) == 0) {
			log_error("card", "%s holds %s; use --force to overwrite it", m->f->device,
				  s->name);
			return -EEXIST;
		}
	}
	r = ftl_identify(device, &id);
	if (r == 0 || r == -EPROTO) {
		log_error("card", "%s is the medium of a card; use --force to overwrite it",
			  m->f->device);
		return -EEXIST;
	}
	return 0;
}

static int card_make_check_device(struct card_maker *m)
{
	struct media *device;
	struct stat st;
	int r;

	if (stat(m->f->device, &st) < 0 || !S_ISBLK(st.st_mode)) {
		log_error("card", "%s is not a block device", m->f->device);
		return -EINVAL;
	}
	if (m->f->device[0] == '/' && strlen(m->f->device) < sizeof(m->cfg.medium)) {
		strcpy(m->cfg.medium, m->f->device); /* may be a stable name: not resolved */
	} else {
		char *path = realpath(m->f->device, NULL);

		r = path && strlen(path) < sizeof(m->cfg.medium) ? 0 : -ENAMETOOLONG;
		if (r == 0)
			strcpy(m->cfg.medium, path);
		free(path);
		if (r < 0)
			return r;
	}
	r = media_open_file(&device, m->cfg.medium, m->f->size, MEDIA_READONLY);
	if (r < 0)
		return r; /* media has said why */
	m->cfg.size = media_size(device);
	if (!m->f->force)
		r = card_make_check_signatures(m, device);
	media_close(device);
	return r;
}

static int card_make_config(struct card_maker *m)
{
	struct card_config *c = &m->cfg;
	time_t now = time(NULL);
	struct tm tm;

	c->controllers = m->f->controllers ? m->f->controllers : CARD_DEFAULT_CONTROLLERS;
	c->op_percent = m->f->op_percent ? m->f->op_percent : CARD_DEFAULT_OP;
	c->savings_spare = m->f->savings_spare;
	c->volume_bytes = m->f->volume_bytes;
	c->size = m->f->size - m->f->size % MEDIA_ALIGN;
	strcpy(c->medium, CARD_MEDIUM);
	gmtime_r(&now, &tm);
	strftime(c->created, sizeof(c->created), "%Y-%m-%dT%H:%M:%SZ", &tm);
	if (getrandom(c->uuid, sizeof(c->uuid), 0) != sizeof(c->uuid))
		return -EIO;
	c->uuid[6] = (c->uuid[6] & 0x0f) | 0x40;
	c->uuid[8] = (c->uuid[8] & 0x3f) | 0x80;
	if (!m->f->device && !c->size) {
		log_error("card", "%s: give the size of the card", m->dir);
		return -EINVAL;
	}
	return 0;
}

static bool card_is_own_name(const char *name)
{
	static const char *const names[] = {CARD_JSON, CARD_JSON_NEW, CARD_LOCK, CARD_MEDIUM,
					    CARD_META, CARD_UNEVEN};
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(name, names[i]) == 0)
			return true;
	}
	return false;
}

/* Only an empty directory or, with force, one that holds nothing but a card. */
static int card_make_check_entries(struct card_maker *m)
{
	int fd = openat(m->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	while (r == 0 && (e = readdir(d))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    strcmp(e->d_name, "lost+found") == 0)
			continue;
		m->there = true;
		if (!card_is_own_name(e->d_name)) {
			log_error("card", "%s holds other files (%s); give an empty or new directory",
				  m->dir, e->d_name);
			r = -EEXIST;
		}
	}
	closedir(d);
	if (r == 0 && m->there && !m->f->force) {
		log_error("card", "%s holds a card already; use --force to replace it and lose what is "
			  "on it", m->dir);
		r = -EEXIST;
	}
	return r;
}

/* A directory that was there becomes ours alone; what others put there before goes by its name. */
static int card_make_private(struct card_maker *m)
{
	struct stat st;

	if (fstat(m->dir_fd, &st) < 0)
		return -errno;
	if ((st.st_uid == geteuid() || st.st_uid == 0) && fchmod(m->dir_fd, 0700) == 0)
		return 0;
	return card_dir_check_owner(m->dir_fd, m->dir);
}

static int card_make_directory(struct card_maker *m)
{
	int r;

	if (mkdir(m->dir, 0700) == 0) {
		m->made_dir = true;
	} else if (errno != EEXIST) {
		r = -errno;
		log_error("card", "%s cannot be made: %s", m->dir, strerror(-r));
		return r;
	}
	m->dir_fd = open(m->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (m->dir_fd < 0) {
		r = -errno;
		log_error("card", "%s cannot hold a card: %s", m->dir, strerror(-r));
		return r;
	}
	r = card_make_check_entries(m);
	if (r == 0)
		r = card_make_private(m);
	return r < 0 ? r : card_dir_lock(&m->lock_fd, m->dir_fd, m->dir, "gild format", 0);
}

/* A full filesystem is told before anything is written, not by the last block of the medium. */
static int card_make_check_space(struct card_maker *m)
{
	uint64_t need = m->cfg.size / 128 + m->cfg.controllers * (1ULL << 20), have;
	struct statvfs fs;
	struct stat st;
	char a[32], b[32];

	if (fstatvfs(m->dir_fd, &fs) < 0)
		return -errno;
	have = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (!m->f->device)
		need += m->cfg.size;
	if (fstatat(m->dir_fd, CARD_MEDIUM, &st, AT_SYMLINK_NOFOLLOW) == 0)
		have += (uint64_t)st.st_blocks * 512;
	if (need <= have)
		return 0;
	log_error("card", "%s needs %s with its maps, its filesystem has %s left; free some space or "
		  "give a smaller size", m->dir, card_size_text(need, a), card_size_text(have, b));
	return -ENOSPC;
}

static int card_make_controller(struct card_maker *m, struct media *medium, unsigned i)
{
	uint64_t region_bytes = card_region_bytes(m->cfg.size, m->cfg.controllers);
	struct media *region = NULL;
	struct meta *meta = NULL;
	struct ftl_format f;
	char path[4200];
	int r;

	snprintf(path, sizeof(path), "%s/" CARD_META "/%u", m->dir, i);
	r = meta_open(&meta, path, ftl_tables, card_map_bytes(region_bytes), true);
	if (r == 0)
		r = media_open_region(&region, medium, i * region_bytes, region_bytes);
	if (r == 0) {
		card_ftl_format(&m->cfg, i, &f);
		r = ftl_format(region, meta, &f);
	}
	media_close(region);
	meta_close(meta);
	return r;
}

static void card_make_remove(struct card_maker *m)
{
	static const char *const names[] = {CARD_JSON_NEW, CARD_UNEVEN, CARD_MEDIUM, CARD_META};
	size_t i;

	/* First, and durably: from here on there is no card. */
	if (unlinkat(m->dir_fd, CARD_JSON, 0) == 0)
		fsync(m->dir_fd);
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		card_dir_remove(m->dir_fd, names[i]);
}

static int card_make_parts(struct card_maker *m)
{
	unsigned flags = MEDIA_DIRECT | (m->f->device ? 0 : MEDIA_CREATE);
	struct media *medium = NULL;
	unsigned i;
	int r;

	m->touched = true;
	card_make_remove(m);
	r = card_dir_medium(&m->cfg, m->dir, m->medium, sizeof(m->medium));
	if (r == 0)
		r = media_open_file(&medium, m->medium, m->cfg.size, flags);
	if (r < 0)
		return r;
	if (m->f->device)
		media_discard(medium, 0, media_size(medium));
	if (mkdirat(m->dir_fd, CARD_META, 0700) < 0) {
		r = -errno;
		log_error("card", "%s/" CARD_META " cannot be made: %s", m->dir, strerror(-r));
	}
	for (i = 0; i < m->cfg.controllers && r == 0; i++)
		r = card_make_controller(m, medium, i);
	if (r == 0)
		r = media_flush(medium);
	media_close(medium);
	if (r == 0 && fsync(m->dir_fd) < 0)
		r = -errno;
	return r;
}

static void card_make_undo(struct card_maker *m)
{
	if (m->dir_fd < 0)
		return;
	if (m->touched)
		card_make_remove(m);
	if (m->lock_fd >= 0 && (m->touched || !m->there))
		unlinkat(m->dir_fd, CARD_LOCK, 0);
	if (m->made_dir)
		rmdir(m->dir);
}

int card_format(const char *dir, const struct card_format *f)
{
	struct card_maker *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	*m = (struct card_maker){.dir = dir, .f = f, .dir_fd = -1, .lock_fd = -1};
	if ((r = card_make_config(m)) == 0 &&
	    (!f->device || (r = card_make_check_device(m)) == 0) &&
	    (r = card_make_check_numbers(m)) == 0 && (r = card_make_directory(m)) == 0 &&
	    (r = card_make_check_space(m)) == 0) {
		r = card_make_parts(m);
		if (r == 0)
			r = card_dir_save(&m->cfg, m->dir_fd, dir);
	}
	if (r < 0)
		card_make_undo(m);
	if (m->lock_fd >= 0)
		card_dir_unlock(m->lock_fd);
	if (m->dir_fd >= 0)
		close(m->dir_fd);
	free(m);
	return r;
}
