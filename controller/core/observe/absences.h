/* SPDX-License-Identifier: Apache-2.0 */
/* absences.h - what a node ran when it vanished, for the incident that will report it.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

/* Notes what a node that has vanished ran, for the incident that will say so. */
void node_note_absence(Cluster *c, CoreNode *node);
