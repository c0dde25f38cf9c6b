/* SPDX-License-Identifier: Apache-2.0 */
/* testing-survivor.c - see testing-survivor.h. */
#include "exec/test/testing-survivor.h"

#include "base/clock.h"

#include <signal.h>

static bool spares_program;
static uint64_t ahead_usec;

__typeof__(kill) __real_kill, __wrap_kill;
__typeof__(clock_boottime_usec) __real_clock_boottime_usec, __wrap_clock_boottime_usec;

int __wrap_kill(pid_t pid, int number)
{
    if (!spares_program || number != SIGKILL)
        return __real_kill(pid, number);
    ahead_usec = 60 * USEC_PER_SEC;
    return 0;
}

uint64_t __wrap_clock_boottime_usec(void) { return __real_clock_boottime_usec() + ahead_usec; }

void spare_program(bool spares) { spares_program = spares; }
