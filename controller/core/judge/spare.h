/* SPDX-License-Identifier: Apache-2.0 */
/* spare.h - a failure that comes from one node only, and whether the job can do without that node. */
#pragma once

#include "controller/core/state/causes.h"
#include "controller/core/state/state.h"

/* True when another try would meet the failure again on the node that failed, but not on another node. */
bool failure_is_of_one_node(const Cluster *c, const CoreJob *job, const Failure *failure);
/* True when the next world would be as large without the node. Makes two plans. */
bool job_has_spare_for(const Cluster *c, Scratch *s, const CoreJob *job, int node);
