/* watchdog.h - whether a rank still makes progress, judged by its own recent steps.
 *
 * A rank speaks of (step, stage) before each collective, rank 0 also of each finished step. The
 * bound on silence is factor x the median of the last steps, at least floor; a rank inside a
 * collective waits for others and gets twice that (a second more than the floor), so that the one it
 * waits for is reported first.
 * The first steps also plan, allocate and fill caches: until there are enough for a median the bound
 * is factor x the longest of them, or of those of the job's generation before, and the bound of
 * starting where there is neither. So a world that stalls in its first steps costs seconds, too.
 * Ranks that wait for data say so again and again, so a store that is away is no hang, however long it
 * takes, and a rank that is stopped meanwhile is one.
 * Starting, restoring, joining and saving have bounds of their own; waiting for the leader's go has
 * none (the leader's deadlines cover it).
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
    int64_t step, done_step; /* last spoken of; last finished (rank 0 alone), -1: none */
    TrainStage stage;
    uint64_t changed_usec, step_usec; /* last change of any; of the step that steps are timed by */
    uint64_t took_usec[WATCHDOG_WINDOW];
    size_t n_took;        /* ever; the window holds the last ones */
    uint64_t first_usec;  /* the longest of the first WATCHDOG_STEPS_MIN steps */
    uint64_t known_usec;  /* the same of the generation before; 0: unknown */
    uint64_t waited_usec; /* how long it has waited for data by its last words */
} Watchdog;

/* known_usec: how long first steps took before; 0: unknown. */
void watchdog_start(Watchdog *w, uint64_t known_usec, uint64_t now_usec);
/* How long the first steps took, once they are done; 0 until then. */
uint64_t watchdog_first_usec(const Watchdog *w);
/* The rank is about to do `stage` of `step`. */
void watchdog_note_stage(Watchdog *w, int64_t step, TrainStage stage, uint64_t now_usec);
/* Beside the stage: the ranks have waited for data for so long. Words that grow are a sign of life. */
void watchdog_note_wait(Watchdog *w, uint64_t waited_usec, uint64_t now_usec);
/* The rank finished `step`. */
void watchdog_note_step(Watchdog *w, int64_t step, uint64_t now_usec);
/* USEC_INFINITY: it may be silent for ever. */
uint64_t watchdog_bound_usec(const Watchdog *w, const WatchdogLimits *limits);
bool watchdog_is_hung(const Watchdog *w, const WatchdogLimits *limits, uint64_t now_usec);
/* The observer itself stood still: nothing of that time counts against the rank. */
void watchdog_forgive(Watchdog *w, uint64_t usec);
