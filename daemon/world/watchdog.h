/* SPDX-License-Identifier: Apache-2.0 */
/* watchdog.h - judges whether a rank still makes progress, by the rank's own recent steps.
 *
 * A step takes milliseconds in one job and minutes in another, so no fixed bound would do. A rank sends its (step,
 * stage) before each collective, rank 0 also each finished step. The bound on silence is factor x the median of the
 * last steps, at least floor. A rank inside a collective waits for other ranks. Its bound is twice as long (at least
 * floor plus one second), so that the rank that it waits for is reported first.
 *
 * The first steps also plan, allocate and fill caches. Until WATCHDOG_STEPS_MIN of them are done, the bound is
 * factor x the longest of them, or of the first steps of the job's last generation; if neither is known, it is the
 * bound of starting. So a world that stalls in its first steps costs only seconds, too.
 *
 * Ranks that wait for data report the wait again and again, each time with a longer duration. So a store that does
 * not answer for hours is not a hang, but a rank that is stopped meanwhile hangs. Starting, restoring, joining and
 * saving have bounds of their own; waiting for the leader's `go` has none, since the leader's deadlines cover it. A
 * rank that was told to go counts as joining, whatever it has sent.
 *
 * Ownership: values. Threads: any; pure.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
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
    int64_t step;          /* the last step named; -1: none */
    int64_t done_step;     /* the last step finished, only of rank 0; -1: none */
    TrainStage stage;      /* the last stage named */
    uint64_t changed_usec; /* when step, done_step or stage last changed, or a wait grew */
    uint64_t step_usec;    /* when the last measured duration ended; 0: none yet */
    uint64_t took_usec[WATCHDOG_WINDOW]; /* durations of the last steps, a ring */
    /* A program may report every 100th step: durations are times between reports, not of single steps. */
    bool by_reports;
    size_t n_took;        /* number of durations measured since the start */
    uint64_t first_usec;  /* the longest of the first WATCHDOG_STEPS_MIN steps */
    uint64_t known_usec;  /* first_usec of the job's last generation; 0: unknown */
    uint64_t waited_usec; /* how long the rank has waited for data, as last reported */
    uint64_t
        stood_usec; /* changed_usec of the last standstill that watchdog_finds_standstill() has found */
} Watchdog;

/* Starts the watchdog. known_usec: how long first steps took in the job's last generation; 0: unknown. */
void watchdog_start(Watchdog *w, uint64_t known_usec, uint64_t now_usec);
/* Returns the longest of the first steps, once they are done; 0 until then. */
uint64_t watchdog_first_usec(const Watchdog *w);
/* Notes that the rank is about to begin `stage` of `step`. */
void watchdog_note_stage(Watchdog *w, int64_t step, TrainStage stage, uint64_t now_usec);
/* Notes that the ranks have waited for data for waited_usec. A wait that grows counts as a sign of life. */
void watchdog_note_wait(Watchdog *w, uint64_t waited_usec, uint64_t now_usec);
/* Notes that the rank has finished `step`. */
void watchdog_note_step(Watchdog *w, int64_t step, uint64_t now_usec);
/* Returns how long the rank may be silent now. USEC_INFINITY: for ever. */
uint64_t watchdog_bound_usec(const Watchdog *w, const WatchdogLimits *limits);
bool watchdog_is_hung(const Watchdog *w, const WatchdogLimits *limits, uint64_t now_usec);
/* Finds, once, that the rank has stood still for half the time after which a rank that computes hangs. A rank that
 * waits may be silent for twice as long, so that the leader would learn too late where it stood. */
bool watchdog_finds_standstill(Watchdog *w, const WatchdogLimits *limits, uint64_t now_usec);
/* Called when the observer itself stood still: that time does not count against the rank. */
void watchdog_forgive(Watchdog *w, uint64_t usec);
