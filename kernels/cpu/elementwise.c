/* SPDX-License-Identifier: Apache-2.0 */
/* elementwise.c - activations, sums and copies: each element is independent, so each thread computes ranges of
 * elements. */
#include "kernels/cpu/device.h"
#include "kernels/cpu/sum.h"
#include "kernels/cpu/vectormath.h"
#include "kernels/kernels.h"

#include <string.h>

enum { RANGE = 8192 }; /* elements of one task */

void cpu_geglu_forward(Device *device, int64_t rows, int f, const void *x, void *y)
{
    const int team = device_team(device, rows * f * 8);
    const size_t width = (size_t)f;

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const float *hidden = (const float *)x + (size_t)row * 2 * width, *gate = hidden + width;
        float *to = (float *)y + (size_t)row * width;
        for (size_t i = 0; i < width; i++) {
            float density, distribution;
            vector_normal(gate[i], &density, &distribution);
            to[i] = hidden[i] * (gate[i] * distribution);
        }
    }
}

void cpu_geglu_backward(Device *device, int64_t rows, int f, const void *x, const void *dy,
                        void *dx, float *dsums, void *workspace)
{
    const int team = device_team(device, rows * f * 8);
    const size_t width = (size_t)f;
    (void)workspace; /* sum_columns() needs no workspace */

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const float *hidden = (const float *)x + (size_t)row * 2 * width, *gate = hidden + width;
        const float *slope = (const float *)dy + (size_t)row * width;
        float *dhidden = (float *)dx + (size_t)row * 2 * width, *dgate = dhidden + width;
        for (size_t i = 0; i < width; i++) {
            float density, distribution, g = gate[i], v = hidden[i], s = slope[i];
            vector_normal(g, &density, &distribution);
            dhidden[i] = s * (g * distribution);
            dgate[i] = s * v * (distribution + g * density);
        }
    }
    if (dsums) /* sum_columns() adds in the order of cpu_conv_backward_weight() */
        sum_columns(device, 1, rows, 2 * f, dx, dsums);
}

size_t cpu_geglu_workspace_bytes(const Device *device, int64_t rows, int f)
{
    (void)device, (void)rows, (void)f;
    return 0;
}

/* Runs `body` for each element i. The elements are divided into ranges first..end-1, which the threads share. */
#define FOR_RANGES(device, n, weight, body)                                                        \
    do {                                                                                           \
        const int team = device_team(device, (n) * (weight));                                      \
        _Pragma("omp parallel for num_threads(team) schedule(static)") for (int64_t first = 0;     \
                                                                            first < (n);           \
                                                                            first += RANGE)        \
        {                                                                                          \
            const int64_t end = MIN(first + RANGE, (n));                                           \
            for (int64_t i = first; i < end; i++) {                                                \
                body;                                                                              \
            }                                                                                      \
        }                                                                                          \
    } while (0)

void cpu_gelu_forward(Device *device, int64_t n, const void *x, void *y)
{
    const float *from = x;
    float *to = y;
    FOR_RANGES(device, n, 8, to[i] = vector_gelu(from[i]));
}

void cpu_silu_forward(Device *device, int64_t n, const void *x, void *y)
{
    const float *from = x;
    float *to = y;
    FOR_RANGES(device, n, 4, to[i] = vector_silu(from[i]));
}

void cpu_silu_backward(Device *device, int64_t n, const void *x, const void *dy, void *dx,
                       bool accumulate_dx)
{
    const float *from = x, *slope = dy;
    float *to = dx;
    if (accumulate_dx)
        FOR_RANGES(device, n, 4, to[i] += slope[i] * vector_silu_slope(from[i]));
    else
        FOR_RANGES(device, n, 4, to[i] = slope[i] * vector_silu_slope(from[i]));
}

void cpu_accumulate(Device *device, int64_t n, const void *x, void *y)
{
    const float *from = x;
    float *to = y;
    FOR_RANGES(device, n, 1, to[i] += from[i]);
}

void cpu_embedding_forward(Device *device, int n, int tokens, int c, const float *words,
                           const float *positions, const int32_t *ids, void *y)
{
    const size_t width = (size_t)c;
    const int64_t rows = (int64_t)n * tokens;
    const int team = device_team(device, rows * c);

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const float *word = words + (size_t)ids[row] * width;
        const float *position = positions + (size_t)(row % tokens) * width;
        float *to = (float *)y + (size_t)row * width;
        for (size_t i = 0; i < width; i++)
            to[i] = word[i] + position[i];
    }
}

static void add_row(size_t n, const float *from, float *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

void cpu_concat_forward(Device *device, int64_t rows, int ca, int cb, const void *a, const void *b,
                        void *y)
{
    const size_t left = (size_t)ca, right = (size_t)cb;
    const int team = device_team(device, rows * (ca + cb));

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        float *to = (float *)y + (size_t)row * (left + right);
        memcpy(to, (const float *)a + (size_t)row * left, left * sizeof(float));
        memcpy(to + left, (const float *)b + (size_t)row * right, right * sizeof(float));
    }
}

void cpu_concat_backward(Device *device, int64_t rows, int ca, int cb, const void *dy, void *da,
                         bool accumulate_a, void *db, bool accumulate_b)
{
    const size_t left = (size_t)ca, right = (size_t)cb;
    const int team = device_team(device, rows * (ca + cb));

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const float *from = (const float *)dy + (size_t)row * (left + right);
        float *to_a = (float *)da + (size_t)row * left, *to_b = (float *)db + (size_t)row * right;
        if (accumulate_a)
            add_row(left, from, to_a);
        else
            memcpy(to_a, from, left * sizeof(float));
        if (accumulate_b)
            add_row(right, from + left, to_b);
        else
            memcpy(to_b, from + left, right * sizeof(float));
    }
}

void cpu_upsample_forward(Device *device, int n, int to_h, int to_w, int c, const void *x, void *y)
{
    const size_t width = (size_t)c, columns = (size_t)to_w, from_columns = (columns + 1) / 2;
    const int h = (to_h + 1) / 2;
    const int64_t rows = (int64_t)n * h;
    const int team = device_team(device, rows * to_w * c * 2);

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const int64_t image = row / h, line = row % h;
        const float *from = (const float *)x + (size_t)row * from_columns * width;
        float *to = (float *)y + (size_t)(image * to_h + 2 * line) * columns * width;
        for (size_t i = 0; i < columns; i++)
            memcpy(to + i * width, from + i / 2 * width, width * sizeof(float));
        if (2 * line + 1 < to_h)
            memcpy(to + columns * width, to, columns * width * sizeof(float));
    }
}

/* Each element of dx is the sum of four, two or one elements of dy. The order of the additions below must not change,
 * because golden bits record the results for even sides. */
void cpu_upsample_backward(Device *device, int n, int to_h, int to_w, int c, const void *dy,
                           void *dx, bool accumulate_dx)
{
    const size_t width = (size_t)c, columns = (size_t)to_w, to_columns = (columns + 1) / 2;
    const int h = (to_h + 1) / 2;
    const int64_t rows = (int64_t)n * h;
    const int team = device_team(device, rows * to_w * c * 2);

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const int64_t image = row / h, line = row % h;
        const float *upper =
            (const float *)dy + (size_t)(image * to_h + 2 * line) * columns * width;
        const float *lower = 2 * line + 1 < to_h ? upper + columns * width : NULL;
        float *to = (float *)dx + (size_t)row * to_columns * width;
        for (size_t x = 0; x < to_columns; x++) {
            const bool pair = 2 * x + 1 < columns;
            for (size_t i = 0; i < width; i++) {
                const size_t left = 2 * x * width + i, right = left + width;
                float sum = pair ? upper[left] + upper[right] : upper[left];
                if (lower)
                    sum += pair ? lower[left] + lower[right] : lower[left];
                to[x * width + i] = accumulate_dx ? to[x * width + i] + sum : sum;
            }
        }
    }
}

void cpu_spatial_sum(Device *device, int n, int64_t pixels, int c, const void *dy, void *dper_image)
{
    sum_columns(device, n, pixels, c, dy, dper_image);
}

void cpu_cast_from_f32(Device *device, int64_t n, const float *x, void *y)
{
    (void)device;
    memcpy(y, x, (size_t)n * sizeof(float));
}

void cpu_cast_to_f32(Device *device, int64_t n, const void *x, float *y)
{
    (void)device;
    memcpy(y, x, (size_t)n * sizeof(float));
}
