/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c - linear layers: three products, by cuBLASLt where the device has plans, otherwise by the plain kernels.
 * Plans may leave any of the three products to the plain kernels, because both use the same layout of tensors.
 *
 * Products are column-major (matmul.h), so a row-major matrix appears as its transpose:
 *     y^T[out][rows]  = W[out][in] x^T[in][rows]      W is stored as [in][out]
 *     dx^T[in][rows]  = W^T[in][out] dy^T[out][rows]
 *     dW^T[in][out]   = x^T[in][rows] dy[rows][out]   dy is stored as [out][rows]
 * The library accepts a bias only in the type of the result, so the bias of bf16 results is rounded to bf16 like the
 * weight. dW is fp32, because the library sums in fp32. dbias is summed by this project's column-sum kernel, which
 * always adds in the same order.
 *
 * A layer may use only some columns of a larger weight. These columns are copied to a matrix of their own, so that
 * forward and backward_data are those of any layer of that shape. dW^T is written into the larger matrix with a stride,
 * so this product has a name of its own in the plans. */
#include "base/memory.h"
#include "kernels/cuda/kernels/operations.h"
#include "kernels/cuda/kernels/own-convolution.h"
#include "kernels/cuda/linear/matmul.h"
#include "kernels/cuda/module/compute.h"

#include <limits.h>
#include <stdlib.h>

struct Linear {
    Device *device;
    LinearShape shape;
    ConvShape plain;
    int columns; /* columns of the weight */
    /* Where a product is NULL, the plain kernels compute it. */
    CudaMatmul *forward, *backward_data, *backward_weight;
};

#ifdef SDTRAIN_CUDA_LIBRARIES
/* of: the number of columns of the matrix in which D is stored. If these are more than the columns of the layer, the
 * name of the operation contains their number. */
static int make_product(Linear *l, const char *what, int of, const CudaMatmulShape *shape,
                        CudaMatmul **ret, Error *err)
{
    char more[32] = "";
    if (of != l->shape.in)
        (void)snprintf(more, sizeof(more), " of %d", of);
    _cleanup_free_ char *operation =
        memory_format("linear bf16 %lldx%d%s->%d %s", (long long)l->shape.rows, l->shape.in, more,
                      l->shape.out, what);
    return cuda_matmul_new(l->device, operation, shape, ret, err);
}

/* Returns the alignment in bytes of a layer's first column, where layers of `in` columns lie side by side in rows of
 * `columns` columns. */
static int column_alignment(int in, int columns)
{
    const int bytes = (in | columns) * (int)sizeof(float);
    return MIN(bytes & -bytes, (int)DEVICE_ALIGNMENT);
}

static int make_products(Linear *l, Error *err)
{
    const int64_t rows = l->shape.rows, in = l->shape.in, out = l->shape.out;
    const CudaMatmulShape forward = {out, rows, in, true, false, true, DATA_BF16};
    const CudaMatmulShape backward_data = {in, rows, out, false, false, false, DATA_BF16};
    CudaMatmulShape backward_weight = {in, out, rows, false, true, false, DATA_F32};
    if (l->columns != l->shape.in) {
        backward_weight.d_stride = l->columns;
        backward_weight.d_alignment = column_alignment(l->shape.in, l->columns);
    }
    int r = make_product(l, "forward", l->shape.in, &forward, &l->forward, err);
    if (r == 0 && !l->shape.forward_only)
        r = make_product(l, "backward_data", l->shape.in, &backward_data, &l->backward_data, err);
    if (r == 0 && !l->shape.forward_only)
        r = make_product(l, "backward_weight", l->columns, &backward_weight, &l->backward_weight,
                         err);
    return r;
}
#else
/* No device has plans in such a build, so these functions are not called. */
static int make_products(Linear *l, Error *err)
{
    (void)l;
    return error_set(err, -ENODEV, "this module was built without cuBLASLt");
}

CudaMatmul *cuda_matmul_free(CudaMatmul *matmul) { return matmul; }

size_t cuda_matmul_workspace_bytes(const CudaMatmul *matmul)
{
    (void)matmul;
    return 0;
}

const char *cuda_matmul_operation(const CudaMatmul *matmul)
{
    (void)matmul;
    return NULL;
}

void cuda_matmul_run(CudaMatmul *matmul, const void *a, const void *b, const void *bias,
                     const void *c, void *d, void *workspace)
{
    (void)matmul, (void)a, (void)b, (void)bias, (void)c, (void)d, (void)workspace;
}
#endif

int cuda_linear_new(Device *device, const LinearShape *shape, Linear **ret, Error *err)
{
    if (shape->rows < 1 || shape->rows > INT_MAX || shape->in < 1 || shape->out < 1)
        return error_set(err, -EINVAL, "linear layer %lld x %d -> %d is not supported",
                         (long long)shape->rows, shape->in, shape->out);
    assert(shape->columns == 0 ||
           (shape->first >= 0 && shape->first <= shape->columns - shape->in));
    int r = cuda_compute_begin(cuda_compute(device), err);
    if (r < 0)
        return r;
    Linear *linear = memory_new(Linear);
    linear->device = device;
    linear->shape = *shape;
    linear->columns = shape->columns > 0 ? shape->columns : shape->in;
    linear->plain = (ConvShape){.n = 1,
                                .h = 1,
                                .w = (int)shape->rows,
                                .c_in = shape->in,
                                .c_out = shape->out,
                                .kernel = 1,
                                .stride = 1};
    r = r > 0 && !shape->own_kernels ? make_products(linear, err) : 0;
    if (r < 0) {
        (void)cuda_linear_free(linear);
        return r;
    }
    *ret = linear;
    return 0;
}

Linear *cuda_linear_free(Linear *linear)
{
    if (!linear)
        return NULL;
    (void)cuda_matmul_free(linear->forward);
    (void)cuda_matmul_free(linear->backward_data);
    (void)cuda_matmul_free(linear->backward_weight);
    free(linear);
    return NULL;
}

size_t cuda_linear_packed_bytes(const Linear *linear)
{
    return (size_t)linear->shape.in * (size_t)linear->shape.out *
           data_type_bytes(linear->device->type);
}

/* Returns the bytes of workspace for the bias in bf16, which precede the workspace of the product. */
static size_t bias_bytes(const Linear *linear)
{
    return ROUND_UP((size_t)linear->shape.out * 2, (size_t)DEVICE_ALIGNMENT);
}

/* The plain kernels need no workspace: everything is in registers. */
static size_t product_bytes(const CudaMatmul *product)
{
    return product ? cuda_matmul_workspace_bytes(product) : 0;
}

size_t cuda_linear_workspace_bytes(const Linear *linear)
{
    const size_t forward =
        linear->forward ? bias_bytes(linear) + product_bytes(linear->forward) : 0;
    const size_t backward =
        MAX(product_bytes(linear->backward_data), product_bytes(linear->backward_weight));
    const size_t sums =
        linear->shape.forward_only
            ? 0
            : cuda_column_sums_bytes(linear->device, linear->shape.rows, linear->shape.out);
    return MAX(MAX(forward, backward), sums);
}

void cuda_linear_pack(Linear *linear, const float *weight, void *packed)
{
    const LinearShape *s = &linear->shape;
    if (linear->columns == s->in)
        cuda_plain_pack(linear->device, &linear->plain, weight, packed);
    else
        cuda_plain_pack_columns(linear->device, s->out, s->in, linear->columns, weight + s->first,
                                packed);
}

void cuda_linear_forward(Linear *linear, const void *x, const float *weight, const void *packed,
                         const float *bias, const void *residual, void *y, void *workspace)
{
    (void)weight;
    if (!linear->forward) {
        cuda_plain_forward(linear->device, &linear->plain, x, packed, bias, NULL, residual, y);
        return;
    }
    if (bias)
        cuda_cast_from_f32(linear->device, linear->shape.out, bias, workspace);
    cuda_matmul_run(linear->forward, packed, x, bias ? workspace : NULL, residual, y,
                    (char *)workspace + bias_bytes(linear));
}

void cuda_linear_backward_data(Linear *linear, const void *dy, const float *weight,
                               const void *packed, void *dx, bool accumulate, void *workspace)
{
    (void)weight;
    assert(!linear->shape.forward_only);
    if (!linear->backward_data)
        cuda_plain_backward_data(linear->device, &linear->plain, dy, packed, dx, accumulate);
    else
        cuda_matmul_run(linear->backward_data, packed, dy, NULL, accumulate ? dx : NULL, dx,
                        workspace);
}

/* The declared order is channels last, which with one tap is the same as the state's order. If the state's order were
 * declared, the gradient might be written into the state itself, where it is not aligned. */
GradientForm cuda_linear_gradient_form(const Linear *linear)
{
    return (GradientForm){DATA_F32, GRADIENT_CHANNELS_LAST, linear->shape.out, linear->shape.in, 1};
}

void cuda_linear_backward_weight(Linear *linear, const void *x, const void *dy, void *dweight,
                                 float *dbias, void *workspace)
{
    float *columns = (float *)dweight + linear->shape.first;
    assert(!linear->shape.forward_only);
    if (linear->backward_weight)
        cuda_matmul_run(linear->backward_weight, x, dy, NULL, NULL, columns, workspace);
    else
        cuda_plain_backward_weight(linear->device, &linear->plain, x, dy, linear->columns, columns);
    if (dbias)
        cuda_column_sums(linear->device, linear->shape.rows, linear->shape.out, dy, dbias,
                         workspace);
}

void cuda_linear_plan_text(const Linear *linear, KernelPass pass, char *text, size_t size)
{
    const CudaMatmul *product = pass == KERNEL_FORWARD         ? linear->forward
                                : pass == KERNEL_BACKWARD_DATA ? linear->backward_data
                                                               : linear->backward_weight;
    cuda_plan_text(cuda_compute(linear->device), "cuBLASLt",
                   product ? cuda_matmul_operation(product) : NULL, text, size);
}
