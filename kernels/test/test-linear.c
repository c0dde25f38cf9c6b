/* SPDX-License-Identifier: Apache-2.0 */
/* test-linear.c - tests linear layers in bf16 against float64: by the plain kernels and, if SDTRAIN_CUDA_LIBRARIES
 * names a cuBLASLt (test-linear@fake: the fake that computes on the host), by that library, with plans that are made
 * here. */
#include "kernels/cuda/linear/matmul.h"
#include "kernels/test/testing-linear.h"

#include <jansson.h>

/* Every layer of sd2-base with fewer rows, and shapes that are not multiples of a block. */
static const LinearShape shapes[] = {{1, 320, 320},
                                     {130, 77, 320},
                                     {77, 320, 130},
                                     {2, 1024, 320},
                                     {5, 1024, 640},
                                     {2, 1024, 1280},
                                     {3, 320, 960},
                                     {2, 320, 2560},
                                     {3, 1280, 320},
                                     {2, 640, 640},
                                     {2, 640, 1920},
                                     {1, 640, 5120},
                                     {2, 2560, 640},
                                     {3, 1280, 1280},
                                     {1, 1280, 3840},
                                     {1, 1280, 10240},
                                     {1, 5120, 1280},
                                     {4, 320, 1280},
                                     {2, 1280, 640},
                                     {1, 1, 1},
                                     {7, 5, 3},
                                     {1, 130, 77},
                                     {77, 130, 31},
                                     {130, 77, 1},
                                     {1, 8, 8},
                                     {9, 16, 24},
                                     /* some columns of a wider weight, also at odd positions */
                                     {3, 640, 320, .columns = 960},
                                     {3, 320, 320, .first = 640, .columns = 960},
                                     {5, 40, 24, .columns = 64},
                                     {5, 24, 24, .first = 40, .columns = 64},
                                     {9, 7, 5, .first = 3, .columns = 13}};

static void layers_compute(void **unused)
{
    (void)unused;
    Device *device = open_device(by_library());
    for (size_t i = 0; i < ELEMENTSOF(shapes); i++) {
        Case c = case_new(device, &shapes[i]);
        check_forward(&c);
        check_backward_data(&c);
        check_backward_weight(&c);
        case_free(&c);
    }
    device = device_free(device);
}

/* ---- plans ---- */

/* A layer that uses some columns of a wider weight has the same entries in the plans as a dense layer of its shape.
 * Only the product for the gradient of the weight has an entry of its own, because it writes memory with a stride. */
static void columns_have_the_products_of_a_layer(void **unused)
{
    (void)unused;
    if (!by_library())
        return;
    char *text = make_plans(&(LinearShape){7, 24, 16, .first = 8, .columns = 40});
    assert_non_null(strstr(text, "\"linear bf16 7x24->16 forward\""));
    assert_non_null(strstr(text, "\"linear bf16 7x24->16 backward_data\""));
    assert_non_null(strstr(text, "\"linear bf16 7x24 of 40->16 backward_weight\""));
    assert_null(strstr(text, "\"linear bf16 7x24->16 backward_weight\""));
    free(text);
}

static void plans_are_replayed(void **unused)
{
    (void)unused;
    if (!by_library())
        return;
    char *text = make_plans(&small);
    Error err = ERROR_INIT;
    uint16_t y[2][7 * 16];
    float dw[2][24 * 16];
    for (int life = 0; life < 2; life++) {
        char *mine, *numerics;
        Device *device = open_device(false);
        if (device_use_plans(device, text, &err) < 0)
            fail_msg("%s", err.text);
        compute(device, y[life], dw[life]);
        assert_int_equal(device_plans(device, &mine), 0);
        assert_string_equal(mine, text);
        assert_int_equal(device_numerics(device, &numerics), 0);
        assert_non_null(strstr(numerics, ",\"cudnn\":"));
        assert_non_null(strstr(numerics, ",\"cublaslt\":"));
        assert_non_null(strstr(numerics, ",\"plans\":\""));
        free(mine);
        free(numerics);
        device = device_free(device);
    }
    assert_memory_equal(y[0], y[1], sizeof(y[0]));
    assert_memory_equal(dw[0], dw[1], sizeof(dw[0]));
    free(text);
}

/* Returns the set, which the caller frees, with the text `by` as "opaque" (NULL: without "opaque") in the entry of the
 * operation `of` (NULL: in all entries). */
static char *with_opaque(const char *text, const char *of, const char *by)
{
    json_t *plans = json_loads(text, 0, NULL), *entry;
    const char *operation;
    assert_non_null(plans);
    json_object_foreach (json_object_get(plans, "operations"), operation, entry) {
        json_t *algorithm = json_object_get(entry, "algorithm");
        if (of && strcmp(of, operation) != 0)
            continue;
        if (by)
            assert_int_equal(json_object_set_new(algorithm, "opaque", json_string(by)), 0);
        else
            assert_int_equal(json_object_del(algorithm, "opaque"), 0);
    }
    char *made = json_dumps(plans, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(plans);
    return made;
}

static void compute_by(const char *text, uint16_t *y, float *dw)
{
    Error err = ERROR_INIT;
    Device *device = open_device(false);
    if (device_use_plans(device, text, &err) < 0)
        fail_msg("%s", err.text);
    compute(device, y, dw);
    device = device_free(device);
}

/* Checks that linear_new() fails with r on a device with the plans `text`, and that the error contains
 * the text `says`. */
static void expect_new(const char *text, const LinearShape *shape, int r, const char *says)
{
    Error err = ERROR_INIT;
    Linear *linear = NULL;
    Device *device = open_device(false);
    if (device_use_plans(device, text, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(linear_new(device, shape, &linear, &err), r);
    assert_null(linear);
    if (!strstr(err.text, "linear bf16 ") || !strstr(err.text, says))
        fail_msg("%s", err.text);
    device = device_free(device);
}

/* A plan replays an algorithm from the library's own form of it. This form contains more than the attributes, so a
 * replay runs exactly the algorithm that was timed. */
static void the_librarys_own_form_is_replayed(void **unused)
{
    (void)unused;
    if (!by_library())
        return;
    uint16_t y[2][7 * 16];
    float dw[3][24 * 16];
    assert_int_equal(setenv("FAKE_CUBLASLT_HIDDEN", "order", 1), 0);
    char *text = make_plans(&small), *told = with_opaque(text, NULL, NULL);
    assert_int_equal(unsetenv("FAKE_CUBLASLT_HIDDEN"), 0);
    compute_by(text, y[0], dw[0]);
    compute_by(text, y[1], dw[1]);
    assert_memory_equal(dw[0], dw[1], sizeof(dw[0]));
    assert_memory_equal(y[0], y[1], sizeof(y[0]));
    compute_by(told, y[1], dw[2]); /* without "opaque" the attributes make the algorithm */
    assert_memory_not_equal(dw[0], dw[2], sizeof(dw[0]));
    free(told);
    free(text);

    assert_int_equal(setenv("FAKE_CUBLASLT_HIDDEN", "needed", 1), 0);
    text = make_plans(&small);
    told = with_opaque(text, NULL, NULL);
    assert_non_null(strstr(text, "\"id\":1"));
    compute_by(text, y[0], dw[0]);
    expect_new(told, &small, -EINVAL, "cuBLASLt refuses the plan's algorithm: CUBLAS_STATUS_NOT_");
    assert_int_equal(unsetenv("FAKE_CUBLASLT_HIDDEN"), 0);
    free(told);
    free(text);
}

/* A form that is not this library's is refused: the form of another version may have the same attributes, other
 * attributes, or no attributes. */
static void a_form_that_is_not_the_librarys_is_refused(void **unused)
{
    (void)unused;
    if (!by_library())
        return;
    char *text = make_plans(&small), nothing[129];
    (void)snprintf(nothing, sizeof(nothing), "%0128d", 0);
    assert_int_equal(setenv("FAKE_CUBLASLT_HIDDEN", "needed", 1), 0);
    expect_new(text, &small, -EINVAL,
               "cuBLASLt refuses the plan's algorithm.opaque: CUBLAS_STATUS_NOT_SUPPORTED");
    assert_int_equal(unsetenv("FAKE_CUBLASLT_HIDDEN"), 0);
    char *changed = with_opaque(text, "linear bf16 7x24->16 backward_data", nothing);
    expect_new(changed, &small, -EINVAL,
               "backward_data: cuBLASLt cannot read the plan's algorithm.opaque: CUBLAS_STATUS_");
    free(changed);
    static const char *const keys[] = {"\"id\":", "\"stages\":", "\"cluster_shape\":"};
    for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
        char by[32], says[64];
        (void)snprintf(by, sizeof(by), "%s7", keys[i]);
        (void)snprintf(says, sizeof(says), " the plan's algorithm.%.*s is 7",
                       (int)strlen(keys[i]) - 3, keys[i] + 1);
        changed = replaced(text, keys[i], by);
        expect_new(changed, &small, -EINVAL, says);
        free(changed);
    }
    free(text);
}

static void a_forward_alone_has_one_plan(void **unused)
{
    (void)unused;
    if (!by_library())
        return;
    LinearShape alone = small;
    alone.forward_only = true;
    char *text = make_plans(&alone);
    assert_non_null(strstr(text, "linear bf16 7x24->16 forward"));
    assert_null(strstr(text, "backward"));
    expect_new(text, &small, -ENOENT, "linear bf16 7x24->16 backward_data: sdtrainer plan");

    Device *device = open_device(false);
    Error err = ERROR_INIT;
    Linear *linear = NULL;
    if (device_use_plans(device, text, &err) < 0 || linear_new(device, &alone, &linear, &err) < 0)
        fail_msg("%s", err.text);
    linear = linear_free(linear);
    device = device_free(device);
    free(text);
}

static void plans_that_do_not_fit_are_refused(void **unused)
{
    (void)unused;
    if (!by_library())
        return;
    static const LinearShape other = {8, 24, 16};
    char *made = make_plans(&small), *text = with_opaque(made, NULL, NULL);
    free(made);
    expect_new(text, &other, -ENOENT, "linear bf16 8x24->16 forward: sdtrainer plan");

    static const struct {
        const char *what, *by, *says;
    } changes[] = {
        {"\"custom\":0", "\"custom\":4", "refuses the plan's algorithm"},
        {"\"id\":", "\"id\":7", "refuses the plan's algorithm"},
        {"\"cluster_shape\":0", "\"cluster_shape\":70000", "refuses the plan's algorithm"},
    };
    for (size_t i = 0; i < ELEMENTSOF(changes); i++) {
        char *changed = replaced(text, changes[i].what, changes[i].by);
        expect_new(changed, &small, -EINVAL, changes[i].says);
        free(changed);
    }
    free(text);
}

/* A workspace that is too small is refused: three parts of k in fp32 take 3 * 7 * 16 * 4 bytes. */
static void a_workspace_that_is_too_small_is_refused(void **unused)
{
    (void)unused;
    if (!by_library())
        return;
    char *text = make_plans(&small);
    json_t *plans = json_loads(text, 0, NULL);
    json_t *entry =
        json_object_get(json_object_get(plans, "operations"), "linear bf16 7x24->16 forward");
    json_t *algorithm = json_object_get(entry, "algorithm");
    assert_non_null(algorithm);
    assert_int_equal(json_object_del(algorithm, "opaque"), 0);
    assert_int_equal(json_object_set_new(algorithm, "id", json_integer(1)), 0);
    assert_int_equal(json_object_set_new(algorithm, "split_k", json_integer(3)), 0);
    assert_int_equal(json_object_set_new(algorithm, "reduction", json_integer(2)), 0);
    assert_int_equal(json_object_set_new(entry, "workspace", json_integer(1343)), 0);
    char *changed = json_dumps(plans, 0);
    expect_new(changed, &small, -EINVAL, "wants a workspace of 1344 bytes");
    json_decref(plans);
    free(changed);
    free(text);
}

static void other_machines_plans_are_refused(void **unused)
{
    (void)unused;
    if (!by_library())
        return;
    static const struct {
        const char *what, *by;
        int r;
        const char *says;
    } changes[] = {
        {"\"cublaslt\":1", "\"cublaslt\":2", -EPROTO, "cuBLASLt"},
        {"\"cudnn\":9", "\"cudnn\":8", -EPROTO, "cuDNN"},
        {"\"sms\":1", "\"sms\":132", -EINVAL, "132"},
        {"\"architecture\":\"emulated\"", "\"architecture\":\"sm_90\"", -EINVAL, "sm_90"},
        {"\"version\":1", "\"version\":3", -EINVAL, "version: 3"},
    };
    char *text = make_plans(&small);
    for (size_t i = 0; i < ELEMENTSOF(changes); i++) {
        char *changed = replaced(text, changes[i].what, changes[i].by);
        Error err = ERROR_INIT;
        Device *device = open_device(false);
        assert_int_equal(device_use_plans(device, changed, &err), changes[i].r);
        if (!strstr(err.text, changes[i].says))
            fail_msg("%s", err.text);
        device = device_free(device);
        free(changed);
    }
    free(text);
}

/* ---- faults ---- */

static void a_call_that_fails_is_told(void **unused)
{
    (void)unused;
    if (!by_library())
        return;
    static const char *const calls[] = {"cublasLtMatmulDescCreate",
                                        "cublasLtMatmulDescSetAttribute",
                                        "cublasLtMatrixLayoutCreate",
                                        "cublasLtMatmulAlgoInit",
                                        "cublasLtMatmulAlgoConfigSetAttribute",
                                        "cublasLtMatmulAlgoCheck",
                                        "cublasLtMatmulAlgoCapGetAttribute"};
    char *text = make_plans(&small), *told = with_opaque(text, NULL, NULL);
    for (size_t i = 0; i < ELEMENTSOF(calls); i++) {
        assert_int_equal(setenv("FAKE_CUBLASLT_FAIL", calls[i], 1), 0);
        expect_new(told, &small, -EINVAL, "CUBLAS_STATUS_EXECUTION_FAILED");
    }
    free(told);
    assert_int_equal(setenv("FAKE_CUBLASLT_FAIL", "cublasLtMatmulAlgoConfigGetAttribute", 1), 0);
    expect_new(text, &small, -EINVAL, "algorithm.opaque: CUBLAS_STATUS_EXECUTION_FAILED");
    assert_int_equal(setenv("FAKE_CUBLASLT_FAIL", "cublasLtCreate", 1), 0);
    expect_new(text, &small, -EIO, "no handle: CUBLAS_STATUS_EXECUTION_FAILED");
    static const char *const tuning[] = {"cublasLtMatmulPreferenceCreate",
                                         "cublasLtMatmulPreferenceSetAttribute",
                                         "cublasLtMatmulAlgoGetHeuristic"};
    for (size_t i = 0; i < ELEMENTSOF(tuning); i++) {
        Error err = ERROR_INIT;
        Linear *linear = NULL;
        Device *device = open_device(true);
        assert_int_equal(setenv("FAKE_CUBLASLT_FAIL", tuning[i], 1), 0);
        assert_int_equal(linear_new(device, &small, &linear, &err), -EINVAL);
        assert_null(linear);
        assert_non_null(strstr(err.text, "linear bf16 7x24->16 forward"));
        device = device_free(device);
    }
    assert_int_equal(unsetenv("FAKE_CUBLASLT_FAIL"), 0);
    free(text);
}

/* Entries can leave any of the three products to our own kernels, while the library computes the others. */
static void products_are_left_to_the_kernels_by_their_entries(void **unused)
{
    (void)unused;
    if (!by_library())
        return;
    static const char *const passes[] = {"forward", "backward_data", "backward_weight"};
    char *text = make_plans(&small);
    for (unsigned which = 1; which < 8; which++) {
        Error err = ERROR_INIT;
        json_t *plans = json_loads(text, 0, NULL);
        for (size_t i = 0; i < ELEMENTSOF(passes); i++) {
            char name[64];
            (void)snprintf(name, sizeof(name), "linear bf16 7x24->16 %s", passes[i]);
            if (which >> i & 1u)
                assert_int_equal(json_object_set_new(json_object_get(plans, "operations"), name,
                                                     json_pack("{s:b}", "own_kernels", 1)),
                                 0);
        }
        char *changed = json_dumps(plans, 0), said[512];
        json_decref(plans);
        Device *device = open_device(false);
        if (device_use_plans(device, changed, &err) < 0)
            fail_msg("%s", err.text);
        Case c = case_new(device, &small);
        for (unsigned i = 0; i < ELEMENTSOF(passes); i++) {
            linear_plan_text(c.linear, (KernelPass)i, said, sizeof(said));
            assert_int_equal(*said == '\0', which >> i & 1u);
        }
        check_forward(&c);
        check_backward_data(&c);
        check_backward_weight(&c);
        case_free(&c);
        device = device_free(device);
        free(changed);
    }
    free(text);
}

/* If no algorithm serves, our own kernels compute the product, so that a job can run. A product that our kernels cannot
 * compute is an error, which says why each algorithm was not used. */
static void what_no_algorithm_serves_is_left_to_the_kernels(void **unused)
{
    (void)unused;
    if (!by_library())
        return;
    static const struct {
        const char *fails, *says;
    } cases[] = {
        {"cublasLtMatmulAlgoCheck",
         "product a: no algorithm of cuBLASLt serves: 4 algorithms offered: 1 sum in an order that "
         "varies, 3 refused by AlgoCheck: CUBLAS_STATUS_EXECUTION_FAILED"},
        {"cublasLtMatmulAlgoConfigGetAttribute",
         "4 algorithms offered: 4 have attributes that cannot be told"},
        {"cublasLtMatmul", "product a: none of 3 algorithms runs"},
    };
    const CudaMatmulShape product = {16, 8, 32, false, false, false, DATA_F32, 0, 0, 0};
    assert_int_equal(setenv("FAKE_CUBLASLT_UNASKED", "1", 1), 0);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        CudaMatmul *matmul = NULL;
        Device *device = open_device(true);
        assert_int_equal(setenv("FAKE_CUBLASLT_FAIL", cases[i].fails, 1), 0);
        char *text = make_plans(&small);
        assert_non_null(strstr(text, "16 forward\":{\"own_kernels\":true}"));
        assert_non_null(strstr(text, "backward_data\":{\"own_kernels\":true}"));
        assert_non_null(strstr(text, "backward_weight\":{\"own_kernels\":true}"));
        assert_int_equal(cuda_matmul_new(device, "product a", &product, &matmul, &err), -EINVAL);
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s", err.text);
        assert_int_equal(unsetenv("FAKE_CUBLASLT_FAIL"), 0);
        device = device_free(device);
        device = open_device(false);
        assert_int_equal(device_use_plans(device, text, &err), 0);
        Case c = case_new(device, &small);
        check_forward(&c);
        case_free(&c);
        device = device_free(device);
        free(text);
    }
    assert_int_equal(unsetenv("FAKE_CUBLASLT_UNASKED"), 0);
}

static void a_product_that_fails_breaks_the_device(void **unused)
{
    (void)unused;
    if (!by_library())
        return;
    static const char *const operations[] = {"forward", "backward_data", "backward_weight"};
    char *text = make_plans(&small);
    for (size_t i = 0; i < ELEMENTSOF(operations); i++) {
        Error err = ERROR_INIT;
        Device *device = open_device(false);
        assert_int_equal(device_use_plans(device, text, &err), 0);
        Case c = case_new(device, &small);
        void *dw = device_new(device, c.n_w * sizeof(float));
        assert_int_equal(setenv("FAKE_CUBLASLT_FAIL", "cublasLtMatmul", 1), 0);
        if (i == 0)
            linear_forward(c.linear, c.x_, c.w_, c.packed, NULL, NULL, c.y_, c.workspace);
        if (i == 1)
            linear_backward_data(c.linear, c.dy_, c.w_, c.packed, c.dx_, false, c.workspace);
        if (i == 2)
            linear_backward_weight(c.linear, c.x_, c.dy_, dw, NULL, c.workspace);
        assert_int_equal(unsetenv("FAKE_CUBLASLT_FAIL"), 0);
        for (int again = 0; again < 2; again++) {
            char says[128];
            (void)snprintf(says, sizeof(says),
                           "linear bf16 7x24->16 %s: cuBLASLt: CUBLAS_STATUS_EXECUTION_FAILED",
                           operations[i]);
            assert_int_equal(device_synchronise(device, &err), -EIO);
            if (!strstr(err.text, says))
                fail_msg("%s", err.text);
            linear_forward(c.linear, c.x_, c.w_, c.packed, NULL, NULL, c.y_, c.workspace);
        }
        device_end(device, dw, c.n_w * sizeof(float));
        case_free(&c);
        device = device_free(device);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_compute),
        cmocka_unit_test(columns_have_the_products_of_a_layer),
        cmocka_unit_test(plans_are_replayed),
        cmocka_unit_test(the_librarys_own_form_is_replayed),
        cmocka_unit_test(a_form_that_is_not_the_librarys_is_refused),
        cmocka_unit_test(a_forward_alone_has_one_plan),
        cmocka_unit_test(plans_that_do_not_fit_are_refused),
        cmocka_unit_test(a_workspace_that_is_too_small_is_refused),
        cmocka_unit_test(other_machines_plans_are_refused),
        cmocka_unit_test(a_call_that_fails_is_told),
        cmocka_unit_test(products_are_left_to_the_kernels_by_their_entries),
        cmocka_unit_test(what_no_algorithm_serves_is_left_to_the_kernels),
        cmocka_unit_test(a_product_that_fails_breaks_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
