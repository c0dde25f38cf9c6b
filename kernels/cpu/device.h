/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - the CPU as a Device, and the checks that the operations share.
 *
 * Ownership: as kernels.h.
 * Units:     workspace in bytes.
 * Errors:    as kernels.h.
 * Threads:   as kernels.h; operations fan out over OpenMP inside.
 */
#pragma once

#include "kernels/backend.h"

typedef struct CpuLane CpuLane;

typedef struct CpuDevice {
    Device base;
    int threads;
    CpuLane *out; /* the lane that has a thread; the others are the calling thread itself */
} CpuDevice;

/* The functions of cpu_backend: cpu_conv_forward() and so on. */
#define CPU_OPERATION(name) __typeof__(name) cpu_##name;
KERNELS_OPERATIONS(CPU_OPERATION)
#undef CPU_OPERATION
int cpu_device_open(const DeviceOptions *options, Device **ret, Error *err);

/* The version of the bits that the operations give on a CPU, with base/number/exactmath.c and philox.h below them. It
 * grows when any bit changes: a job that began with other bits does not go on here.
 * tests/golden/kernels-bits.txt holds the bits, so that no change passes unnoticed. */
enum { NUMERICS_VERSION = 1 };

enum { WORKSPACE_ALIGNMENT = 64 };

/* Bytes of n floats, rounded up so that the next range of a workspace is aligned. */
static inline size_t floats_bytes(size_t n)
{
    return ROUND_UP(n * sizeof(float), (size_t)WORKSPACE_ALIGNMENT);
}

/* How many threads are worth waking for `work` elementary operations. It never changes a bit. */
static inline int device_team(const Device *device, int64_t work)
{
    const int64_t least_work = 16384;
    const int threads = ((const CpuDevice *)device)->threads;
    return work < 2 * least_work ? 1 : (int)MIN((int64_t)threads, work / least_work);
}
