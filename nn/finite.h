/* SPDX-License-Identifier: Apache-2.0 */
/* finite.h - which operation of a tape is the first to leave something that is not finite.
 *
 * While a run is watched, all that an operation leaves is looked at right behind it, and the run ends with the first
 * operation that leaves an infinity or a NaN: everything before it was finite, and so were its inputs. Where a library
 * computed it, our own kernels compute the same operation from the same inputs, which still lie there, so that it
 * shows whether the library or the numbers are to blame.
 *
 * The host waits behind each operation, never beyond a deadline: that of a GPU is exact, on a CPU an operation that
 * has begun ends first.
 *
 * Ownership: tape_finite_new() gives the caller an object; it borrows the tape, whose observer it is between
 *            tape_finite_watch() and tape_finite_end(). Results of the operation that is found may be overwritten.
 *            Memory that a hanging device may still use is kept until the process ends.
 * Units:     until_usec is CLOCK_MONOTONIC microseconds.
 * Errors:    tape_finite_new(): those of the device. Later ones become the text.
 * Threads:   the device's.
 */
#pragma once

#include "nn/tape.h"

enum { TAPE_FINITE_TEXT_MAX = 384 };

typedef struct TapeFinite TapeFinite;

int tape_finite_new(Tape *tape, uint64_t until_usec, TapeFinite **ret, Error *err);
TapeFinite *tape_finite_free(TapeFinite *finite);
DEFINE_CLEANUP(TapeFinite, tape_finite_free)

/* For the backward that is watched: it keeps no gradient. */
GradientSink tape_finite_sink(const TapeFinite *finite);
void tape_finite_watch(TapeFinite *finite);
void tape_finite_end(TapeFinite *finite);

/* Looks at what no operation of the tape leaves; and at all parameters, of which the first bad one is named. false:
 * there is a text now, or was before. */
bool tape_finite_look(TapeFinite *finite, const char *what, DataType type, int64_t n,
                      const void *data);
bool tape_finite_look_at_weights(TapeFinite *finite, const float *weights);

/* Device memory for the loss, which lies behind the forward that is watched; and what was left there. */
double *tape_finite_loss(TapeFinite *finite);
bool tape_finite_look_at_loss(TapeFinite *finite);

/* Returns which result or tensor is the first that is not finite, or why nobody knows; "": all that was looked at is
 * finite. */
const char *tape_finite_text(const TapeFinite *finite);
