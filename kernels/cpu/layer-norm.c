/* SPDX-License-Identifier: Apache-2.0 */
/* layer-norm.c - LayerNorm over the channels of each row; sums run in LANES lanes. */
#include "kernels/cpu/device.h"
#include "kernels/cpu/sum.h"
#include "kernels/cpu/vectormath.h"
#include "kernels/kernels.h"

#include <math.h>

enum { ROWS = 64 }; /* rows of one chain of the gradients of gamma and beta */

static float row_sum(const float *x, size_t n)
{
    float lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += x[i + j];
    for (size_t j = 0; i < n; i++, j++)
        lane[j] += x[i];
    return lanes_sum(lane);
}

static float row_squares(const float *x, size_t n, float mean)
{
    float lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += (x[i + j] - mean) * (x[i + j] - mean);
    for (size_t j = 0; i < n; i++, j++)
        lane[j] += (x[i] - mean) * (x[i] - mean);
    return lanes_sum(lane);
}

void cpu_layer_norm_forward(Device *device, const LayerNormShape *shape, const void *x,
                            const float *gamma, const float *beta, void *y, float *saved)
{
    const size_t c = (size_t)shape->c;
    const int team = device_team(device, shape->rows * shape->c);

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t row = 0; row < shape->rows; row++) {
        const float *from = (const float *)x + (size_t)row * c;
        float *to = (float *)y + (size_t)row * c;
        const float mean = row_sum(from, c) / (float)c;
        const double variance = (double)row_squares(from, c, mean) / (double)c;
        const float inverse = (float)(1.0 / sqrt(variance + shape->eps));

        saved[2 * row] = mean;
        saved[2 * row + 1] = inverse;
        for (size_t i = 0; i < c; i++)
            to[i] = (from[i] - mean) * inverse * gamma[i] + beta[i];
    }
}

/* Computes the means over a row of gamma * dy and of gamma * dy * normalised x. */
static void row_means(const float *x, const float *dy, const float *gamma, size_t n,
                      const float *saved, float means[2])
{
    const float mean = saved[0], inverse = saved[1];
    float plain[LANES] = {0}, scaled[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++) {
            float g = dy[i + j] * gamma[i + j];
            plain[j] += g;
            scaled[j] += g * ((x[i + j] - mean) * inverse);
        }
    for (size_t j = 0; i < n; i++, j++) {
        float g = dy[i] * gamma[i];
        plain[j] += g;
        scaled[j] += g * ((x[i] - mean) * inverse);
    }
    means[0] = lanes_sum(plain) / (float)n;
    means[1] = lanes_sum(scaled) / (float)n;
}

/* Computes one row: dx, and the row's share of the gradients of gamma and beta in sums[2][c]. */
static void backward_row(const float *restrict x, const float *restrict dy,
                         const float *restrict gamma, size_t c, const float *saved,
                         float *restrict dx, bool accumulate_dx, float *restrict sums)
{
    const float mean = saved[0], inverse = saved[1];
    float means[2];

    row_means(x, dy, gamma, c, saved, means);
    for (size_t i = 0; i < c; i++) {
        float normal = (x[i] - mean) * inverse;
        float d = inverse * ((dy[i] * gamma[i] - means[0]) - normal * means[1]);
        dx[i] = accumulate_dx ? dx[i] + d : d;
        sums[i] += dy[i] * normal;
        sums[c + i] += dy[i];
    }
}

size_t cpu_layer_norm_workspace_bytes(const Device *device, const LayerNormShape *shape)
{
    (void)device;
    return floats_bytes((size_t)DIV_ROUND_UP(shape->rows, (int64_t)ROWS) * 2 * (size_t)shape->c);
}

void cpu_layer_norm_backward(Device *device, const LayerNormShape *shape, const void *x,
                             const float *gamma, const float *saved, const void *dy, void *dx,
                             bool accumulate_dx, float *dgamma, float *dbeta, float *dsums,
                             void *workspace)
{
    const size_t c = (size_t)shape->c;
    const int64_t chunks = DIV_ROUND_UP(shape->rows, (int64_t)ROWS);
    const int team = device_team(device, shape->rows * shape->c);
    float *sums = workspace; /* [chunks][2][c] */

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        float *chunk_sums = sums + (size_t)chunk * 2 * c;
        memset(chunk_sums, 0, 2 * c * sizeof(float));
        for (int64_t row = chunk * ROWS; row < MIN((chunk + 1) * ROWS, shape->rows); row++) {
            const size_t at = (size_t)row * c;
            backward_row((const float *)x + at, (const float *)dy + at, gamma, c, saved + 2 * row,
                         (float *)dx + at, accumulate_dx, chunk_sums);
        }
    }
    for (int i = 0; i < shape->c; i += SUM_COLUMNS) {
        const int n = MIN((int)SUM_COLUMNS, shape->c - i);
        sum_rows(chunks, n, sums + i, 2 * c, dgamma + i);
        sum_rows(chunks, n, sums + c + i, 2 * c, dbeta + i);
    }
    if (dsums) /* sum_columns() adds in the order of cpu_conv_backward_weight() */
        sum_columns(device, 1, shape->rows, shape->c, dx, dsums);
}
