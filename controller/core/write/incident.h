/* SPDX-License-Identifier: Apache-2.0 */
/* incident.h - incidents of jobs: what each incident contains, and when it is over.
 *
 * Folder:    defaults of the headers here: Ownership: borrows the Cluster for the call. Units: as state.h. Errors:
 *            none. Threads: one at a time.
 */
#pragma once

#include "controller/core/state/causes.h"
#include "controller/core/state/state.h"

/* Begins the decision's incident of the job: open, without node, rank or step. Returns the incident, for the caller to
 * fill in the rest. revision: the revision at which the trouble began; it becomes part of the id, because the
 * generation may have other incidents. 0: the generation has no other incident. */
IncidentRecord *incident_begin(const Cluster *c, const CoreJob *job, Cause cause,
                               int64_t generation, int64_t revision, Decision *d);
/* Opens an incident for the failure, or continues the open incident of the same outage. */
void incident_open(const Cluster *c, const CoreJob *job, const Failure *failure, Decision *d);
/* Counts the steps that are trained again, from the step at which training resumes. */
void incident_count_lost(int64_t resumed_step, IncidentRecord *record);
void incident_resolve(const Cluster *c, const CoreJob *job, const Incident *incident, Decision *d);
/* Adds how long the replay took, once the new world has reached the step of the old world. */
bool incident_add_replay(const Cluster *c, const CoreJob *job, Decision *d);
/* Writes the incident about lost records. over: the incident is resolved as it is opened. */
void lost_incident(const Cluster *c, const CoreJob *job, const char *evidence, bool over,
                   Decision *d);
