/* SPDX-License-Identifier: Apache-2.0 */
/* restart-backoff.h - the pause before the next world of a job whose store is away.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as cluster-internal.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/cluster-internal.h"
#include "controller/core/recovery/failure.h"

/* The counters of a PhaseRecord, and the pause that follows from them. */
typedef struct RestartCounters {
    int failures, pauses;
    /* CLOCK_REALTIME of the first generation lost to the store; 0: none was. */
    uint64_t store_lost_usec;
    uint64_t pause_usec; /* 0: the next world comes at once */
} RestartCounters;

/* Counts one more generation that ended for that cause. goes_back: a commit was struck out for it, and an older one is
 * left to go on from. */
RestartCounters restart_counters_after(const Cluster *c, const CoreJob *job, Cause cause,
                                       bool goes_back);
/* True when nothing of the job runs: its last generation has failed, and the next one is not due yet. */
bool job_is_paused(const CoreJob *job);
/* Begins a pause after the failure that d->incident tells of. */
void decide_pause(const Cluster *c, const CoreJob *job, uint64_t pause_usec, Decision *d);
/* Ends a pause that is over: the next world, without the node that alone asked for it if there is a spare. */
bool decide_paused(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d);
