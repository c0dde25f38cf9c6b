/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - a GPU as a Device: its streams, and the first error that one of its calls met.
 *
 * Ownership: as kernels.h.
 * Units:     as kernels.h.
 * Errors:    the first failing call of the runtime is kept, with its name, what it was for, and what came after the
 *            last fence that was reached; everything that can fail from then on fails with it, since a broken
 *            context never works again. errors.h makes the errno.
 * Threads:   as kernels.h; the CUDA device is made current in each thread that calls.
 */
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/module/compute.h"
#include "kernels/cuda/module/launch-times.h"
#include "kernels/cuda/module/trace.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

enum {
    EVENTS = 256
}; /* of a lane: older fences are reached when the one that took their place is */

typedef struct CudaLane {
    cudaStream_t stream;
    cudaEvent_t events[EVENTS];
    uint64_t serial;         /* of the newest fence */
    uint64_t places[EVENTS]; /* of each fence among the kernels of LANE_COMPUTE */
} CudaLane;

typedef struct CudaDevice {
    Device base;
    int ordinal; /* the runtime's number of the GPU */
    struct cudaDeviceProp properties;
    CudaLane lanes[N_LANES];
    pthread_mutex_t lock; /* of lanes' serials and of failure */
    Error failure;        /* code 0: none */
    CudaTrace trace;
    CudaTimes times;
    cudaEvent_t *moments; /* times.n_max + 1 of them; NULL: nothing is timed */
    bool waits;           /* for each kernel, so that a failure is told of the one that failed */
    CudaCompute *compute;
    cudaEvent_t marks[2]; /* cuda_clock_mark(); NULL until they are used */
} CudaDevice;

/* Keeps the failure, if it is one and the first; returns whether all is well so far. */
bool cuda_check(CudaDevice *device, cudaError_t code, const char *what);
/* Makes the GPU current in the calling thread. */
void cuda_enter(CudaDevice *device);
/* Returns the runtime's result for one of the module's kernels: whether the current GPU can run it. */
cudaError_t cuda_one_kernel(void);
