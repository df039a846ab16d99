/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What of LMDB's file we read ourselves: format 1 (LMDB 0.9), in this machine's byte order.
 *
 *   page 0, 1   meta pages: header, magic, version, two trees (free list, main), last page, txn
 *   page 2...   header { own number, flags, lower, upper }, offsets of the nodes up to `lower`,
 *               nodes from `upper` on; or overflow pages: a header, then plain bytes over pages
 *   node        lo, hi, flags, key size (16 bits each), key, value. In a branch lo, hi and flags are
 *               the child's page number; in a leaf lo and hi are the value's size, and with
 *               META_NODE_BIG the value is the number of its first overflow page instead
 */
#ifndef GILD_META_META_FILE_H
#define GILD_META_META_FILE_H

#include <stddef.h>
#include <stdint.h>

#define META_MAGIC 0xBEEFC0DEu
#define META_VERSION 1u
#define META_PAGE_BRANCH 0x01
#define META_PAGE_LEAF 0x02
#define META_PAGE_META 0x08
#define META_NO_ROOT UINT64_MAX
#define META_FIRST_PAGE 2
#define META_DEPTH_MAX 32 /* of a tree, as in LMDB */
#define META_NODE_BIG 0x01
#define META_FREE_FLAGS 0x08 /* keys are integers */

struct meta_page_header {
	uint64_t number;
	uint16_t pad, flags;
	uint16_t lower, upper;
};

struct meta_node {
	uint16_t lo, hi, flags, key_size;
};

struct meta_tree { /* LMDB's MDB_db */
	uint32_t page_size;
	uint16_t flags, depth;
	uint64_t branches, leaves, overflows, entries, root;
};

struct meta_page { /* a meta page: header and LMDB's MDB_meta */
	struct meta_page_header header;
	uint32_t magic, version;
	uint64_t address, map_size;
	struct meta_tree tree[2]; /* free list, main */
	uint64_t last_page, txn;
};

_Static_assert(sizeof(struct meta_page_header) == 16, "LMDB's page header is 16 bytes");
_Static_assert(sizeof(struct meta_tree) == 48, "LMDB's tree record is 48 bytes");
_Static_assert(offsetof(struct meta_page, last_page) == 136, "LMDB's meta page is laid out so");
_Static_assert(sizeof(struct meta_node) == 8, "LMDB's node header is 8 bytes");

/* All of `len` or an error; -EUCLEAN at the end of the file. */
int meta_file_pread(int fd, void *buf, size_t len, uint64_t off);
/* Is this the header of branch or leaf page `number`? 0 or -EUCLEAN. */
int meta_page_check(const struct meta_page_header *h, uint64_t number, uint32_t size);
/* Does a file of `pages` pages hold all that is in use? 0, -EUCLEAN, -ENOMEM, -EIO. */
int meta_check_length(int fd, const struct meta_page *newest, uint64_t pages);

#endif
