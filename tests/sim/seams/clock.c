/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c - base/clock.h in virtual time. It is linked before the base library, so it replaces that
 * library's clock. */
#include "base/clock.h"
#include "tests/sim/seams/loop.h"

uint64_t clock_boottime_usec(void) { return loops_now_usec(); }

uint64_t clock_monotonic_usec(void) { return loops_now_usec(); }

uint64_t clock_realtime_usec(void)
{
    const sd_event *loop = loop_current();
    return loops_now_usec() + (uint64_t)(loop ? loop_realtime_offset(loop) : 0);
}
