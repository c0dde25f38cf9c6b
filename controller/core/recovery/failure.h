/* SPDX-License-Identifier: Apache-2.0 */
/* failure.h - whether the present world of a job has failed, why, and which node is to blame.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as cluster-internal.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/cluster-internal.h"
#include "controller/core/recovery/causes.h"

typedef struct Failure {
    Cause cause;
    int node; /* index of the node to blame; -1: none */
    int rank; /* -1: none */
    int code; /* the rank's exit code, or its negated signal; 0: it has none */
    int64_t step;
    uint64_t at_usec; /* CLOCK_REALTIME of the fault */
    char evidence[RECORD_TEXT_MAX + 1];
} Failure;

typedef struct FailureSign {
    Failure failure; /* cause CAUSE_NONE: the world is well */
    int stage;       /* TrainStage of its rank */
} FailureSign;

Cause cause_of_exit(const CoreJob *job, const NodeRanks *report, const CoreRank *rank);
/* Looks for the most telling sign that the job's present world has failed. False: a node of it has vanished, and it is
 * too early to tell. */
bool failure_find_sign(const Cluster *c, Scratch *s, const CoreJob *job, FailureSign *ret);
/* Notes since when the world fails, or that it is well. */
void failure_note(const Cluster *c, CoreJob *job, const FailureSign *sign);
/* Finds the node to blame. False while the world is well, or while the culprit is not clear; that wait is bounded. */
bool failure_judge(const Cluster *c, Scratch *s, const CoreJob *job, const FailureSign *sign,
                   Failure *ret);
/* Returns the furthest step that the present generation is known to have completed. */
int64_t job_reached_step(const Cluster *c, const CoreJob *job);
/* Returns the report of the node that has rank 0; NULL: there is none yet. */
const NodeRanks *job_rank0_report(const Cluster *c, const CoreJob *job);
bool job_all_exited(const Cluster *c, const CoreJob *job);
/* True when a rank of the run is not ready, and its time for that is over. */
bool run_is_late(const Cluster *c, Scratch *s, const CoreJob *job, const Run *run);
/* True while a node of the job's world has vanished and it is too early to call it lost. */
bool job_absence_is_open(const Cluster *c, Scratch *s, const CoreJob *job);
