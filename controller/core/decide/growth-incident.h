/* SPDX-License-Identifier: Apache-2.0 */
/* growth-incident.h - the incident of a job that was asked repeatedly to leave in order to grow, and could not. */
#pragma once

#include "controller/core/state/state.h"

bool decide_growth_incident(const Cluster *c, const CoreJob *job, Decision *d);
/* Resolves the incident if it is open: the job has ended and will not grow any more. */
bool decide_growth_incident_over(const Cluster *c, const CoreJob *job, Decision *d);
