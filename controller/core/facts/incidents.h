/* SPDX-License-Identifier: Apache-2.0 */
/* incidents.h - the incidents that are open, and whether there is a place for one more.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/causes.h"
#include "controller/core/state/state.h"
#include "controller/core/state/text-buffer.h"

/* Returns the open incident of no job with that cause; NULL: there is none. */
const Incident *cluster_incident_find_open(const Cluster *c, const char *cause);
/* The cause of the incident that tells of a hold. */
extern const char hold_cause[];
/* True when the table has a place for one more. Without it an incident is opened only for what happens once: one about
 * a state that lasts would be opened again and again. */
bool incident_has_place(const Cluster *c);
/* True when it is of this submission of the job, not of one that had the name before. */
bool incident_is_of(const IncidentRecord *record, const CoreJob *job);
/* Returns the job's newest open incident that ended a world; NULL: there is none. */
const Incident *incident_find_open(const Cluster *c, const CoreJob *job);
/* Returns an open incident of the job with that cause; NULL: there is none. */
const Incident *incident_find_cause(const Cluster *c, const CoreJob *job, Cause cause);
/* Says "store-unreachable of rank 0 on n1: no answer". */
void incident_write(const IncidentRecord *record, Text *t);
/* True when each sink that the incident concerns was notified of its begin and its end, or was given up on. */
bool incident_is_notified(const Cluster *c, const IncidentRecord *record);
/* Returns the job's open incident about lost records; NULL: there is none. */
const Incident *lost_find_incident(const Cluster *c, const CoreJob *job);
