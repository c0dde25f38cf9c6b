/* SPDX-License-Identifier: Apache-2.0 */
/* cluster-decisions.h - decisions about no single job: incidents of nodes and of the cluster, the removal of old
 * incidents, and requests. */
#pragma once

#include "controller/core/state/state.h"

bool decide_cluster(Cluster *c, Scratch *s, Decision *d);
