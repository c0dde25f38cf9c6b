/* SPDX-License-Identifier: Apache-2.0 */
/* forward.h - the functions of cuDNN and cuBLASLt that this module calls. Each forwards to the opened library
 * (libraries.h).
 *
 * The libraries are not linked: a node may have them in any of several places, and a node without a GPU has none. So
 * forward.c defines each function of the lists below under the vendor's own name, and calls the function in the opened
 * library. Callers include <cudnn.h> and <cublasLt.h> as usual. A function that is missing here does not link until
 * a line for it is added below.
 *
 * Ownership: none. Units: as the vendor's.
 * Errors:    before forward_fill(): CUDNN_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_NOT_INITIALIZED, version 0.
 * Threads:   call forward_fill() before any thread calls the functions.
 */
#pragma once

/* In C, cudnn.h needs <stdbool.h> before it. */
#include <stdbool.h>

#include <cublasLt.h>
#include <cudnn.h>

/* X(type, value returned before a library is open, name, parameters, arguments) */
/* clang-format off */
#define FORWARD_CUDNN(X)                                                                                               \
    X(size_t, 0, cudnnGetVersion, (void), ())                                                                          \
    X(size_t, 0, cudnnGetCudartVersion, (void), ())                                                                    \
    X(const char *, "cuDNN is not open", cudnnGetErrorString, (cudnnStatus_t status), (status))                        \
    X(void, (void)0, cudnnGetLastErrorString, (char *text, size_t size), (text, size))                                 \
    FORWARD_CUDNN_STATUS(X, cudnnCreate, (cudnnHandle_t *handle), (handle))                                            \
    FORWARD_CUDNN_STATUS(X, cudnnDestroy, (cudnnHandle_t handle), (handle))                                            \
    FORWARD_CUDNN_STATUS(X, cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream), (handle, stream))             \
    FORWARD_CUDNN_STATUS(X, cudnnGetStream, (cudnnHandle_t handle, cudaStream_t *stream), (handle, stream))            \
    FORWARD_CUDNN_STATUS(X, cudnnBackendCreateDescriptor,                                                              \
                         (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d), (type, d))                  \
    FORWARD_CUDNN_STATUS(X, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t d), (d))                          \
    FORWARD_CUDNN_STATUS(X, cudnnBackendFinalize, (cudnnBackendDescriptor_t d), (d))                                   \
    FORWARD_CUDNN_STATUS(X, cudnnBackendSetAttribute,                                                                  \
                         (cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,                                \
                          cudnnBackendAttributeType_t type, int64_t n, const void *values),                            \
                         (d, name, type, n, values))                                                                   \
    FORWARD_CUDNN_STATUS(X, cudnnBackendGetAttribute,                                                                  \
                         (cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,                          \
                          cudnnBackendAttributeType_t type, int64_t room, int64_t *n, void *values),                   \
                         (d, name, type, room, n, values))                                                             \
    FORWARD_CUDNN_STATUS(X, cudnnBackendExecute,                                                                       \
                         (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack),         \
                         (handle, plan, pack))                                                                         \
    FORWARD_CUDNN_STATUS(X, cudnnBackendPopulateCudaGraph,                                                             \
                         (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack,          \
                          cudaGraph_t graph),                                                                          \
                         (handle, plan, pack, graph))                                                                  \
    FORWARD_CUDNN_STATUS(X, cudnnBackendUpdateCudaGraph,                                                               \
                         (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack,          \
                          cudaGraph_t graph),                                                                          \
                         (handle, plan, pack, graph))

#define FORWARD_CUDNN_STATUS(X, name, parameters, arguments)                                                           \
    X(cudnnStatus_t, CUDNN_STATUS_NOT_INITIALIZED, name, parameters, arguments)

#define FORWARD_CUBLASLT(X)                                                                                            \
    X(size_t, 0, cublasLtGetVersion, (void), ())                                                                       \
    X(size_t, 0, cublasLtGetCudartVersion, (void), ())                                                                 \
    X(const char *, "cuBLASLt is not open", cublasLtGetStatusName, (cublasStatus_t status), (status))                  \
    X(const char *, "cuBLASLt is not open", cublasLtGetStatusString, (cublasStatus_t status), (status))                \
    FORWARD_CUBLASLT_STATUS(X, cublasLtCreate, (cublasLtHandle_t *handle), (handle))                                   \
    FORWARD_CUBLASLT_STATUS(X, cublasLtDestroy, (cublasLtHandle_t handle), (handle))                                   \
    FORWARD_CUBLASLT_STATUS(X, cublasLtMatmul,                                                                         \
                            (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha,               \
                             const void *a, cublasLtMatrixLayout_t a_layout, const void *b,                            \
                             cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,                         \
                             cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,                \
                             const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,                \
                             cudaStream_t stream),                                                                     \
                            (handle, operation, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout,       \
                             algo, workspace, workspace_bytes, stream))                                                \
    FORWARD_CUBLASLT_OBJECT(X, MatrixLayout, MatrixLayoutAttribute_t,                                    \
                            (cublasLtMatrixLayout_t *ret, cudaDataType type, uint64_t rows, uint64_t columns,          \
                             int64_t leading),                                                                         \
                            (ret, type, rows, columns, leading))                                                       \
    FORWARD_CUBLASLT_OBJECT(X, MatmulDesc, MatmulDescAttributes_t,                                         \
                            (cublasLtMatmulDesc_t *ret, cublasComputeType_t compute, cudaDataType_t scale),            \
                            (ret, compute, scale))                                                                     \
    FORWARD_CUBLASLT_OBJECT(X, MatmulPreference, MatmulPreferenceAttributes_t,                       \
                            (cublasLtMatmulPreference_t *ret), (ret))                                                  \
    FORWARD_CUBLASLT_STATUS(X, cublasLtMatmulAlgoGetHeuristic,                                                         \
                            (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,        \
                             cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,             \
                             cublasLtMatmulPreference_t preference, int room,                                          \
                             cublasLtMatmulHeuristicResult_t results[], int *n),                                       \
                            (handle, operation, a, b, c, d, preference, room, results, n))                             \
    FORWARD_CUBLASLT_STATUS(X, cublasLtMatmulAlgoGetIds,                                                               \
                            (cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,               \
                             cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d, int room,         \
                             int ids[], int *n),                                                                       \
                            (handle, compute, scale, a, b, c, d, room, ids, n))                                        \
    FORWARD_CUBLASLT_STATUS(X, cublasLtMatmulAlgoInit,                                                                 \
                            (cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,               \
                             cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d, int id,           \
                             cublasLtMatmulAlgo_t *algo),                                                              \
                            (handle, compute, scale, a, b, c, d, id, algo))                                            \
    FORWARD_CUBLASLT_STATUS(X, cublasLtMatmulAlgoCheck,                                                                \
                            (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,        \
                             cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,             \
                             const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result),               \
                            (handle, operation, a, b, c, d, algo, result))                                             \
    FORWARD_CUBLASLT_STATUS(X, cublasLtMatmulAlgoCapGetAttribute,                                                      \
                            (const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoCapAttributes_t attribute, void *to,  \
                             size_t size, size_t *written),                                                            \
                            (algo, attribute, to, size, written))                                                      \
    FORWARD_CUBLASLT_STATUS(X, cublasLtMatmulAlgoConfigSetAttribute,                                                   \
                            (cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attribute,               \
                             const void *from, size_t size),                                                           \
                            (algo, attribute, from, size))                                                             \
    FORWARD_CUBLASLT_STATUS(X, cublasLtMatmulAlgoConfigGetAttribute,                                                   \
                            (const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attribute,         \
                             void *to, size_t size, size_t *written),                                                  \
                            (algo, attribute, to, size, written))

#define FORWARD_CUBLASLT_STATUS(X, name, parameters, arguments)                                                        \
    X(cublasStatus_t, CUBLAS_STATUS_NOT_INITIALIZED, name, parameters, arguments)
/* The functions of a type of object: create, destroy, set and get an attribute. */
#define FORWARD_CUBLASLT_OBJECT(X, name, attribute, parameters, arguments)                                     \
    FORWARD_CUBLASLT_STATUS(X, cublasLt##name##Create, parameters, arguments)                                          \
    FORWARD_CUBLASLT_STATUS(X, cublasLt##name##Destroy, (cublasLt##name##_t object), (object))                       \
    FORWARD_CUBLASLT_STATUS(X, cublasLt##name##SetAttribute,                                                           \
                            (cublasLt##name##_t object, cublasLt##attribute key, const void *from, size_t size),     \
                            (object, key, from, size))                                                                 \
    FORWARD_CUBLASLT_STATUS(X, cublasLt##name##GetAttribute,                                                           \
                            (cublasLt##name##_t object, cublasLt##attribute key, void *to, size_t size,              \
                             size_t *written),                                                                         \
                            (object, key, to, size, written))
/* clang-format on */

#ifdef __cplusplus
extern "C" {
#endif

/* Takes the functions from two open libraries (handles of dlopen()), and returns NULL. If a function is missing, takes
 * no function and returns the name of the missing one. */
const char *forward_fill(void *cudnn, void *cublaslt);

#ifdef __cplusplus
}
#endif
