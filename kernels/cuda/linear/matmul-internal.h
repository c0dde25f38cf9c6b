/* SPDX-License-Identifier: Apache-2.0 */
/* matmul-internal.h - shared by the code that runs a product (matmul.c) and the code that finds its algorithm
 * (matmul-tune.c).
 *
 * Ownership: as matmul.h. Units: bytes. Errors: as matmul.h. Threads: as matmul.h.
 */
#pragma once

#include "base/json/json.h"
#include "kernels/cuda/linear/matmul.h"

#include <cublasLt.h>

struct CudaMatmul {
    CudaCompute *compute;
    CudaMatmulShape shape;
    char *operation;
    /* bare has no bias; biased has a bias, and is set only if the shape has one */
    cublasLtMatmulDesc_t bare, biased;
    cublasLtMatrixLayout_t a, b, d; /* C has the layout of D */
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    CudaWork work;
};

/* Sets an error with the operation, the request `what` and the library's status. */
int matmul_refuse(const CudaMatmul *matmul, cublasStatus_t status, const char *what, Error *err);
/* Checks that the library accepts the algorithm for all runs of the object. Returns the library's status, and the bytes
 * of workspace. */
cublasStatus_t matmul_check(const CudaMatmul *matmul, const cublasLtMatmulAlgo_t *algorithm,
                            size_t *ret_workspace);
/* Makes the entry of an algorithm for a plan set: the algorithm's bytes, which are replayed, and its attributes.
 * -EINVAL: the library does not report the attributes. */
int matmul_algorithm_entry(const cublasLtMatmulAlgo_t *algorithm, size_t workspace, json_t **ret);
cublasStatus_t matmul_start(CudaMatmul *matmul, const cublasLtMatmulAlgo_t *algorithm,
                            const void *a, const void *b, const void *bias, const void *c, void *d,
                            void *workspace, size_t workspace_bytes);
uint32_t matmul_d_alignment(const CudaMatmul *matmul);
/* Tries the algorithms that the library offers, and adds an entry with the best one to the plans. */
int matmul_tune(CudaMatmul *matmul, Error *err);
