/* SPDX-License-Identifier: BSD-2-Clause
 * A process beside the daemon that ends the FUSE connection when the daemon has died (watchdog.c). */
#ifndef GILD_TOOLS_WATCHDOG_H
#define GILD_TOOLS_WATCHDOG_H

struct watchdog;

/* Call before there are threads, in the thread whose end shall count as the daemon's. `mountpoint`
 * is absolute. NULL: there is none, which was logged; the others take it. */
struct watchdog *watchdog_start(const char *mountpoint);
/* The mount answers: from now on the watchdog guards its connection. */
void watchdog_mounted(struct watchdog *w);
/* Sent away without doing anything, and waited for; frees. */
void watchdog_stop(struct watchdog *w);

#endif
