/* SPDX-License-Identifier: Apache-2.0 */
/* probe-clock.c - checks whether the wall clock can be right.
 *
 * No decision uses the wall clock, but people order incidents by it, and TLS and S3 refuse a clock that is minutes
 * off. A clock without synchronisation is not a finding: it is normal on a machine without NTP. A step against boottime
 * is a finding: times that were logged before and after the step can't be compared.
 *
 * State: {"boot_id", "offset_usec": realtime - boottime}. */
#include "health/probe.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/timex.h>

enum { EARLIEST_SEC = 1735689600 /* 2025-01-01 */, ERROR_MAX_USEC = 1000000, STEP_MSEC = 500 };

static void look_for_step(const ProbeContext *context, ProbeResult *ret)
{
    double offset = (double)clock_realtime_usec() - (double)clock_boottime_usec(), before;
    const char *boot_id = json_string_value(json_object_get(context->state, "boot_id"));
    ret->state = json_pack("{ss,sf}", "boot_id", context->boot_id, "offset_usec", offset);
    if (!boot_id || strcmp(boot_id, context->boot_id) != 0 ||
        !probe_recall(context->state, "offset_usec", &before))
        return;
    if (fabs(offset - before) > STEP_MSEC * 1e3)
        probe_find_fault(ret, FAULT_CLOCK_STEPPED, -1, "the clock was set by %+.1f s",
                         (offset - before) / 1e6);
}

static int run_clock_probe(const ProbeContext *context, ProbeResult *ret, Error *err)
{
    uint64_t now_sec = clock_realtime_usec() / USEC_PER_SEC;
    if (now_sec < EARLIEST_SEC)
        probe_find_fault(ret, FAULT_CLOCK_WRONG, -1, "the clock is before 2025 (%llu)",
                         (unsigned long long)now_sec);

    struct timex tx = {0};
    if (adjtimex(&tx) < 0)
        return error_errno(err, -errno, "cannot ask the kernel about its clock");
    if (!(tx.status & STA_UNSYNC) && tx.esterror > ERROR_MAX_USEC)
        probe_find_fault(ret, FAULT_CLOCK_WRONG, -1, "the clock may be off by %.1f s",
                         (double)tx.esterror / 1e6);
    look_for_step(context, ret);
    (void)snprintf(ret->note, sizeof(ret->note), "%s",
                   tx.status & STA_UNSYNC ? "nobody disciplines it" : "synchronised");
    return 0;
}

const Probe probe_clock = {.name = "clock",
                           .timeout_usec = 10 * USEC_PER_SEC,
                           .run = run_clock_probe};
