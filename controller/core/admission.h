/* SPDX-License-Identifier: Apache-2.0 */
/* admission.h - which nodes count: those that the setting `admit` takes in.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as cluster-internal.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/cluster-internal.h"

/* The cause of the one incident that names all nodes left out. */
extern const char admission_cause[];
/* Sets node->admitted by the present list. */
void node_admit(const Cluster *c, CoreNode *node);
/* Applies a changed list to all nodes. */
void admission_update(Cluster *c);
/* Opens, rewrites or resolves the incident of admission_cause. Fills *d and returns true if there is work. */
bool decide_admission(Cluster *c, Scratch *s, Decision *d);
