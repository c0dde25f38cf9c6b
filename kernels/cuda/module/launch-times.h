/* SPDX-License-Identifier: Apache-2.0 */
/* launch-times.h - the launches that device_time_launches() times: what they are; when each ended, its owner knows.
 *
 * Ownership: a CudaTimes is its owner's, {0} at first; cuda_times_begin() with 0 releases what it has.
 * Units:     none.
 * Errors:    -ENOMEM; -ENOSPC: there were more launches than were to be timed; -EINVAL: none were.
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
    bool has_more; /* than n_max */
} CudaTimes;

/* n_max 0: nothing is timed any more. */
int cuda_times_begin(CudaTimes *times, size_t n_max, Error *err);
/* Which of the n_max + 1 moments is the end of this launch; 0, which is the beginning: it is not timed. */
size_t cuda_times_put(CudaTimes *times, const CudaWork *work);
/* Whether all launches are there. */
int cuda_times_check(const CudaTimes *times, Error *err);

#ifdef __cplusplus
}
#endif
