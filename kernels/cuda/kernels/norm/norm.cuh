/* SPDX-License-Identifier: Apache-2.0 */
/* norm.cuh - shared by GroupNorm and LayerNorm: the gradients of gamma and beta from sums in parts.
 *
 * A part has SUMS sums of each channel, parts[part][which][channel]. `which` is 0 for the plain sum (for beta), 1 for
 * the scaled sum (for gamma), and 2, where there are three, for the sum of dx.
 *
 * Ownership: none.
 * Units:     elements.
 * Errors:    a launch that fails is the device's sticky error.
 * Threads:   as kernels.h.
 */
#pragma once

#include "kernels/cuda/kernels/kernel.cuh"

/* The numbers of parts and channels. of_image, groups and size serve to find the inverse deviation that belongs to a
 * part. */
struct Parts {
    int64_t n;
    Divisor of_image;
    int c, groups;
    Divisor size; /* channels of a group */
};

template <int SUMS = 2> _device_ static inline int64_t part_at(int c, int64_t part, int which)
{
    return (part * SUMS + which) * c;
}

/* dbeta, dgamma and dsums: the sums over all parts. threadIdx.y is one of PARAMETER_LINES lines, each of which adds
 * every PARAMETER_LINES-th part. If saved is not NULL, the scaled sums are multiplied by the inverse deviation of their
 * image and group; otherwise they contain this factor already. */
enum { PARAMETER_LINES = 32, PARAMETER_COLUMNS = 8 }; /* the columns are 32 bytes of a part */

template <int SUMS>
static __global__ void norm_parameters_kernel(Parts p, const float *saved, const float *parts,
                                              float *dgamma, float *dbeta, float *dsums)
{
    __shared__ double lines[SUMS][PARAMETER_LINES][PARAMETER_COLUMNS];
    const int channel = (int)(blockIdx.x * PARAMETER_COLUMNS + threadIdx.x);
    double plain = 0, scaled = 0, made = 0;
    for (int64_t i = threadIdx.y; i < p.n && channel < p.c; i += PARAMETER_LINES) {
        const int64_t image = divide(i, p.of_image).whole;
        const int64_t group = image * p.groups + divide(channel, p.size).whole;
        const double factor = saved ? (double)saved[2 * group + 1] : 1.0;
        plain += (double)parts[part_at<SUMS>(p.c, i, 0) + channel];
        scaled += factor * (double)parts[part_at<SUMS>(p.c, i, 1) + channel];
        if constexpr (SUMS > 2)
            made += (double)parts[part_at<SUMS>(p.c, i, 2) + channel];
    }
    lines[0][threadIdx.y][threadIdx.x] = plain;
    lines[1][threadIdx.y][threadIdx.x] = scaled;
    if constexpr (SUMS > 2)
        lines[2][threadIdx.y][threadIdx.x] = made;
    __syncthreads();
    if (threadIdx.y >= SUMS || channel >= p.c)
        return;
    double sum = 0;
    for (int i = 0; i < PARAMETER_LINES; i++)
        sum += lines[threadIdx.y][i][threadIdx.x];
    (threadIdx.y == 0 ? dbeta : threadIdx.y == 1 ? dgamma : dsums)[channel] = (float)sum;
}

template <int SUMS = 2>
static inline void norm_parameters(Device *device, const Parts &p, const float *saved,
                                   const float *parts, float *dgamma, float *dbeta,
                                   float *dsums = NULL)
{
    LAUNCH(device, (unsigned)DIV_ROUND_UP(p.c, (int)PARAMETER_COLUMNS),
           dim3(PARAMETER_COLUMNS, PARAMETER_LINES), 0, norm_parameters_kernel<SUMS>, p, saved,
           parts, dgamma, dbeta, dsums);
}

/* ---- a warp for each group or row ---- */

/* Returns the number of this warp in the grid. In the last block the number may be beyond the last group or row. */
__device__ static inline int64_t warp_number(void)
{
    return (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
}

static inline unsigned blocks_of_warps(int64_t n)
{
    return (unsigned)DIV_ROUND_UP(n, (int64_t)WARPS);
}
