/* SPDX-License-Identifier: Apache-2.0 */
/* elementwise.cu - activations, sums, copies, casts: every element by itself. */
#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/operations.h"

template <typename T> __global__ void geglu_forward_kernel(int64_t rows, int f, const T *x, T *y)
{
    FOR_ELEMENTS(i, rows * f)
    {
        const T *row = x + i / f * 2 * f + i % f;
        const float gate = widen(row[f]);
        float density, distribution;
        vector_normal(gate, &density, &distribution);
        y[i] = narrow<T>(widen(row[0]) * (gate * distribution));
    }
}

void cuda_geglu_forward(Device *device, int64_t rows, int f, const void *x, void *y)
{
    WITH_TYPE(device, LAUNCH(device, blocks_for(rows * f), THREADS, 0, geglu_forward_kernel<T>,
                             rows, f, (const T *)x, (T *)y));
}

template <typename T>
__global__ void geglu_backward_kernel(int64_t rows, int f, const T *x, const T *dy, T *dx)
{
    FOR_ELEMENTS(i, rows * f)
    {
        const int64_t at = i / f * 2 * f + i % f;
        const float hidden = widen(x[at]), gate = widen(x[at + f]), slope = widen(dy[i]);
        float density, distribution;
        vector_normal(gate, &density, &distribution);
        dx[at] = narrow<T>(slope * (gate * distribution));
        dx[at + f] = narrow<T>(slope * hidden * (distribution + gate * density));
    }
}

void cuda_geglu_backward(Device *device, int64_t rows, int f, const void *x, const void *dy,
                         void *dx)
{
    WITH_TYPE(device, LAUNCH(device, blocks_for(rows * f), THREADS, 0, geglu_backward_kernel<T>,
                             rows, f, (const T *)x, (const T *)dy, (T *)dx));
}

template <typename T> __global__ void silu_forward_kernel(int64_t n, const T *x, T *y)
{
    FOR_ELEMENTS(i, n)
    y[i] = narrow<T>(vector_silu(widen(x[i])));
}

void cuda_silu_forward(Device *device, int64_t n, const void *x, void *y)
{
    WITH_TYPE(device, LAUNCH(device, blocks_for(n), THREADS, 0, silu_forward_kernel<T>, n,
                             (const T *)x, (T *)y));
}

/* to = value, or to += value, rounded once. */
template <typename T> __device__ static inline void store(T *to, float value, bool add)
{
    *to = narrow<T>(add ? widen(*to) + value : value);
}

template <typename T>
__global__ void silu_backward_kernel(int64_t n, const T *x, const T *dy, T *dx, bool add)
{
    FOR_ELEMENTS(i, n)
    store(dx + i, widen(dy[i]) * vector_silu_slope(widen(x[i])), add);
}

void cuda_silu_backward(Device *device, int64_t n, const void *x, const void *dy, void *dx,
                        bool accumulate)
{
    WITH_TYPE(device, LAUNCH(device, blocks_for(n), THREADS, 0, silu_backward_kernel<T>, n,
                             (const T *)x, (const T *)dy, (T *)dx, accumulate));
}

template <typename T> __global__ void accumulate_kernel(int64_t n, const T *x, T *y)
{
    FOR_ELEMENTS(i, n)
    store(y + i, widen(x[i]), true);
}

void cuda_accumulate(Device *device, int64_t n, const void *x, void *y)
{
    WITH_TYPE(device, LAUNCH(device, blocks_for(n), THREADS, 0, accumulate_kernel<T>, n,
                             (const T *)x, (T *)y));
}

template <typename T>
__global__ void concat_forward_kernel(int64_t rows, int ca, int cb, const T *a, const T *b, T *y)
{
    const int c = ca + cb;
    FOR_ELEMENTS(i, rows * c)
    {
        const int64_t row = i / c;
        const int j = (int)(i % c);
        y[i] = j < ca ? a[row * ca + j] : b[row * cb + j - ca];
    }
}

void cuda_concat_forward(Device *device, int64_t rows, int ca, int cb, const void *a, const void *b,
                         void *y)
{
    WITH_TYPE(device,
              LAUNCH(device, blocks_for(rows * (ca + cb)), THREADS, 0, concat_forward_kernel<T>,
                     rows, ca, cb, (const T *)a, (const T *)b, (T *)y));
}

template <typename T>
__global__ void concat_backward_kernel(int64_t rows, int ca, int cb, const T *dy, T *da, bool add_a,
                                       T *db, bool add_b)
{
    const int c = ca + cb;
    FOR_ELEMENTS(i, rows * c)
    {
        const int64_t row = i / c;
        const int j = (int)(i % c);
        if (j < ca)
            store(da + row * ca + j, widen(dy[i]), add_a);
        else
            store(db + row * cb + j - ca, widen(dy[i]), add_b);
    }
}

void cuda_concat_backward(Device *device, int64_t rows, int ca, int cb, const void *dy, void *da,
                          bool accumulate_a, void *db, bool accumulate_b)
{
    WITH_TYPE(device,
              LAUNCH(device, blocks_for(rows * (ca + cb)), THREADS, 0, concat_backward_kernel<T>,
                     rows, ca, cb, (const T *)dy, (T *)da, accumulate_a, (T *)db, accumulate_b));
}

template <typename T>
__global__ void upsample_forward_kernel(int64_t n, int to_h, int to_w, int c, const T *x, T *y)
{
    const int h = (to_h + 1) / 2, w = (to_w + 1) / 2;
    FOR_ELEMENTS(i, n * to_h * to_w * c)
    {
        const int64_t pixel = i / c, column = pixel % to_w, line = pixel / to_w % to_h;
        const int64_t image = pixel / to_w / to_h;
        y[i] = x[((image * h + line / 2) * w + column / 2) * c + i % c];
    }
}

void cuda_upsample_forward(Device *device, int n, int to_h, int to_w, int c, const void *x, void *y)
{
    WITH_TYPE(device, LAUNCH(device, blocks_for((int64_t)n * to_h * to_w * c), THREADS, 0,
                             upsample_forward_kernel<T>, n, to_h, to_w, c, (const T *)x, (T *)y));
}

/* Upper line first, left before right, as on a CPU. */
template <typename T>
__global__ void upsample_backward_kernel(int64_t n, int to_h, int to_w, int c, const T *dy, T *dx,
                                         bool add)
{
    const int h = (to_h + 1) / 2, w = (to_w + 1) / 2;
    FOR_ELEMENTS(i, n * h * w * c)
    {
        const int64_t pixel = i / c, column = pixel % w * 2, line = pixel / w % h * 2;
        const int64_t image = pixel / w / h;
        const T *upper = dy + ((image * to_h + line) * to_w + column) * c + i % c;
        const T *lower = upper + (int64_t)to_w * c;
        const bool pair = column + 1 < to_w;
        float sum = pair ? widen(upper[0]) + widen(upper[c]) : widen(upper[0]);
        if (line + 1 < to_h)
            sum += pair ? widen(lower[0]) + widen(lower[c]) : widen(lower[0]);
        store(dx + i, sum, add);
    }
}

void cuda_upsample_backward(Device *device, int n, int to_h, int to_w, int c, const void *dy,
                            void *dx, bool accumulate)
{
    const int64_t n_elements = (int64_t)n * ((to_h + 1) / 2) * ((to_w + 1) / 2) * c;
    WITH_TYPE(device,
              LAUNCH(device, blocks_for(n_elements), THREADS, 0, upsample_backward_kernel<T>, n,
                     to_h, to_w, c, (const T *)dy, (T *)dx, accumulate));
}

template <typename T> __global__ void cast_from_f32_kernel(int64_t n, const float *x, T *y)
{
    FOR_ELEMENTS(i, n)
    y[i] = narrow<T>(x[i]);
}

void cuda_cast_from_f32(Device *device, int64_t n, const float *x, void *y)
{
    WITH_TYPE(device,
              LAUNCH(device, blocks_for(n), THREADS, 0, cast_from_f32_kernel<T>, n, x, (T *)y));
}

template <typename T> __global__ void cast_to_f32_kernel(int64_t n, const T *x, float *y)
{
    FOR_ELEMENTS(i, n)
    y[i] = widen(x[i]);
}

void cuda_cast_to_f32(Device *device, int64_t n, const void *x, float *y)
{
    WITH_TYPE(device,
              LAUNCH(device, blocks_for(n), THREADS, 0, cast_to_f32_kernel<T>, n, (const T *)x, y));
}
