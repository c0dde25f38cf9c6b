/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.cuh - what the kernels of this folder share: element types, sums by a fixed tree, launches.
 *
 * The same sources are compiled by nvcc, for a GPU, and by a host compiler, for the emulator (emulate.h). Their
 * bits are equal: every operation of fp32 and fp64 is IEEE's, contraction is off, elementary functions are
 * vectormath.h's and exactmath.c's, and no result depends on which thread comes first.
 *
 * Ownership: none.
 * Units:     elements.
 * Errors:    a launch that fails is the device's sticky error.
 * Threads:   as kernels.h.
 */
#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/vectormath.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include "kernels/cuda/emulate.h"
#endif

/* ---- element types ---- */

struct Bf16 {
    uint16_t bits;
};

_device_ static inline float widen(float x) { return x; }

_device_ static inline float widen(Bf16 x) { return float_from_bits((uint32_t)x.bits << 16); }

/* Rounds half to even; a NaN stays one. */
template <typename T> _device_ static inline T narrow(float x);

template <> _device_ inline float narrow<float>(float x) { return x; }

template <> _device_ inline Bf16 narrow<Bf16>(float x)
{
    const uint32_t bits = float_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return Bf16{(uint16_t)(bits >> 16 | 0x40u)};
    return Bf16{(uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

/* ---- sums over a block ---- */

enum { THREADS = 256, WARPS = THREADS / 32 };

template <typename T> __device__ static inline T warp_sum(T x)
{
    for (int mask = 16; mask > 0; mask /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, mask);
    return x;
}

/* The sum over THREADS threads, which all get: within each warp first, then over the warps in their order.
 * part: shared, of WARPS elements; its next use comes after a barrier. */
template <typename T> __device__ static inline T block_sum(T x, T *part)
{
    x = warp_sum(x);
    __syncthreads(); /* who reads part still from the sum before */
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    T sum = part[0];
    for (int i = 1; i < WARPS; i++)
        sum += part[i];
    return sum;
}

/* ---- launches ---- */

/* Runs kernel(...) on the device's LANE_COMPUTE. */
#ifdef __CUDACC__
extern "C" cudaStream_t cuda_compute_stream(const Device *device); /* makes the GPU current */
#define LAUNCH(device, grid, block, shared_bytes, kernel, ...)                                     \
    kernel<<<grid, block, shared_bytes, cuda_compute_stream(device)>>>(__VA_ARGS__)
#else
#define LAUNCH(device, grid, block, shared_bytes, kernel, ...)                                     \
    ((void)(device), emulate::launch(grid, block, shared_bytes, [=] { kernel(__VA_ARGS__); }))
#endif

/* Runs `body` with T as the device's type of activations. */
#define WITH_TYPE(device, body)                                                                    \
    do {                                                                                           \
        if ((device)->type == DATA_BF16) {                                                         \
            typedef Bf16 T;                                                                        \
            body;                                                                                  \
        } else {                                                                                   \
            typedef float T;                                                                       \
            body;                                                                                  \
        }                                                                                          \
    } while (0)

/* Blocks of THREADS for n elements; at most GRID_MAX, whose threads take several each. The emulator's threads are
 * dear. */
#ifdef __CUDACC__
enum { GRID_MAX = 1 << 16 };
#else
enum { GRID_MAX = 8 };
#endif

static inline unsigned blocks_for(int64_t n)
{
    return (unsigned)CLAMP(DIV_ROUND_UP(n, (int64_t)THREADS), (int64_t)1, (int64_t)GRID_MAX);
}

/* The elements of a thread: for (int64_t i : ...) of n, strided by the whole grid. */
#define FOR_ELEMENTS(i, n)                                                                         \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                      \
         i += (int64_t)gridDim.x * blockDim.x)
