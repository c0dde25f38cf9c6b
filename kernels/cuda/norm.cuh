/* SPDX-License-Identifier: Apache-2.0 */
/* norm.cuh - what GroupNorm and LayerNorm share: the gradients of gamma and beta from sums in parts.
 *
 * A part has two sums of each channel, parts[part][which][channel]: 0 the plain one, for beta, 1 the scaled one, for
 * gamma.
 *
 * Ownership: none.
 * Units:     elements.
 * Errors:    a launch that fails is the device's sticky error.
 * Threads:   as kernels.h.
 */
#pragma once

#include "kernels/cuda/kernel.cuh"

/* Which channels and parts there are. of_image, groups, size: what a part's inverse deviation is found by. */
struct Parts {
    int64_t n;
    Divisor of_image;
    int c, groups;
    Divisor size; /* channels of a group */
};

_device_ static inline int64_t part_at(int c, int64_t part, int which)
{
    return (part * 2 + which) * c;
}

/* dbeta and dgamma: the sums over all parts. A thread's y is one of PARAMETER_LINES, which take every
 * PARAMETER_LINES-th part each. saved: the scaled sums are multiplied by the inverse deviation of their image and group;
 * NULL: they have it. */
enum { PARAMETER_LINES = 32, PARAMETER_COLUMNS = 8 }; /* 32 bytes of a part */

static __global__ void norm_parameters_kernel(Parts p, const float *saved, const float *parts,
                                              float *dgamma, float *dbeta)
{
    __shared__ double lines[2][PARAMETER_LINES][PARAMETER_COLUMNS];
    const int channel = (int)(blockIdx.x * PARAMETER_COLUMNS + threadIdx.x);
    double plain = 0, scaled = 0;
    for (int64_t i = threadIdx.y; i < p.n && channel < p.c; i += PARAMETER_LINES) {
        const int64_t image = divide(i, p.of_image).whole;
        const int64_t group = image * p.groups + divide(channel, p.size).whole;
        const double factor = saved ? (double)saved[2 * group + 1] : 1.0;
        plain += (double)parts[part_at(p.c, i, 0) + channel];
        scaled += factor * (double)parts[part_at(p.c, i, 1) + channel];
    }
    lines[0][threadIdx.y][threadIdx.x] = plain;
    lines[1][threadIdx.y][threadIdx.x] = scaled;
    __syncthreads();
    if (threadIdx.y >= 2 || channel >= p.c)
        return;
    double sum = 0;
    for (int i = 0; i < PARAMETER_LINES; i++)
        sum += lines[threadIdx.y][i][threadIdx.x];
    (threadIdx.y == 0 ? dbeta : dgamma)[channel] = (float)sum;
}

static inline void norm_parameters(Device *device, const Parts &p, const float *saved,
                                   const float *parts, float *dgamma, float *dbeta)
{
    LAUNCH(device, (unsigned)DIV_ROUND_UP(p.c, (int)PARAMETER_COLUMNS),
           dim3(PARAMETER_COLUMNS, PARAMETER_LINES), 0, norm_parameters_kernel, p, saved, parts,
           dgamma, dbeta);
}

/* ---- a warp for each group or row ---- */

/* Beyond the last for some warps of the last block. */
__device__ static inline int64_t warp_number(void)
{
    return (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
}

static inline unsigned blocks_of_warps(int64_t n)
{
    return (unsigned)DIV_ROUND_UP(n, (int64_t)WARPS);
}
