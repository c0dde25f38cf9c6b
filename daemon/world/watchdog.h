/* SPDX-License-Identifier: Apache-2.0 */
/* watchdog.h - whether a rank still makes progress, judged by its own recent steps.
 *
 * A step takes milliseconds in one job and minutes in another, so no fixed bound would do. A rank names its (step,
 * stage) before each collective, rank 0 also each finished step. The bound on silence is factor x the median of the
 * last steps, at least floor. A rank inside a collective waits for others and gets twice that (a second more than the
 * floor), so that the rank which it waits for is reported first.
 *
 * The first steps also plan, allocate and fill caches. Until WATCHDOG_STEPS_MIN of them are done, the bound is factor x
 * the longest of them, or of those of the job's last generation; the bound of starting where neither is known. So a
 * world that stalls in its first steps costs seconds, too.
 *
 * Ranks that wait for data report the wait again and again, each time with a longer one. So a store that is away for
 * hours is not a hang, and a rank that is stopped meanwhile is one. Starting, restoring, joining and saving have bounds
 * of their own; waiting for the leader's go has none, since the leader's deadlines cover it. A rank that was told to go
 * is joining, whatever it says.
 *
 * Ownership: values.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    none.
 * Threads:   any; pure.
 */
#pragma once

#include "base/macro.h"
#include "protocol/channel.h"

enum { WATCHDOG_WINDOW = 15, WATCHDOG_STEPS_MIN = 3 };

typedef struct WatchdogLimits {
    uint64_t floor_usec, startup_usec, save_usec;
    double factor;
} WatchdogLimits;

typedef struct Watchdog {
    int64_t step;          /* last named; -1: none */
    int64_t done_step;     /* last finished, only of rank 0; -1: none */
    TrainStage stage;      /* last named */
    uint64_t changed_usec; /* when any of the three last changed, or a wait last grew */
    uint64_t step_usec;    /* when the step changed that durations are measured by; 0: none yet */
    uint64_t took_usec[WATCHDOG_WINDOW]; /* durations of the last steps, a ring */
    size_t n_took;                       /* durations measured since the start */
    uint64_t first_usec;                 /* the longest of the first WATCHDOG_STEPS_MIN steps */
    uint64_t known_usec;                 /* first_usec of the job's last generation; 0: unknown */
    uint64_t waited_usec; /* how long the rank has waited for data, as it last said */
} Watchdog;

/* known_usec: how long first steps took in the job's last generation; 0: unknown. */
void watchdog_start(Watchdog *w, uint64_t known_usec, uint64_t now_usec);
/* How long the first steps took, once they are done; 0 until then. */
uint64_t watchdog_first_usec(const Watchdog *w);
/* The rank is about to do `stage` of `step`. */
void watchdog_note_stage(Watchdog *w, int64_t step, TrainStage stage, uint64_t now_usec);
/* The ranks have waited for data for waited_usec. A wait that grows is a sign of life. */
void watchdog_note_wait(Watchdog *w, uint64_t waited_usec, uint64_t now_usec);
/* The rank finished `step`. */
void watchdog_note_step(Watchdog *w, int64_t step, uint64_t now_usec);
/* How long the rank may be silent now. USEC_INFINITY: for ever. */
uint64_t watchdog_bound_usec(const Watchdog *w, const WatchdogLimits *limits);
bool watchdog_is_hung(const Watchdog *w, const WatchdogLimits *limits, uint64_t now_usec);
/* The observer itself stood still: nothing of that time counts against the rank. */
void watchdog_forgive(Watchdog *w, uint64_t usec);
