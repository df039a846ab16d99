/* SPDX-License-Identifier: BSD-2-Clause
 *
 * An environment whose file is cut short beneath the program.
 *
 * LMDB reads its file through a mapping: a page that the file no longer has is a SIGBUS, which would
 * end the whole process for a cache. Here such a fault puts a page of zeroes in its place and marks
 * the environment as lost; the access goes on and finds zeroes.
 *
 * Invariants:
 *   1. Whatever was read since is not believed: `lost` is set before the access goes on, and looked
 *      at after every access and before its result is used. A lost environment answers -EIO for good.
 *   2. LMDB is not asked to search from zeroes (it asserts that roots make sense): they are copied
 *      from the file's first pages when a transaction begins, and `lost` is looked at then. Further
 *      down a page of zeroes is neither branch nor leaf, which LMDB reports as damage.
 *   3. Only mappings of our own environments are treated so; any other fault goes to the handler that
 *      was there before.
 *
 * A signal handler serves the process, so the list of mappings does, too: the one thing here that is
 * not an environment's own.
 */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "meta/meta_priv.h"

#define GUARD_RANGES 64
#define GUARD_TAKEN 1 /* a start that no mapping has */

static struct guard_range {
	_Atomic uintptr_t start; /* 0: free */
	_Atomic uintptr_t end;
	struct meta *_Atomic m;
} guard_ranges[GUARD_RANGES];
static struct sigaction guard_before;
static uintptr_t guard_page;

static void guard_on_bus_error(int sig, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr;
	int saved = errno;

	(void)context;
	for (unsigned i = 0; i < GUARD_RANGES; i++) {
		struct guard_range *r = &guard_ranges[i];
		uintptr_t start = atomic_load(&r->start);
		void *page = (void *)(at & ~(guard_page - 1));

		if (start <= GUARD_TAKEN || at < start || at >= atomic_load(&r->end))
			continue;
		if (mmap(page, guard_page, PROT_READ | PROT_WRITE,
			 MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			break;
		atomic_store(&atomic_load(&r->m)->lost, true);
		errno = saved;
		return;
	}
	sigaction(sig, &guard_before, NULL); /* and the access is tried again */
	errno = saved;
}

void meta_catch_bus_errors(void)
{
	struct sigaction act = {.sa_sigaction = guard_on_bus_error, .sa_flags = SA_SIGINFO};

	guard_page = (uintptr_t)sysconf(_SC_PAGESIZE);
	sigaction(SIGBUS, &act, &guard_before);
}

static void guard_add(struct meta *m, uintptr_t start, uintptr_t end)
{
	for (unsigned i = 0; i < GUARD_RANGES; i++) {
		uintptr_t none = 0;

		if (!atomic_compare_exchange_strong(&guard_ranges[i].start, &none, GUARD_TAKEN))
			continue;
		atomic_store(&guard_ranges[i].end, end);
		atomic_store(&guard_ranges[i].m, m);
		atomic_store(&guard_ranges[i].start, start);
		return;
	}
}

void meta_guard(struct meta *m)
{
	static const char *const files[] = {"data.mdb", "lock.mdb"};
	uint64_t inodes[2] = {0, 0}, inode;
	uintptr_t start, end;
	char *line = NULL, path[4096];
	size_t room = 0;
	struct stat st;
	FILE *maps = fopen("/proc/self/maps", "re");

	if (!maps)
		return;
	for (unsigned i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", m->dir, files[i]);
		if (stat(path, &st) == 0)
			inodes[i] = st.st_ino;
	}
	while (getline(&line, &room, maps) > 0) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %" SCNu64, &start, &end,
			   &inode) != 3 || !inode || !strstr(line, ".mdb"))
			continue;
		if (inode == inodes[0] || inode == inodes[1])
			guard_add(m, start, end);
	}
	free(line);
	fclose(maps);
}

void meta_unguard(struct meta *m)
{
	for (unsigned i = 0; i < GUARD_RANGES; i++)
		if (atomic_load(&guard_ranges[i].m) == m) {
			atomic_store(&guard_ranges[i].m, NULL);
			atomic_store(&guard_ranges[i].start, 0);
		}
}

bool meta_is_lost(struct meta *m)
{
	if (!atomic_load(&m->lost))
		return false;
	if (!atomic_exchange(&m->lost_told, true))
		log_error("meta", "%s was cut short while in use: unmount and run gild recover", m->dir);
	return true;
}
