/* SPDX-License-Identifier: Apache-2.0 */
/* start-times.c - see start-times.h. */
#include "trainer/session/start-times.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The times of this process's start. A process has only one start. */
static uint64_t began, last; /* 0: no start is being timed */
static char parts[512];

void start_begin(void)
{
    began = last = clock_monotonic_usec();
    *parts = '\0';
}

void start_part(const char *name)
{
    if (began == 0)
        return;
    const uint64_t now = clock_monotonic_usec();
    const size_t length = strlen(parts);
    (void)snprintf(parts + length, sizeof(parts) - length, "%s%s %.3f", length > 0 ? ", " : "",
                   name, (double)(now - last) * 1e-6);
    last = now;
}

void start_report(void)
{
    if (began == 0)
        return;
    log_info("the first step after %.3f s: %s", (double)(last - began) * 1e-6, parts);
    began = 0;
}
