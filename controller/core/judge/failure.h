/* SPDX-License-Identifier: Apache-2.0 */
/* failure.h - whether the present world of a job has failed, why, and which node is to blame. */
#pragma once

#include "controller/core/state/causes.h"
#include "controller/core/state/state.h"

typedef struct FailureSign {
    Failure failure; /* cause CAUSE_NONE: the world is well */
    int stage;       /* TrainStage of the failure's rank */
} FailureSign;

/* Looks for the most telling sign that the job's present world has failed. Returns false if a node of the world has
 * vanished and it is too early to judge. */
bool failure_find_sign(const Cluster *c, Scratch *s, const CoreJob *job, FailureSign *ret);
/* Finds the node to blame. Returns false while the world is well, and, for a limited time, while the culprit is
 * not clear. */
bool failure_judge(const Cluster *c, Scratch *s, const CoreJob *job, const FailureSign *sign,
                   Failure *ret);
/* True when a rank of the run is not ready although its time to become ready is over. */
bool run_is_late(const Cluster *c, Scratch *s, const CoreJob *job, const Run *run);
/* True while a node of the job's world has vanished and it is too early to call it lost. */
bool job_absence_is_open(const Cluster *c, Scratch *s, const CoreJob *job);
