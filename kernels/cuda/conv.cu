/* SPDX-License-Identifier: Apache-2.0 */
/* conv.cu - convolution and linear layers without a library: a thread for each element of the result.
 *
 * They are slow, deterministic and take any shape: the yardstick of the fast ones, and what the emulator runs. The
 * packed weight has the device's type and lies as [c_out][k][k][c_in]. */
#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/operations.h"

#include <limits.h>
#include <stdlib.h>

struct Conv {
    Device *device;
    ConvShape shape;
};

/* What the kernels want of a ConvShape. */
struct Extents {
    int64_t n;
    int h, w, c_in, to_h, to_w, c_out, k, pad, stride;
};

static Extents extents_of(const Conv *conv)
{
    const ConvShape &s = conv->shape;
    return Extents{s.n,
                   s.h,
                   s.w,
                   s.c_in,
                   DIV_ROUND_UP(s.h, s.stride),
                   DIV_ROUND_UP(s.w, s.stride),
                   s.c_out,
                   s.kernel,
                   s.kernel / 2,
                   s.stride};
}

int cuda_conv_new(Device *device, const ConvShape *shape, Conv **ret, Error *err)
{
    if (shape->n < 1 || shape->h < 1 || shape->w < 1 || shape->c_in < 1 || shape->c_out < 1 ||
        (int64_t)shape->n * shape->h * shape->w > INT_MAX ||
        (shape->kernel != 1 && shape->kernel != 3) || (shape->stride != 1 && shape->stride != 2))
        return error_set(err, -EINVAL,
                         "convolution %dx%dx%d %d->%d, kernel %d, stride %d is not supported",
                         shape->n, shape->h, shape->w, shape->c_in, shape->c_out, shape->kernel,
                         shape->stride);
    Conv *conv = (Conv *)calloc(1, sizeof(*conv));
    if (!conv)
        return error_set(err, -ENOMEM, "no memory for a convolution");
    conv->device = device;
    conv->shape = *shape;
    *ret = conv;
    return 0;
}

Conv *cuda_conv_free(Conv *conv)
{
    free(conv);
    return NULL;
}

static int64_t weight_elements(const Conv *conv)
{
    const ConvShape &s = conv->shape;
    return (int64_t)s.c_out * s.c_in * s.kernel * s.kernel;
}

size_t cuda_conv_packed_bytes(const Conv *conv)
{
    return (size_t)weight_elements(conv) * data_type_bytes(conv->device->type);
}

size_t cuda_conv_workspace_bytes(const Conv *conv)
{
    (void)conv; /* everything is in registers */
    return 0;
}

template <typename T> __global__ void pack_kernel(Extents e, const float *weight, T *packed)
{
    const int taps = e.k * e.k;
    FOR_ELEMENTS(i, (int64_t)e.c_out * taps * e.c_in)
    {
        const int64_t in = i % e.c_in, tap = i / e.c_in % taps, out = i / e.c_in / taps;
        packed[i] = narrow<T>(weight[(out * e.c_in + in) * taps + tap]);
    }
}

void cuda_conv_pack(Conv *conv, const float *weight, void *packed)
{
    Device *device = conv->device;
    const Extents e = extents_of(conv);
    WITH_TYPE(device, LAUNCH(device, blocks_for(weight_elements(conv)), THREADS, 0, pack_kernel<T>,
                             e, weight, (T *)packed));
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

void cuda_conv_forward(Conv *conv, const void *x, const void *packed, const float *bias,
                       const void *per_image, const void *residual, void *y, void *workspace)
{
    (void)workspace;
    Device *device = conv->device;
    const Extents e = extents_of(conv);
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

void cuda_conv_backward_data(Conv *conv, const void *dy, const float *weight, const void *packed,
                             void *dx, bool accumulate, void *workspace)
{
    (void)weight;
    (void)workspace;
    Device *device = conv->device;
    const Extents e = extents_of(conv);
    WITH_TYPE(device, LAUNCH(device, blocks_for(e.n * e.h * e.w * e.c_in), THREADS, 0,
                             conv_backward_data_kernel<T>, e, (const T *)dy, (const T *)packed,
                             (T *)dx, accumulate));
}

/* In double, since a chain of all pixels is long. */
GradientForm cuda_conv_gradient_form(const Conv *conv)
{
    const ConvShape &s = conv->shape;
    return GradientForm{DATA_F32, GRADIENT_CHANNELS_LAST, s.c_out, s.c_in, s.kernel * s.kernel};
}

template <typename T>
__global__ void conv_backward_weight_kernel(Extents e, const T *x, const T *dy, float *dweight)
{
    const int taps = e.k * e.k;
    FOR_ELEMENTS(i, (int64_t)e.c_out * taps * e.c_in)
    {
        const int in = (int)(i % e.c_in), tap = (int)(i / e.c_in % taps);
        const int64_t out = i / e.c_in / taps;
        double sum = 0;
        for (int64_t pixel = 0; pixel < e.n * e.to_h * e.to_w; pixel++) {
            const int64_t image = pixel / e.to_w / e.to_h;
            const int row = (int)(pixel / e.to_w % e.to_h) * e.stride - e.pad + tap / e.k;
            const int column = (int)(pixel % e.to_w) * e.stride - e.pad + tap % e.k;
            if (row < 0 || row >= e.h || column < 0 || column >= e.w)
                continue;
            sum += (double)widen(x[((image * e.h + row) * e.w + column) * e.c_in + in]) *
                   (double)widen(dy[pixel * e.c_out + out]);
        }
        dweight[i] = (float)sum;
    }
}

void cuda_conv_backward_weight(Conv *conv, const void *x, const void *dy, void *dweight,
                               float *dbias, void *workspace)
{
    (void)workspace;
    Device *device = conv->device;
    const Extents e = extents_of(conv);
    WITH_TYPE(device, LAUNCH(device, blocks_for(weight_elements(conv)), THREADS, 0,
                             conv_backward_weight_kernel<T>, e, (const T *)x, (const T *)dy,
                             (float *)dweight));
    if (dbias)
        cuda_column_sums(device, 1, e.n * e.to_h * e.to_w, e.c_out, dy, dbias);
}

/* ---- linear: a convolution of one image of 1 x rows pixels ---- */

struct Linear {
    Device *device;
    Conv conv;
};

int cuda_linear_new(Device *device, const LinearShape *shape, Linear **ret, Error *err)
{
    if (shape->rows < 1 || shape->rows > INT_MAX || shape->in < 1 || shape->out < 1)
        return error_set(err, -EINVAL, "linear layer %lld x %d -> %d is not supported",
                         (long long)shape->rows, shape->in, shape->out);
    Linear *linear = (Linear *)calloc(1, sizeof(*linear));
    if (!linear)
        return error_set(err, -ENOMEM, "no memory for a linear layer");
    linear->device = linear->conv.device = device;
    linear->conv.shape = ConvShape{1, 1, (int)shape->rows, shape->in, shape->out, 1, 1};
    *ret = linear;
    return 0;
}

Linear *cuda_linear_free(Linear *linear)
{
    free(linear);
    return NULL;
}

size_t cuda_linear_packed_bytes(const Linear *linear)
{
    return cuda_conv_packed_bytes(&linear->conv);
}

size_t cuda_linear_workspace_bytes(const Linear *linear)
{
    return cuda_conv_workspace_bytes(&linear->conv);
}

void cuda_linear_pack(Linear *linear, const float *weight, void *packed)
{
    cuda_conv_pack(&linear->conv, weight, packed);
}

void cuda_linear_forward(Linear *linear, const void *x, const float *weight, const void *packed,
                         const float *bias, const void *residual, void *y, void *workspace)
{
    (void)weight;
    cuda_conv_forward(&linear->conv, x, packed, bias, NULL, residual, y, workspace);
}

void cuda_linear_backward_data(Linear *linear, const void *dy, const float *weight,
                               const void *packed, void *dx, bool accumulate, void *workspace)
{
    cuda_conv_backward_data(&linear->conv, dy, weight, packed, dx, accumulate, workspace);
}

GradientForm cuda_linear_gradient_form(const Linear *linear)
{
    return cuda_conv_gradient_form(&linear->conv);
}

void cuda_linear_backward_weight(Linear *linear, const void *x, const void *dy, void *dweight,
                                 float *dbias, void *workspace)
{
    cuda_conv_backward_weight(&linear->conv, x, dy, dweight, dbias, workspace);
}
