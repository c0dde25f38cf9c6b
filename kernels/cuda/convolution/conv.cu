/* SPDX-License-Identifier: Apache-2.0 */
/* conv.cu - see own-convolution.h. A thread computes an element of the result. */
#include "kernels/cuda/kernels/kernel.cuh"
#include "kernels/cuda/kernels/operations.h"
#include "kernels/cuda/kernels/own-convolution.h"

/* The parts of a ConvShape that the kernels use. */
struct Extents {
    int64_t n;
    int h, w, c_in, to_h, to_w, c_out, k, pad, stride;
};

static Extents extents_of(const ConvShape &s)
{
    return Extents{s.n,
                   s.h,
                   s.w,
                   s.c_in,
                   conv_output_side(&s, s.h),
                   conv_output_side(&s, s.w),
                   s.c_out,
                   s.kernel,
                   conv_padding(&s),
                   s.stride};
}

static int64_t weight_elements(const ConvShape &s)
{
    return (int64_t)s.c_out * s.c_in * s.kernel * s.kernel;
}

/* Turns [out][in][taps] into [out][taps][in]. A tile is TILE_CHANNELS channels of `in` for one channel of `out`, with
 * all taps. The tile is read in memory order and written along `in`. N: elements of a pack. */
enum { TILE_CHANNELS = 128, TAPS_MAX = 9 };

template <int N, typename T>
__global__ void __launch_bounds__(THREADS, 4)
    pack_kernel(int64_t n_tiles, Divisor tiles, int c_in, int taps, const float *weight, T *packed)
{
    alignas(16) __shared__ Pack<N> read[TILE_CHANNELS * TAPS_MAX / N]; /* [channel][tap] */
    for (int64_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        const Quotient at = divide(tile, tiles);
        const int first = (int)at.rest * TILE_CHANNELS;
        const int width = MIN((int)TILE_CHANNELS, c_in - first); /* channels of this tile */
        const int64_t row = at.whole * c_in * taps;
        for (int i = (int)threadIdx.x; i < width * taps / N; i += THREADS)
            read[i] = load<N>(weight + row + (int64_t)first * taps + i * N);
        __syncthreads();
        enum { ACROSS = TILE_CHANNELS / N }; /* threads that write a tap */
        const int channel = (int)threadIdx.x % ACROSS * N;
        for (int tap = (int)threadIdx.x / ACROSS; tap < taps && channel < width;
             tap += THREADS / ACROSS) {
            Pack<N> out;
            for (int k = 0; k < N; k++)
                out.at[k] = ((const float *)read)[(channel + k) * taps + tap];
            store<N>(packed + row + (int64_t)tap * c_in + first + channel, out);
        }
        __syncthreads();
    }
}

template <int N, typename T>
static void pack(Device *device, const ConvShape &s, const float *weight, T *packed)
{
    const int64_t tiles = DIV_ROUND_UP(s.c_in, (int)TILE_CHANNELS), n_tiles = s.c_out * tiles;
    LAUNCH(device, (unsigned)MIN(n_tiles, (int64_t)GRID_MAX), THREADS, 0, (pack_kernel<N, T>),
           n_tiles, divisor(tiles), s.c_in, s.kernel * s.kernel, weight, packed);
}

void cuda_plain_pack(Device *device, const ConvShape *shape, const float *weight, void *packed)
{
    assert(shape->kernel * shape->kernel <= TAPS_MAX);
    if (shape->kernel == 1)
        cuda_cast_from_f32(device, weight_elements(*shape), weight, packed);
    else
        WITH_PACKS(device, (shape->c_in, weight, packed),
                   pack<N, T>(device, *shape, weight, (T *)packed));
}

template <int N, typename T>
__global__ void __launch_bounds__(THREADS)
    pack_columns_kernel(int64_t n, Divisor packs, int columns, const float *weight, T *packed)
{
    FOR_ELEMENTS(i, n)
    {
        const Quotient at = divide(i, packs);
        store<N>(packed + i * N, load<N>(weight + at.whole * columns + at.rest * N));
    }
}

void cuda_plain_pack_columns(Device *device, int rows, int n, int columns, const float *weight,
                             void *packed)
{
    WITH_PACKS(device, (n | columns, weight, packed), {
        const int64_t packs = n / N;
        LAUNCH(device, blocks_for(rows * packs), THREADS, 0, (pack_columns_kernel<N, T>),
               rows * packs, divisor(packs), columns, weight, (T *)packed);
    });
}

template <typename T>
__global__ void conv_forward_kernel(Extents e, const T *x, const T *packed, const float *bias,
                                    const T *per_image, const T *residual, T *y)
{
    FOR_ELEMENTS(i, e.n * e.to_h * e.to_w * e.c_out)
    {
        const int64_t pixel = i / e.c_out, image = pixel / e.to_w / e.to_h;
        const int out = (int)(i % e.c_out);
        const int row = (int)(pixel / e.to_w % e.to_h) * e.stride - e.pad;
        const int column = (int)(pixel % e.to_w) * e.stride - e.pad;
        float sum = bias ? bias[out] : 0.0f;
        for (int ky = 0; ky < e.k; ky++) {
            for (int kx = 0; kx < e.k; kx++) {
                if (row + ky < 0 || row + ky >= e.h || column + kx < 0 || column + kx >= e.w)
                    continue;
                const T *from = x + ((image * e.h + row + ky) * e.w + column + kx) * e.c_in;
                const T *weight = packed + ((int64_t)(out * e.k + ky) * e.k + kx) * e.c_in;
                for (int j = 0; j < e.c_in; j++)
                    sum = fmaf(widen(from[j]), widen(weight[j]), sum);
            }
        }
        if (per_image)
            sum += widen(per_image[image * e.c_out + out]);
        if (residual)
            sum += widen(residual[i]);
        y[i] = narrow<T>(sum);
    }
}

void cuda_plain_forward(Device *device, const ConvShape *shape, const void *x, const void *packed,
                        const float *bias, const void *per_image, const void *residual, void *y)
{
    const Extents e = extents_of(*shape);
    WITH_TYPE(device, LAUNCH(device, blocks_for(e.n * e.to_h * e.to_w * e.c_out), THREADS, 0,
                             conv_forward_kernel<T>, e, (const T *)x, (const T *)packed, bias,
                             (const T *)per_image, (const T *)residual, (T *)y));
}

template <typename T>
__global__ void conv_backward_data_kernel(Extents e, const T *dy, const T *packed, T *dx, bool add)
{
    FOR_ELEMENTS(i, e.n * e.h * e.w * e.c_in)
    {
        const int64_t pixel = i / e.c_in, image = pixel / e.w / e.h;
        const int in = (int)(i % e.c_in), row = (int)(pixel / e.w % e.h),
                  column = (int)(pixel % e.w);
        float sum = 0;
        for (int ky = 0; ky < e.k; ky++) {
            for (int kx = 0; kx < e.k; kx++) {
                const int to_row = row + e.pad - ky, to_column = column + e.pad - kx;
                if (to_row < 0 || to_row % e.stride != 0 || to_row / e.stride >= e.to_h ||
                    to_column < 0 || to_column % e.stride != 0 || to_column / e.stride >= e.to_w)
                    continue;
                const T *from =
                    dy + ((image * e.to_h + to_row / e.stride) * e.to_w + to_column / e.stride) *
                             e.c_out;
                const T *weight = packed + (int64_t)(ky * e.k + kx) * e.c_in + in;
                for (int out = 0; out < e.c_out; out++)
                    sum = fmaf(widen(from[out]), widen(weight[(int64_t)out * e.k * e.k * e.c_in]),
                               sum);
            }
        }
        dx[i] = narrow<T>(add ? widen(dx[i]) + sum : sum);
    }
}

void cuda_plain_backward_data(Device *device, const ConvShape *shape, const void *dy,
                              const void *packed, void *dx, bool accumulate)
{
    const Extents e = extents_of(*shape);
    WITH_TYPE(device, LAUNCH(device, blocks_for(e.n * e.h * e.w * e.c_in), THREADS, 0,
                             conv_backward_data_kernel<T>, e, (const T *)dy, (const T *)packed,
                             (T *)dx, accumulate));
}

/* Sums are in double, because a chain of all pixels is long. */
template <typename T>
__global__ void conv_backward_weight_kernel(Extents e, const T *x, const T *dy, int64_t row,
                                            float *dweight)
{
    const int taps = e.k * e.k;
    FOR_ELEMENTS(i, (int64_t)e.c_out * taps * e.c_in)
    {
        const int in = (int)(i % e.c_in), tap = (int)(i / e.c_in % taps);
        const int64_t out = i / e.c_in / taps;
        double sum = 0;
        for (int64_t pixel = 0; pixel < e.n * e.to_h * e.to_w; pixel++) {
            const int64_t image = pixel / e.to_w / e.to_h;
            const int y = (int)(pixel / e.to_w % e.to_h) * e.stride - e.pad + tap / e.k;
            const int column = (int)(pixel % e.to_w) * e.stride - e.pad + tap % e.k;
            if (y < 0 || y >= e.h || column < 0 || column >= e.w)
                continue;
            sum += (double)widen(x[((image * e.h + y) * e.w + column) * e.c_in + in]) *
                   (double)widen(dy[pixel * e.c_out + out]);
        }
        dweight[out * row + tap * e.c_in + in] = (float)sum;
    }
}

void cuda_plain_backward_weight(Device *device, const ConvShape *shape, const void *x,
                                const void *dy, int64_t row, float *dweight)
{
    const Extents e = extents_of(*shape);
    WITH_TYPE(device,
              LAUNCH(device, blocks_for(weight_elements(*shape)), THREADS, 0,
                     conv_backward_weight_kernel<T>, e, (const T *)x, (const T *)dy, row, dweight));
}
