/* SPDX-License-Identifier: Apache-2.0 */
/* convolution.c - the convolutions of kernels.h: by cuDNN where the device has plans, otherwise by the plain kernels.
 *
 * cuDNN's engine rounds its sums to bf16. The terms that forward adds to the sums are added in a separate pass, which
 * reads y again and rounds a second time. The gradient of the weight is rounded to bf16 as well, because no fast engine
 * gives fp32. */
#include "base/memory.h"
#include "kernels/cuda/convolution/conv-epilogue.h"
#include "kernels/cuda/kernels/operations.h"
#include "kernels/cuda/kernels/own-convolution.h"
#include "kernels/cuda/module/compute.h"

#include <stdlib.h>

#ifdef SDTRAIN_CUDA_LIBRARIES
#include "kernels/cuda/convolution/conv-library.h"
#else
/* Without the libraries no device has plans, so these functions are never called. */
typedef struct ConvLibrary ConvLibrary;
enum { CONV_FORWARD, CONV_BACKWARD_DATA, CONV_BACKWARD_WEIGHT };

static int conv_library_new(Device *device, const ConvShape *shape, ConvLibrary **ret, Error *err)
{
    (void)device, (void)shape, (void)ret;
    return error_set(err, -ENODEV, "this module was built without cuDNN");
}

static ConvLibrary *conv_library_free(ConvLibrary *library) { return library; }

static size_t conv_library_workspace_bytes(const ConvLibrary *library)
{
    (void)library;
    return 0;
}

static const char *conv_library_operation(const ConvLibrary *library, int pass)
{
    (void)library, (void)pass;
    return NULL;
}

static void conv_library_run(const ConvLibrary *library, int pass, bool add, const void *x,
                             const void *w, const void *y, void *workspace)
{
    (void)library, (void)pass, (void)add, (void)x, (void)w, (void)y, (void)workspace;
}
#endif

struct Conv {
    Device *device;
    ConvShape shape;
    ConvLibrary *library; /* NULL: the plain kernels compute all passes */
};

/* Returns the pass' name in the plans, or NULL if our own kernels compute the pass. */
static const char *planned(const Conv *conv, int pass)
{
    return conv->library ? conv_library_operation(conv->library, pass) : NULL;
}

int cuda_conv_new(Device *device, const ConvShape *shape, Conv **ret, Error *err)
{
    if (!conv_shape_valid(shape))
        return error_set(err, -EINVAL,
                         "convolution %dx%dx%d %d->%d, kernel %d, stride %d%s is not supported",
                         shape->n, shape->h, shape->w, shape->c_in, shape->c_out, shape->kernel,
                         shape->stride, shape->pad_end ? ", padded at the end" : "");
    int r = cuda_compute_begin(cuda_compute(device), err);
    if (r < 0)
        return r;
    Conv *conv = memory_new(Conv);
    conv->device = device;
    conv->shape = *shape;
    r = r > 0 && !shape->own_kernels ? conv_library_new(device, shape, &conv->library, err) : 0;
    if (r < 0) {
        free(conv);
        return r;
    }
    *ret = conv;
    return 0;
}

Conv *cuda_conv_free(Conv *conv)
{
    if (conv)
        (void)conv_library_free(conv->library);
    free(conv);
    return NULL;
}

size_t cuda_conv_packed_bytes(const Conv *conv)
{
    const ConvShape *s = &conv->shape;
    return (size_t)s->c_out * (size_t)s->c_in * (size_t)(s->kernel * s->kernel) *
           data_type_bytes(conv->device->type);
}

void cuda_conv_pack(Conv *conv, const float *weight, void *packed)
{
    cuda_plain_pack(conv->device, &conv->shape, weight, packed);
}

static int64_t output_pixels(const ConvShape *s)
{
    return (int64_t)conv_output_side(s, s->h) * conv_output_side(s, s->w);
}

size_t cuda_conv_workspace_bytes(const Conv *conv)
{
    const ConvShape *s = &conv->shape;
    const size_t library = conv->library ? conv_library_workspace_bytes(conv->library) : 0;
    if (s->forward_only)
        return library;
    return MAX(library, cuda_column_sums_bytes(conv->device, s->n * output_pixels(s), s->c_out));
}

void cuda_conv_forward(Conv *conv, const void *x, const void *packed, const float *bias,
                       const void *per_image, const void *residual, void *y, void *workspace)
{
    const ConvShape *s = &conv->shape;
    if (!planned(conv, CONV_FORWARD)) {
        cuda_plain_forward(conv->device, s, x, packed, bias, per_image, residual, y);
        return;
    }
    /* If y contains the residual, the engine must add to y: an engine that overwrites y would lose the residual. */
    const bool in_place = residual == y;
    conv_library_run(conv->library, CONV_FORWARD, in_place, x, packed, y, workspace);
    if (bias || per_image || (residual && !in_place))
        cuda_conv_epilogue(conv->device, s->n, output_pixels(s), s->c_out, bias, per_image,
                           in_place ? NULL : residual, y);
}

void cuda_conv_backward_data(Conv *conv, const void *dy, const float *weight, const void *packed,
                             void *dx, bool accumulate, void *workspace)
{
    (void)weight; /* the packed weight is used */
    assert(!conv->shape.forward_only);
    if (planned(conv, CONV_BACKWARD_DATA))
        conv_library_run(conv->library, CONV_BACKWARD_DATA, accumulate, dx, packed, dy, workspace);
    else
        cuda_plain_backward_data(conv->device, &conv->shape, dy, packed, dx, accumulate);
}

GradientForm cuda_conv_gradient_form(const Conv *conv)
{
    const ConvShape *s = &conv->shape;
    return (GradientForm){planned(conv, CONV_BACKWARD_WEIGHT) ? DATA_BF16 : DATA_F32,
                          GRADIENT_CHANNELS_LAST, s->c_out, s->c_in, s->kernel * s->kernel};
}

void cuda_conv_backward_weight(Conv *conv, const void *x, const void *dy, void *dweight,
                               float *dbias, void *workspace)
{
    const ConvShape *s = &conv->shape;
    assert(!s->forward_only);
    if (planned(conv, CONV_BACKWARD_WEIGHT))
        conv_library_run(conv->library, CONV_BACKWARD_WEIGHT, false, x, dweight, dy, workspace);
    else
        cuda_plain_backward_weight(conv->device, s, x, dy, (int64_t)s->kernel * s->kernel * s->c_in,
                                   dweight);
    if (dbias)
        cuda_column_sums(conv->device, s->n * output_pixels(s), s->c_out, dy, dbias, workspace);
}

void cuda_conv_plan_text(const Conv *conv, KernelPass pass, char *text, size_t size)
{
    const int of_library = pass == KERNEL_FORWARD         ? CONV_FORWARD
                           : pass == KERNEL_BACKWARD_DATA ? CONV_BACKWARD_DATA
                                                          : CONV_BACKWARD_WEIGHT;
    cuda_plan_text(cuda_compute(conv->device), "cuDNN", planned(conv, of_library), text, size);
}
