/* SPDX-License-Identifier: Apache-2.0 */
/* cluster-decisions.h - decisions about no single job: incidents of nodes and of the cluster, their cap, requests.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

bool decide_cluster(Cluster *c, Scratch *s, Decision *d);
