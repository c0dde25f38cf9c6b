/* SPDX-License-Identifier: Apache-2.0 */
/* comparison.h - two runs of a tape with the same inputs, compared result by result.
 *
 * Equal inputs must give equal bits. Where they do not, the first operation whose result differs is the cause; all
 * later results differ because of it. While a run is watched, the device computes a fingerprint of each result of an
 * operation right after the operation: activations, their gradients, the gradients of parameters.
 *
 * Ownership: tape_comparison_new() gives the caller an object. The object borrows the tape, and is the tape's observer
 *            between tape_comparison_watch() and tape_comparison_end().
 * Units:     none.
 * Errors:    -EXDEV: a result differs; the text names the operation and the library plan that computed the result.
 */
#pragma once

#include "nn/tape.h"

typedef struct TapeComparison TapeComparison;

int tape_comparison_new(Tape *tape, TapeComparison **ret, Error *err);
/* The device must have finished all work of the comparison. */
TapeComparison *tape_comparison_free(TapeComparison *comparison);
DEFINE_CLEANUP(TapeComparison, tape_comparison_free)

/* Watches the tape from now on, as run 0 or run 1. Each number is used once. */
void tape_comparison_watch(TapeComparison *comparison, int run);
void tape_comparison_end(TapeComparison *comparison);
/* Call it after both runs. Returns -EXDEV if a result of the phase differs between the runs; the error names the first
 * such result, in the order of computation. Otherwise returns 0. phase: TAPE_FORWARD or TAPE_BACKWARD. */
int tape_comparison_report(const TapeComparison *comparison, TapePhase phase, Error *err);
