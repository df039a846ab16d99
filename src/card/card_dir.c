/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The card's directory: card.json, the lock, the names of the rest.
 *
 *   DIR/card.json    what the card is; written last when a card is made, replaced as a whole
 *   DIR/lock         flock()ed while the card is in use; then it holds "pid holder", else nothing
 *   DIR/medium.dat   the medium, unless card.json names a block device
 *   DIR/meta/0..N-1  the controllers' LMDB environments
 *   DIR/uneven       exists while control records may differ between controllers (card_ctl.c)
 *
 * Whoever can write here decides what a mount shows. So the directory must be ours (or root's), and
 * nobody else may write to it; then what lies in it is taken by its name. Made 0700, files 0600,
 * whatever the umask.
 */
#include <config.h>

#include "card_priv.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/log.h"

#define CARD_JSON_MAX 65536u
#define CARD_FORMAT_NAME "gildfs card"

int card_dir_check_owner(int dir_fd, const char *dir)
{
	struct stat st;

	if (fstat(dir_fd, &st) < 0)
		return -errno;
	if ((st.st_uid == 0 || st.st_uid == geteuid()) && !(st.st_mode & 022))
		return 0;
	log_error("card", "%s belongs to user %u and has mode %03o: other users could change the card; "
		  "chown and chmod 700 it, if its contents can be trusted", dir,
		  (unsigned)st.st_uid, (unsigned)st.st_mode & 0777);
	return -EPERM;
}

int card_dir_open(int *out, const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = -errno;

	if (fd < 0) {
		log_error("card", "%s: no card can be opened there: %s; `gild format %s` makes one", dir,
			  strerror(-r), dir);
		return r;
	}
	r = card_dir_check_owner(fd, dir);
	if (r < 0) {
		close(fd);
		return r;
	}
	*out = fd;
	return 0;
}

/* The whole file as a string of *len bytes, malloced. */
static int card_json_read(char **out, size_t *len, int dir_fd)
{
	int fd = openat(dir_fd, CARD_JSON, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	struct stat st;
	char *buf = NULL;
	ssize_t n;
	int r;

	if (fd < 0)
		return errno == ENOENT ? -ENODATA : -errno;
	r = fstat(fd, &st) < 0 ? -errno : 0;
	if (!r && (!S_ISREG(st.st_mode) || st.st_size > CARD_JSON_MAX))
		r = -EUCLEAN;
	if (!r) {
		buf = malloc((size_t)st.st_size + 1);
		n = buf ? read(fd, buf, (size_t)st.st_size) : 0;
		r = !buf ? -ENOMEM : n < 0 ? -errno : 0;
		*len = n > 0 ? (size_t)n : 0;
	}
	close(fd);
	if (r < 0)
		free(buf);
	else
		*out = buf;
	return r;
}

static int card_json_bad(const char *dir, const char *what)
{
	log_error("card", "%s/" CARD_JSON " is damaged: %s; restore the file or format the card anew",
		  dir, what);
	return -EUCLEAN;
}

static int card_json_number(const json_t *object, const char *dir, const char *name, uint64_t min,
			    uint64_t max, uint64_t *out)
{
	const json_t *v = json_object_get(object, name);
	char what[160];

	if (json_is_integer(v) && json_integer_value(v) >= 0 &&
	    (uint64_t)json_integer_value(v) >= min && (uint64_t)json_integer_value(v) <= max) {
		*out = (uint64_t)json_integer_value(v);
		return 0;
	}
	snprintf(what, sizeof(what), "\"%s\" must be a whole number from %" PRIu64 " to %" PRIu64, name,
		 min, max);
	return card_json_bad(dir, what);
}

static int card_json_string(const json_t *object, const char *dir, const char *name, char *out,
			    size_t room)
{
	const char *v = json_string_value(json_object_get(object, name));
	char what[80];

	if (v && *v && strlen(v) < room) {
		strcpy(out, v);
		return 0;
	}
	snprintf(what, sizeof(what), "\"%s\" must be a string", name);
	return card_json_bad(dir, what);
}

static int card_json_uuid(const json_t *object, const char *dir, uint8_t out[16])
{
	char text[64];
	int i, r;

	r = card_json_string(object, dir, "uuid", text, sizeof(text));
	if (r < 0)
		return r;
	if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32)
		return card_json_bad(dir, "\"uuid\" must be 32 hexadecimal digits");
	for (i = 0; i < 16; i++) {
		unsigned byte;

		sscanf(text + 2 * i, "%2x", &byte);
		out[i] = (uint8_t)byte;
	}
	return 0;
}

static int card_json_parse(const json_t *object, const char *dir, struct card_config *c)
{
	char savings[16];
	uint64_t n;
	int r;

	if ((r = card_json_uuid(object, dir, c->uuid)) < 0 ||
	    (r = card_json_string(object, dir, "created", c->created, sizeof(c->created))) < 0 ||
	    (r = card_json_string(object, dir, "savings", savings, sizeof(savings))) < 0 ||
	    (r = card_json_string(object, dir, "medium", c->medium, sizeof(c->medium))) < 0 ||
	    (r = card_json_number(object, dir, "size", MEDIA_ALIGN, CARD_SIZE_MAX, &c->size)) < 0 ||
	    (r = card_json_number(object, dir, "volume_bytes", 0, CARD_SIZE_MAX,
				  &c->volume_bytes)) < 0 ||
	    (r = card_json_number(object, dir, "op_percent", 1, CARD_OP_MAX, &n)) < 0)
		return r;
	c->op_percent = (unsigned)n;
	r = card_json_number(object, dir, "controllers", 1, CARD_CONTROLLERS_MAX, &n);
	if (r < 0)
		return r;
	c->controllers = (unsigned)n;
	if (strcmp(savings, "capacity") && strcmp(savings, "spare"))
		return card_json_bad(dir, "\"savings\" must be \"capacity\" or \"spare\"");
	c->savings_spare = strcmp(savings, "spare") == 0;
	if (strcmp(c->medium, CARD_MEDIUM) && c->medium[0] != '/')
		return card_json_bad(dir, "\"medium\" must be \"" CARD_MEDIUM
					  "\" or the absolute path of a device");
	return 0;
}

static int card_json_judge(const json_t *object, const char *dir, struct card_config *c)
{
	const char *format = json_string_value(json_object_get(object, "format"));
	uint64_t version;
	int r;

	if (!format || strcmp(format, CARD_FORMAT_NAME))
		return card_json_bad(dir, "\"format\" must be \"" CARD_FORMAT_NAME "\"");
	r = card_json_number(object, dir, "version", 1, INT32_MAX, &version);
	if (r < 0)
		return r;
	if (version > CARD_VERSION) {
		log_error("card", "%s is a card of version %" PRIu64 ", this program knows up to version "
			  "%u: use a newer gildfs", dir, version, CARD_VERSION);
		return -EPROTO;
	}
	return card_json_parse(object, dir, c);
}

int card_dir_load(struct card_config *out, int dir_fd, const char *dir)
{
	json_error_t error;
	json_t *object;
	char *text = NULL, what[300];
	size_t len = 0;
	int r;

	memset(out, 0, sizeof(*out));
	r = card_json_read(&text, &len, dir_fd);
	if (r == -ENODATA)
		log_error("card", "%s is not a card: it has no " CARD_JSON "; `gild format` makes one",
			  dir);
	else if (r == -EUCLEAN)
		card_json_bad(dir, "it is not a small regular file");
	else if (r < 0)
		log_error("card", "%s/" CARD_JSON " cannot be read: %s", dir, strerror(-r));
	if (r < 0)
		return r;
	object = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
	if (!object) {
		snprintf(what, sizeof(what), "%s in line %d", error.text, error.line);
		r = card_json_bad(dir, what);
	} else {
		r = card_json_judge(object, dir, out);
	}
	json_decref(object);
	free(text);
	return r;
}

static int card_write_all(int fd, const char *text, size_t len)
{
	ssize_t n;

	for (; len; text += n, len -= (size_t)n) {
		n = write(fd, text, len);
		if (n < 0)
			return -errno;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

int card_dir_save(const struct card_config *c, int dir_fd, const char *dir)
{
	char uuid[33], *text = NULL;
	json_t *object;
	int fd = -1, i, r = -ENOMEM;

	for (i = 0; i < 16; i++)
		snprintf(uuid + 2 * i, 3, "%02x", c->uuid[i]);
	object = json_pack("{s:s, s:i, s:s, s:s, s:i, s:i, s:s, s:I, s:s, s:I}", "format",
			   CARD_FORMAT_NAME, "version", (int)CARD_VERSION, "uuid", uuid, "created",
			   c->created, "controllers", (int)c->controllers, "op_percent",
			   (int)c->op_percent, "savings", c->savings_spare ? "spare" : "capacity",
			   "volume_bytes", (json_int_t)c->volume_bytes, "medium", c->medium, "size",
			   (json_int_t)c->size);
	if (object)
		text = json_dumps(object, JSON_INDENT(2));
	json_decref(object);
	if (!text)
		goto out;
	fd = openat(dir_fd, CARD_JSON_NEW, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
		    0600);
	r = fd < 0 ? -errno : card_write_all(fd, text, strlen(text));
	if (r == 0 && (renameat(dir_fd, CARD_JSON_NEW, dir_fd, CARD_JSON) < 0 || fsync(dir_fd) < 0))
		r = -errno;
out:
	if (fd >= 0)
		close(fd);
	if (r < 0) {
		log_error("card", "%s/" CARD_JSON " cannot be written: %s", dir, strerror(-r));
		unlinkat(dir_fd, CARD_JSON_NEW, 0);
	}
	free(text);
	return r;
}

static void card_lock_text(int fd, char *text, size_t len)
{
	ssize_t n = pread(fd, text, len - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
}

static void card_lock_busy(int fd, const char *dir)
{
	char text[512], *holder = text;
	long pid;

	card_lock_text(fd, text, sizeof(text));
	pid = strtol(text, &holder, 10);
	while (isspace((unsigned char)*holder))
		holder++;
	if (pid > 0)
		log_error("card", "%s is in use by %s (process %ld); end that first", dir,
			  *holder ? holder : "another process", pid);
	else
		log_error("card", "%s is in use by another process; end that first", dir);
}

/* umount(8) returns before the daemon has closed its card: who mounts again at once is made to wait,
 * `wait_ns` for a holder that may not know yet, longer for one that says it is closing. */
static int card_lock_wait(int fd, uint64_t wait_ns)
{
	uint64_t start = clock_mono_ns(), limit = wait_ns;
	struct timespec pause = {.tv_nsec = 20 * NS_PER_MS};
	char text[512];

	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return -errno;
		card_lock_text(fd, text, sizeof(text));
		if (wait_ns && strstr(text, CARD_CLOSING))
			limit = CARD_CLOSING_NS;
		if (clock_mono_ns() - start >= limit)
			return -EWOULDBLOCK;
		nanosleep(&pause, NULL);
	}
	return 0;
}

int card_dir_lock(int *out, int dir_fd, const char *dir, const char *holder, uint64_t wait_ns)
{
	int fd, r;

	fd = openat(dir_fd, CARD_LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	r = fd < 0 ? -errno : card_lock_wait(fd, wait_ns);
	if (r == -EWOULDBLOCK) {
		card_lock_busy(fd, dir);
		r = -EBUSY;
	} else if (r < 0) {
		log_error("card", "%s/" CARD_LOCK " cannot be locked: %s", dir, strerror(-r));
	}
	if (r < 0) {
		if (fd >= 0)
			close(fd);
		return r;
	}
	/* The name is a courtesy to others: a full filesystem must not keep anybody from the card. */
	if (ftruncate(fd, 0) == 0)
		dprintf(fd, "%ld %s\n", (long)getpid(), holder ? holder : program_invocation_short_name);
	*out = fd;
	return 0;
}

void card_dir_closing(int lock_fd)
{
	if (lseek(lock_fd, 0, SEEK_SET) == 0 && ftruncate(lock_fd, 0) == 0)
		dprintf(lock_fd, "%ld " CARD_CLOSING "\n", (long)getpid());
}

void card_dir_unlock(int lock_fd)
{
	if (ftruncate(lock_fd, 0) < 0)
		log_debug("card", "the lock's text stays: %s", strerror(errno));
	close(lock_fd);
}

bool card_dir_uneven(int dir_fd)
{
	return faccessat(dir_fd, CARD_UNEVEN, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int card_dir_set_uneven(int dir_fd, bool on)
{
	int fd;

	if (on) {
		fd = openat(dir_fd, CARD_UNEVEN, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return -errno;
		close(fd);
	} else if (unlinkat(dir_fd, CARD_UNEVEN, 0) < 0) {
		return errno == ENOENT ? 0 : -errno;
	}
	return fsync(dir_fd) < 0 ? -errno : 0;
}

int card_dir_remove(int dir_fd, const char *name)
{
	struct dirent *e;
	int fd, r = 0;
	DIR *d;

	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	while (r == 0 && (e = readdir(d))) {
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			r = card_dir_remove(fd, e->d_name);
	}
	closedir(d);
	if (r == 0 && unlinkat(dir_fd, name, AT_REMOVEDIR) < 0)
		r = -errno;
	return r;
}

int card_dir_medium(const struct card_config *c, const char *dir, char *buf, size_t len)
{
	int n;

	if (c->medium[0] == '/')
		n = snprintf(buf, len, "%s", c->medium);
	else
		n = snprintf(buf, len, "%s/%s", dir, c->medium);
	return n < (int)len ? 0 : -ENAMETOOLONG;
}

/* Part of the format. */
uint64_t card_region_bytes(uint64_t size, unsigned controllers)
{
	uint64_t share = size / controllers;

	return share - share % (share >= 64 << 20 ? 1 << 20 : MEDIA_ALIGN);
}

uint64_t card_map_bytes(uint64_t region)
{
	/* A sector takes at most 40 bytes of map and its line's key; compression makes more of them
	 * than the medium has. Address space is all it costs. */
	uint64_t bytes = region / 2;

	return bytes < 256 << 20 ? 256 << 20 : bytes;
}

void card_ftl_format(const struct card_config *c, unsigned i, struct ftl_format *out)
{
	memset(out, 0, sizeof(*out));
	memcpy(out->uuid, c->uuid, sizeof(out->uuid));
	out->controller = i;
	out->controllers = c->controllers;
	out->op_percent = c->op_percent;
	out->savings_spare = c->savings_spare;
	if (c->volume_bytes)
		out->volume_bytes = (c->volume_bytes / FLASH_LINE / c->controllers + 1) * FLASH_LINE;
}
