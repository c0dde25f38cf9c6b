/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h - the cost of jobs by the setting `prices`: the meter in each job's phase (cluster/cost.h). */
#pragma once

#include "controller/core/state/state.h"

/* Brings the meter up to date in a phase that is about to be written; the meter stops when the job gives up its
 * slots. */
void cost_of_phase(const Cluster *c, const CoreJob *job, PhaseRecord *phase);
/* Brings the meter up to date for a new world, d->world: the first cost of the steps that this world trains again
 * counts as lost. useful_sec: how long these steps took the first time. */
void cost_of_world(const Cluster *c, const CoreJob *job, double useful_sec, Decision *d);
/* Counts the cost of a failure up to the decision that answers it. */
void cost_of_failure(const Cluster *c, const CoreJob *job, Decision *d);
