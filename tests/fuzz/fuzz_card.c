/* SPDX-License-Identifier: BSD-2-Clause
 *
 * card.json, and a file record of the cache (after a first byte 1). What is accepted is written out
 * and read again, and must be the same.
 */
#include <config.h>

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cache/cache_file.h"
#include "card/card_priv.h"
#include "fuzz/fuzz.h"

static void card_json(const uint8_t *data, size_t size)
{
	static int dir = -1;
	struct card_config a, b;
	char path[4200];
	int fd;

	if (dir < 0)
		dir = open(fuzz_scratch(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd = openat(dir, CARD_JSON, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	fuzz_assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	close(fd);
	if (card_dir_load(&a, dir, "card"))
		return;
	fuzz_assert(card_dir_medium(&a, "card", path, sizeof(path)) == 0);
	fuzz_assert(card_region_bytes(a.size, a.controllers) <= a.size);
	fuzz_assert(card_dir_save(&a, dir, "card") == 0);
	fuzz_assert(card_dir_load(&b, dir, "card") == 0);
	fuzz_assert(!memcmp(a.uuid, b.uuid, sizeof(a.uuid)) && !strcmp(a.medium, b.medium) &&
		    !strcmp(a.created, b.created) && a.size == b.size &&
		    a.controllers == b.controllers && a.op_percent == b.op_percent &&
		    a.savings_spare == b.savings_spare && a.volume_bytes == b.volume_bytes);
}

static void card_record(const uint8_t *data, size_t size)
{
	struct cfile_record a, b;
	uint8_t out[FLASH_CTL_VALUE];

	if (cfile_decode(data, size, &a))
		return;
	fuzz_assert(cfile_encode(&a, out) == size);
	fuzz_assert(cfile_decode(out, size, &b) == 0);
	fuzz_assert(!memcmp(&a, &b, sizeof(a)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_quiet();
	if (size && data[0] == 1)
		card_record(data + 1, size - 1);
	else
		card_json(data, size);
	return 0;
}
