/* SPDX-License-Identifier: Apache-2.0 */
/* gradient-sum.h - sums the grains' gradients over all ranks, as integers (or plain floats).
 *
 * ZeRO 0 and 1 sum a rank's grains whole and reduce once; ZeRO 2 reduces each grain, bucket by
 * bucket, into the shard.
 *
 * Ownership: gradient_sum_new() gives the caller a GradientSum; borrows TrainState, DeviceComm.
 * Units:     gradients are flat fp32; maxima are bit patterns of |g|, one for each tensor.
 * Errors:    those of comm.h; -ENOMEM, -ENOTSUP.
 * Threads:   the training thread.
 */
#pragma once

#include "protocol/job.h"
#include "trainer/state/device-comm.h"
#include "trainer/state/train-state.h"

typedef struct GradientSum GradientSum;

int gradient_sum_new(TrainState *state, DeviceComm *dc, Reduction reduction, int64_t n_grains,
                     GradientSum **ret, Error *err);
GradientSum *gradient_sum_free(GradientSum *sum);
DEFINE_CLEANUP(GradientSum, gradient_sum_free)

/* Empties the sum. exponents [tensors] are borrowed until the next call; NULL: only maxima are
 * computed, and no gradients are summed or sent. */
void gradient_sum_begin(GradientSum *sum, const int *exponents);
/* maxima: device memory; each becomes the larger of itself and the grain's. gradients NULL: this rank
 * has no grain left while others have. */
int gradient_sum_add(GradientSum *sum, const float *gradients, uint32_t *maxima, Error *err);
/* Collective, after each rank's last grain; not in a pass that finds maxima alone. */
void gradient_sum_begin_reduce(GradientSum *sum);
/* Before the sums are read. */
int gradient_sum_finish_reduce(GradientSum *sum, Error *err);
/* After gradient_sum_finish_reduce(): the mean gradient of a chunk whose optimizer state this rank keeps;
 * with REDUCTION_FLOAT the sum over the grains. Device memory, valid until the next call. */
float *gradient_sum_chunk(const GradientSum *sum, int64_t chunk);
