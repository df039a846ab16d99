/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Stored file handles: a good one, spoilt. Nothing but objects of the backing's own filesystem may
 * come back, and what comes back answers to its handle again.
 *
 * Input: { u8 bytes to keep (0: all), u8 bytes to add, pairs { u8 offset, u8 xor } }.
 */
#include <config.h>

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "backing/backing.h"
#include "fuzz/fuzz.h"

static uint8_t handle_good[160];
static size_t handle_len;

static struct backing *handle_backing(void)
{
	static struct backing *b;
	struct bnode *n;
	struct battr attr;
	char path[96];

	if (b)
		return b;
	snprintf(path, sizeof(path), "%s/file", fuzz_scratch());
	close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	fuzz_assert(backing_open(&b, fuzz_scratch(), NULL) == 0);
	fuzz_assert(backing_lookup(b, backing_root(b), "file", &n, &attr) == 0);
	handle_len = backing_handle(b, n, handle_good, sizeof(handle_good));
	backing_put(b, n);
	return b;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct backing *b = handle_backing();
	struct fuzz_in in = {data, size};
	uint8_t h[512], again[160], *exact;
	struct battr attr;
	struct bnode *n;
	size_t len;

	fuzz_quiet();
	memcpy(h, handle_good, handle_len);
	memset(h + handle_len, 0, sizeof(h) - handle_len);
	len = fuzz_take(&in, 1);
	len = (len && len < handle_len ? len : handle_len) + fuzz_take(&in, 1);
	while (in.left) {
		unsigned at = (unsigned)fuzz_take(&in, 1);

		h[at] ^= (uint8_t)fuzz_take(&in, 1);
	}
	exact = malloc(len);
	memcpy(exact, h, len);
	if (backing_from_handle(b, exact, len, &n, &attr) == 0) {
		fuzz_assert(backing_same_fs(n));
		fuzz_assert(backing_handle(b, n, again, sizeof(again)) > 0);
		backing_put(b, n);
	}
	free(exact);
	return 0;
}
