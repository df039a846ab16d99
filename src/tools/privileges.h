/* SPDX-License-Identifier: BSD-2-Clause
 * What the daemon does not need, it gives up. */
#ifndef GILD_TOOLS_PRIVILEGES_H
#define GILD_TOOLS_PRIVILEGES_H

#include <stdbool.h>

/* -EPERM after a sentence: the program was made setuid, setgid or got file capabilities. To be called
 * before anything else. */
int privileges_check(void);
/* Before the first thread. 0, or an error after a sentence. `debug`: core dumps stay possible. */
int privileges_drop(bool debug);

#endif
