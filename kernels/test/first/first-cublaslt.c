/* SPDX-License-Identifier: Apache-2.0 */
/* first-cublaslt.c - case "cublaslt": whether an algorithm that the library proposes for a linear layer can be
 * described and made again: by its nine attributes, as linear/matmul.c does, and by the 64 bytes of its struct. Case
 * "cublaslt-again" prints those bytes in another process: if they are equal, they contain no memory address, and a plan
 * set can contain them.
 *
 * Descriptors, layouts, the epilogue, the reductions and the workspace are those of linear/matmul.c and matmul-tune.c.
 * They are repeated here, because the case tests the library, independently of what those two files do. */
#include "base/clock.h"
#include "base/memory.h"
#include "kernels/cuda/module/forward.h"
#include "kernels/cuda/module/libraries.h"
#include "kernels/test/first/first.h"

#include <stdlib.h>
#include <string.h>

enum { CANDIDATES = 8, ATTRIBUTES = 9, ALGORITHM_BYTES = sizeof(cublasLtMatmulAlgo_t) };

#define WORKSPACE_BYTES ((size_t)64 << 20)

/* Column-major, as in linear/matmul.h: D[m][n] = A[m][k] B[k][n]. */
typedef struct Shape {
    const char *name;
    int64_t m, n, k;
    /* D is the gradient of a weight: A is not transposed, B is stored as [n][k], and D is fp32. Otherwise A is stored
     * as [k][m], and there is a bias. */
    bool is_gradient;
} Shape;

static const Shape shapes[] = {
    {"linear bf16 131072x320->2560 forward", 2560, 131072, 320, false},
    {"linear bf16 131072x1280->320 forward", 320, 131072, 1280, false},
    {"linear bf16 131072x320->320 backward_weight", 320, 320, 131072, true},
    {"linear bf16 32x1280->1280 forward", 1280, 32, 1280, false},
    {"linear bf16 131072x320->960 forward", 960, 131072, 320, false},
    {"linear bf16 2464x1024->640 forward", 640, 2464, 1024, false},
};

static const Shape emulated_shapes[] = {
    {"linear bf16 48x32->64 forward", 64, 48, 32, false},
    {"linear bf16 96x32->32 backward_weight", 32, 32, 96, true},
};

typedef struct Product {
    Device *device;
    cublasLtHandle_t handle;
    const Shape *shape;
    cublasLtMatmulDesc_t bare, biased;
    cublasLtMatrixLayout_t a_layout, b_layout, d_layout;
    FirstOperand a, b, bias, c; /* c: added in one run; a gradient has neither bias nor c */
    bool adds;
    void *d, *workspace;
    size_t d_bytes;
    const cublasLtMatmulAlgo_t *algorithm; /* the algorithm of the timed run */
} Product;

static json_t *status_text(cublasStatus_t status)
{
    char text[128];
    if (status == CUBLAS_STATUS_SUCCESS)
        return json_string("ok");
    (void)snprintf(text, sizeof(text), "%s (%d)", cublasLtGetStatusName(status), (int)status);
    return first_text(text);
}

/* ---- descriptors ---- */

static cublasStatus_t make_operation(const Shape *s, cublasLtEpilogue_t epilogue,
                                     cublasLtMatmulDesc_t *ret)
{
    const cublasOperation_t a = s->is_gradient ? CUBLAS_OP_N : CUBLAS_OP_T;
    const cublasOperation_t b = s->is_gradient ? CUBLAS_OP_T : CUBLAS_OP_N;
    const void *bias = (const void *)(uintptr_t)DEVICE_ALIGNMENT;
    cublasStatus_t status = cublasLtMatmulDescCreate(ret, CUBLAS_COMPUTE_32F, CUDA_R_32F);
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

static cudaDataType_t type_of_d(const Shape *s)
{
    return s->is_gradient ? CUDA_R_32F : CUDA_R_16BF;
}

static cublasStatus_t make_descriptors(Product *p)
{
    const Shape *s = p->shape;
    const uint64_t m = (uint64_t)s->m, n = (uint64_t)s->n, k = (uint64_t)s->k;
    cublasStatus_t status = make_operation(s, CUBLASLT_EPILOGUE_DEFAULT, &p->bare);
    if (status == CUBLAS_STATUS_SUCCESS && !s->is_gradient)
        status = make_operation(s, CUBLASLT_EPILOGUE_BIAS, &p->biased);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = s->is_gradient ? cublasLtMatrixLayoutCreate(&p->a_layout, CUDA_R_16BF, m, k, s->m)
                                : cublasLtMatrixLayoutCreate(&p->a_layout, CUDA_R_16BF, k, m, s->k);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = s->is_gradient ? cublasLtMatrixLayoutCreate(&p->b_layout, CUDA_R_16BF, n, k, s->n)
                                : cublasLtMatrixLayoutCreate(&p->b_layout, CUDA_R_16BF, k, n, s->k);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutCreate(&p->d_layout, type_of_d(s), m, n, s->m);
    return status;
}

static void make_operands(Product *p)
{
    const Shape *s = p->shape;
    first_operand(p->device, (size_t)(s->m * s->k), 1, 1, &p->a);
    first_operand(p->device, (size_t)(s->k * s->n), 2, 1, &p->b);
    if (!s->is_gradient) {
        first_operand(p->device, (size_t)s->m, 3, 16, &p->bias);
        first_operand(p->device, (size_t)(s->m * s->n), 4, 16, &p->c);
    }
    p->d_bytes = (size_t)(s->m * s->n) * (s->is_gradient ? 4 : 2);
    p->d = first_memory(p->device, p->d_bytes);
    p->workspace = first_memory(p->device, WORKSPACE_BYTES);
    first_wait(p->device, "making operands");
}

static void product_close(Product *p)
{
    /* Descriptors are plain memory of this process: destroying one cannot fail. */
    (void)cublasLtMatmulDescDestroy(p->bare);
    if (p->biased)
        (void)cublasLtMatmulDescDestroy(p->biased);
    (void)cublasLtMatrixLayoutDestroy(p->a_layout);
    (void)cublasLtMatrixLayoutDestroy(p->b_layout);
    (void)cublasLtMatrixLayoutDestroy(p->d_layout);
    first_operand_free(p->device, &p->a);
    first_operand_free(p->device, &p->b);
    if (!p->shape->is_gradient) {
        first_operand_free(p->device, &p->bias);
        first_operand_free(p->device, &p->c);
    }
    device_release(p->device, p->d);
    device_release(p->device, p->workspace);
}

static FirstSum expected(const void *userdata, size_t at)
{
    const Product *p = userdata;
    const Shape *s = p->shape;
    const size_t m = (size_t)s->m, n = (size_t)s->n, k = (size_t)s->k, i = at % m, j = at / m;
    FirstSum e = {0, 0};
    for (size_t l = 0; l < k; l++) {
        const double a = first_value(&p->a, s->is_gradient ? l * m + i : i * k + l);
        const double b = first_value(&p->b, s->is_gradient ? l * n + j : j * k + l);
        e.sum += a * b;
        e.sizes += a * b < 0 ? -a * b : a * b;
    }
    if (!s->is_gradient)
        e.sum += first_value(&p->bias, i);
    if (p->adds)
        e.sum += first_value(&p->c, at);
    return e;
}

/* ---- algorithms ---- */

static const struct {
    const char *name;
    cublasLtMatmulAlgoConfigAttributes_t key;
    size_t size;
} attributes[ATTRIBUTES] = {
    {"id", CUBLASLT_ALGO_CONFIG_ID, 4},
    {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
    {"split_k", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
    {"reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
    {"swizzling", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
    {"custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
    {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    {"inner_shape", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
    {"cluster_shape", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
};

static cublasStatus_t ask(const Product *p, cublasLtMatmulHeuristicResult_t *results, int *n)
{
    cublasLtMatmulPreference_t preference;
    const uint64_t workspace = WORKSPACE_BYTES;
    const uint32_t mask = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasStatus_t status = cublasLtMatmulPreferenceCreate(&preference);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    status =
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof(workspace));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(preference,
                                                      CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                      &mask, sizeof(mask));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(p->handle, p->biased ? p->biased : p->bare,
                                                p->a_layout, p->b_layout, p->d_layout, p->d_layout,
                                                preference, CANDIDATES, results, n);
    (void)cublasLtMatmulPreferenceDestroy(preference); /* freeing memory cannot fail */
    return status;
}

/* Makes the algorithm again from its attributes. Adds the attributes, and the status of each call that failed, to the
 * line. */
static cublasStatus_t replay(const Product *p, const cublasLtMatmulAlgo_t *from,
                             cublasLtMatmulAlgo_t *ret, json_t *line)
{
    const cudaDataType_t d = type_of_d(p->shape);
    json_t *values = json_object(), *failures = json_object();
    cublasStatus_t result = CUBLAS_STATUS_SUCCESS;
    memset(ret, 0, sizeof(*ret));
    for (int i = 0; i < ATTRIBUTES; i++) {
        uint32_t value = 0; /* a shorter value is written to the first bytes */
        size_t written = 0;
        cublasStatus_t status =
            cublasLtMatmulAlgoConfigGetAttribute(from, attributes[i].key, &value,
                                                 attributes[i].size, &written);
        json_object_set_new(values, attributes[i].name, json_integer((int64_t)value));
        if (status == CUBLAS_STATUS_SUCCESS && i == 0)
            status = cublasLtMatmulAlgoInit(p->handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF,
                                            CUDA_R_16BF, d, d, (int)value, ret);
        else if (status == CUBLAS_STATUS_SUCCESS)
            status = cublasLtMatmulAlgoConfigSetAttribute(ret, attributes[i].key, &value,
                                                          attributes[i].size);
        if (status != CUBLAS_STATUS_SUCCESS) {
            json_object_set_new(failures, attributes[i].name, status_text(status));
            result = result == CUBLAS_STATUS_SUCCESS ? status : result;
        }
    }
    json_object_set_new(line, "attributes", values);
    json_object_set_new(line, "replay", status_text(result));
    json_object_set_new(line, "replay_failures", failures);
    return result;
}

static void to_hex(const void *bytes, size_t n, char *ret)
{
    for (size_t i = 0; i < n; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", ((const unsigned char *)bytes)[i]);
}

/* Converts the bytes to text, as a plan set would contain them, and back. */
static void by_hex(const cublasLtMatmulAlgo_t *from, cublasLtMatmulAlgo_t *ret)
{
    char text[2 * ALGORITHM_BYTES + 1];
    unsigned char bytes[ALGORITHM_BYTES];
    to_hex(from, ALGORITHM_BYTES, text);
    for (size_t i = 0; i < ALGORITHM_BYTES; i++) {
        const char digits[3] = {text[2 * i], text[2 * i + 1]};
        bytes[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    memcpy(ret, bytes, sizeof(*ret));
}

/* Calls AlgoCheck without and with bias, and adds the workspaces that it returns to the line. */
static void check(const Product *p, const char *which, const cublasLtMatmulAlgo_t *algorithm,
                  json_t *line)
{
    const cublasLtMatmulDesc_t operations[] = {p->bare, p->biased};
    json_t *told = json_array();
    for (int i = 0; i < 2 && operations[i]; i++) {
        cublasLtMatmulHeuristicResult_t result = {{{0}}};
        const cublasStatus_t status =
            cublasLtMatmulAlgoCheck(p->handle, operations[i], p->a_layout, p->b_layout, p->d_layout,
                                    p->d_layout, algorithm, &result);
        json_array_append_new(told, status_text(status));
        json_array_append_new(told, json_integer((json_int_t)result.workspaceSize));
    }
    json_object_set_new(line, which, told);
}

/* ---- runs ---- */

static cublasStatus_t start(const Product *p, const cublasLtMatmulAlgo_t *algorithm)
{
    static const float one = 1, zero = 0;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (p->biased)
        status = cublasLtMatmulDescSetAttribute(p->biased, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                &p->bias.memory, sizeof(p->bias.memory));
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    return cublasLtMatmul(p->handle, p->biased ? p->biased : p->bare, &one, p->a.memory,
                          p->a_layout, p->b.memory, p->b_layout, p->adds ? &one : &zero,
                          p->adds ? p->c.memory : p->d, p->d_layout, p->d, p->d_layout, algorithm,
                          p->workspace, WORKSPACE_BYTES, NULL);
}

static bool start_again(void *userdata)
{
    const Product *p = userdata;
    return start(p, p->algorithm) == CUBLAS_STATUS_SUCCESS;
}

/* Runs the algorithm on cleared memory. Returns the hash of the result, or 0 if it does not run; the line contains the
 * status. */
static uint64_t run(const Product *p, const char *which, const cublasLtMatmulAlgo_t *algorithm,
                    json_t *line)
{
    device_clear(p->device, p->d, p->d_bytes);
    first_wait(p->device, "clearing a result");
    const cublasStatus_t status = start(p, algorithm);
    json_object_set_new(line, which, status_text(status));
    return status == CUBLAS_STATUS_SUCCESS ? first_hash(p->device, p->d, p->d_bytes) : 0;
}

static void compare(const Product *p, json_t *line)
{
    first_compare(p->device, p->d, p->shape->is_gradient ? DATA_F32 : DATA_BF16,
                  (size_t)(p->shape->m * p->shape->n), expected, p, line);
}

/* Runs with beta = 1 and a C other than D, as a residual is added. */
static void run_adding(Product *p, const cublasLtMatmulAlgo_t *algorithm, json_t *line)
{
    json_t *told = json_object();
    p->adds = true;
    if (run(p, "run", algorithm, told))
        compare(p, told);
    p->algorithm = algorithm;
    json_object_set_new(told, "usec", first_number(first_usec(p->device, start_again, p)));
    p->adds = false;
    json_object_set_new(line, "adding", told);
}

static void look_at_candidate(Product *p, const cublasLtMatmulHeuristicResult_t *result, int number)
{
    const cublasLtMatmulAlgo_t *original = &result->algo;
    cublasLtMatmulAlgo_t replayed, opaque;
    char hex[2][2 * ALGORITHM_BYTES + 1];
    json_t *line =
        json_pack("{s:s,s:i,s:o,s:I,s:f}", "product", p->shape->name, "candidate", number, "state",
                  status_text(result->state), "workspace", (json_int_t)result->workspaceSize,
                  "waves", (double)result->wavesCount);
    const bool is_made = replay(p, original, &replayed, line) == CUBLAS_STATUS_SUCCESS;
    const bool is_same = memcmp(original, &replayed, sizeof(replayed)) == 0;
    by_hex(original, &opaque);
    to_hex(original, ALGORITHM_BYTES, hex[0]);
    to_hex(&replayed, ALGORITHM_BYTES, hex[1]);
    json_object_set_new(line, "same_struct", json_boolean(is_same));
    json_object_set_new(line, "bytes", json_string(hex[0]));
    if (!is_same)
        json_object_set_new(line, "bytes_replayed", json_string(hex[1]));
    check(p, "check", original, line);
    check(p, "check_replayed", &replayed, line);
    /* Before anything runs, the line is printed with what is known so far. */
    first_line(json_deep_copy(line));

    const uint64_t first = run(p, "run", original, line);
    if (first)
        compare(p, line);
    const uint64_t again = run(p, "run_again", original, line);
    const uint64_t by_bytes = run(p, "run_opaque", &opaque, line);
    const uint64_t by_attributes = is_made ? run(p, "run_replayed", &replayed, line) : 0;
    json_object_set_new(line, "repeats", json_boolean(first && first == again));
    json_object_set_new(line, "opaque_equal", json_boolean(first && first == by_bytes));
    json_object_set_new(line, "replayed_equal", json_boolean(first && first == by_attributes));
    p->algorithm = original;
    json_object_set_new(line, "usec", first_number(first_usec(p->device, start_again, p)));
    if (by_attributes && !is_same) {
        p->algorithm = &replayed;
        json_object_set_new(line, "usec_replayed",
                            first_number(first_usec(p->device, start_again, p)));
    }
    if (!p->shape->is_gradient)
        run_adding(p, original, line);
    json_object_set_new(line, "ran", json_true());
    first_line(line);
}

static void look_at_product(Device *device, cublasLtHandle_t handle, const Shape *shape)
{
    Product p = {.device = device, .handle = handle, .shape = shape};
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    int n = 0;
    const uint64_t began = clock_monotonic_usec();
    memset(results, 0, sizeof(results));
    cublasStatus_t status = make_descriptors(&p);
    if (status != CUBLAS_STATUS_SUCCESS) {
        first_failed("descriptors", (int)status, cublasLtGetStatusName(status));
        return;
    }
    status = ask(&p, results, &n);
    first_line(json_pack("{s:s,s:s,s:o,s:i,s:f}", "product", shape->name, "api",
                         "cublasLtMatmulAlgoGetHeuristic", "status", status_text(status),
                         "candidates", n, "seconds",
                         (double)(clock_monotonic_usec() - began) * 1e-6));
    make_operands(&p);
    for (int i = 0; i < n && first_left_sec() > 1; i++)
        look_at_candidate(&p, &results[i], i);
    product_close(&p);
}

/* Called before the library is opened and again before a handle is made, because the library may read the variable at
 * either moment. */
static void log_errors(void) { first_log("CUBLASLT_LOG_LEVEL", "1"); }

/* Returns false if there is no handle; the reason is printed. */
static bool open_handle(Device **ret_device, cublasLtHandle_t *ret)
{
    const CudaLibraries *libraries;
    Error err = ERROR_INIT;
    log_errors();
    int r = cuda_libraries_open(&libraries, &err);
    if (r < 0) {
        first_failed("cuda_libraries_open", r, err.text);
        return false;
    }
    *ret_device = first_device(DATA_BF16);
    log_errors();
    const uint64_t began = clock_monotonic_usec();
    const cublasStatus_t status = cublasLtCreate(ret);
    first_line(
        json_pack("{s:s,s:o,s:f,s:I,s:s}", "api", "cublasLtCreate", "status", status_text(status),
                  "seconds", (double)(clock_monotonic_usec() - began) * 1e-6, "version",
                  (json_int_t)libraries->cublaslt_version, "folder", libraries->cublaslt_folder));
    return status == CUBLAS_STATUS_SUCCESS;
}

static size_t shapes_of(const Shape **ret)
{
    *ret = first_emulated() ? emulated_shapes : shapes;
    return first_emulated() ? ELEMENTSOF(emulated_shapes) : ELEMENTSOF(shapes);
}

int first_cublaslt(void)
{
    Device *device;
    cublasLtHandle_t handle;
    const Shape *all;
    const size_t n = shapes_of(&all);
    if (!open_handle(&device, &handle))
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (first_left_sec() > 2)
            look_at_product(device, handle, &all[i]);
        else
            first_line(json_pack("{s:s,s:s}", "product", all[i].name, "not_run", "no time left"));
    }
    return 0;
}

int first_cublaslt_again(void)
{
    Device *device;
    cublasLtHandle_t handle;
    const Shape *all;
    const size_t n_shapes = shapes_of(&all);
    if (!open_handle(&device, &handle))
        return 0;
    for (size_t i = 0; i < n_shapes; i++) {
        Product p = {.device = device, .handle = handle, .shape = &all[i]};
        cublasLtMatmulHeuristicResult_t results[CANDIDATES];
        json_t *bytes = json_array();
        int n = 0;
        memset(results, 0, sizeof(results));
        cublasStatus_t status = make_descriptors(&p);
        if (status == CUBLAS_STATUS_SUCCESS)
            status = ask(&p, results, &n);
        for (int k = 0; k < n; k++) {
            char hex[2 * ALGORITHM_BYTES + 1];
            to_hex(&results[k].algo, ALGORITHM_BYTES, hex);
            json_array_append_new(bytes, json_string(hex));
        }
        first_line(json_pack("{s:s,s:o,s:o}", "product", all[i].name, "status", status_text(status),
                             "bytes", bytes));
    }
    return 0;
}
