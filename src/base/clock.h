/* SPDX-License-Identifier: BSD-2-Clause
 * Time. Intervals use the monotonic clock; only what is compared with file times uses the other. */
#ifndef GILD_BASE_CLOCK_H
#define GILD_BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_S 1000000000ULL
#define NS_PER_MS 1000000ULL
#define NS_PER_US 1000ULL

uint64_t clock_mono_ns(void); /* CLOCK_MONOTONIC, nanoseconds */
/* CLOCK_REALTIME_COARSE, nanoseconds since 1970: the clock the kernel stamps files with. */
uint64_t clock_file_ns(void);

#endif
