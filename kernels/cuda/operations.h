/* SPDX-License-Identifier: Apache-2.0 */
/* operations.h - the CUDA backend's functions: cuda_conv_forward() and so on, as kernels.h describes them.
 *
 * Ownership: as kernels.h.
 * Units:     as kernels.h.
 * Errors:    as kernels.h.
 * Threads:   as kernels.h.
 */
#pragma once

#include "kernels/backend.h"

/* The version of the bits that the kernels give: it grows when any bit changes. tests/golden/kernels-cuda.txt holds
 * them. */
enum { CUDA_NUMERICS_VERSION = 1 };

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_OPERATION(name) __typeof__(name) cuda_##name;
KERNELS_OPERATIONS(CUDA_OPERATION)
#undef CUDA_OPERATION
__typeof__(device_open) cuda_device_open;

/* to[matrix][c] = the sum over the rows of from[matrix][row][c], of the device's type, in double. */
void cuda_column_sums(Device *device, int64_t n_matrices, int64_t rows, int c, const void *from,
                      float *to);

#ifdef __cplusplus
}
#endif
