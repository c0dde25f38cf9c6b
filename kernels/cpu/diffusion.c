/* SPDX-License-Identifier: Apache-2.0 */
/* diffusion.c - the noise, the noised sample and its target, the loss, the time embedding. */
#include "base/number/exactmath.h"
#include "base/number/philox.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/vectormath.h"
#include "kernels/kernels.h"

enum {
    DRAWS = 4,        /* normal draws of one Philox block */
    NOISE_WORK = 64,  /* the cost of a normal draw, in additions */
    LOSS_CHUNK = 4096 /* elements of one partial loss */
};

void cpu_normal_noise(Device *device, uint64_t key, int n, int64_t n_each, const int64_t *positions,
                      float *noise)
{
    const int64_t blocks = DIV_ROUND_UP(n_each, (int64_t)DRAWS);
    const int team = device_team(device, n * n_each * NOISE_WORK);

#pragma omp parallel for collapse(2) num_threads(team) schedule(static)
    for (int sample = 0; sample < n; sample++) {
        for (int64_t block = 0; block < blocks; block++) {
            const Philox p = philox4x32(key, (uint64_t)positions[sample], (uint64_t)block);
            const int64_t first = block * DRAWS;
            float draw[DRAWS];
            exact_normal_pair(p.word[0], p.word[1], draw);
            exact_normal_pair(p.word[2], p.word[3], draw + 2);
            memcpy(noise + (int64_t)sample * n_each + first, draw,
                   (size_t)MIN((int64_t)DRAWS, n_each - first) * sizeof(float));
        }
    }
}

void cpu_diffuse(Device *device, int n, int64_t n_each, const float *x0, const float *noise,
                 const int32_t *timesteps, const float *a, const float *b, bool v_prediction,
                 float *x_t, float *target)
{
    const int team = device_team(device, n * n_each);

#pragma omp parallel for num_threads(team) schedule(static)
    for (int sample = 0; sample < n; sample++) {
        const float signal = a[timesteps[sample]], spread = b[timesteps[sample]];
        const size_t at = (size_t)sample * (size_t)n_each;
        const float *clean = x0 + at, *random = noise + at;
        float *noisy = x_t + at, *to = target + at;
        for (int64_t i = 0; i < n_each; i++) {
            noisy[i] = signal * clean[i] + spread * random[i];
            to[i] = v_prediction ? signal * random[i] - spread * clean[i] : random[i];
        }
    }
}

size_t cpu_mse_loss_workspace_bytes(const Device *device, int64_t n)
{
    (void)device;
    return ROUND_UP((size_t)DIV_ROUND_UP(n, (int64_t)LOSS_CHUNK) * sizeof(double),
                    (size_t)WORKSPACE_ALIGNMENT);
}

void cpu_mse_loss(Device *device, int64_t n, const void *prediction, const float *target,
                  float scale, double *loss, void *dprediction, void *workspace)
{
    const int64_t chunks = DIV_ROUND_UP(n, (int64_t)LOSS_CHUNK);
    const int team = device_team(device, n);
    const float factor = (float)((double)scale * 2.0 / (double)n);
    const float *guess = prediction;
    float *to = dprediction;
    double *part = workspace;

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const int64_t end = MIN((chunk + 1) * LOSS_CHUNK, n);
        double lane[LANES] = {0};
        int64_t i = chunk * LOSS_CHUNK;
        for (; i + LANES <= end; i += LANES)
            for (int j = 0; j < LANES; j++) {
                float d = guess[i + j] - target[i + j];
                to[i + j] = factor * d;
                lane[j] += (double)d * (double)d;
            }
        for (int j = 0; i < end; i++, j++) {
            float d = guess[i] - target[i];
            to[i] = factor * d;
            lane[j] += (double)d * (double)d;
        }
        part[chunk] = lanes_sum_double(lane);
    }
    double sum = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        sum += part[chunk];
    *loss = sum / (double)n;
}

void cpu_time_embedding(Device *device, int n, int c, bool flip_sin_to_cos, double freq_shift,
                        const int32_t *timesteps, void *y)
{
    (void)device; /* there is too little work for several threads */
    const int half = c / 2;
    const float log_period = (float)-9.210340371976184; /* -ln 10000 */

    for (int sample = 0; sample < n; sample++) {
        float *to = (float *)y + (size_t)sample * (size_t)c;
        float *cosines = to + (flip_sin_to_cos ? 0 : half);
        float *sines = to + (flip_sin_to_cos ? half : 0);
        for (int i = 0; i < half; i++) {
            float exponent = log_period * (float)i / (float)((double)half - freq_shift);
            float angle = (float)timesteps[sample] * (float)exact_exp((double)exponent);
            cosines[i] = (float)exact_cos((double)angle);
            sines[i] = (float)exact_sin((double)angle);
        }
        if (c % 2)
            to[c - 1] = 0.0f;
    }
}
