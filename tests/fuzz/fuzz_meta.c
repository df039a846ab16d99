/* SPDX-License-Identifier: BSD-2-Clause
 *
 * meta_check(), which judges a data.mdb before LMDB maps it: a good one with a long free list, cut
 * to a length and patched. Input: { u16 pages, patches { u24 offset, log2 of bytes, u64 value } }.
 */
#include <config.h>

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "meta/meta.h"

static const char *const tables[] = {"a", NULL};
static char meta_dir[80], meta_path[96];
static uint8_t *meta_good;
static int meta_fd;
static size_t meta_size;

static void meta_fill(struct meta *m, bool del)
{
	static const char value[1500];
	struct meta_txn *t;

	fuzz_assert(meta_begin_write(m, &t) == 0);
	for (uint32_t i = 0; i < 1500; i++) {
		if (del && i % 3)
			fuzz_assert(meta_del(t, 0, &i, sizeof(i)) == 0);
		else if (!del)
			fuzz_assert(meta_put(t, 0, &i, sizeof(i), value, sizeof(value)) == 0);
	}
	fuzz_assert(meta_commit(t) == 0);
}

static void meta_make(void)
{
	struct meta *m;
	struct stat st;

	snprintf(meta_dir, sizeof(meta_dir), "%s/map", fuzz_scratch());
	snprintf(meta_path, sizeof(meta_path), "%s/data.mdb", meta_dir);
	fuzz_assert(meta_open(&m, meta_dir, tables, 16 << 20, true) == 0);
	meta_fill(m, false);
	meta_fill(m, true);
	meta_close(m);
	meta_fd = open(meta_path, O_RDWR | O_CLOEXEC);
	fuzz_assert(meta_fd >= 0 && fstat(meta_fd, &st) == 0);
	meta_size = (size_t)st.st_size;
	meta_good = malloc(meta_size);
	fuzz_assert(meta_good && pread(meta_fd, meta_good, meta_size, 0) == st.st_size);
}

static void meta_write(const void *bytes, size_t len, size_t at)
{
	fuzz_assert(pwrite(meta_fd, bytes, len, (off_t)at) == (ssize_t)len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size}, undo;
	size_t len;

	fuzz_quiet();
	if (!meta_good)
		meta_make();
	len = (size_t)fuzz_take(&in, 2) * 4096;
	len = len && len < meta_size ? len : meta_size;
	undo = in;
	while (in.left) {
		size_t at = fuzz_take(&in, 3) % (meta_size - 8);
		unsigned width = 1u << (fuzz_take(&in, 1) & 3);
		uint64_t v = fuzz_take(&in, 8);

		meta_write(&v, width, at);
	}
	fuzz_assert(ftruncate(meta_fd, (off_t)len) == 0);
	meta_check(meta_dir);
	while (undo.left) {
		size_t at = fuzz_take(&undo, 3) % (meta_size - 8);

		fuzz_take(&undo, 8);
		fuzz_take(&undo, 1);
		meta_write(meta_good + at, 8, at);
	}
	meta_write(meta_good + len, meta_size - len, len);
	return 0;
}
