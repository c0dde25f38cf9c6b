/* SPDX-License-Identifier: Apache-2.0 */
/* comparison.h - two runs of a tape with the same inputs, compared result by result.
 *
 * Equal inputs must give equal bits. Where they do not, some operation is the first whose result differs: it is the
 * culprit, and all that follows differs because of it. While a run is watched, the fingerprint of everything that an
 * operation leaves is taken on the device right behind it: activations, their gradients, the gradients of parameters.
 *
 * Ownership: tape_comparison_new() gives the caller an object; it borrows the tape, whose observer it is between
 *            tape_comparison_watch() and tape_comparison_end().
 * Units:     none.
 * Errors:    -EXDEV: a result differs; the text names the operation, and the plan that it ran by.
 * Threads:   the device's.
 */
#pragma once

#include "nn/tape.h"

typedef struct TapeComparison TapeComparison;

int tape_comparison_new(Tape *tape, TapeComparison **ret, Error *err);
/* The device does nothing for it any more. */
TapeComparison *tape_comparison_free(TapeComparison *comparison);
DEFINE_CLEANUP(TapeComparison, tape_comparison_free)

/* Watches what the tape runs from now on, as run 0 or run 1, each once. */
void tape_comparison_watch(TapeComparison *comparison, int run);
void tape_comparison_end(TapeComparison *comparison);
/* After both runs: the first result of the phase that differs, in the order in which they were computed; 0: none.
 * phase: TAPE_FORWARD or TAPE_BACKWARD. */
int tape_comparison_report(const TapeComparison *comparison, TapePhase phase, Error *err);
