/* SPDX-License-Identifier: Apache-2.0 */
/* norm.cu - GroupNorm, with SiLU when asked, and LayerNorm; sums of columns.
 *
 * Sums run in double where they are long, in each thread over its share and then over the block by a fixed
 * tree. Whatever a sum is of is made again from x and dy, so that nothing is kept but two floats a group or
 * row. */
#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/operations.h"

#include <math.h>

/* ---- sums of columns: a block takes COLUMNS of them, and its LINES of threads every LINES-th row ---- */

enum { COLUMNS = 32, LINES = THREADS / COLUMNS };

/* The sum of x over the block's lines, in their order; of use where threadIdx.x < COLUMNS. */
__device__ static inline double sum_lines(double x, double (*lines)[COLUMNS])
{
    __syncthreads(); /* who reads lines still from the sum before */
    lines[threadIdx.x / COLUMNS][threadIdx.x % COLUMNS] = x;
    __syncthreads();
    double sum = 0;
    for (int i = 0; i < LINES; i++)
        sum += lines[i][threadIdx.x % COLUMNS];
    return sum;
}

template <typename From, typename To>
__global__ void column_sums_kernel(int64_t rows, int c, const From *from, To *to)
{
    __shared__ double lines[LINES][COLUMNS];
    const int column = (int)blockIdx.x * COLUMNS + (int)threadIdx.x % COLUMNS;
    const int64_t matrix = blockIdx.y;
    double sum = 0;
    for (int64_t row = threadIdx.x / COLUMNS; row < rows && column < c; row += LINES)
        sum += (double)widen(from[(matrix * rows + row) * c + column]);
    sum = sum_lines(sum, lines);
    if (threadIdx.x < COLUMNS && column < c)
        to[matrix * c + column] = narrow<To>((float)sum);
}

template <typename From, typename To>
static void column_sums(Device *device, int64_t n_matrices, int64_t rows, int c, const From *from,
                        To *to)
{
    const dim3 grid((unsigned)DIV_ROUND_UP(c, (int)COLUMNS), (unsigned)n_matrices);
    LAUNCH(device, grid, THREADS, 0, (column_sums_kernel<From, To>), rows, c, from, to);
}

void cuda_column_sums(Device *device, int64_t n_matrices, int64_t rows, int c, const void *from,
                      float *to)
{
    WITH_TYPE(device, column_sums(device, n_matrices, rows, c, (const T *)from, to));
}

void cuda_spatial_sum(Device *device, int n, int64_t pixels, int c, const void *dy,
                      void *dper_image)
{
    WITH_TYPE(device, column_sums(device, n, pixels, c, (const T *)dy, (T *)dper_image));
}

/* ---- GroupNorm ---- */

/* What its kernels want of a GroupNormShape. */
struct Groups {
    int64_t n, pixels;
    int c, groups, size; /* channels: of a pixel; groups; channels of a group */
    double eps;
    bool silu;
};

static Groups groups_of(const GroupNormShape *s)
{
    assert(s->c % s->groups == 0);
    return Groups{s->n, (int64_t)s->h * s->w, s->c, s->groups, s->c / s->groups, s->eps, s->silu};
}

/* Mean and 1 / sqrt(variance + eps) of a group: a block of it each. */
template <typename T> __global__ void group_moments_kernel(Groups g, const T *x, float *saved)
{
    __shared__ double part[WARPS];
    const int group = (int)blockIdx.x;
    const int64_t image = blockIdx.y, n = g.pixels * g.size;
    const T *from = x + image * g.pixels * g.c + group * g.size;
    double sum = 0, squares = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        const double v = (double)widen(from[i / g.size * g.c + i % g.size]);
        sum += v;
        squares += v * v;
    }
    sum = block_sum(sum, part);
    squares = block_sum(squares, part);
    if (threadIdx.x == 0) {
        const double mean = sum / (double)n;
        const double variance = fmax(squares / (double)n - mean * mean, 0.0);
        float *to = saved + (image * g.groups + group) * 2;
        to[0] = (float)mean;
        to[1] = (float)(1.0 / sqrt(variance + g.eps));
    }
}

template <typename T>
__global__ void group_normalise_kernel(Groups g, const T *x, const float *gamma, const float *beta,
                                       const float *saved, T *y)
{
    FOR_ELEMENTS(i, g.n * g.pixels * g.c)
    {
        const int channel = (int)(i % g.c);
        const int64_t image = i / g.c / g.pixels;
        const float *moments = saved + (image * g.groups + channel / g.size) * 2;
        const float z = (widen(x[i]) - moments[0]) * (moments[1] * gamma[channel]) + beta[channel];
        y[i] = narrow<T>(g.silu ? vector_silu(z) : z);
    }
}

void cuda_group_norm_forward(Device *device, const GroupNormShape *shape, const void *x,
                             const float *gamma, const float *beta, void *y, float *saved)
{
    const Groups g = groups_of(shape);
    const dim3 grid((unsigned)g.groups, (unsigned)g.n);
    WITH_TYPE(device, {
        LAUNCH(device, grid, THREADS, 0, group_moments_kernel<T>, g, (const T *)x, saved);
        LAUNCH(device, blocks_for(g.n * g.pixels * g.c), THREADS, 0, group_normalise_kernel<T>, g,
               (const T *)x, gamma, beta, saved, (T *)y);
    });
}

/* The normalised value of an element and the gradient before SiLU. */
__device__ static inline void group_slope(const Groups &g, float x, float dy, const float *moments,
                                          float gamma, float beta, float *normal, float *dz)
{
    *normal = (x - moments[0]) * moments[1];
    *dz = g.silu ? dy * vector_silu_slope(*normal * gamma + beta) : dy;
}

/* sums[image][0][channel] = the sum over pixels of dz, sums[image][1][channel] = of dz * normalised x. */
template <typename T>
__global__ void group_slopes_kernel(Groups g, const T *x, const float *gamma, const float *beta,
                                    const float *saved, const T *dy, float *sums)
{
    __shared__ double lines[LINES][COLUMNS];
    const int channel = (int)blockIdx.x * COLUMNS + (int)threadIdx.x % COLUMNS;
    const int64_t image = blockIdx.y;
    double plain = 0, scaled = 0;
    for (int64_t i = threadIdx.x / COLUMNS; i < g.pixels && channel < g.c; i += LINES) {
        const int64_t at = (image * g.pixels + i) * g.c + channel;
        float normal, dz;
        group_slope(g, widen(x[at]), widen(dy[at]),
                    saved + (image * g.groups + channel / g.size) * 2, gamma[channel],
                    beta[channel], &normal, &dz);
        plain += (double)dz;
        scaled += (double)dz * (double)normal;
    }
    plain = sum_lines(plain, lines);
    scaled = sum_lines(scaled, lines);
    if (threadIdx.x < COLUMNS && channel < g.c) {
        sums[image * 2 * g.c + channel] = (float)plain;
        sums[(image * 2 + 1) * g.c + channel] = (float)scaled;
    }
}

/* means[image][group] = the means over the group of gamma dz and of gamma dz * normalised x. */
__global__ void group_means_kernel(Groups g, const float *gamma, const float *sums, float *means)
{
    FOR_ELEMENTS(i, g.n * g.groups)
    {
        const int64_t image = i / g.groups, first = i % g.groups * g.size;
        const double size = (double)g.size * (double)g.pixels;
        double plain = 0, scaled = 0;
        for (int64_t channel = first; channel < first + g.size; channel++) {
            plain += (double)gamma[channel] * (double)sums[image * 2 * g.c + channel];
            scaled += (double)gamma[channel] * (double)sums[(image * 2 + 1) * g.c + channel];
        }
        means[2 * i] = (float)(plain / size);
        means[2 * i + 1] = (float)(scaled / size);
    }
}

template <typename T>
__global__ void group_backward_kernel(Groups g, const T *x, const float *gamma, const float *beta,
                                      const float *saved, const float *means, const T *dy, T *dx,
                                      bool add)
{
    FOR_ELEMENTS(i, g.n * g.pixels * g.c)
    {
        const int channel = (int)(i % g.c);
        const int64_t group = i / g.c / g.pixels * g.groups + channel / g.size;
        float normal, dz;
        group_slope(g, widen(x[i]), widen(dy[i]), saved + 2 * group, gamma[channel], beta[channel],
                    &normal, &dz);
        const float d = saved[2 * group + 1] *
                        ((dz * gamma[channel] - means[2 * group]) - normal * means[2 * group + 1]);
        dx[i] = narrow<T>(add ? widen(dx[i]) + d : d);
    }
}

/* dbeta and dgamma: the sums over the images. */
__global__ void group_parameters_kernel(Groups g, const float *sums, float *dgamma, float *dbeta)
{
    FOR_ELEMENTS(channel, g.c)
    {
        double plain = 0, scaled = 0;
        for (int64_t image = 0; image < g.n; image++) {
            plain += (double)sums[image * 2 * g.c + channel];
            scaled += (double)sums[(image * 2 + 1) * g.c + channel];
        }
        dbeta[channel] = (float)plain;
        dgamma[channel] = (float)scaled;
    }
}

static size_t group_sums_bytes(const GroupNormShape *shape)
{
    return ROUND_UP((size_t)shape->n * 2 * (size_t)shape->c * sizeof(float),
                    (size_t)DEVICE_ALIGNMENT);
}

size_t cuda_group_norm_workspace_bytes(const Device *device, const GroupNormShape *shape)
{
    (void)device;
    return group_sums_bytes(shape) + (size_t)shape->n * (size_t)shape->groups * 2 * sizeof(float);
}

void cuda_group_norm_backward(Device *device, const GroupNormShape *shape, const void *x,
                              const float *gamma, const float *beta, const float *saved,
                              const void *dy, void *dx, bool accumulate, float *dgamma,
                              float *dbeta, void *workspace)
{
    const Groups g = groups_of(shape);
    const dim3 grid((unsigned)DIV_ROUND_UP(g.c, (int)COLUMNS), (unsigned)g.n);
    float *sums = (float *)workspace;
    float *means = (float *)((char *)workspace + group_sums_bytes(shape));
    WITH_TYPE(device, LAUNCH(device, grid, THREADS, 0, group_slopes_kernel<T>, g, (const T *)x,
                             gamma, beta, saved, (const T *)dy, sums));
    LAUNCH(device, blocks_for(g.n * g.groups), THREADS, 0, group_means_kernel, g, gamma, sums,
           means);
    WITH_TYPE(device, LAUNCH(device, blocks_for(g.n * g.pixels * g.c), THREADS, 0,
                             group_backward_kernel<T>, g, (const T *)x, gamma, beta, saved, means,
                             (const T *)dy, (T *)dx, accumulate));
    LAUNCH(device, blocks_for(g.c), THREADS, 0, group_parameters_kernel, g, sums, dgamma, dbeta);
}

/* ---- LayerNorm: a warp for each row ---- */

enum { ROWS = 64 }; /* of one partial sum of the gradients of gamma and beta */

/* The row of this warp; a whole warp has one, or is beyond the last. */
__device__ static inline int64_t warp_row(void)
{
    return (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
}

static unsigned blocks_of_rows(int64_t rows)
{
    return (unsigned)DIV_ROUND_UP(rows, (int64_t)WARPS);
}

template <typename T>
__global__ void layer_norm_forward_kernel(int64_t rows, int c, double eps, const T *x,
                                          const float *gamma, const float *beta, T *y, float *saved)
{
    const int64_t row = warp_row();
    if (row >= rows)
        return;
    const int lane = (int)threadIdx.x % 32;
    const T *from = x + row * c;
    float sum = 0, squares = 0;
    for (int i = lane; i < c; i += 32)
        sum += widen(from[i]);
    const float mean = warp_sum(sum) / (float)c;
    for (int i = lane; i < c; i += 32)
        squares += (widen(from[i]) - mean) * (widen(from[i]) - mean);
    const double variance = (double)warp_sum(squares) / (double)c;
    const float inverse = (float)(1.0 / sqrt(variance + eps));
    for (int i = lane; i < c; i += 32)
        y[row * c + i] = narrow<T>((widen(from[i]) - mean) * inverse * gamma[i] + beta[i]);
    if (lane == 0) {
        saved[2 * row] = mean;
        saved[2 * row + 1] = inverse;
    }
}

void cuda_layer_norm_forward(Device *device, const LayerNormShape *shape, const void *x,
                             const float *gamma, const float *beta, void *y, float *saved)
{
    WITH_TYPE(device,
              LAUNCH(device, blocks_of_rows(shape->rows), THREADS, 0, layer_norm_forward_kernel<T>,
                     shape->rows, shape->c, shape->eps, (const T *)x, gamma, beta, (T *)y, saved));
}

template <typename T>
__global__ void layer_norm_backward_kernel(int64_t rows, int c, const T *x, const float *gamma,
                                           const float *saved, const T *dy, T *dx, bool add)
{
    const int64_t row = warp_row();
    if (row >= rows)
        return;
    const int lane = (int)threadIdx.x % 32;
    const float mean = saved[2 * row], inverse = saved[2 * row + 1];
    float plain = 0, scaled = 0;
    for (int i = lane; i < c; i += 32) {
        const float g = widen(dy[row * c + i]) * gamma[i];
        plain += g;
        scaled += g * ((widen(x[row * c + i]) - mean) * inverse);
    }
    plain = warp_sum(plain) / (float)c;
    scaled = warp_sum(scaled) / (float)c;
    for (int i = lane; i < c; i += 32) {
        const int64_t at = row * c + i;
        const float normal = (widen(x[at]) - mean) * inverse;
        const float d = inverse * ((widen(dy[at]) * gamma[i] - plain) - normal * scaled);
        dx[at] = narrow<T>(add ? widen(dx[at]) + d : d);
    }
}

/* sums[block of ROWS][0][i] = the sum of dy, [1][i] = of dy * normalised x. */
template <typename T>
__global__ void layer_slopes_kernel(int64_t rows, int c, const T *x, const float *saved,
                                    const T *dy, float *sums)
{
    __shared__ double lines[LINES][COLUMNS];
    const int column = (int)blockIdx.x * COLUMNS + (int)threadIdx.x % COLUMNS;
    const int64_t first = (int64_t)blockIdx.y * ROWS, end = MIN(first + ROWS, rows);
    double plain = 0, scaled = 0;
    for (int64_t row = first + threadIdx.x / COLUMNS; row < end && column < c; row += LINES) {
        const int64_t at = row * c + column;
        const float normal = (widen(x[at]) - saved[2 * row]) * saved[2 * row + 1];
        plain += (double)widen(dy[at]);
        scaled += (double)(widen(dy[at]) * normal);
    }
    plain = sum_lines(plain, lines);
    scaled = sum_lines(scaled, lines);
    if (threadIdx.x < COLUMNS && column < c) {
        sums[(int64_t)blockIdx.y * 2 * c + column] = (float)plain;
        sums[((int64_t)blockIdx.y * 2 + 1) * c + column] = (float)scaled;
    }
}

__global__ void layer_parameters_kernel(int64_t blocks, int c, const float *sums, float *dgamma,
                                        float *dbeta)
{
    FOR_ELEMENTS(i, c)
    {
        double plain = 0, scaled = 0;
        for (int64_t block = 0; block < blocks; block++) {
            plain += (double)sums[block * 2 * c + i];
            scaled += (double)sums[(block * 2 + 1) * c + i];
        }
        dbeta[i] = (float)plain;
        dgamma[i] = (float)scaled;
    }
}

size_t cuda_layer_norm_workspace_bytes(const Device *device, const LayerNormShape *shape)
{
    (void)device;
    return (size_t)DIV_ROUND_UP(shape->rows, (int64_t)ROWS) * 2 * (size_t)shape->c * sizeof(float);
}

void cuda_layer_norm_backward(Device *device, const LayerNormShape *shape, const void *x,
                              const float *gamma, const float *saved, const void *dy, void *dx,
                              bool accumulate, float *dgamma, float *dbeta, void *workspace)
{
    const int c = shape->c;
    const int64_t blocks = DIV_ROUND_UP(shape->rows, (int64_t)ROWS);
    const dim3 grid((unsigned)DIV_ROUND_UP(c, (int)COLUMNS), (unsigned)blocks);
    float *sums = (float *)workspace;
    WITH_TYPE(device, {
        LAUNCH(device, grid, THREADS, 0, layer_slopes_kernel<T>, shape->rows, c, (const T *)x,
               saved, (const T *)dy, sums);
        LAUNCH(device, blocks_of_rows(shape->rows), THREADS, 0, layer_norm_backward_kernel<T>,
               shape->rows, c, (const T *)x, gamma, saved, (const T *)dy, (T *)dx, accumulate);
    });
    LAUNCH(device, blocks_for(c), THREADS, 0, layer_parameters_kernel, blocks, c, sums, dgamma,
           dbeta);
}
