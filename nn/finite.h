/* SPDX-License-Identifier: Apache-2.0 */
/* finite.h - finds the first operation of a tape that leaves an infinity or a NaN.
 *
 * While a run is watched, all results of an operation are checked right after the operation, and the run ends with the
 * first operation that leaves an infinity or a NaN: all earlier results, and so the operation's inputs, were finite. If
 * a library computed the operation, the project's own kernels compute it again from the same inputs, which are still in
 * memory. This shows whether the library or the numbers are the cause.
 *
 * The host waits for each operation, at most until a deadline. On a GPU the deadline is exact; on a CPU an operation
 * that has begun runs to its end.
 *
 * Ownership: tape_finite_new() gives the caller an object. The object borrows the tape, and is the tape's observer
 *            between tape_finite_watch() and tape_finite_end(). Results of the reported operation may be overwritten.
 *            Memory that a hanging device may still use is kept until the process ends.
 * Units:     until_usec is CLOCK_MONOTONIC microseconds.
 * Errors:    tape_finite_new(): those of the device. Later errors are reported in tape_finite_text().
 */
#pragma once

#include "nn/tape.h"

enum { TAPE_FINITE_TEXT_MAX = 384 };

typedef struct TapeFinite TapeFinite;

int tape_finite_new(Tape *tape, uint64_t until_usec, TapeFinite **ret, Error *err);
TapeFinite *tape_finite_free(TapeFinite *finite);
DEFINE_CLEANUP(TapeFinite, tape_finite_free)

/* Returns the sink that must be given to the backward that is watched. The sink keeps no gradient. */
GradientSink tape_finite_sink(const TapeFinite *finite);
void tape_finite_watch(TapeFinite *finite);
void tape_finite_end(TapeFinite *finite);

/* Check memory that no operation of the tape has written: tape_finite_look() checks any memory;
 * tape_finite_look_at_weights() checks all parameters, and names the first bad parameter. Both return false if
 * tape_finite_text() now has a text, or had a text before the call. */
bool tape_finite_look(TapeFinite *finite, const char *what, DataType type, int64_t n,
                      const void *data);
bool tape_finite_look_at_weights(TapeFinite *finite, const float *weights);

/* tape_finite_loss(): device memory for the loss, which the caller computes after the watched forward.
 * tape_finite_look_at_loss() then checks the loss. */
double *tape_finite_loss(TapeFinite *finite);
bool tape_finite_look_at_loss(TapeFinite *finite);

/* Returns a text that names the first result or tensor that is not finite, or says why the check failed; "": everything
 * that was checked is finite. */
const char *tape_finite_text(const TapeFinite *finite);
/* Returns whether the device still computed when the time was over: then it may still use memory, which is kept. */
bool tape_finite_hangs(const TapeFinite *finite);
