/* SPDX-License-Identifier: Apache-2.0 */
/* absences.h - notes what a node ran when it vanished, for the incident about its absence. */
#pragma once

#include "controller/core/state/state.h"

/* Notes what a vanished node ran, for the incident about its absence. */
void node_note_absence(Cluster *c, CoreNode *node);
