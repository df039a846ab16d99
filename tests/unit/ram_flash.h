/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The flash contract in RAM, whole: a double for tests of what stands above flash. It also checks
 * the caller: overlapping writes, trims and puts at the same time, or stamps that fall, abort.
 *
 * Power cuts: everything since the last flush is kept in order as a list of operations. A cut keeps
 * any subset of it (by seed): controllers of a card have no common order either. A drop through
 * reclaim is not in the list, so what was dropped may come back.
 */
#ifndef GILD_TESTS_RAM_FLASH_H
#define GILD_TESTS_RAM_FLASH_H

#include <stdbool.h>
#include <stdint.h>

#include "flash.h"

struct ram_flash;

struct ram_counts {
	uint64_t reads, writes, trims, flushes, puts, nospace, dropped;
};

struct ram_flash *ram_flash_new(uint64_t capacity_sectors); /* 0: no limit */
struct flash *ram_flash_ops(struct ram_flash *r);
void ram_flash_free(struct ram_flash *r);
/* Power fails: flushed operations and a subset of the others are left, by `seed` (0: none of them,
 * 1: all). Nobody may be using it. The next opening is an unclean one. */
void ram_flash_cut(struct ram_flash *r, uint64_t seed);
void ram_flash_closed_cleanly(struct ram_flash *r);
void ram_flash_counts(struct ram_flash *r, struct ram_counts *out);
/* Every call from the n-th on fails with -EIO, and flushes nothing (0: never). */
void ram_flash_fail_at(struct ram_flash *r, uint64_t n);
uint64_t ram_flash_calls(struct ram_flash *r); /* writes, trims, puts and flushes so far */
void ram_flash_full(struct ram_flash *r, bool full); /* writes answer -ENOSPC */
/* All sectors present now read as corrupt until written again. */
void ram_flash_corrupt(struct ram_flash *r);
uint64_t ram_flash_sectors(struct ram_flash *r);
uint64_t ram_flash_records(struct ram_flash *r, enum flash_ctl kind);

#endif
