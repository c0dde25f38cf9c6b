/* SPDX-License-Identifier: Apache-2.0 */
/* divergence-incident.h - the incident of a job whose training diverges, and the end of the job if the job file
 * asks for that. */
#pragma once

#include "controller/core/state/state.h"

/* Opens or resolves the incident of training that diverges; with train.stop_if_diverging the decision also fails the
 * job. Fills *d and returns true if there is a decision. */
bool decide_divergence(const Cluster *c, const CoreJob *job, Decision *d);
/* Ends the incident of a job that is over: the job did not recover from it. */
bool decide_divergence_over(const Cluster *c, const CoreJob *job, Decision *d);
/* Writes "finished, but ..." for a job that diverged up to its last step; otherwise "finished". */
void divergence_write_finished(const CoreJob *job, char *ret, size_t size);
