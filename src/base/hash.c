/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <isa-l/crc.h>
#include <xxhash.h>

#include "base/hash.h"

/* ISA-L takes an int length; and it neither inverts the start value nor the result, so both are
 * done here, which also makes a finished sum continuable. */
uint32_t hash_crc32c(uint32_t crc, const void *buf, size_t len)
{
	const unsigned char *p = buf;

	crc = ~crc;
	while (len) {
		size_t n = len < (1u << 30) ? len : (1u << 30);

		crc = crc32_iscsi((unsigned char *)(uintptr_t)p, (int)n, crc);
		p += n;
		len -= n;
	}
	return ~crc;
}

uint64_t hash_64(const void *buf, size_t len)
{
	return XXH3_64bits(buf, len);
}

struct hash128 hash_128(const void *buf, size_t len)
{
	XXH128_hash_t h = XXH3_128bits(buf, len);

	return (struct hash128){.lo = h.low64, .hi = h.high64};
}

/* The finaliser of splitmix64 (Stafford's variant 13): every step is invertible. */
uint64_t hash_mix64(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ULL;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}
