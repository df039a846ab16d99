/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Looking at a data.mdb before LMDB maps it.
 *
 * LMDB trusts its file: a page beyond the end is a SIGBUS and a senseless root an abort. So the two
 * meta pages (0 and 1, the newer one counts) are read and judged here first, with the roots of
 * the free list and of the main table. Another format or byte order is refused by
 * its magic number or version.
 *
 * The file may rightly be shorter than the last page number says: LMDB does not write a page that
 * was taken from the end and given back in the same transaction. meta_commit() lengthens such a file
 * at once (meta_extend_file), but the power can go before. So a short file is sound if all that is
 * missing is in the free list (meta_free.c), and truncated otherwise.
 */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "meta/meta_file.h"
#include "meta/meta_priv.h"

int meta_file_pread(int fd, void *buf, size_t len, uint64_t off)
{
	ssize_t n;

	do {
		n = pread(fd, buf, len, (off_t)off);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return n == (ssize_t)len ? 0 : -EUCLEAN;
}

/* Besides the obvious: LMDB would take flags from here (a fixed address, another key order), and it
 * writes transaction n to page n % 2. */
static bool meta_page_is_sound(const struct meta_page *p, uint64_t number)
{
	uint32_t size = p->tree[0].page_size;

	return p->header.number == number && (p->header.flags & META_PAGE_META) &&
	       p->magic == META_MAGIC && p->version == META_VERSION && size >= 512 &&
	       size <= 65536 && (size & (size - 1)) == 0 && p->address == 0 &&
	       p->tree[0].flags == META_FREE_FLAGS && p->tree[1].flags == 0 &&
	       (p->txn == 0 || p->txn % 2 == number) && p->last_page >= 1 &&
	       p->last_page < UINT64_MAX / 65536;
}

int meta_page_check(const struct meta_page_header *h, uint64_t number, uint32_t size)
{
	if (h->number != number || !(h->flags & (META_PAGE_BRANCH | META_PAGE_LEAF)) ||
	    h->lower < sizeof(*h) || h->lower > h->upper || h->upper > size)
		return -EUCLEAN;
	return 0;
}

static int meta_check_root(int fd, const struct meta_page *p, const struct meta_tree *t)
{
	uint32_t size = p->tree[0].page_size;
	struct meta_page_header h;
	int rc;

	if (t->root == META_NO_ROOT)
		return t->entries == 0 ? 0 : -EUCLEAN;
	if (t->root < META_FIRST_PAGE || t->root > p->last_page || t->depth == 0 ||
	    t->depth > META_DEPTH_MAX)
		return -EUCLEAN;
	rc = meta_file_pread(fd, &h, sizeof(h), t->root * size);
	return rc < 0 ? rc : meta_page_check(&h, t->root, size);
}

static int meta_check_fd(int fd, const char **why)
{
	struct meta_page pages[2], *newest;
	struct stat st;
	int rc;

	if (fstat(fd, &st) < 0)
		return -errno;
	*why = "its first page is not LMDB's";
	rc = meta_file_pread(fd, &pages[0], sizeof(pages[0]), 0);
	if (rc < 0)
		return rc;
	if (!meta_page_is_sound(&pages[0], 0))
		return -EUCLEAN;
	*why = "its second page is not LMDB's";
	rc = meta_file_pread(fd, &pages[1], sizeof(pages[1]), pages[0].tree[0].page_size);
	if (rc < 0)
		return rc;
	if (!meta_page_is_sound(&pages[1], 1) ||
	    pages[1].tree[0].page_size != pages[0].tree[0].page_size)
		return -EUCLEAN;
	newest = &pages[pages[1].txn > pages[0].txn];
	*why = "a root page is damaged";
	rc = meta_check_root(fd, newest, &newest->tree[0]);
	if (rc == 0)
		rc = meta_check_root(fd, newest, &newest->tree[1]);
	if (rc < 0)
		return rc;
	*why = "it is shorter than it says";
	return meta_check_length(fd, newest, (uint64_t)st.st_size / newest->tree[0].page_size);
}

int meta_check_file(const char *path)
{
	const char *why = "";
	int fd, rc;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = meta_check_fd(fd, &why);
	if (rc == -EUCLEAN)
		log_error("meta", "%s is damaged (%s); rebuild it with gild recover", path, why);
	else if (rc < 0)
		log_error("meta", "%s cannot be read: %s", path, strerror(-rc));
	close(fd);
	return rc;
}

uint64_t meta_pages(const struct meta *m)
{
	MDB_envinfo info;

	mdb_env_info(m->env, &info);
	return (uint64_t)info.me_last_pgno + 1;
}

int meta_extend_file(const struct meta *m)
{
	uint64_t size = meta_pages(m) * m->page_size;
	struct stat st;

	if (fstat(m->fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size >= size)
		return 0;
	if (ftruncate(m->fd, (off_t)size) < 0 || fdatasync(m->fd) < 0)
		return -errno;
	return 0;
}
