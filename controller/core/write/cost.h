/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h - what jobs cost by the setting `prices`: the meter in each job's phase (cluster/cost.h).
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

/* Reads the meter in a phase that is about to be written; it stops when the job gives its slots up. */
void cost_of_phase(const Cluster *c, const CoreJob *job, PhaseRecord *phase);
/* As cost_of_phase(), for d->world: the steps that it trains again were paid for in vain. useful_sec: how long they
 * took the first time. */
void cost_of_world(const Cluster *c, const CoreJob *job, double useful_sec, Decision *d);
/* Counts what a failure has cost before it was answered. */
void cost_of_failure(const Cluster *c, const CoreJob *job, Decision *d);
