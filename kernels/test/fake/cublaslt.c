/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt.c - a fake cuBLASLt that reads the descriptors that it gets, and computes in the host's memory.
 *
 * It relies on nothing but the documented interface: a wrong transpose, dimension or scale gives a wrong result or the
 * status that the header documents, so that a caller's descriptors are tested without a GPU. It supports what this
 * project uses: bf16 or fp32 matrices, column or row order, one matrix in a batch, scales on the host, a bias.
 * Everything else is CUBLAS_STATUS_NOT_SUPPORTED. Unlike the real library it also refuses, with a line on standard
 * error, an algorithm that reduces in place, whose sums depend on the order in which blocks finish.
 *
 * FAKE_CUBLASLT_FAIL=<function>: that function fails with CUBLAS_STATUS_EXECUTION_FAILED. FAKE_CUBLASLT_WAVER=N: the
 * N-th product, identified by the addresses of its matrices, has another bit in its last element from its second run
 * on; FAKE_CUBLASLT_NAN=N: the N-th product has a NaN there in each run.
 * FAKE_CUBLASLT_HIDDEN: the offered algorithms have a setting that no attribute reports, which makes sums begin at
 * their end. With "needed" the second kind of algorithm is refused without this setting.
 * FAKE_CUBLASLT_UNASKED: algorithms with reductions that were not requested are offered, too.
 * FAKE_CUBLASLT_USEC=0:USEC,1:USEC: how long the kinds of algorithm take by the stream's clock (fake-environment.h). */
#include "kernels/cuda/module/forward.h"
#include "kernels/test/fake/fake-environment.h"
#include "kernels/test/fake/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK CUBLAS_STATUS_SUCCESS
#define INVALID CUBLAS_STATUS_INVALID_VALUE
#define UNSUPPORTED CUBLAS_STATUS_NOT_SUPPORTED

/* ---- the contents of the opaque structures ---- */

typedef enum Magic { HANDLE = 0x68616e64, LAYOUT, OPERATION, PREFERENCE, ALGORITHM } Magic;

struct cublasLtContext {
    uint32_t magic;
};

typedef struct Layout {
    uint32_t magic, type;
    int32_t order, batch;
    uint64_t rows, columns;
    int64_t leading;
} Layout;

typedef struct Operation {
    uint32_t magic;
    int32_t compute, scale, pointer_mode, a, b;
    uint32_t epilogue;
    int32_t bias_type; /* -1: the type of D */
    const void *bias;
} Operation;

typedef struct Preference {
    uint32_t magic, reductions, alignment[4];
    uint64_t workspace;
} Preference;

typedef struct Algorithm {
    uint32_t magic;
    int32_t id;
    uint32_t tile, reduction, swizzling, custom, stages;
    int32_t split;
    uint16_t inner, cluster;
    uint8_t types[3]; /* the types of A, B and D, as given to cublasLtMatmulAlgoInit() */
    bool hidden;      /* FAKE_CUBLASLT_HIDDEN was set when the library offered the algorithm */
} Algorithm;

_Static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "layout");
_Static_assert(sizeof(Operation) <= sizeof(cublasLtMatmulDescOpaque_t), "operation");
_Static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "preference");
_Static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t), "algorithm");

/* Kinds of algorithm: the first accepts any operands, the second needs the alignment of tensor cores. */
static const struct {
    uint32_t alignment; /* the alignment of pointers and of leading dimensions, in bytes */
    bool splits;
} kinds[] = {{2, false}, {16, true}};

enum { KINDS = sizeof(kinds) / sizeof(*kinds), TILES = 40, STAGES = 40, CUSTOM_MAX = 3 };

#define MAY_FAIL()                                                                                 \
    do {                                                                                           \
        if (fake_is_told("FAKE_CUBLASLT_FAIL", __func__))                                          \
            return CUBLAS_STATUS_EXECUTION_FAILED;                                                 \
    } while (0)

static Layout *layout_of(cublasLtMatrixLayout_t opaque)
{
    Layout *l = (Layout *)(void *)opaque;
    return l && l->magic == LAYOUT ? l : NULL;
}

static Operation *operation_of(cublasLtMatmulDesc_t opaque)
{
    Operation *o = (Operation *)(void *)opaque;
    return o && o->magic == OPERATION ? o : NULL;
}

/* An attribute: the address and the size of its value. size 0: the fake library does not have the attribute. */
typedef struct Field {
    void *at;
    size_t size;
} Field;

#define FIELD(member) ((Field){&(member), sizeof(member)})

static cublasStatus_t set(Field field, const void *from, size_t size)
{
    if (field.size == 0)
        return UNSUPPORTED;
    if (!from || size != field.size)
        return INVALID;
    memcpy(field.at, from, size);
    return OK;
}

static cublasStatus_t get(Field field, void *to, size_t size, size_t *written)
{
    if (field.size == 0)
        return UNSUPPORTED;
    if (size == 0 && !written)
        return INVALID;
    if (size != 0 && (!to || size != field.size))
        return INVALID;
    if (size != 0)
        memcpy(to, field.at, size);
    if (written)
        *written = field.size;
    return OK;
}

/* The functions that each kind of object has besides its Create. */
#define OBJECT(name, keys, object_of, field_of)                                                    \
    cublasStatus_t cublasLt##name##Destroy(cublasLt##name##_t object)                              \
    {                                                                                              \
        free(object);                                                                              \
        return OK;                                                                                 \
    }                                                                                              \
    cublasStatus_t cublasLt##name##SetAttribute(cublasLt##name##_t object, cublasLt##keys key,     \
                                                const void *from, size_t size)                     \
    {                                                                                              \
        MAY_FAIL();                                                                                \
        return object_of(object) ? set(field_of(object_of(object), key), from, size) : INVALID;    \
    }                                                                                              \
    cublasStatus_t cublasLt##name##GetAttribute(cublasLt##name##_t object, cublasLt##keys key,     \
                                                void *to, size_t size, size_t *written)            \
    {                                                                                              \
        return object_of(object) ? get(field_of(object_of(object), key), to, size, written)        \
                                 : INVALID;                                                        \
    }

/* ---- handle ---- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *ret)
{
    MAY_FAIL();
    struct cublasLtContext *handle = calloc(1, sizeof(*handle));
    if (!ret || !handle) {
        free(handle);
        return ret ? CUBLAS_STATUS_ALLOC_FAILED : INVALID;
    }
    handle->magic = HANDLE;
    *ret = handle;
    return OK;
}

static bool is_handle(cublasLtHandle_t handle) { return handle && handle->magic == HANDLE; }

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    if (!is_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    free(handle);
    return OK;
}

/* ---- layout ---- */

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *ret, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading)
{
    MAY_FAIL();
    if (!ret)
        return INVALID;
    *ret = calloc(1, sizeof(**ret));
    if (!*ret)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *(Layout *)(void *)*ret = (Layout){.magic = LAYOUT,
                                       .type = (uint32_t)type,
                                       .order = CUBLASLT_ORDER_COL,
                                       .batch = 1,
                                       .rows = rows,
                                       .columns = columns,
                                       .leading = leading};
    return OK;
}

static Field layout_field(Layout *l, cublasLtMatrixLayoutAttribute_t key)
{
    switch (key) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        return FIELD(l->type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return FIELD(l->order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return FIELD(l->rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        return FIELD(l->columns);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return FIELD(l->leading);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return FIELD(l->batch);
    default:
        return (Field){NULL, 0};
    }
}

OBJECT(MatrixLayout, MatrixLayoutAttribute_t, layout_of, layout_field)

/* ---- operation ---- */

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *ret, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    MAY_FAIL();
    if (!ret)
        return INVALID;
    *ret = calloc(1, sizeof(**ret));
    if (!*ret)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *(Operation *)(void *)*ret = (Operation){.magic = OPERATION,
                                             .compute = (int32_t)compute,
                                             .scale = (int32_t)scale,
                                             .a = CUBLAS_OP_N,
                                             .b = CUBLAS_OP_N,
                                             .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                                             .bias_type = -1};
    return OK;
}

static Field operation_field(Operation *o, cublasLtMatmulDescAttributes_t key)
{
    switch (key) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        return FIELD(o->compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        return FIELD(o->scale);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return FIELD(o->pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return FIELD(o->a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return FIELD(o->b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return FIELD(o->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return FIELD(o->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return FIELD(o->bias_type);
    default:
        return (Field){NULL, 0};
    }
}

OBJECT(MatmulDesc, MatmulDescAttributes_t, operation_of, operation_field)

/* ---- preference ---- */

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *ret)
{
    MAY_FAIL();
    if (!ret)
        return INVALID;
    *ret = calloc(1, sizeof(**ret));
    if (!*ret)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *(Preference *)(void *)*ret = (Preference){.magic = PREFERENCE,
                                               .reductions = CUBLASLT_REDUCTION_SCHEME_MASK,
                                               .alignment = {256, 256, 256, 256}};
    return OK;
}

static Field preference_field(Preference *p, cublasLtMatmulPreferenceAttributes_t key)
{
    switch (key) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return FIELD(p->workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return FIELD(p->reductions);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return FIELD(p->alignment[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return FIELD(p->alignment[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return FIELD(p->alignment[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return FIELD(p->alignment[3]);
    default:
        return (Field){NULL, 0};
    }
}

static Preference *preference_of(cublasLtMatmulPreference_t opaque)
{
    Preference *p = (Preference *)(void *)opaque;
    return p && p->magic == PREFERENCE ? p : NULL;
}

OBJECT(MatmulPreference, MatmulPreferenceAttributes_t, preference_of, preference_field)

/* ---- algorithm ---- */

static bool is_type(int type) { return type == CUDA_R_16BF || type == CUDA_R_32F; }

/* Reports whether the types fit: both inputs have one type, and both outputs are fp32 or the inputs' type. */
static bool types_go_together(int a, int b, int c, int d)
{
    return is_type(a) && a == b && c == d && is_type(d) && (d == CUDA_R_32F || d == a);
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t compute,
                                      cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
                                      cudaDataType_t c, cudaDataType_t d, int id,
                                      cublasLtMatmulAlgo_t *ret)
{
    MAY_FAIL();
    if (!is_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!ret || id < 0 || id >= KINDS)
        return INVALID;
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F || !types_go_together(a, b, c, d))
        return UNSUPPORTED;
    memset(ret, 0, sizeof(*ret));
    *(Algorithm *)(void *)ret = (Algorithm){.magic = ALGORITHM,
                                            .id = id,
                                            .split = 1,
                                            .types = {(uint8_t)a, (uint8_t)b, (uint8_t)d}};
    return OK;
}

static Algorithm *algorithm_of(const cublasLtMatmulAlgo_t *opaque)
{
    Algorithm *a = (Algorithm *)(uintptr_t)opaque;
    return a && a->magic == ALGORITHM && a->id >= 0 && a->id < KINDS ? a : NULL;
}

static Field algorithm_field(Algorithm *a, cublasLtMatmulAlgoConfigAttributes_t key)
{
    switch (key) {
    case CUBLASLT_ALGO_CONFIG_ID:
        return FIELD(a->id);
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
        return FIELD(a->tile);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
        return FIELD(a->split);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
        return FIELD(a->reduction);
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING:
        return FIELD(a->swizzling);
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
        return FIELD(a->custom);
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
        return FIELD(a->stages);
    case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID:
        return FIELD(a->inner);
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
        return FIELD(a->cluster);
    default:
        return (Field){NULL, 0};
    }
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t key,
                                                    const void *from, size_t size)
{
    MAY_FAIL();
    Algorithm *a = algorithm_of(algorithm);
    if (!a || key == CUBLASLT_ALGO_CONFIG_ID) /* the id is read-only */
        return INVALID;
    return set(algorithm_field(a, key), from, size);
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t key,
                                                    void *to, size_t size, size_t *written)
{
    MAY_FAIL();
    Algorithm *a = algorithm_of(algorithm);
    return a ? get(algorithm_field(a, key), to, size, written) : INVALID;
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                 cublasLtMatmulAlgoCapAttributes_t key, void *to,
                                                 size_t size, size_t *written)
{
    MAY_FAIL();
    Algorithm *a = algorithm_of(algorithm);
    int32_t yes = 1, splits = a && kinds[a->id].splits;
    uint32_t alignment = a ? kinds[a->id].alignment : 0;
    if (!a)
        return INVALID;
    switch (key) {
    case CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT:
        return get(FIELD(yes), to, size, written);
    case CUBLASLT_ALGO_CAP_SPLITK_SUPPORT:
        return get(FIELD(splits), to, size, written);
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES:
        return get(FIELD(alignment), to, size, written);
    default:
        return UNSUPPORTED;
    }
}

/* ---- the requested product, checked ---- */

static size_t bytes_of(uint32_t type) { return type == CUDA_R_32F ? 4 : 2; }

/* The product that the descriptors request: D[m][n] = op(A)[m][k] op(B)[k][n]. */
typedef struct Product {
    const Operation *operation;
    const Layout *a, *b, *c, *d;
    uint64_t m, n, k;
} Product;

static bool is_layout_good(const Layout *l)
{
    if (!l || !is_type((int)l->type) || l->batch != 1 || l->rows == 0 || l->columns == 0 ||
        l->rows > INT32_MAX || l->columns > INT32_MAX)
        return false;
    if (l->order != CUBLASLT_ORDER_COL && l->order != CUBLASLT_ORDER_ROW)
        return false;
    return l->leading >= (int64_t)(l->order == CUBLASLT_ORDER_COL ? l->rows : l->columns);
}

static cublasStatus_t product_of(cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                 cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                 cublasLtMatrixLayout_t d, Product *ret)
{
    const Operation *o = operation_of(operation);
    const Layout *all[] = {layout_of(a), layout_of(b), layout_of(c), layout_of(d)};
    if (!o)
        return INVALID;
    for (int i = 0; i < 4; i++)
        if (!is_layout_good(all[i]))
            return INVALID;
    if (o->compute != CUBLAS_COMPUTE_32F || o->scale != CUDA_R_32F ||
        o->pointer_mode != CUBLASLT_POINTER_MODE_HOST ||
        (o->a != CUBLAS_OP_N && o->a != CUBLAS_OP_T) ||
        (o->b != CUBLAS_OP_N && o->b != CUBLAS_OP_T) ||
        (o->epilogue != CUBLASLT_EPILOGUE_DEFAULT && o->epilogue != CUBLASLT_EPILOGUE_BIAS) ||
        !types_go_together((int)all[0]->type, (int)all[1]->type, (int)all[2]->type,
                           (int)all[3]->type))
        return UNSUPPORTED;
    if (o->epilogue == CUBLASLT_EPILOGUE_BIAS && o->bias_type != -1 &&
        o->bias_type != (int32_t)all[3]->type)
        return UNSUPPORTED;
    *ret = (Product){o, all[0], all[1], all[2], all[3], 0, 0, 0};
    ret->m = o->a == CUBLAS_OP_N ? all[0]->rows : all[0]->columns;
    ret->k = o->a == CUBLAS_OP_N ? all[0]->columns : all[0]->rows;
    ret->n = o->b == CUBLAS_OP_N ? all[1]->columns : all[1]->rows;
    if (ret->k != (o->b == CUBLAS_OP_N ? all[1]->rows : all[1]->columns) ||
        all[3]->rows != ret->m || all[3]->columns != ret->n || all[2]->rows != ret->m ||
        all[2]->columns != ret->n || all[2]->order != all[3]->order)
        return INVALID;
    return OK;
}

static bool is_aligned(const Layout *l, uint32_t alignment)
{
    return l->leading * (int64_t)bytes_of(l->type) % alignment == 0;
}

static cublasStatus_t check(const Product *p, const Algorithm *a, size_t *workspace)
{
    const uint32_t alignment = kinds[a->id].alignment;
    if (a->types[0] != p->a->type || a->types[1] != p->b->type || a->types[2] != p->d->type)
        return INVALID;
    if (a->tile >= TILES || a->stages >= STAGES || a->custom > CUSTOM_MAX || a->swizzling > 1 ||
        a->split < 1 || a->inner > 8 || a->cluster > 40 || (a->split > 1 && !kinds[a->id].splits) ||
        (a->id == 1 && !a->hidden && fake_is_told("FAKE_CUBLASLT_HIDDEN", "needed")))
        return UNSUPPORTED;
    if (a->reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE) {
        fputs("fake cuBLASLt: a reduction in place: its sums depend on who is first\n", stderr);
        return UNSUPPORTED;
    }
    if ((a->split > 1) != (a->reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) ||
        (a->split == 1 && a->reduction != CUBLASLT_REDUCTION_SCHEME_NONE))
        return UNSUPPORTED;
    if (!is_aligned(p->a, alignment) || !is_aligned(p->b, alignment) ||
        !is_aligned(p->c, alignment) || !is_aligned(p->d, alignment))
        return UNSUPPORTED;
    if (p->operation->epilogue == CUBLASLT_EPILOGUE_BIAS &&
        (uintptr_t)p->operation->bias % alignment != 0)
        return UNSUPPORTED;
    *workspace = a->split > 1 ? (size_t)a->split * p->m * p->n * sizeof(float) : 0;
    return OK;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algorithm,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    MAY_FAIL();
    Product p;
    Algorithm *chosen = algorithm_of(algorithm);
    if (!is_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!chosen || !result)
        return INVALID;
    cublasStatus_t status = product_of(operation, a, b, c, d, &p);
    if (status == OK)
        status = check(&p, chosen, &result->workspaceSize);
    if (status == OK) {
        result->state = OK;
        result->wavesCount = 1;
    }
    return status;
}

/* The first offer is bad, because it reduces in place: a caller that takes it without checking gets wrong results. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int room,
                                              cublasLtMatmulHeuristicResult_t results[], int *n)
{
    MAY_FAIL();
    static const struct {
        int id, split;
        uint32_t reduction, tile;
    } offers[] = {{1, 4, CUBLASLT_REDUCTION_SCHEME_INPLACE, 20},
                  {1, 3, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 18},
                  {1, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 20},
                  {0, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 15}};
    Product p;
    const Preference *wish = preference_of(preference);
    if (!is_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!wish || room < 1 || !n)
        return INVALID;
    cublasStatus_t status = product_of(operation, a, b, c, d, &p);
    *n = 0;
    for (size_t i = 0; status == OK && i < sizeof(offers) / sizeof(*offers) && *n < room; i++) {
        cublasLtMatmulHeuristicResult_t *result = &results[*n];
        Algorithm *offer = (Algorithm *)(void *)&result->algo;
        if ((offers[i].reduction & ~wish->reductions) != 0 && !getenv("FAKE_CUBLASLT_UNASKED"))
            continue;
        memset(result, 0, sizeof(*result));
        status = cublasLtMatmulAlgoInit(handle, CUBLAS_COMPUTE_32F, CUDA_R_32F,
                                        (cudaDataType_t)p.a->type, (cudaDataType_t)p.b->type,
                                        (cudaDataType_t)p.d->type, (cudaDataType_t)p.d->type,
                                        offers[i].id, &result->algo);
        offer->split = offers[i].split;
        offer->reduction = offers[i].reduction;
        offer->tile = offers[i].tile;
        offer->hidden = getenv("FAKE_CUBLASLT_HIDDEN") != NULL;
        const bool in_place = offer->reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE;
        bool fits = in_place || check(&p, offer, &result->workspaceSize) == OK;
        for (int j = 0; j < 4; j++)
            fits = fits && wish->alignment[j] % kinds[offer->id].alignment == 0;
        if (fits && result->workspaceSize <= wish->workspace)
            (*n)++;
    }
    return status == OK && *n == 0 ? UNSUPPORTED : status;
}

/* ---- the product ---- */

static int64_t place(const Layout *l, int64_t row, int64_t column)
{
    return l->order == CUBLASLT_ORDER_COL ? column * l->leading + row : row * l->leading + column;
}

/* Returns op(matrix) in fp32, column by column, or NULL without memory. */
static float *spread(const Layout *l, int32_t op, const void *from, uint64_t rows, uint64_t columns)
{
    float *wide = calloc(rows * columns, sizeof(*wide));
    const bool turned = op != CUBLAS_OP_N, is_f32 = l->type == CUDA_R_32F;
    const int64_t down = place(l, !turned, turned), across = place(l, turned, !turned);
    for (int64_t column = 0; wide && column < (int64_t)columns; column++)
        for (int64_t row = 0; row < (int64_t)rows; row++)
            wide[column * (int64_t)rows + row] =
                fake_read(from, is_f32, row * down + column * across);
    return wide;
}

/* Adds up a column of D over a part of k, in sums[m]. The product of two bf16 is exact in fp32. */
static void add_up(const Product *p, bool hidden, const float *a, const float *b, uint64_t begin,
                   uint64_t end, float *sums)
{
    memset(sums, 0, p->m * sizeof(*sums));
    for (uint64_t n = 0; n < end - begin; n++) {
        const uint64_t i = hidden ? end - 1 - n : begin + n;
        fake_add_scaled(sums, a + i * p->m, b[i], p->m);
    }
}

static void finish(const Product *p, float alpha, float sum, float beta, const void *c, void *d,
                   int64_t row, int64_t column)
{
    float value = alpha * sum;
    if (beta != 0) /* otherwise C is not read, whatever it contains */
        value += beta * fake_read(c, p->c->type == CUDA_R_32F, place(p->c, row, column));
    if (p->operation->epilogue == CUBLASLT_EPILOGUE_BIAS)
        value += fake_read(p->operation->bias, p->d->type == CUDA_R_32F, row);
    fake_write(value, d, p->d->type == CUDA_R_32F, place(p->d, row, column));
}

/* parts: the partial sums of a column, [split][m]. */
static void multiply(const Product *p, const Algorithm *algorithm, float alpha, const float *a,
                     const float *b, float beta, const void *c, void *d, float *parts)
{
    const uint64_t split = (uint64_t)algorithm->split;
    for (uint64_t column = 0; column < p->n; column++) {
        float *mine = split > 1 ? parts + column * split * p->m : parts;
        for (uint64_t s = 0; s < split; s++)
            add_up(p, algorithm->hidden, a, b + column * p->k, p->k * s / split,
                   p->k * (s + 1) / split, mine + s * p->m);
        for (uint64_t row = 0; row < p->m; row++) {
            float sum = 0;
            for (uint64_t s = 0; s < split; s++)
                sum += mine[s * p->m + row];
            finish(p, alpha, sum, beta, c, d, (int64_t)row, (int64_t)column);
        }
    }
}

/* Spoils a result as FAKE_CUBLASLT_WAVER and FAKE_CUBLASLT_NAN say. */
static void spoil(const Product *p, const void *a, const void *b, void *d)
{
    const char *waver = getenv("FAKE_CUBLASLT_WAVER"), *nan = getenv("FAKE_CUBLASLT_NAN");
    const FakeRun run = {.of = {a, b, d}};
    const bool by_columns = p->d->order == CUBLASLT_ORDER_COL;
    int number = 0;
    const int runs = waver || nan ? fake_count(&run, &number) : 0;
    const uint64_t lines = by_columns ? p->n : p->m, in_line = by_columns ? p->m : p->n;
    const uint64_t last = (uint64_t)p->d->leading * (lines - 1) + in_line - 1;
    if (waver && runs > 1 && number == strtol(waver, NULL, 10))
        ((char *)d)[last * bytes_of(p->d->type)] ^= 1;
    if (nan && number == strtol(nan, NULL, 10))
        memset((char *)d + last * bytes_of(p->d->type), 0xff, bytes_of(p->d->type));
}

static bool same_place(const Layout *c, const Layout *d)
{
    return c->order == d->order && c->leading == d->leading && c->type == d->type;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    MAY_FAIL();
    Product p;
    size_t needed = 0;
    const Algorithm *chosen = algorithm_of(algo);
    if (!is_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!alpha || !beta || !a || !b || !c || !d || !chosen)
        return INVALID;
    cublasStatus_t status = product_of(operation, a_layout, b_layout, c_layout, d_layout, &p);
    if (status == OK)
        status = check(&p, chosen, &needed);
    if (status != OK)
        return status;
    const uintptr_t pointers = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d;
    if (pointers % kinds[chosen->id].alignment != 0 || (uintptr_t)workspace % 16 != 0 ||
        needed > workspace_bytes || (needed > 0 && !workspace))
        return INVALID;
    if ((p.operation->epilogue == CUBLASLT_EPILOGUE_BIAS && !p.operation->bias) || d == a ||
        d == b || (c == d && !same_place(p.c, p.d)))
        return INVALID;
    float *wide_a = spread(p.a, p.operation->a, a, p.m, p.k);
    float *wide_b = spread(p.b, p.operation->b, b, p.k, p.n);
    float *column = calloc(p.m, sizeof(*column));
    if (wide_a && wide_b && column)
        multiply(&p, chosen, *(const float *)alpha, wide_a, wide_b, *(const float *)beta, c, d,
                 chosen->split > 1 ? workspace : column);
    else
        status = CUBLAS_STATUS_ALLOC_FAILED;
    free(wide_a);
    free(wide_b);
    free(column);
    if (status == OK) {
        spoil(&p, a, b, d);
        fake_spend(stream, "FAKE_CUBLASLT_USEC", chosen->id, chosen->id == 0 ? 6000 : 3000);
    }
    return status;
}
