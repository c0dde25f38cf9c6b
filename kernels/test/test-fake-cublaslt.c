/* SPDX-License-Identifier: Apache-2.0 */
/* test-fake-cublaslt.c - shows that the fake cuBLASLt, which tests use without a GPU, computes what its descriptors
 * describe, and refuses what the real library refuses. Otherwise tests that pass with the fake would show nothing. */
#include "base/test/testing.h"
#include "kernels/cuda/module/forward.h"
#include "kernels/cuda/module/libraries.h"

#include <stdlib.h>
#include <string.h>

/* The product D[2][3] = op(A) op(B) with k = 2, in fp32; all matrices have room for 8 by 8. */
typedef struct Product {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c, d;
    cublasLtMatmulAlgo_t algorithm;
    float *at_a, *at_b, *at_c, *at_d, *workspace;
    float alpha, beta;
    size_t workspace_bytes;
} Product;

static Product p;

static float *matrix_new(float first)
{
    float *matrix = aligned_alloc(256, 64 * sizeof(*matrix));
    assert_non_null(matrix);
    for (int i = 0; i < 64; i++)
        matrix[i] = first + (float)i;
    return matrix;
}

static void good(cublasStatus_t status) { assert_int_equal(status, CUBLAS_STATUS_SUCCESS); }

static void set_layout(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t key,
                       int64_t value)
{
    const int32_t narrow = (int32_t)value;
    const bool wide = key == CUBLASLT_MATRIX_LAYOUT_ROWS || key == CUBLASLT_MATRIX_LAYOUT_COLS ||
                      key == CUBLASLT_MATRIX_LAYOUT_LD;
    good(cublasLtMatrixLayoutSetAttribute(layout, key, wide ? (const void *)&value : &narrow,
                                          wide ? sizeof(value) : sizeof(narrow)));
}

static void set_operation(cublasLtMatmulDescAttributes_t key, int32_t value)
{
    good(cublasLtMatmulDescSetAttribute(p.operation, key, &value, sizeof(value)));
}

static void set_algorithm(cublasLtMatmulAlgoConfigAttributes_t key, uint32_t value)
{
    good(cublasLtMatmulAlgoConfigSetAttribute(&p.algorithm, key, &value, sizeof(value)));
}

static void choose(int id)
{
    good(cublasLtMatmulAlgoInit(p.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F,
                                CUDA_R_32F, CUDA_R_32F, id, &p.algorithm));
}

static int begin(void **unused)
{
    (void)unused;
    p = (Product){.alpha = 1};
    good(cublasLtCreate(&p.handle));
    good(cublasLtMatmulDescCreate(&p.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    good(cublasLtMatrixLayoutCreate(&p.a, CUDA_R_32F, 2, 2, 4));
    good(cublasLtMatrixLayoutCreate(&p.b, CUDA_R_32F, 2, 3, 4));
    good(cublasLtMatrixLayoutCreate(&p.c, CUDA_R_32F, 2, 3, 4));
    good(cublasLtMatrixLayoutCreate(&p.d, CUDA_R_32F, 2, 3, 4));
    p.at_a = matrix_new(1);
    p.at_b = matrix_new(2);
    p.at_c = matrix_new(100);
    p.at_d = matrix_new(-1);
    p.workspace = matrix_new(0);
    choose(1);
    return 0;
}

static int end(void **unused)
{
    (void)unused;
    cublasLtMatrixLayout_t layouts[] = {p.a, p.b, p.c, p.d};
    float *matrices[] = {p.at_a, p.at_b, p.at_c, p.at_d, p.workspace};
    for (size_t i = 0; i < ELEMENTSOF(layouts); i++)
        good(cublasLtMatrixLayoutDestroy(layouts[i]));
    for (size_t i = 0; i < ELEMENTSOF(matrices); i++)
        free(matrices[i]);
    good(cublasLtMatmulDescDestroy(p.operation));
    good(cublasLtDestroy(p.handle));
    return 0;
}

static cublasStatus_t multiply(void)
{
    return cublasLtMatmul(p.handle, p.operation, &p.alpha, p.at_a, p.a, p.at_b, p.b, &p.beta,
                          p.at_c, p.c, p.at_d, p.d, &p.algorithm, p.workspace, p.workspace_bytes,
                          NULL);
}

static void expect(float d00, float d10, float d01)
{
    good(multiply());
    assert_true(p.at_d[0] == d00 && p.at_d[1] == d10 && p.at_d[4] == d01);
    assert_true(p.at_d[2] == 1 && p.at_d[3] == 2); /* memory between the columns is unchanged */
}

/* The fake multiplies A = (1 5; 2 6) and B = (2 6 10; 3 7 11), also transposed and in row order. */
static void it_multiplies(void **unused)
{
    (void)unused;
    expect(17, 22, 41);
    set_operation(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T); /* A is (1 2; 5 6) */
    expect(8, 28, 20);
    set_operation(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N);
    set_layout(p.a, CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_ORDER_ROW); /* A is (1 2; 5 6) again */
    expect(8, 28, 20);
    set_layout(p.b, CUBLASLT_MATRIX_LAYOUT_ROWS, 3);
    set_layout(p.b, CUBLASLT_MATRIX_LAYOUT_COLS, 2);
    set_operation(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T); /* B is (2 3 4; 6 7 8) */
    expect(14, 46, 17);
}

static void it_scales_and_adds(void **unused)
{
    (void)unused;
    p.alpha = 2;
    p.beta = 0.5f;
    expect(84, 94.5f, 134);
    p.beta = 0;
    for (int i = 0; i < 64; i++)
        p.at_c[i] = -NAN; /* C is not read */
    expect(34, 44, 82);
    const float *bias = p.at_b;
    set_operation(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    assert_int_equal(multiply(), CUBLAS_STATUS_INVALID_VALUE); /* the bias pointer is not set */
    good(cublasLtMatmulDescSetAttribute(p.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                        sizeof(bias)));
    expect(36, 47, 84);
}

static void splits_need_their_workspace(void **unused)
{
    (void)unused;
    cublasLtMatmulHeuristicResult_t result;
    set_algorithm(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 2);
    assert_int_equal(multiply(), CUBLAS_STATUS_NOT_SUPPORTED); /* there is no reduction scheme */
    set_algorithm(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    good(cublasLtMatmulAlgoCheck(p.handle, p.operation, p.a, p.b, p.c, p.d, &p.algorithm, &result));
    assert_int_equal(result.workspaceSize, 2 * 2 * 3 * sizeof(float));
    p.workspace_bytes = result.workspaceSize - 1;
    assert_int_equal(multiply(), CUBLAS_STATUS_INVALID_VALUE);
    p.workspace_bytes++;
    expect(17, 22, 41);
    p.workspace++;
    assert_int_equal(multiply(), CUBLAS_STATUS_INVALID_VALUE);
    p.workspace--;
}

/* A reduction in place is refused, because its sums depend on the order in which blocks finish. */
static void a_reduction_in_place_is_refused(void **unused)
{
    (void)unused;
    cublasLtMatmulHeuristicResult_t result;
    p.workspace_bytes = 256;
    set_algorithm(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 2);
    set_algorithm(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, CUBLASLT_REDUCTION_SCHEME_INPLACE);
    assert_int_equal(cublasLtMatmulAlgoCheck(p.handle, p.operation, p.a, p.b, p.c, p.d,
                                             &p.algorithm, &result),
                     CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(multiply(), CUBLAS_STATUS_NOT_SUPPORTED);
}

static void descriptors_must_go_together(void **unused)
{
    (void)unused;
    static const struct {
        int which; /* 0 to 3: a, b, c, d */
        cublasLtMatrixLayoutAttribute_t key;
        int64_t value, before;
        cublasStatus_t status;
    } bad[] = {
        {0, CUBLASLT_MATRIX_LAYOUT_COLS, 3, 2, CUBLAS_STATUS_INVALID_VALUE},
        {1, CUBLASLT_MATRIX_LAYOUT_ROWS, 3, 2, CUBLAS_STATUS_INVALID_VALUE},
        {2, CUBLASLT_MATRIX_LAYOUT_COLS, 2, 3, CUBLAS_STATUS_INVALID_VALUE},
        {3, CUBLASLT_MATRIX_LAYOUT_ROWS, 3, 2, CUBLAS_STATUS_INVALID_VALUE},
        {3, CUBLASLT_MATRIX_LAYOUT_LD, 1, 4, CUBLAS_STATUS_INVALID_VALUE},
        {1, CUBLASLT_MATRIX_LAYOUT_LD, 3, 4, CUBLAS_STATUS_NOT_SUPPORTED}, /* LD is 12 bytes */
        {0, CUBLASLT_MATRIX_LAYOUT_TYPE, CUDA_R_16BF, CUDA_R_32F, CUBLAS_STATUS_NOT_SUPPORTED},
        {3, CUBLASLT_MATRIX_LAYOUT_TYPE, CUDA_R_16BF, CUDA_R_32F, CUBLAS_STATUS_NOT_SUPPORTED},
        {0, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 2, 1, CUBLAS_STATUS_INVALID_VALUE},
        {0, CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_ORDER_COL32, 0, CUBLAS_STATUS_INVALID_VALUE},
        {3, CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_ORDER_ROW, 0, CUBLAS_STATUS_INVALID_VALUE},
    };
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        const cublasLtMatrixLayout_t layouts[] = {p.a, p.b, p.c, p.d};
        set_layout(layouts[bad[i].which], bad[i].key, bad[i].value);
        assert_int_equal(multiply(), bad[i].status);
        set_layout(layouts[bad[i].which], bad[i].key, bad[i].before);
        good(multiply());
    }
    set_operation(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_32F_FAST_TF32);
    assert_int_equal(multiply(), CUBLAS_STATUS_NOT_SUPPORTED);
    set_operation(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_32F);
    set_operation(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU);
    assert_int_equal(multiply(), CUBLAS_STATUS_NOT_SUPPORTED);
}

static void pointers_must_be_aligned(void **unused)
{
    (void)unused;
    float **pointers[] = {&p.at_a, &p.at_b, &p.at_c, &p.at_d};
    for (size_t i = 0; i < ELEMENTSOF(pointers); i++) {
        (*pointers[i])++;
        choose(1);
        assert_int_equal(multiply(), CUBLAS_STATUS_INVALID_VALUE);
        choose(0); /* this algorithm accepts any operands */
        good(multiply());
        (*pointers[i])--;
    }
    float *const d = p.at_d;
    p.at_d = p.at_a;
    assert_int_equal(multiply(), CUBLAS_STATUS_INVALID_VALUE);
    p.at_d = d;
}

static void attributes_have_their_sizes(void **unused)
{
    (void)unused;
    const int64_t wide = 1;
    assert_int_equal(cublasLtMatmulDescSetAttribute(p.operation, CUBLASLT_MATMUL_DESC_TRANSA, &wide,
                                                    sizeof(wide)),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasLtMatmulAlgoConfigSetAttribute(&p.algorithm,
                                                          CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
                                                          &wide, 4),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasLtMatmulAlgoConfigSetAttribute(&p.algorithm, CUBLASLT_ALGO_CONFIG_ID,
                                                          &wide, 4),
                     CUBLAS_STATUS_INVALID_VALUE); /* the id is read-only */
    set_algorithm(CUBLASLT_ALGO_CONFIG_TILE_ID, 1000);
    assert_int_equal(multiply(), CUBLAS_STATUS_NOT_SUPPORTED);
}

int main(void)
{
    const CudaLibraries *libraries;
    Error err = ERROR_INIT;
    if (setenv("SDTRAIN_CUDA_LIBRARIES", FAKES, 1) < 0 ||
        cuda_libraries_open(&libraries, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_multiplies, begin, end),
        cmocka_unit_test_setup_teardown(it_scales_and_adds, begin, end),
        cmocka_unit_test_setup_teardown(splits_need_their_workspace, begin, end),
        cmocka_unit_test_setup_teardown(a_reduction_in_place_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(descriptors_must_go_together, begin, end),
        cmocka_unit_test_setup_teardown(pointers_must_be_aligned, begin, end),
        cmocka_unit_test_setup_teardown(attributes_have_their_sizes, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
