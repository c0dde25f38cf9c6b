/* SPDX-License-Identifier: Apache-2.0 */
/* launch-times.h - the descriptions of the launches that device_time_launches() times. The owner records when each
 * launch ended.
 *
 * Ownership: a CudaTimes is its owner's, {0} at first; cuda_times_begin() with 0 releases its memory.
 * Errors:    -ENOMEM; -ENOSPC: there were more launches than were to be timed; -EINVAL: no launch was timed.
 * Threads:   LANE_COMPUTE's.
 */
#pragma once

#include "kernels/cuda/module/compute.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CudaTimes {
    DeviceLaunch *launches; /* NULL: nothing is timed */
    size_t n, n_max;
    bool has_more; /* there were more than n_max launches */
} CudaTimes;

/* Starts to record up to n_max launches; with n_max 0 stops. */
int cuda_times_begin(CudaTimes *times, size_t n_max, Error *err);
/* Returns the index, among the n_max + 1 moments, of the end of this launch. If the launch is not timed, returns 0,
 * the index of the beginning. */
size_t cuda_times_put(CudaTimes *times, const CudaWork *work);
/* Checks that all launches were recorded. */
int cuda_times_check(const CudaTimes *times, Error *err);

#ifdef __cplusplus
}
#endif
