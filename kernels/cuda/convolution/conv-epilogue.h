/* SPDX-License-Identifier: Apache-2.0 */
/* conv-epilogue.h - adds bias, per_image and residual to the result of a convolution, in a pass of its own.
 *
 * Ownership: none. Units: elements. Errors: as kernels.h. Threads: LANE_COMPUTE's.
 */
#pragma once

#include "kernels/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[n][pixels][c] = y + bias[c] + per_image[n][c] + residual[n][pixels][c], summed in fp32 in that order and rounded
 * once. bias, per_image and residual may be NULL, but not all three. */
void cuda_conv_epilogue(Device *device, int n, int64_t pixels, int c, const float *bias,
                        const void *per_image, const void *residual, void *y);

#ifdef __cplusplus
}
#endif
