/* SPDX-License-Identifier: Apache-2.0 */
/* operations.h - the CUDA backend's functions: cuda_conv_forward() and so on, as kernels.h describes them.
 *
 * Ownership: as kernels.h. Units: as kernels.h. Errors: as kernels.h. Threads: as kernels.h.
 */
#pragma once

#include "kernels/backend.h"

/* The version of the bits that the kernels compute. It grows when any bit changes. tests/golden/kernels-cuda.txt
 * contains the bits. */
enum { CUDA_NUMERICS_VERSION = 2 };

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_OPERATION(name) __typeof__(name) cuda_##name;
KERNELS_OPERATIONS(CUDA_OPERATION)
#undef CUDA_OPERATION
__typeof__(device_open) cuda_device_open;

/* to[c] = the sum over the rows of from[row][c], computed in double. from has the device's type; workspace has
 * cuda_column_sums_bytes() bytes. */
void cuda_column_sums(Device *device, int64_t rows, int c, const void *from, float *to,
                      void *workspace);
size_t cuda_column_sums_bytes(const Device *device, int64_t rows, int c);
/* to[c] = the sum of parts[pieces][c]. */
void cuda_column_totals(Device *device, int pieces, int c, const double *parts, float *to);

#ifdef __cplusplus
}
#endif
