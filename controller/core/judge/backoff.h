/* SPDX-License-Identifier: Apache-2.0 */
/* backoff.h - how a failure counts, and how long the pause before the next world is. */
#pragma once

#include "controller/core/state/causes.h"
#include "controller/core/state/state.h"

enum { PAUSE_DOUBLINGS = 5, PAUSE_LAST_SEC = 30 }; /* pauses of 1, 2, 4, 8, 16, 30, 30, ... s */

/* The counters of a PhaseRecord, and the pause that follows from them. */
typedef struct RestartCounters {
    int failures, pauses;
    /* When the first generation was lost because of the store (CLOCK_REALTIME); 0: no generation was. */
    uint64_t store_lost_usec;
    uint64_t pause_usec; /* 0: the next world begins at once */
} RestartCounters;

/* Counts one more generation that ended for that cause. goes_back: a commit was struck out because of the failure,
 * and an older commit is left to resume from. */
RestartCounters restart_counters_after(const Cluster *c, const CoreJob *job, Cause cause,
                                       bool goes_back);
