/* SPDX-License-Identifier: Apache-2.0 */
/* decision-rules.h - the rules that each decision obeys, whatever the records contain.
 *
 * Units: as state.h. Threads: one at a time.
 * Ownership: borrows the Cluster and the decision for the call.
 * Errors:    none: a decision that breaks a rule is a bug of the core, and an assert ends the program before the
 *            decision is written.
 */
#pragma once

#include "controller/core/state/state.h"

/* Asserts that each record is put under the guard of the record that it was derived from, and that the parts of the
 * decision fit together. job: the job that the decision is about; NULL: none. */
void decision_check(const Cluster *c, const CoreJob *job, const Decision *d);
