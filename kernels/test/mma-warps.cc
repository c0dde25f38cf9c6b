/* SPDX-License-Identifier: Apache-2.0 */
/* mma-warps.cc - see testing-mma.h. */
#include "kernels/test/testing-mma.h"

#include "kernels/cuda/kernels/mma.cuh"
#include "kernels/test/emulator/emulated.h"

#include <cstdio>
#include <cstdlib>

static Device *open_device(uint64_t seed)
{
    const DeviceOptions options = {DEVICE_CUDA, 0, 1, DATA_BF16, nullptr, false, 0, false};
    Device *device = nullptr;
    Error err = {};
    if (emulated_device_open(&options, &device, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        abort();
    }
    emulated_device_seed(seed);
    return device;
}

/* ---- one instruction ---- */

/* The fragments according to "Matrix Fragments for mma.m16n8k16" of the PTX manual: the places of a lane's elements a0
 * to a7, b0 to b3, c0 to c3. */
static void fragments_kernel(MmaMatrices *m)
{
    const int group = (int)threadIdx.x >> 2, thread_in_group = (int)threadIdx.x % 4;
    uint16_t a[8], b[4];
    MmaA words_of_a;
    MmaB words_of_b;
    MmaSums sums;
    for (int i = 0; i < 8; i++) {
        const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
        const int column = thread_in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
        a[i] = m->a[row][column];
    }
    for (int i = 0; i < 4; i++)
        b[i] = m->b[thread_in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0)][group];
    for (int i = 0; i < 4; i++)
        sums.at[i] = m->sums[i < 2 ? group : group + 8][thread_in_group * 2 + (i & 1)];
    for (int i = 0; i < 4; i++)
        words_of_a.at[i] = (uint32_t)a[2 * i + 1] << 16 | a[2 * i];
    for (int i = 0; i < 2; i++)
        words_of_b.at[i] = (uint32_t)b[2 * i + 1] << 16 | b[2 * i];
    warp_mma(words_of_a, words_of_b, &sums);
    for (int i = 0; i < 4; i++)
        m->sums[i < 2 ? group : group + 8][thread_in_group * 2 + (i & 1)] = sums.at[i];
}

extern "C" void mma_run(uint64_t seed, MmaMatrices *m)
{
    Device *device = open_device(seed);
    LAUNCH(device, 1, 32, 0, fragments_kernel, m);
    (void)device_free(device);
}

/* ---- loads ---- */

enum { STRIDE = 24 };

static void store(const MmaSums &left, const MmaSums &right, float to[MMA_ROWS][MMA_ROWS])
{
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
        to[g + i / 2 * 8][2 * t + i % 2] = left.at[i];
        to[g + i / 2 * 8][8 + 2 * t + i % 2] = right.at[i];
    }
}

static void tiles_kernel(MmaTiles *m)
{
    SHARED_ARRAY(Bf16, shared);
    Bf16 *a = shared, *b = shared + MMA_ROWS * STRIDE;
    for (int i = (int)threadIdx.x; i < MMA_ROWS * MMA_DEPTH; i += (int)blockDim.x) {
        const int row = i / MMA_DEPTH, column = i % MMA_DEPTH;
        a[m->a_turned ? column * STRIDE + row : row * STRIDE + column].bits = m->a[row][column];
        b[m->b_turned ? row * STRIDE + column : column * STRIDE + row].bits = m->b[row][column];
    }
    __syncthreads();
    const MmaA first = m->a_turned ? load_a_turned(a, STRIDE) : load_a(a, STRIDE);
    const MmaPair second = m->b_turned ? load_b_turned(b, STRIDE) : load_b(b, STRIDE);
    MmaSums once[2] = {}, twice[2] = {};
    warp_mma(first, second.left, &once[0]);
    warp_mma(first, second.right, &once[1]);
    const MmaA third = words_of_a(once[0], once[1]);
    warp_mma(third, second.left, &twice[0]);
    warp_mma(third, second.right, &twice[1]);
    store(once[0], once[1], m->once[threadIdx.x / 32]);
    store(twice[0], twice[1], m->twice[threadIdx.x / 32]);
}

extern "C" void mma_run_tiles(uint64_t seed, MmaTiles *t)
{
    Device *device = open_device(seed);
    LAUNCH(device, 1, 32 * MMA_WARPS, 2 * MMA_ROWS * STRIDE * sizeof(Bf16), tiles_kernel, t);
    (void)device_free(device);
}
