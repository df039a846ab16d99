/* SPDX-License-Identifier: BSD-2-Clause
 *
 * gildfs's command line, a word a line; and every word as a size and as a duration.
 */
#include <config.h>

#include <string.h>

#include "fuzz/fuzz.h"
#include "tools/gildfs_options.h"

#define OPTIONS_WORDS 32

const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0"; /* options live as long as the program */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct gildfs_options o;
	char program[] = "gildfs", *argv[OPTIONS_WORDS + 2] = {program}, *text = malloc(size + 1), *next = text;
	uint64_t value;
	int argc = 1;

	fuzz_quiet();
	memcpy(text, data, size);
	text[size] = '\0';
	while (argc <= OPTIONS_WORDS && next) {
		argv[argc] = strsep(&next, "\n");
		options_parse_size(argv[argc], &value);
		options_parse_duration(argv[argc], &value);
		argc++;
	}
	argv[argc] = NULL;
	if (gildfs_parse(&o, argc, argv) == 0)
		fuzz_assert(o.backing[0] == '/' && o.mountpoint[0] == '/' &&
			    memchr(o.fuse_opts, 0, sizeof(o.fuse_opts)));
	free(o.card.items);
	free(text);
	return 0;
}
