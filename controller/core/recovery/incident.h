/* SPDX-License-Identifier: Apache-2.0 */
/* incident.h - incidents of jobs: what each says, and when it is over.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as cluster-internal.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/cluster-internal.h"
#include "controller/core/recovery/failure.h"
#include "controller/core/text.h"

/* True when the table has a place for one more. Without it an incident is opened only for what happens once: one about
 * a state that lasts would be opened again and again. */
bool incident_has_place(const Cluster *c);

/* Begins the decision's incident of the job, open, of no node, rank or step, and returns it for the rest. revision: at
 * which it began, for its id, since the generation may have others; 0: it has not. */
IncidentRecord *incident_begin(const Cluster *c, const CoreJob *job, Cause cause,
                               int64_t generation, int64_t revision, Decision *d);
/* Opens an incident for the failure, or goes on with the open one that is the same outage. */
void incident_open(const Cluster *c, const CoreJob *job, const Failure *failure, Decision *d);
/* Says how many steps are trained again, by the step from which training goes on. */
void incident_count_lost(int64_t resumed_step, IncidentRecord *record);
/* True when it is of this submission of the job, not of one that had the name before. */
bool incident_is_of(const IncidentRecord *record, const CoreJob *job);
/* Returns the job's newest open incident that ended a world; NULL: there is none. */
const Incident *incident_find_open(const Cluster *c, const CoreJob *job);
/* Returns an open incident of the job with that cause; NULL: there is none. */
const Incident *incident_find_cause(const Cluster *c, const CoreJob *job, Cause cause);
/* Says "store-unreachable of rank 0 on n1: no answer". */
void incident_say(const IncidentRecord *record, Text *t);
void incident_resolve(const Cluster *c, const CoreJob *job, const Incident *incident, Decision *d);
/* Adds how long the replay took, once the new world has reached the old one's step. */
bool incident_add_replay(const Cluster *c, const CoreJob *job, Decision *d);
/* True when each sink that the incident concerns was notified of its begin and its end, or was given up on. */
bool incident_is_told(const Cluster *c, const IncidentRecord *record);
