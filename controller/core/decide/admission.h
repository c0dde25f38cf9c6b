/* SPDX-License-Identifier: Apache-2.0 */
/* admission.h - the incident that names the nodes that the setting `admit` leaves out. */
#pragma once

#include "controller/core/state/state.h"

/* The cause of the one incident that names all nodes left out. */
extern const char admission_cause[];
/* Opens, rewrites or resolves the incident of admission_cause. Fills *d and returns true if there is a decision. */
bool decide_admission(Cluster *c, Scratch *s, Decision *d);
