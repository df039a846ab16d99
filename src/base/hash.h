/* SPDX-License-Identifier: BSD-2-Clause
 * Checksums and hashes: thin names over ISA-L and xxHash, so that formats name one function. */
#ifndef GILD_BASE_HASH_H
#define GILD_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hash128 {
	uint64_t lo, hi;
};

/* CRC-32C (Castagnoli, reflected, init and final xor 0xffffffff), continued from `crc` (0 first). */
uint32_t hash_crc32c(uint32_t crc, const void *buf, size_t len);
uint64_t hash_64(const void *buf, size_t len);              /* XXH3, seed 0 */
struct hash128 hash_128(const void *buf, size_t len);       /* XXH3 128 bit */
uint64_t hash_mix64(uint64_t x);                            /* a bijective scrambler for integers */

#endif
