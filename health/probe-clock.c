/* probe-clock.c - whether the wall clock can be right.
 *
 * Nothing that decides uses it, but people order incidents by it, and TLS and S3 refuse a clock
 * that is minutes off. A clock that nobody disciplines is not a finding: machines without NTP have
 * one.
 */
#include "health/probe.h"

#include "base/clock.h"

#include <errno.h>
#include <sys/timex.h>

enum { EARLIEST_SEC = 1735689600 /* 2025-01-01 */, ERROR_MAX_USEC = 1000000 };

static int run(_unused_ const ProbeContext *context, ProbeResult *ret, Error *err)
{
    uint64_t now_sec = clock_realtime_usec() / USEC_PER_SEC;
    if (now_sec < EARLIEST_SEC)
        probe_find_fault(ret, HEALTH_SUSPECT, -1, "the clock is before 2025 (%llu)",
                         (unsigned long long)now_sec);

    struct timex tx = {0};
    if (adjtimex(&tx) < 0)
        return error_errno(err, -errno, "cannot ask the kernel about its clock");
    if (!(tx.status & STA_UNSYNC) && tx.esterror > ERROR_MAX_USEC)
        probe_find_fault(ret, HEALTH_SUSPECT, -1, "the clock may be off by %.1f s",
                         (double)tx.esterror / 1e6);
    return 0;
}

const Probe probe_clock = {.name = "clock", .timeout_usec = 5 * USEC_PER_SEC, .run = run};
