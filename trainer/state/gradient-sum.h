/* SPDX-License-Identifier: Apache-2.0 */
/* gradient-sum.h - sums the grains' gradients over all ranks, as integers (or plain floats).
 *
 * A grain's gradients reach the sum through its sink. ZeRO 0 and 1 have them added as they are computed, and
 * reduce once; ZeRO 2 has them plain, and reduces each grain, bucket by bucket, into the shard.
 *
 * Ownership: gradient_sum_new() gives the caller a GradientSum; borrows TrainState, DeviceComm. Exponents and
 *            maxima are borrowed device memory.
 * Units:     maxima are bit patterns of |g|; maxima and exponents are one for each tensor.
 * Errors:    those of comm.h; -ENOMEM, -ENOTSUP.
 * Threads:   the training thread.
 */
#pragma once

#include "protocol/job.h"
#include "trainer/state/device-comm.h"
#include "trainer/state/train-state.h"

typedef struct GradientSum GradientSum;

/* The bytes that ZeRO 2 reduces at once, or one chunk a rank if that is more; tests lower it before they make a sum. */
extern size_t gradient_sum_bucket_bytes;

int gradient_sum_new(TrainState *state, DeviceComm *dc, Reduction reduction, int64_t n_grains,
                     GradientSum **ret, Error *err);
GradientSum *gradient_sum_free(GradientSum *sum);
DEFINE_CLEANUP(GradientSum, gradient_sum_free)

/* Empties the sum. exponents NULL: this pass finds only maxima, and no gradients are summed or sent. */
void gradient_sum_begin(GradientSum *sum, const int32_t *exponents);
/* Returns the sink of the next grain, which raises its maxima; valid until the grain is added. */
void gradient_sum_sink(GradientSum *sum, uint32_t *maxima, GradientSink *ret);
/* Adds a grain after its backward; maxima as before. has_grain false: this rank has no grain left while others
 * have. */
int gradient_sum_add(GradientSum *sum, bool has_grain, uint32_t *maxima, Error *err);
/* Collective, after each rank's last grain; not in a pass that finds only maxima. */
void gradient_sum_begin_reduce(GradientSum *sum);
/* To be called before the sums are read. */
int gradient_sum_finish_reduce(GradientSum *sum, Error *err);
/* After gradient_sum_finish_reduce(): returns sums that stand for the mean gradient; with REDUCTION_FLOAT for the sum
 * over the grains. Valid until gradient_sum_begin(). */
GradientSums gradient_sum_reduced(const GradientSum *sum);
/* Returns the plan for the squares and the update of the reduced gradient. */
StatePlan *gradient_sum_plan(GradientSum *sum);
