/* SPDX-License-Identifier: Apache-2.0 */
/* incidents.h - which incidents are open, and whether the table has a place for one more.
 *
 * Folder:    defaults of the headers here: Ownership: borrows the Cluster for the call. Units: as state.h. Errors:
 *            none. Threads: one at a time.
 */
#pragma once

#include "controller/core/state/causes.h"
#include "controller/core/state/state.h"
#include "controller/core/state/text-buffer.h"

/* Returns the open incident that has this cause and is about no job; NULL: there is none. */
const Incident *cluster_incident_find_open(const Cluster *c, const char *cause);
/* The cause of the incident that reports a hold. */
extern const char hold_cause[];
/* True when the table has a place for one more incident. Without a place, an incident is opened only for an event
 * that happens once: an incident about a lasting state would be opened again and again. */
bool incident_has_place(const Cluster *c);
/* True when the incident is about this submission of the job, not about an earlier job of the same name. */
bool incident_is_of(const IncidentRecord *record, const CoreJob *job);
/* Returns the job's newest open incident that ended a world; NULL: there is none. */
const Incident *incident_find_open(const Cluster *c, const CoreJob *job);
/* Returns an open incident of the job that has this cause; NULL: there is none. */
const Incident *incident_find_cause(const Cluster *c, const CoreJob *job, Cause cause);
/* Writes "store-unreachable of rank 0 on n1: no answer". */
void incident_write(const IncidentRecord *record, Text *t);
/* True when each sink that the incident concerns was notified of the incident's begin and end, except for sinks that
 * the notifier has given up. */
bool incident_is_notified(const Cluster *c, const IncidentRecord *record);
/* Returns the job's open incident about lost records; NULL: there is none. */
const Incident *lost_find_incident(const Cluster *c, const CoreJob *job);
