/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <time.h>

#include "base/clock.h"

static uint64_t clock_read(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t clock_mono_ns(void)
{
	return clock_read(CLOCK_MONOTONIC);
}

uint64_t clock_file_ns(void)
{
	return clock_read(CLOCK_REALTIME_COARSE);
}
