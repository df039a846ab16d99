/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "fuzz/fuzz.h"

static char fuzz_dir[64];

static int fuzz_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void fuzz_remove(void)
{
	nftw(fuzz_dir, fuzz_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *fuzz_scratch(void)
{
	const char *tmp = getenv("TMPDIR");

	if (fuzz_dir[0])
		return fuzz_dir;
	if (!tmp)
		tmp = access("/dev/shm", W_OK) ? "/var/tmp" : "/dev/shm";
	snprintf(fuzz_dir, sizeof(fuzz_dir), "%.40s/fuzz-XXXXXX", tmp);
	fuzz_assert(mkdtemp(fuzz_dir));
	atexit(fuzz_remove);
	return fuzz_dir;
}

void fuzz_quiet(void)
{
	if (stdout == stderr || getenv("FUZZ_LOUD"))
		return;
	log_set_level((enum log_level)-1);
	stdout = stderr = fopen("/dev/null", "we");
	fuzz_assert(stderr);
}

const char *fuzz_file(const void *data, size_t size)
{
	static char path[32];
	static int fd = -1;

	if (fd < 0)
		fd = memfd_create("fuzz", MFD_CLOEXEC);
	fuzz_assert(fd >= 0 && ftruncate(fd, 0) == 0);
	fuzz_assert(pwrite(fd, data, size, 0) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return path;
}
