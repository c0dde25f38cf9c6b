/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - a GPU as a Device: its streams, and the first error of any of its calls.
 *
 * Ownership: as kernels.h. Units: as kernels.h.
 * Errors:    the first failing call of the runtime is kept, with its name, its purpose, and the work that came after
 *            the last reached fence. Every later call that can fail then fails with this error, because a broken
 *            context never works again. errors.h defines the errno.
 * Threads:   as kernels.h; the CUDA device is made current in each calling thread.
 */
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/module/compute.h"
#include "kernels/cuda/module/launch-times.h"
#include "kernels/cuda/module/trace.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

/* The events that the fences of a lane share. An older fence counts as reached when the fence that reuses its event is
 * reached. */
enum { EVENTS = 256 };

typedef struct CudaLane {
    cudaStream_t stream;
    cudaEvent_t events[EVENTS];
    uint64_t serial;         /* the serial of the newest fence */
    uint64_t places[EVENTS]; /* the place of each fence among the launches of LANE_COMPUTE */
} CudaLane;

typedef struct CudaDevice {
    Device base;
    int ordinal; /* the runtime's number of the GPU */
    struct cudaDeviceProp properties;
    CudaLane lanes[N_LANES];
    pthread_mutex_t lock; /* guards the lanes' serials and `failure` */
    Error failure;        /* code 0: no failure */
    CudaTrace trace;
    CudaTimes times;
    cudaEvent_t *moments; /* times.n_max + 1 events; NULL: nothing is timed */
    bool waits; /* the host waits for each kernel, so that a report names the failing kernel */
    CudaCompute *compute;
    cudaEvent_t marks[2]; /* the events of cuda_clock_mark(); NULL until first used */
} CudaDevice;

/* Keeps the failure if `code` is the device's first one. Returns true if the device has had no failure so far. */
bool cuda_check(CudaDevice *device, cudaError_t code, const char *what);
/* Makes the GPU current in the calling thread. */
void cuda_enter(CudaDevice *device);
/* Returns the runtime's result for one of the module's kernels, which shows whether the current GPU can run it. */
cudaError_t cuda_one_kernel(void);
