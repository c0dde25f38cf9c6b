/* SPDX-License-Identifier: Apache-2.0 */
/* store-incident.h - the incident of a store that accepts no checkpoints, or delays data, while the job trains. */
#pragma once

#include "controller/core/state/state.h"

bool decide_store_incident(const Cluster *c, const CoreJob *job, Decision *d);
/* Resolves the incident of a job that has ended: nothing of the job waits for the store any more. */
bool decide_store_incident_over(const Cluster *c, const CoreJob *job, Decision *d);
