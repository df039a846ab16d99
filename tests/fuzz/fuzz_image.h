/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A controller's medium and environment to be spoilt: made once, by a script, from the real code;
 * put back for every input; changed by patches that know the format. A patch of a structure sets its
 * CRC right again, or nothing behind the checksums would ever be reached.
 *
 * An input is a list of patches of FUZZ_PATCH bytes: { op, u16 which, u16 offset, mode, u64 value }.
 */
#ifndef GILD_TESTS_FUZZ_IMAGE_H
#define GILD_TESTS_FUZZ_IMAGE_H

#include "ftl/ftl_priv.h"
#include "fuzz/fuzz.h"

#define FUZZ_PATCH 14
#define FUZZ_EBS 16u
#define FUZZ_EB (256u << 10)

struct fuzz_image {
	struct media *media; /* RAM; its bytes are of the input under way */
	char dir[80];        /* of the environment, likewise */
	/* The log holds what it was made with, byte for byte, or torn and damaged pieces of it: what is
	 * served must be what was once written there. */
	bool forged;
};

/* `clean`: of the image that was closed, else of the one that lost its power. */
void fuzz_image_restore(struct fuzz_image *im, bool clean);
void fuzz_image_patch(struct fuzz_image *im, struct fuzz_in *in);
/* Was this ever written to that sector? */
bool fuzz_image_knows(uint64_t file, uint64_t sector, const void *bytes);
/* The i-th line that was written to; false: no more. */
bool fuzz_image_line(unsigned i, uint64_t *file, uint64_t *line);

#endif
