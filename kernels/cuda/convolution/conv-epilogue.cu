/* SPDX-License-Identifier: Apache-2.0 */
/* conv-epilogue.cu - see conv-epilogue.h. */
#include "kernels/cuda/convolution/conv-epilogue.h"
#include "kernels/cuda/kernels/kernel.cuh"

template <int N> struct Terms {
    Pack<N> y, bias, per_image, residual;
};

/* packs: the number of packs in a pixel's channels. */
template <int N, typename T>
__global__ void conv_epilogue_kernel(int64_t n, Divisor packs, Divisor pixels, const float *bias,
                                     const T *per_image, const T *residual, T *y)
{
    for_packs(
        n,
        [=](int64_t i) {
            const Quotient pixel = divide(i, packs);
            Terms<N> terms = {load<N>(y + i * N), {}, {}, {}};
            if (bias)
                terms.bias = load<N>(bias + pixel.rest * N);
            if (per_image)
                terms.per_image = load<N>(
                    per_image + (divide(pixel.whole, pixels).whole * packs.by + pixel.rest) * N);
            if (residual)
                terms.residual = load<N>(residual + i * N);
            return terms;
        },
        [=](int64_t i, const Terms<N> &terms) {
            Pack<N> sum = terms.y;
            for (int k = 0; bias && k < N; k++)
                sum.at[k] += terms.bias.at[k];
            for (int k = 0; per_image && k < N; k++)
                sum.at[k] += terms.per_image.at[k];
            for (int k = 0; residual && k < N; k++)
                sum.at[k] += terms.residual.at[k];
            store(y + i * N, sum);
        });
}

void cuda_conv_epilogue(Device *device, int n, int64_t pixels, int c, const float *bias,
                        const void *per_image, const void *residual, void *y)
{
    assert(bias || per_image || residual);
    WITH_PACKS(device, (c, bias, per_image, residual, y),
               LAUNCH(device, blocks_for_packs(n * pixels * c / N), THREADS, 0,
                      (conv_epilogue_kernel<N, T>), n * pixels * c / N, divisor(c / N),
                      divisor(pixels), bias, (const T *)per_image, (const T *)residual, (T *)y));
}
