/* SPDX-License-Identifier: Apache-2.0 */
/* incident.h - incidents of jobs: what each says, and when it is over.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/causes.h"
#include "controller/core/state/state.h"

/* Begins the decision's incident of the job, open, of no node, rank or step, and returns it for the rest. revision: at
 * which it began, for its id, since the generation may have others; 0: it has not. */
IncidentRecord *incident_begin(const Cluster *c, const CoreJob *job, Cause cause,
                               int64_t generation, int64_t revision, Decision *d);
/* Opens an incident for the failure, or goes on with the open one that is the same outage. */
void incident_open(const Cluster *c, const CoreJob *job, const Failure *failure, Decision *d);
/* Says how many steps are trained again, by the step from which training goes on. */
void incident_count_lost(int64_t resumed_step, IncidentRecord *record);
void incident_resolve(const Cluster *c, const CoreJob *job, const Incident *incident, Decision *d);
/* Adds how long the replay took, once the new world has reached the old one's step. */
bool incident_add_replay(const Cluster *c, const CoreJob *job, Decision *d);
/* Writes the incident about lost records. over: it is resolved as it is opened. */
void lost_incident(const Cluster *c, const CoreJob *job, const char *evidence, bool over,
                   Decision *d);
