/* SPDX-License-Identifier: Apache-2.0 */
/* matmul-internal.h - what runs a product (matmul.c) and what finds its algorithm (matmul-tune.c) share.
 *
 * Ownership: as matmul.h.
 * Units:     bytes.
 * Errors:    as matmul.h.
 * Threads:   as matmul.h.
 */
#pragma once

#include "base/json/json.h"
#include "kernels/cuda/linear/matmul.h"

#include <cublasLt.h>

struct CudaMatmul {
    CudaCompute *compute;
    CudaMatmulShape shape;
    char *operation;
    cublasLtMatmulDesc_t bare,
        biased; /* without and with a bias; the latter only where the shape says so */
    cublasLtMatrixLayout_t a, b, d; /* C lies as D */
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    CudaWork work;
};

/* An error that names the operation, what was asked for, and the library's status. */
int matmul_refuse(const CudaMatmul *matmul, cublasStatus_t status, const char *what, Error *err);
/* Whether the library takes the algorithm for all runs of the object, and with how much workspace. */
cublasStatus_t matmul_check(const CudaMatmul *matmul, const cublasLtMatmulAlgo_t *algorithm,
                            size_t *ret_workspace);
/* The algorithm as an entry of a plan set: its bytes, which are replayed, and its attributes. -EINVAL: the library does
 * not tell these. */
int matmul_algorithm_entry(const cublasLtMatmulAlgo_t *algorithm, size_t workspace, json_t **ret);
cublasStatus_t matmul_start(CudaMatmul *matmul, const cublasLtMatmulAlgo_t *algorithm,
                            const void *a, const void *b, const void *bias, const void *c, void *d,
                            void *workspace, size_t workspace_bytes);
uint32_t matmul_d_alignment(const CudaMatmul *matmul);
/* Tries the algorithms that the library offers, and gives the plans an entry of the best one. */
int matmul_tune(CudaMatmul *matmul, Error *err);
