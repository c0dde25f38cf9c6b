/* SPDX-License-Identifier: Apache-2.0 */
/* reports.h - facts from the reports of a job's ranks: the step that is reached, which ranks have exited, and why. */
#pragma once

#include "controller/core/state/causes.h"
#include "controller/core/state/state.h"

Cause cause_of_exit(const CoreJob *job, const NodeRanks *report, const CoreRank *rank);
/* Returns the furthest step that the present generation is known to have completed. */
int64_t job_reached_step(const Cluster *c, const CoreJob *job);
/* Returns the report of the node that has rank 0; NULL: there is none yet. */
const NodeRanks *job_rank0_report(const Cluster *c, const CoreJob *job);
bool job_all_exited(const Cluster *c, const CoreJob *job);

typedef enum WorldEnd { WORLD_GOES_ON, WORLD_LEFT, WORLD_FINISHED } WorldEnd;

/* Tells how the present world ended in order. Rank 0's node reports the end of a trainers' world; each node of a
 * program's world reports for its own ranks, so that world ends with the last of them. */
WorldEnd job_world_end(const Cluster *c, const CoreJob *job);
/* True when the present world has completed a step or, if its program reports no steps, when all its ranks run. */
bool job_world_has_begun(const Cluster *c, const CoreJob *job);
/* Returns when the present world completed its first step or, without steps, began to run; 0: unknown. */
uint64_t job_world_began_usec(const Cluster *c, const CoreJob *job);
/* Returns the only node whose ranks ended with that cause; -1: there is none, or there are several. */
int job_find_sole_reporter(const Cluster *c, const CoreJob *job, Cause cause);
