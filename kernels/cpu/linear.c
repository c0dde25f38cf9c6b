/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c - a linear layer is a 1x1 convolution of one image of 1 x rows pixels. */
#include "kernels/cpu/device.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

struct Linear {
    Device *device;
    Conv *conv;
};

DEFINE_CLEANUP(Linear, cpu_linear_free)

int cpu_linear_new(Device *device, const LinearShape *shape, Linear **ret, Error *err)
{
    int r;

    if (shape->rows < 1 || shape->rows > INT_MAX)
        return error_set(err, -EINVAL, "linear layer of %lld rows is not supported",
                         (long long)shape->rows);
    if (shape->columns != 0)
        return error_set(err, -ENOTSUP, "a CPU has no linear layer of some columns of a weight");
    _cleanup_(cpu_linear_freep) Linear *linear = calloc(1, sizeof(*linear));
    if (!linear)
        return error_set(err, -ENOMEM, "no memory for a linear layer");
    linear->device = device;
    const ConvShape conv = {.n = 1,
                            .h = 1,
                            .w = (int)shape->rows,
                            .c_in = shape->in,
                            .c_out = shape->out,
                            .kernel = 1,
                            .stride = 1,
                            .forward_only = shape->forward_only};
    r = cpu_conv_new(device, &conv, &linear->conv, err);
    if (r < 0)
        return error_prefix(err, r, "linear layer as a convolution");
    *ret = TAKE_PTR(linear);
    return 0;
}

Linear *cpu_linear_free(Linear *linear)
{
    if (!linear)
        return NULL;
    linear->conv = cpu_conv_free(linear->conv);
    free(linear);
    return NULL;
}

size_t cpu_linear_packed_bytes(const Linear *linear) { return cpu_conv_packed_bytes(linear->conv); }

size_t cpu_linear_workspace_bytes(const Linear *linear)
{
    return cpu_conv_workspace_bytes(linear->conv);
}

void cpu_linear_pack(Linear *linear, const float *weight, void *packed)
{
    cpu_conv_pack(linear->conv, weight, packed);
}

void cpu_linear_forward(Linear *linear, const void *x, const float *weight, const void *packed,
                        const float *bias, const void *residual, void *y, void *workspace)
{
    (void)weight;
    cpu_conv_forward(linear->conv, x, packed, bias, NULL, residual, y, workspace);
}

void cpu_linear_backward_data(Linear *linear, const void *dy, const float *weight,
                              const void *packed, void *dx, bool accumulate, void *workspace)
{
    cpu_conv_backward_data(linear->conv, dy, weight, packed, dx, accumulate, workspace);
}

GradientForm cpu_linear_gradient_form(const Linear *linear)
{
    return cpu_conv_gradient_form(linear->conv);
}

void cpu_linear_backward_weight(Linear *linear, const void *x, const void *dy, void *dweight,
                                float *dbias, void *workspace)
{
    cpu_conv_backward_weight(linear->conv, x, dy, dweight, dbias, workspace);
}

void cpu_linear_plan_text(const Linear *linear, KernelPass pass, char *text, size_t size)
{
    (void)linear, (void)pass; /* the text is empty: a CPU device calls no library */
    (void)snprintf(text, size, "%s", "");
}
