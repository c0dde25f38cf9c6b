/* SPDX-License-Identifier: Apache-2.0 */
/* own-convolution.h - convolutions by this project's own kernels, without a library.
 *
 * They are slow, deterministic and take any shape: the yardstick of the fast ones, what computes in fp32, and what the
 * emulator runs. A linear layer is the convolution of one image of 1 x rows pixels with a kernel of 1x1. The packed
 * weight has the device's type and lies as [c_out][k][k][c_in]; dweight is fp32 and lies so, too, or has `row` elements
 * from one output channel's to the next one's, of a kernel of 1x1.
 *
 * Ownership: as kernels.h.
 * Units:     elements.
 * Errors:    as kernels.h.
 * Threads:   as kernels.h.
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
