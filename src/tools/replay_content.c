/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Web content: one buffer of NUL-ended paths and two arrays of offsets into it. 1.5 million files
 * of 60 bytes are then 100 MB in three allocations, which the clients read without a lock.
 */
#include <config.h>

#include "tools/replay_content.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"

#define CONTENT_MAX_DEPTH 256 /* directories below each other: one descriptor each */

struct content_paths {
	size_t *at; /* offsets into the text */
	size_t count, room;
};

struct replay_content {
	char *text;
	size_t used, room;
	struct content_paths pages, images;
	struct replay_counts counts;
};

static const char *const content_page_ext[] = {"html", "htm", "xhtml", NULL};
static const char *const content_image_ext[] = {"png", "jpg", "jpeg", "gif", "svg", "webp", NULL};

static bool content_ext_in(const char *path, const char *const *list)
{
	const char *dot = strrchr(path, '.');

	if (!dot || strchr(dot, '/'))
		return false;
	for (; *list; list++)
		if (!strcasecmp(dot + 1, *list))
			return true;
	return false;
}

static int content_grow(void **array, size_t *room, size_t need, size_t item)
{
	size_t want = *room ? *room : 1024;
	void *p;

	if (need <= *room)
		return 0;
	while (want < need)
		want *= 2;
	p = reallocarray(*array, want, item);
	if (!p)
		return -ENOMEM;
	*array = p;
	*room = want;
	return 0;
}

/* Sorts the path into pages, images or others; only the first two are kept. */
static int content_add(struct replay_content *c, const char *path, size_t len)
{
	struct content_paths *to;
	int r;

	if (content_ext_in(path, content_page_ext)) {
		to = &c->pages;
	} else if (content_ext_in(path, content_image_ext)) {
		to = &c->images;
	} else {
		c->counts.others++;
		return 0;
	}
	r = content_grow((void **)&c->text, &c->room, c->used + len + 1, 1);
	if (!r)
		r = content_grow((void **)&to->at, &to->room, to->count + 1, sizeof(*to->at));
	if (r)
		return r;
	memcpy(c->text + c->used, path, len + 1);
	to->at[to->count++] = c->used;
	c->used += len + 1;
	return 0;
}

static int content_compare(const void *a, const void *b, void *text)
{
	const char *base = text;

	return strcmp(base + *(const size_t *)a, base + *(const size_t *)b);
}

/* Sorts and drops doubles, which a list made by hand may have. */
static void content_order(struct content_paths *p, char *text)
{
	size_t kept = 0;

	/* qsort_r must not be given the null pointer of an empty array. */
	if (!p->count)
		return;
	qsort_r(p->at, p->count, sizeof(*p->at), content_compare, text);
	for (size_t i = 0; i < p->count; i++)
		if (!kept || strcmp(text + p->at[kept - 1], text + p->at[i]))
			p->at[kept++] = p->at[i];
	p->count = kept;
}

static void content_finish(struct replay_content *c)
{
	content_order(&c->pages, c->text);
	content_order(&c->images, c->text);
	c->counts.pages = c->pages.count;
	c->counts.images = c->images.count;
}

static int content_create(struct replay_content **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : -ENOMEM;
}

void replay_content_destroy(struct replay_content *c)
{
	if (!c)
		return;
	free(c->text);
	free(c->pages.at);
	free(c->images.at);
	free(c);
}

struct content_walk {
	struct replay_content *content;
	char path[PATH_MAX];
};

static int content_walk_dir(struct content_walk *w, int parent_fd, const char *name, size_t len,
			    int depth);

/* The type of an entry whose directory does not tell it. */
static unsigned char content_entry_type(int dir_fd, const struct dirent *e)
{
	struct stat st;

	if (e->d_type != DT_UNKNOWN)
		return e->d_type;
	if (fstatat(dir_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW))
		return DT_UNKNOWN;
	return S_ISREG(st.st_mode) ? DT_REG : S_ISDIR(st.st_mode) ? DT_DIR : DT_LNK;
}

static int content_walk_entry(struct content_walk *w, int dir_fd, const struct dirent *e,
			      size_t len, int depth)
{
	size_t name_len = strlen(e->d_name);
	unsigned char type;

	if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
		return 0;
	if (len + name_len + 2 > sizeof(w->path) || strchr(e->d_name, '\n')) {
		w->content->counts.skipped++;
		return 0;
	}
	type = content_entry_type(dir_fd, e);
	memcpy(w->path + len, e->d_name, name_len + 1);
	if (type == DT_REG)
		return content_add(w->content, w->path, len + name_len);
	if (type != DT_DIR) {
		w->content->counts.skipped++;
		return 0;
	}
	w->path[len + name_len] = '/';
	w->path[len + name_len + 1] = '\0';
	return content_walk_dir(w, dir_fd, e->d_name, len + name_len + 1, depth + 1);
}

/* `len` bytes of w->path name this directory, with its slash. */
static int content_walk_dir(struct content_walk *w, int parent_fd, const char *name, size_t len,
			    int depth)
{
	int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;
	int r = 0;

	if (!dir || depth > CONTENT_MAX_DEPTH) {
		r = depth ? 0 : -errno;
		w->content->counts.unreadable++;
		if (dir)
			closedir(dir);
		else if (fd >= 0)
			close(fd);
		return r;
	}
	while (!r) {
		errno = 0;
		e = readdir(dir);
		if (!e)
			break;
		r = content_walk_entry(w, fd, e, len, depth);
	}
	if (!r && errno) {
		w->content->counts.unreadable++;
		r = depth ? 0 : -errno;
	}
	closedir(dir);
	return r;
}

int replay_content_scan(struct replay_content **out, int root_fd)
{
	struct content_walk *w = calloc(1, sizeof(*w));
	int r;

	*out = NULL;
	if (!w)
		return -ENOMEM;
	r = content_create(&w->content);
	if (r)
		goto out;
	r = content_walk_dir(w, root_fd, ".", 0, 0);
	if (r) {
		replay_content_destroy(w->content);
		goto out;
	}
	content_finish(w->content);
	*out = w->content;
out:
	free(w);
	return r;
}

int replay_content_load(struct replay_content **out, const char *list_path)
{
	struct replay_content *c = NULL;
	char *line = NULL;
	size_t size = 0;
	ssize_t len;
	FILE *f;
	int r;

	*out = NULL;
	f = fopen(list_path, "re");
	if (!f)
		return -errno;
	r = content_create(&c);
	while (!r && (errno = 0, len = getline(&line, &size, f)) >= 0) {
		if (len && line[len - 1] == '\n')
			line[--len] = '\0';
		if (strlen(line) != (size_t)len)
			r = -EINVAL;
		else if (len)
			r = content_add(c, line, (size_t)len);
	}
	if (!r && ferror(f))
		r = errno ? -errno : -EIO;
	free(line);
	fclose(f);
	if (r) {
		replay_content_destroy(c);
		return r;
	}
	content_finish(c);
	*out = c;
	return 0;
}

static void content_write_paths(FILE *f, const struct replay_content *c,
				const struct content_paths *p)
{
	for (size_t i = 0; i < p->count; i++)
		fprintf(f, "%s\n", c->text + p->at[i]);
}

int replay_content_save(const struct replay_content *c, const char *list_path)
{
	char *temp = NULL;
	FILE *f = NULL;
	int fd = -1, r = 0;

	if (asprintf(&temp, "%s.XXXXXX", list_path) < 0)
		return -ENOMEM;
	fd = mkostemp(temp, O_CLOEXEC);
	if (fd < 0) {
		r = -errno;
		goto out;
	}
	f = fdopen(fd, "w");
	if (!f) {
		r = -errno;
		close(fd);
		unlink(temp);
		goto out;
	}
	content_write_paths(f, c, &c->pages);
	content_write_paths(f, c, &c->images);
	if (fchmod(fd, 0644) || fflush(f) || ferror(f))
		r = errno ? -errno : -EIO;
	if (fclose(f) && !r)
		r = -errno;
	if (!r && rename(temp, list_path))
		r = -errno;
	if (r)
		unlink(temp);
out:
	free(temp);
	return r;
}

const struct replay_counts *replay_content_counts(const struct replay_content *c)
{
	return &c->counts;
}

const char *replay_content_page(const struct replay_content *c, uint64_t i)
{
	gild_assert(i < c->pages.count);
	return c->text + c->pages.at[i];
}

const char *replay_content_image(const struct replay_content *c, uint64_t i)
{
	gild_assert(i < c->images.count);
	return c->text + c->images.at[i];
}

/* A number below n, all equally likely (Lemire, "Fast random integer generation in an interval"). */
static uint64_t content_random_below(uint64_t *state, uint64_t n)
{
	uint64_t threshold = -n % n;
	unsigned __int128 product;

	do {
		*state += 0x9e3779b97f4a7c15ULL;
		product = (unsigned __int128)hash_mix64(*state) * n;
	} while ((uint64_t)product < threshold);
	return (uint64_t)(product >> 64);
}

void replay_content_pick(const struct replay_content *c, uint64_t seed, uint64_t view,
			 struct replay_view *v)
{
	/* Scrambled twice, so that neither neighbouring seeds nor neighbouring views are related. */
	uint64_t state = hash_mix64(hash_mix64(seed + 0x9e3779b97f4a7c15ULL) ^ view);
	uint64_t chosen[REPLAY_IMAGES];
	unsigned n = 0;

	gild_assert(c->images.count >= REPLAY_IMAGES);
	v->page = replay_content_page(c, content_random_below(&state, c->pages.count));
	while (n < REPLAY_IMAGES) {
		uint64_t image = content_random_below(&state, c->images.count);
		bool again = false;

		for (unsigned i = 0; i < n; i++)
			again |= chosen[i] == image;
		if (again)
			continue;
		v->images[n] = replay_content_image(c, image);
		chosen[n++] = image;
	}
}
