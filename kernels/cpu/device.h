/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - the CPU as a Device, and the checks that the operations share.
 *
 * Ownership: as kernels.h. Units: workspace in bytes. Errors: as kernels.h.
 * Threads:   as kernels.h; operations fan out over OpenMP inside.
 */
#pragma once

#include "kernels/backend.h"

typedef struct CpuLane CpuLane;

typedef struct CpuDevice {
    Device base;
    int threads;
    CpuLane *out; /* the only lane with its own thread; the other lanes are the calling thread */
} CpuDevice;

/* The functions of cpu_backend: cpu_conv_forward() and so on. */
#define CPU_OPERATION(name) __typeof__(name) cpu_##name;
KERNELS_OPERATIONS(CPU_OPERATION)
#undef CPU_OPERATION
int cpu_device_open(const DeviceOptions *options, Device **ret, Error *err);

/* The version of the bits that the operations compute on a CPU, including base/number/exactmath.c and philox.h, which
 * they use. The number grows when any bit changes: a job that began with another version cannot continue with this
 * build. tests/golden/kernels-bits.txt contains the bits, so that no change passes unnoticed. */
enum { NUMERICS_VERSION = 1 };

enum { WORKSPACE_ALIGNMENT = 64 };

/* Bytes of n floats, rounded up so that the next range of a workspace is aligned. */
static inline size_t floats_bytes(size_t n)
{
    return ROUND_UP(n * sizeof(float), (size_t)WORKSPACE_ALIGNMENT);
}

/* Returns how many threads to use for `work` elementary operations. The number never changes a bit of a result. */
static inline int device_team(const Device *device, int64_t work)
{
    const int64_t least_work = 16384;
    const int threads = ((const CpuDevice *)device)->threads;
    return work < 2 * least_work ? 1 : (int)MIN((int64_t)threads, work / least_work);
}
