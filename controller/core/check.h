/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - what must hold of each decision, whatever the records say.
 *
 * Ownership: borrows the Cluster and the decision for the call.
 * Units:     as cluster-internal.h.
 * Errors:    none: a decision that breaks a rule is a bug of the core, and an assert ends the program before the
 *            decision is written.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/cluster-internal.h"

/* job: the one that it is about; NULL: none. Checks that each record is put under the guard of the one that it was
 * derived from, and that what belongs together is there together. */
void decision_check(const Cluster *c, const CoreJob *job, const Decision *d);
