/* SPDX-License-Identifier: Apache-2.0 */
/* diffusion.cu - the noise, the noised sample and its target, the loss, the time embedding. */
#include "kernels/cuda/kernels/kernel.cuh"
#include "kernels/cuda/kernels/operations.h"

#include "base/number/philox.h"

#define EXACT_FUNCTION __device__ static inline
#include "base/number/exactmath.c"

enum { DRAWS = 4 }; /* normal draws of one Philox block */

__global__ void normal_noise_kernel(uint64_t key, int64_t n, int64_t n_each,
                                    const int64_t *positions, float *noise)
{
    const int64_t blocks = DIV_ROUND_UP(n_each, (int64_t)DRAWS);
    FOR_ELEMENTS(i, n * blocks)
    {
        const int64_t sample = i / blocks, block = i % blocks, first = block * DRAWS;
        const Philox p = philox4x32(key, (uint64_t)positions[sample], (uint64_t)block);
        float draw[DRAWS];
        exact_normal_pair(p.word[0], p.word[1], draw);
        exact_normal_pair(p.word[2], p.word[3], draw + 2);
        float *to = noise + sample * n_each + first;
        for (int k = 0; k < DRAWS; k++)
            if (first + k < n_each)
                to[k] = draw[k];
    }
}

void cuda_normal_noise(Device *device, uint64_t key, int n, int64_t n_each,
                       const int64_t *positions, float *noise)
{
    LAUNCH(device, blocks_for(n * DIV_ROUND_UP(n_each, (int64_t)DRAWS)), THREADS, 0,
           normal_noise_kernel, key, n, n_each, positions, noise);
}

__global__ void diffuse_kernel(int64_t n, int64_t n_each, const float *x0, const float *noise,
                               const int32_t *timesteps, const float *a, const float *b,
                               bool v_prediction, float *x_t, float *target)
{
    FOR_ELEMENTS(i, n * n_each)
    {
        const int32_t t = timesteps[i / n_each];
        const float signal = a[t], spread = b[t], clean = x0[i], random = noise[i];
        x_t[i] = signal * clean + spread * random;
        target[i] = v_prediction ? signal * random - spread * clean : random;
    }
}

void cuda_diffuse(Device *device, int n, int64_t n_each, const float *x0, const float *noise,
                  const int32_t *timesteps, const float *a, const float *b, bool v_prediction,
                  float *x_t, float *target)
{
    LAUNCH(device, blocks_for(n * n_each), THREADS, 0, diffuse_kernel, n, n_each, x0, noise,
           timesteps, a, b, v_prediction, x_t, target);
}

enum { LOSS_ELEMENTS = 16 * THREADS }; /* elements of one block */

template <typename T>
__global__ void loss_kernel(int64_t n, const T *prediction, const float *target, float factor,
                            T *dprediction, double *parts)
{
    __shared__ double part[WARPS];
    const int64_t first = (int64_t)blockIdx.x * LOSS_ELEMENTS;
    double sum = 0;
    for (int64_t i = first + threadIdx.x; i < MIN(first + LOSS_ELEMENTS, n); i += THREADS) {
        const float d = widen(prediction[i]) - target[i];
        dprediction[i] = narrow<T>(factor * d);
        sum += (double)d * (double)d;
    }
    sum = block_sum(sum, part);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

__global__ void loss_sum_kernel(int64_t n, int64_t n_parts, const double *parts, double *loss)
{
    __shared__ double part[WARPS];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n_parts; i += THREADS)
        sum += parts[i];
    sum = block_sum(sum, part);
    if (threadIdx.x == 0)
        *loss = sum / (double)n;
}

size_t cuda_mse_loss_workspace_bytes(const Device *device, int64_t n)
{
    (void)device;
    return (size_t)DIV_ROUND_UP(n, (int64_t)LOSS_ELEMENTS) * sizeof(double);
}

void cuda_mse_loss(Device *device, int64_t n, const void *prediction, const float *target,
                   float scale, double *loss, void *dprediction, void *workspace)
{
    const int64_t parts = DIV_ROUND_UP(n, (int64_t)LOSS_ELEMENTS);
    const float factor = (float)((double)scale * 2.0 / (double)n);
    WITH_TYPE(device,
              LAUNCH(device, (unsigned)parts, THREADS, 0, loss_kernel<T>, n, (const T *)prediction,
                     target, factor, (T *)dprediction, (double *)workspace));
    LAUNCH(device, 1, THREADS, 0, loss_sum_kernel, n, parts, (const double *)workspace, loss);
}

template <typename T>
__global__ void time_embedding_kernel(int64_t n, int c, bool flip_sin_to_cos, double freq_shift,
                                      const int32_t *timesteps, T *y)
{
    const int half = c / 2;
    const float log_period = (float)-9.210340371976184; /* -ln 10000 */
    FOR_ELEMENTS(at, n * c)
    {
        const int64_t sample = at / c;
        const int j = (int)(at % c);
        if (j >= 2 * half) {
            y[at] = narrow<T>(0.0f);
            continue;
        }
        const int i = j % half;
        const float exponent = log_period * (float)i / (float)((double)half - freq_shift);
        const float angle = (float)timesteps[sample] * (float)exact_exp((double)exponent);
        const bool cosine = (j < half) == flip_sin_to_cos;
        y[at] = narrow<T>((float)(cosine ? exact_cos((double)angle) : exact_sin((double)angle)));
    }
}

void cuda_time_embedding(Device *device, int n, int c, bool flip_sin_to_cos, double freq_shift,
                         const int32_t *timesteps, void *y)
{
    WITH_TYPE(device,
              LAUNCH(device, blocks_for((int64_t)n * c), THREADS, 0, time_embedding_kernel<T>, n, c,
                     flip_sin_to_cos, freq_shift, timesteps, (T *)y));
}
