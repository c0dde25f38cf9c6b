/* SPDX-License-Identifier: Apache-2.0 */
/* gradient-sum.h - sums the grains' gradients over all ranks, as integers (or plain floats).
 *
 * A grain's gradients reach the sum through the grain's sink. With ZeRO 0 and 1 the sink adds them as they are
 * computed, and the sum is reduced once. With ZeRO 2 the sink stores them plainly, and each grain is reduced, bucket by
 * bucket, into the shard.
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

/* How many bytes ZeRO 2 reduces at once, or one chunk per rank if that is more; tests lower it before they make a
 * sum. */
extern size_t gradient_sum_bucket_bytes;

int gradient_sum_new(TrainState *state, DeviceComm *dc, Reduction reduction, int64_t n_grains,
                     GradientSum **ret, Error *err);
GradientSum *gradient_sum_free(GradientSum *sum);
DEFINE_CLEANUP(GradientSum, gradient_sum_free)

/* Empties the sum. exponents NULL: this pass finds only maxima, and no gradients are summed or sent. */
void gradient_sum_begin(GradientSum *sum, const int32_t *exponents);
/* Returns the sink of the next grain, which also raises `maxima`; valid until the grain is added. */
void gradient_sum_sink(GradientSum *sum, uint32_t *maxima, GradientSink *ret);
/* Adds a grain after its backward; maxima: as for gradient_sum_sink(). has_grain false: this rank has no grain left,
 * but other ranks have. */
int gradient_sum_add(GradientSum *sum, bool has_grain, uint32_t *maxima, Error *err);
/* Begins the reduction, a collective, after each rank's last grain; not in a pass that finds only maxima. */
void gradient_sum_begin_reduce(GradientSum *sum);
/* Finishes the reduction. Call it before the sums are read. */
int gradient_sum_finish_reduce(GradientSum *sum, Error *err);
/* After gradient_sum_finish_reduce(): returns sums that represent the mean gradient or, with REDUCTION_FLOAT, the sum
 * over the grains. Valid until gradient_sum_begin(). */
GradientSums gradient_sum_reduced(const GradientSum *sum);
/* Returns the plan for the squares and the update of the reduced gradient. */
StatePlan *gradient_sum_plan(GradientSum *sum);
