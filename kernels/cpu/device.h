/* device.h - the CPU as a Device, and the checks that the operations share.
 *
 * Ownership: as kernels.h.
 * Units:     workspace in bytes.
 * Errors:    as kernels.h.
 * Threads:   one thread drives a Device; operations fan out over OpenMP inside.
 */
#pragma once

#include "kernels/kernels.h"

struct Device {
    int threads;
};

/* The bits that the CPU gives, and base/exactmath.c with base/philox.h under them. It grows when any of
 * them changes: jobs that began with other bits do not go on here. tests/golden/kernels-bits.txt holds
 * them, so that a change cannot pass unnoticed. */
enum { NUMERICS_VERSION = 1 };

enum { WORKSPACE_ALIGNMENT = 64 };

/* Bytes of n floats, rounded up so that what follows in a workspace stays aligned. */
static inline size_t floats_bytes(size_t n)
{
    return ROUND_UP(n * sizeof(float), (size_t)WORKSPACE_ALIGNMENT);
}

/* Threads worth waking for so many elementary operations. The number never changes a bit. */
static inline int device_team(const Device *device, int64_t work)
{
    const int64_t least_work = 16384;
    return work < 2 * least_work ? 1 : (int)MIN((int64_t)device->threads, work / least_work);
}
