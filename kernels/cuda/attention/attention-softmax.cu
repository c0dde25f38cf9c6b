/* SPDX-License-Identifier: Apache-2.0 */
/* attention-softmax.cu - see attention-unfused.h. A block of THREADS threads computes a row. It reads the row once for
 * the maximum, once for the sum, and once for the result; rows stay in the caches. */
#include "kernels/cuda/attention/attention-unfused.h"
#include "kernels/cuda/kernels/kernel.cuh"

#include <math.h>

__device__ static inline float block_max(float x, float *part)
{
    for (int mask = 16; mask > 0; mask /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, mask));
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        x = fmaxf(x, part[i]);
    return x;
}

__global__ void attention_softmax_kernel(int64_t keys, float scale, const float *scores, Bf16 *to)
{
    __shared__ float part[WARPS];
    const float *row = scores + blockIdx.x * keys;
    float most = -INFINITY, sum = 0;
    for (int64_t i = threadIdx.x; i < keys; i += THREADS)
        most = fmaxf(most, row[i]);
    most = block_max(most, part);
    for (int64_t i = threadIdx.x; i < keys; i += THREADS)
        sum += vector_exp(scale * (row[i] - most));
    const float inverse = 1.0f / block_sum(sum, part);
    for (int64_t i = threadIdx.x; i < keys; i += THREADS)
        to[blockIdx.x * keys + i] = narrow<Bf16>(vector_exp(scale * (row[i] - most)) * inverse);
}

void cuda_attention_softmax(Device *device, int64_t rows, int64_t keys, float scale,
                            const float *scores, void *probabilities)
{
    LAUNCH(device, (unsigned)rows, THREADS, 0, attention_softmax_kernel, keys, scale, scores,
           (Bf16 *)probabilities);
}
