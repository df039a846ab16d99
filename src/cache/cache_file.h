/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The form of the cache's control records on flash. Little endian, version in the first byte.
 *
 *   FLASH_CTL_FILE (key: identity)                 FLASH_CTL_OPEN (key: file number, zeros)
 *    0  u8   1 (version of this form)               0  16 bytes  key of the file's record
 *    1  u8   state                                 16  u32       epoch
 *    2  u8   flags: 1 = identity is unstable
 *    3  u8   length of the handle                  FLASH_CTL_CACHE (key: "numbers")
 *    4  u16  length of the name                     0  u64  first number not reserved
 *    6  u16  0
 *    8  u64  file number
 *   16  u32  epoch         20  u32  floor
 *   24  u64  size
 *   32  i64  mtime, s      40  i64  ctime, s
 *   48  u32  mtime, ns     52  u32  ctime, ns
 *   56  u64  inode number
 *   64  u64  id of the mount that wrote it
 *   72  u64  inode number of the parent (home hint), 0: not known
 *   80  handle, then name (home hint)
 */
#ifndef GILD_CACHE_FILE_H
#define GILD_CACHE_FILE_H

#include "cache/cache_priv.h"

#define CFILE_FORM 1u
#define CFILE_FIXED 80u
#define CFILE_HANDLE_MAX 136u
#define CFILE_NAME_MAX 255u
#define CFILE_OPEN_VALUE (FLASH_CTL_KEY + 4u)

_Static_assert(CFILE_FIXED + CFILE_HANDLE_MAX + CFILE_NAME_MAX <= FLASH_CTL_VALUE, "record size");

enum cfile_state { CFILE_OPEN = 1, CFILE_PUBLISHED = 2 };

struct cfile_record {
	enum cfile_state state;
	bool unstable;
	uint64_t number;
	uint32_t epoch, floor;
	struct cversion version;
	uint64_t mount;
	uint64_t parent_ino;
	size_t handle_len, name_len;
	uint8_t handle[CFILE_HANDLE_MAX];
	char name[CFILE_NAME_MAX + 1];
};

size_t cfile_encode(const struct cfile_record *r, uint8_t out[FLASH_CTL_VALUE]);
int cfile_decode(const void *in, size_t len, struct cfile_record *r); /* -EUCLEAN */

static inline void cfile_put32(uint8_t *p, uint32_t v)
{
	for (unsigned i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static inline void cfile_put64(uint8_t *p, uint64_t v)
{
	for (unsigned i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static inline uint32_t cfile_get32(const uint8_t *p)
{
	uint32_t v = 0;

	for (unsigned i = 0; i < 4; i++)
		v |= (uint32_t)p[i] << (8 * i);
	return v;
}

static inline uint64_t cfile_get64(const uint8_t *p)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < 8; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

#endif
