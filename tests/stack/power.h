/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A backing that loses its power with the card. The directory is a real one; what a disk would have
 * lost is put into it after the cut:
 *
 *   blocks  each 4 KiB block of a file is as in any of its states since its last sync, independently
 *   inode   size, mtime and ctime are those of any one of these states, independently of the blocks
 *   names   the directory is as in any of its states since the last sync of the filesystem
 *
 * which is more than any filesystem loses. A ctime cannot be set, so statx (--wrap, as are the calls
 * that change the backing) answers the one that was chosen until the file changes again. Inodes that
 * may come back are held by a second link outside of the directory, which statx does not count.
 *
 * Each changing call is two events of the card's fault injector, so a cut may come before or after
 * it; from the cut on all of them fail and do nothing.
 */
#ifndef GILD_TESTS_POWER_H
#define GILD_TESTS_POWER_H

#include <stdbool.h>
#include <stdint.h>

#include "media/media.h"

/* One at a time. Files directly in `dir` are simulated; they are durable as they are. `fault` NULL:
 * the backing does not notice when the card's power goes. */
void power_start(const char *dir, struct media_fault *fault);
/* The power of the backing goes now, until power_cut(). */
void power_off(void);
void power_stop(void);
/* To be called after every change of the directory: notes the states. */
void power_note(void);
/* All that is there is durable, as after syncfs(2). */
void power_sync(void);
/* The power is gone and has come back: draws what is left. */
void power_cut(uint64_t *rng);
/* Time goes by, as the file clock has it. */
void power_pass(uint64_t ns);
/* Nothing of the file would be lost now. */
bool power_is_durable(const char *name);

#endif
