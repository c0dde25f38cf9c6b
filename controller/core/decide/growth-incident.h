/* SPDX-License-Identifier: Apache-2.0 */
/* growth-incident.h - the incident of a job that was asked to leave in order to grow, again and again, and could not.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

bool decide_growth_incident(const Cluster *c, const CoreJob *job, Decision *d);
/* Resolves it when the job has ended: nothing of the job grows any more. */
bool decide_growth_incident_over(const Cluster *c, const CoreJob *job, Decision *d);
