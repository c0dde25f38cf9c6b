/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.h - a product of two bf16 matrices, computed by cuBLASLt with the algorithm that the plans name.
 *
 * Matrices are column-major, as the library expects: D[m][n] = A[m][k] B[k][n], plus a bias for each row, plus C. A
 * row-major matrix is the transpose of a column-major one: y = x W^T has D = y^T, A = W and B = x^T.
 *
 * Ownership: cuda_matmul_new() gives the caller the object, cuda_matmul_free() accepts NULL. The object borrows its
 *            device.
 * Units:     elements; workspace in bytes.
 * Errors:    see cuda_matmul_new(). A call that fails while it runs breaks the device.
 * Threads:   LANE_COMPUTE's.
 */
#pragma once

#include "kernels/cuda/module/compute.h"

typedef struct CudaMatmul CudaMatmul;

typedef struct CudaMatmulShape {
    int64_t m, n, k;
    bool a_transposed; /* A is stored as [k][m] */
    bool b_transposed; /* B is stored as [n][k] */
    bool biased;       /* some runs have a bias, which is bf16; D must then be bf16 */
    DataType type;     /* the type of C and D: DATA_BF16 or DATA_F32 */
    /* Elements from one stored column to the next; 0: the matrix is dense. C has the stride of D. */
    int64_t a_stride, b_stride, d_stride;
    int d_alignment; /* bytes to which C and D are aligned if they are columns of a wider matrix; 0: DEVICE_ALIGNMENT */
} CudaMatmulShape;

/* operation: the product's name in the plans. *ret is NULL where the plans leave the product of a linear layer to our
 * own kernels, which the caller then calls. -ENOENT: the plans have no entry; -EINVAL: the library refuses the entry's
 * algorithm for this shape; -EIO: the library gives no handle; all texts name the operation. A device that makes plans
 * tries algorithms where the plans have no entry. */
int cuda_matmul_new(Device *device, const char *operation, const CudaMatmulShape *shape,
                    CudaMatmul **ret, Error *err);
CudaMatmul *cuda_matmul_free(CudaMatmul *matmul);
size_t cuda_matmul_workspace_bytes(const CudaMatmul *matmul);
const char *cuda_matmul_operation(const CudaMatmul *matmul);
/* All pointers are aligned to DEVICE_ALIGNMENT, except c and d if the shape has a d_alignment. bias is NULL or m
 * elements; c is added to the product, and may be NULL or equal to d. */
void cuda_matmul_run(CudaMatmul *matmul, const void *a, const void *b, const void *bias,
                     const void *c, void *d, void *workspace);
