/* SPDX-License-Identifier: Apache-2.0 */
/* own-convolution.h - convolutions by this project's own kernels, without a library.
 *
 * The kernels are slow and deterministic and serve any shape: the fast kernels are compared with them, devices of fp32
 * use them, and the emulator runs them. A linear layer is the convolution of one image of 1 x rows pixels with a kernel
 * of 1x1. The packed weight has the device's type and the layout [c_out][k][k][c_in]. dweight is fp32 and has the same
 * layout, or, for a kernel of 1x1, `row` elements from one output channel to the next.
 *
 * Ownership: as kernels.h. Units: elements. Errors: as kernels.h. Threads: as kernels.h.
 */
#pragma once

#include "kernels/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

void cuda_plain_pack(Device *device, const ConvShape *shape, const float *weight, void *packed);
/* packed[rows][n] = the first n of each `columns` elements of weight, in the device's type. */
void cuda_plain_pack_columns(Device *device, int rows, int n, int columns, const float *weight,
                             void *packed);
/* As conv_forward(): bias, per_image and residual may be NULL, residual may be y. */
void cuda_plain_forward(Device *device, const ConvShape *shape, const void *x, const void *packed,
                        const float *bias, const void *per_image, const void *residual, void *y);
void cuda_plain_backward_data(Device *device, const ConvShape *shape, const void *dy,
                              const void *packed, void *dx, bool accumulate);
void cuda_plain_backward_weight(Device *device, const ConvShape *shape, const void *x,
                                const void *dy, int64_t row, float *dweight);

#ifdef __cplusplus
}
#endif
