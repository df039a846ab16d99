/* SPDX-License-Identifier: BSD-2-Clause
 *
 * gild replay's list of files, and the access-log lines it writes of what stands in it. A line must
 * stay one line, of plain characters, whatever a file is called.
 */
#include <config.h>

#include <string.h>

#include "fuzz/fuzz.h"
#include "tools/replay_content.h"
#include "tools/replay_log.h"

static void replay_line(const char *path, const char *referrer)
{
	static struct replay_log log;
	size_t len;

	replay_log_init(&log, -1);
	len = replay_log_format(&log, 1365000000, path, referrer, 0, 1);
	fuzz_assert(len && len <= sizeof(log.line) && log.line[len - 1] == '\n');
	for (size_t i = 0; i + 1 < len; i++)
		fuzz_assert(log.line[i] >= ' ' && log.line[i] < 127);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct replay_counts *n;
	struct replay_content *c;
	struct replay_view v;

	fuzz_quiet();
	if (replay_content_load(&c, fuzz_file(data, size)))
		return 0;
	n = replay_content_counts(c);
	for (uint64_t i = 0; i < n->pages && i < 64; i++)
		replay_line(replay_content_page(c, i), NULL);
	for (uint64_t i = 0; n->pages && n->images >= REPLAY_IMAGES && i < 8; i++) {
		replay_content_pick(c, size, i, &v);
		for (unsigned k = 0; k < REPLAY_IMAGES; k++)
			replay_line(v.images[k], v.page);
	}
	replay_content_destroy(c);
	return 0;
}
