/* SPDX-License-Identifier: BSD-2-Clause
 *
 * For tests of src/ftl: a controller over RAM and a scratch environment, in one struct.
 */
#ifndef GILD_TESTS_FTL_RIG_H
#define GILD_TESTS_FTL_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "ftl/ftl.h"

struct rig {
	char dir[64];
	struct media *media;
	struct media_fault *fault; /* when opened with one */
	struct meta *meta;
	struct flash *f;
	struct ftl_options opt;
	uint64_t stamp;
};

#define RIG_EB (256u << 10)

/* A formatted, open controller of `ebs` erase blocks of 256 KiB. Aborts the test on failure. */
void rig_init(struct rig *r, unsigned ebs, bool fault);
void rig_init_format(struct rig *r, unsigned ebs, bool fault, const struct ftl_format *f);
void rig_open(struct rig *r);
void rig_reopen(struct rig *r); /* close, open */
void rig_audit(struct rig *r);
void rig_done(struct rig *r);   /* audit, close, remove */
void rig_meta_open(struct rig *r);
void rig_meta_lose(struct rig *r); /* deletes the environment and makes an empty one */
void rig_remove(const char *dir);
/* An ftl write of `count` sectors filled by rig_fill(seed + sector). */
int rig_write(struct rig *r, uint64_t file, uint64_t sector, uint32_t count, uint64_t seed,
	      bool dirty);
/* Fails the test unless the sectors are there with the contents rig_write gave them. */
void rig_expect(struct rig *r, uint64_t file, uint64_t sector, uint32_t count, uint64_t seed);
void rig_expect_absent(struct rig *r, uint64_t file, uint64_t sector, uint32_t count);
/* Deterministic contents: seed % 4 == 0 constant, 1 compressible, 2 and 3 random. */
void rig_fill(void *sector, uint64_t seed);

#endif
