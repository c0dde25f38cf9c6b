/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c - see clock.h. */
#include "base/clock.h"

#include <time.h>

static uint64_t clock_read_usec(clockid_t id)
{
    struct timespec ts;
    int r = clock_gettime(id, &ts);
    assert(r == 0);
    return (uint64_t)ts.tv_sec * USEC_PER_SEC + (uint64_t)ts.tv_nsec / NSEC_PER_USEC;
}

uint64_t clock_boottime_usec(void) { return clock_read_usec(CLOCK_BOOTTIME); }

uint64_t clock_realtime_usec(void) { return clock_read_usec(CLOCK_REALTIME); }

uint64_t clock_monotonic_usec(void) { return clock_read_usec(CLOCK_MONOTONIC); }
