/* SPDX-License-Identifier: Apache-2.0 */
/* admission.h - nodes that the setting `admit` leaves out.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as cluster-internal.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/cluster-internal.h"

extern const char admission_cause[]; /* of the one incident that names all of them */
void node_admit(const Cluster *c, CoreNode *node);
/* Applies a new list to all nodes. */
void admission_update(Cluster *c);
bool decide_admission(Cluster *c, Scratch *s, Decision *d);
