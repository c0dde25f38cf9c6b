/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c - see matmul.h: descriptors, the plan's algorithm, and running a product. matmul-tune.c searches for an
 * algorithm. */
#include "kernels/cuda/linear/matmul.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/number/hash.h"
#include "kernels/cuda/linear/matmul-internal.h"
#include "kernels/cuda/plans/plans.h"

#include <stdlib.h>
#include <string.h>

static const char library[] = "cuBLASLt";

/* Products of bf16 are exact in fp32, and sums are fp32: TF32 is not used. */
static const cublasComputeType_t compute_type = CUBLAS_COMPUTE_32F;
static const cudaDataType_t scale_type = CUDA_R_32F;
static const float one = 1, zero = 0;

static cudaDataType_t type_of(DataType type)
{
    assert(type == DATA_F32 || type == DATA_BF16);
    return type == DATA_F32 ? CUDA_R_32F : CUDA_R_16BF;
}

int matmul_refuse(const CudaMatmul *m, cublasStatus_t status, const char *what, Error *err)
{
    return error_set(err, status == CUBLAS_STATUS_ALLOC_FAILED ? -ENOMEM : -EINVAL,
                     "%s: %s: %s (%s)", m->operation, what, cublasLtGetStatusName(status),
                     cublasLtGetStatusString(status));
}

/* ---- descriptors ---- */

static cublasStatus_t make_operation(const CudaMatmulShape *s, cublasLtEpilogue_t epilogue,
                                     cublasLtMatmulDesc_t *ret)
{
    const cublasOperation_t a = s->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b = s->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    /* The bias is set for each run; before that only the alignment of this value matters. */
    const void *bias = (const void *)(uintptr_t)DEVICE_ALIGNMENT;
    cublasStatus_t status = cublasLtMatmulDescCreate(ret, compute_type, scale_type);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulDescSetAttribute(*ret, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof(a));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulDescSetAttribute(*ret, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof(b));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulDescSetAttribute(*ret, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                                sizeof(epilogue));
    if (status == CUBLAS_STATUS_SUCCESS && epilogue == CUBLASLT_EPILOGUE_BIAS)
        status = cublasLtMatmulDescSetAttribute(*ret, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                sizeof(bias));
    return status;
}

/* stride: 0 for a dense matrix. */
static cublasStatus_t make_layout(cudaDataType_t type, int64_t rows, int64_t columns,
                                  int64_t stride, cublasLtMatrixLayout_t *ret)
{
    return cublasLtMatrixLayoutCreate(ret, type, (uint64_t)rows, (uint64_t)columns,
                                      stride ? stride : rows);
}

static int make_descriptors(CudaMatmul *m, Error *err)
{
    const CudaMatmulShape *s = &m->shape;
    cublasStatus_t status = make_operation(s, CUBLASLT_EPILOGUE_DEFAULT, &m->bare);
    if (status == CUBLAS_STATUS_SUCCESS && s->biased)
        status = make_operation(s, CUBLASLT_EPILOGUE_BIAS, &m->biased);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layout(CUDA_R_16BF, s->a_transposed ? s->k : s->m,
                             s->a_transposed ? s->m : s->k, s->a_stride, &m->a);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layout(CUDA_R_16BF, s->b_transposed ? s->n : s->k,
                             s->b_transposed ? s->k : s->n, s->b_stride, &m->b);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layout(type_of(s->type), s->m, s->n, s->d_stride, &m->d);
    return status == CUBLAS_STATUS_SUCCESS ? 0 : matmul_refuse(m, status, "descriptors", err);
}

/* ---- the algorithm ---- */

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == CUDA_PLANS_OPAQUE_BYTES, "opaque");

/* The attributes of an algorithm and their names in the plans. The id is the first one: it is given when an
 * algorithm is made, and cannot be set afterwards. */
static const struct {
    const char *name;
    cublasLtMatmulAlgoConfigAttributes_t key;
    size_t size;
} attributes[] = {
    {"id", CUBLASLT_ALGO_CONFIG_ID, sizeof(int32_t)},
    {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID, sizeof(uint32_t)},
    {"split_k", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, sizeof(int32_t)},
    {"reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, sizeof(uint32_t)},
    {"swizzling", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, sizeof(uint32_t)},
    {"custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, sizeof(uint32_t)},
    {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, sizeof(uint32_t)},
    {"inner_shape", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, sizeof(uint16_t)},
    {"cluster_shape", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, sizeof(uint16_t)},
};

static int64_t number(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static cublasStatus_t read_attribute(const cublasLtMatmulAlgo_t *algorithm, size_t i, int64_t *ret)
{
    uint32_t wide = 0;
    uint16_t narrow = 0;
    size_t written;
    void *to = attributes[i].size == sizeof(narrow) ? (void *)&narrow : &wide;
    cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(algorithm, attributes[i].key, to,
                                                                 attributes[i].size, &written);
    *ret = (int64_t)wide + narrow;
    return status;
}

/* Makes the algorithm from its attributes only. */
static cublasStatus_t make_algorithm(const CudaMatmul *m, const json_t *algorithm,
                                     cublasLtMatmulAlgo_t *ret)
{
    const cudaDataType_t d = type_of(m->shape.type);
    cublasStatus_t status =
        cublasLtMatmulAlgoInit(m->compute->cublaslt, compute_type, scale_type, CUDA_R_16BF,
                               CUDA_R_16BF, d, d, (int)number(algorithm, "id"), ret);
    for (size_t i = 1; status == CUBLAS_STATUS_SUCCESS && i < ELEMENTSOF(attributes); i++) {
        const int64_t value = number(algorithm, attributes[i].name);
        const uint32_t wide = (uint32_t)value;
        const uint16_t narrow = (uint16_t)value;
        if (attributes[i].size == sizeof(narrow) && narrow != value)
            return CUBLAS_STATUS_INVALID_VALUE;
        status = cublasLtMatmulAlgoConfigSetAttribute(ret, attributes[i].key,
                                                      attributes[i].size == sizeof(narrow)
                                                          ? (const void *)&narrow
                                                          : &wide,
                                                      attributes[i].size);
    }
    return status;
}

/* Restores the algorithm from the library's own form, whose digits plans.c has already checked. */
static int restore_algorithm(const CudaMatmul *m, const json_t *algorithm, const char *opaque,
                             cublasLtMatmulAlgo_t *ret, Error *err)
{
    uint8_t bytes[sizeof(*ret)];
    for (size_t i = 0; i < sizeof(bytes); i++) {
        const char digits[] = {opaque[2 * i], opaque[2 * i + 1], '\0'};
        bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    memcpy(ret, bytes, sizeof(*ret));
    for (size_t i = 0; i < ELEMENTSOF(attributes); i++) {
        int64_t is, told = number(algorithm, attributes[i].name);
        cublasStatus_t status = read_attribute(ret, i, &is);
        if (status != CUBLAS_STATUS_SUCCESS)
            return matmul_refuse(m, status, "cuBLASLt cannot read the plan's algorithm.opaque",
                                 err);
        if (is != told)
            return error_set(err, -EINVAL,
                             "%s: the plan's algorithm.%s is %lld, and cuBLASLt reads %lld in "
                             "algorithm.opaque",
                             m->operation, attributes[i].name, (long long)told, (long long)is);
    }
    return 0;
}

int matmul_algorithm_entry(const cublasLtMatmulAlgo_t *algorithm, size_t workspace, json_t **ret)
{
    uint8_t bytes[sizeof(*algorithm)];
    char opaque[2 * sizeof(bytes) + 1];
    _cleanup_json_ json_t *values = json_object();
    for (size_t i = 0; i < ELEMENTSOF(attributes); i++) {
        int64_t value;
        if (read_attribute(algorithm, i, &value) != CUBLAS_STATUS_SUCCESS || value < 0 ||
            value > INT32_MAX) /* plans.c accepts no such value */
            return -EINVAL;
        json_object_set_new(values, attributes[i].name, json_integer(value));
    }
    memcpy(bytes, algorithm, sizeof(bytes));
    json_object_set_new(values, "opaque",
                        json_string(hash_format_bytes(bytes, sizeof(bytes), opaque)));
    *ret = json_pack("{s:O,s:I}", "algorithm", values, "workspace", (json_int_t)workspace);
    return 0;
}

static cublasStatus_t check_one(const CudaMatmul *m, cublasLtMatmulDesc_t operation,
                                const cublasLtMatmulAlgo_t *algorithm, size_t *workspace)
{
    cublasLtMatmulHeuristicResult_t result;
    cublasStatus_t status = cublasLtMatmulAlgoCheck(m->compute->cublaslt, operation, m->a, m->b,
                                                    m->d, m->d, algorithm, &result);
    if (status == CUBLAS_STATUS_SUCCESS)
        *workspace = MAX(*workspace, result.workspaceSize);
    return status;
}

cublasStatus_t matmul_check(const CudaMatmul *m, const cublasLtMatmulAlgo_t *algorithm,
                            size_t *ret_workspace)
{
    int32_t out_of_place = 0;
    size_t written;
    *ret_workspace = 0;
    cublasStatus_t status = check_one(m, m->bare, algorithm, ret_workspace);
    if (status == CUBLAS_STATUS_SUCCESS && m->biased)
        status = check_one(m, m->biased, algorithm, ret_workspace);
    if (status == CUBLAS_STATUS_SUCCESS) /* C may be a matrix other than D */
        status = cublasLtMatmulAlgoCapGetAttribute(algorithm,
                                                   CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT,
                                                   &out_of_place, sizeof(out_of_place), &written);
    return status == CUBLAS_STATUS_SUCCESS && !out_of_place ? CUBLAS_STATUS_NOT_SUPPORTED : status;
}

static int use_entry(CudaMatmul *m, const json_t *entry, Error *err)
{
    size_t needed = 0;
    const json_t *algorithm = json_object_get(entry, "algorithm");
    const char *opaque = json_string_value(json_object_get(algorithm, "opaque"));
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    int r = opaque ? restore_algorithm(m, algorithm, opaque, &m->algorithm, err) : 0;
    if (r < 0)
        return r;
    if (!opaque)
        status = make_algorithm(m, algorithm, &m->algorithm);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = matmul_check(m, &m->algorithm, &needed);
    if (status != CUBLAS_STATUS_SUCCESS)
        return matmul_refuse(m, status,
                             opaque ? "cuBLASLt refuses the plan's algorithm.opaque"
                                    : "cuBLASLt refuses the plan's algorithm",
                             err);
    m->workspace_bytes = (size_t)number(entry, "workspace");
    if (needed > m->workspace_bytes)
        return error_set(err, -EINVAL,
                         "%s: cuBLASLt wants a workspace of %zu bytes for the plan's algorithm, "
                         "which has %zu",
                         m->operation, needed, m->workspace_bytes);
    return 0;
}

/* ---- the object ---- */

/* Counts no bias and no C, which only some runs have. */
static CudaWork work_of(const CudaMatmul *m)
{
    const double rows = (double)m->shape.m, columns = (double)m->shape.n, k = (double)m->shape.k;
    const double d_bytes = (double)data_type_bytes(m->shape.type) * rows * columns;
    return (CudaWork){.name = cuda_compute_name(m->compute, m->operation),
                      .bytes = 2 * (rows * k + k * columns) + d_bytes,
                      .flop = 2 * rows * columns * k};
}

static int open_handle(CudaMatmul *m, Error *err)
{
    CudaCompute *c = m->compute;
    (void)cuda_compute_stream(c->device); /* makes the device's GPU current */
    if (c->cublaslt)
        return 0;
    cublasStatus_t status = cublasLtCreate(&c->cublaslt);
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    return error_set(err, -EIO, "%s: GPU %s: cuBLASLt gives no handle: %s (%s)", m->operation,
                     c->machine->device, cublasLtGetStatusName(status),
                     cublasLtGetStatusString(status));
}

int cuda_matmul_new(Device *device, const char *operation, const CudaMatmulShape *shape,
                    CudaMatmul **ret, Error *err)
{
    assert(!shape->biased || shape->type == DATA_BF16);
    CudaMatmul *m = memory_new(CudaMatmul);
    m->compute = cuda_compute(device);
    m->shape = *shape;
    m->operation = memory_text(operation);
    m->work = work_of(m);
    const json_t *entry;
    int r = open_handle(m, err);
    if (r == 0)
        r = make_descriptors(m, err);
    if (r == 0 && m->compute->tune)
        r = matmul_tune(m, err);
    if (r == 0)
        r = cuda_plans_take(m->compute->plans, operation, &entry, err);
    const bool own = r == 0 && json_is_true(json_object_get(entry, "own_kernels"));
    if (own && !m->compute->tune)
        log_warning("our own kernels, which are slow, compute %s: cuBLASLt had no algorithm when "
                    "the plans were made",
                    operation);
    if (r == 0 && !own)
        r = use_entry(m, entry, err);
    if (r < 0 || own)
        m = cuda_matmul_free(m);
    if (r == 0)
        *ret = m;
    return r;
}

/* Descriptors are plain memory of this process: destroying one cannot fail. */
CudaMatmul *cuda_matmul_free(CudaMatmul *m)
{
    if (!m)
        return NULL;
    if (m->bare)
        (void)cublasLtMatmulDescDestroy(m->bare);
    if (m->biased)
        (void)cublasLtMatmulDescDestroy(m->biased);
    if (m->a)
        (void)cublasLtMatrixLayoutDestroy(m->a);
    if (m->b)
        (void)cublasLtMatrixLayoutDestroy(m->b);
    if (m->d)
        (void)cublasLtMatrixLayoutDestroy(m->d);
    free(m->operation);
    free(m);
    return NULL;
}

size_t cuda_matmul_workspace_bytes(const CudaMatmul *m) { return m->workspace_bytes; }

const char *cuda_matmul_operation(const CudaMatmul *m) { return m->operation; }

uint32_t matmul_d_alignment(const CudaMatmul *m)
{
    return m->shape.d_alignment ? (uint32_t)m->shape.d_alignment : DEVICE_ALIGNMENT;
}

cublasStatus_t matmul_start(CudaMatmul *m, const cublasLtMatmulAlgo_t *algorithm, const void *a,
                            const void *b, const void *bias, const void *c, void *d,
                            void *workspace, size_t workspace_bytes)
{
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    struct CUstream_st *stream = cuda_compute_stream(m->compute->device);
    if (bias)
        status = cublasLtMatmulDescSetAttribute(m->biased, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                sizeof(bias));
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    return cublasLtMatmul(m->compute->cublaslt, bias ? m->biased : m->bare, &one, a, m->a, b, m->b,
                          c ? &one : &zero, c ? c : d, m->d, d, m->d, algorithm, workspace,
                          workspace_bytes, stream);
}

void cuda_matmul_run(CudaMatmul *m, const void *a, const void *b, const void *bias, const void *c,
                     void *d, void *workspace)
{
    assert(!bias || m->biased);
    assert(((uintptr_t)a | (uintptr_t)b | (uintptr_t)bias | (uintptr_t)workspace) %
               DEVICE_ALIGNMENT ==
           0);
    assert(((uintptr_t)c | (uintptr_t)d) % matmul_d_alignment(m) == 0);
    cublasStatus_t status =
        matmul_start(m, &m->algorithm, a, b, bias, c, d, workspace, m->workspace_bytes);
    if (status != CUBLAS_STATUS_SUCCESS)
        cuda_compute_break(m->compute, m->operation, library, cublasLtGetStatusName(status));
    cuda_launched(m->compute->device, &m->work);
}
