/* SPDX-License-Identifier: Apache-2.0 */
/* test-linear.c - linear layers in bf16 against float64: by the plain kernels, and, where SDTRAIN_CUDA_LIBRARIES names
 * a cuBLASLt (test-linear@fake: the one that computes on the host), by that, with plans that are made here. */
#include "kernels/cuda/emulated.h"
#include "kernels/cuda/linear/matmul.h"
#include "kernels/test/testing-reference.h"

#include <jansson.h>

/* Of bf16, 2^-9 an element at most; what is summed in fp32. */
static const double bf16_tolerance = 4e-3, f32_tolerance = 2e-6;

static bool by_library(void) { return getenv("SDTRAIN_CUDA_LIBRARIES") != NULL; }

static Device *open_device(bool tune)
{
    const DeviceOptions options = {.kind = DEVICE_CUDA,
                                   .threads = 1,
                                   .type = DATA_BF16,
                                   .tune = tune};
    Device *device;
    Error err = ERROR_INIT;
    const char *wanted = getenv("SDTRAIN_TEST_DEVICE");
    int r = wanted && strcmp(wanted, "cuda") == 0 ? device_open(&options, &device, &err)
                                                  : emulated_device_open(&options, &device, &err);
    if (r < 0)
        fail_msg("%s", err.text);
    return device;
}

/* ---- memory of the device ---- */

enum { GUARD_BYTES = 256 };

static void *device_new(Device *device, size_t n_bytes)
{
    void *memory;
    Error err = ERROR_INIT;
    if (device_allocate(device, n_bytes + GUARD_BYTES, &memory, &err) < 0)
        fail_msg("%s", err.text);
    char poison[GUARD_BYTES];
    memset(poison, 0xff, sizeof(poison)); /* NaN, in fp32 and in bf16 */
    for (size_t at = 0; at < n_bytes + GUARD_BYTES;
         at += MIN(n_bytes + GUARD_BYTES - at, sizeof(poison)))
        device_upload(device, (char *)memory + at, poison,
                      MIN(n_bytes + GUARD_BYTES - at, sizeof(poison)));
    return memory;
}

static void device_end(Device *device, void *memory, size_t n_bytes)
{
    uint8_t guard[GUARD_BYTES];
    device_download(device, guard, (char *)memory + n_bytes, sizeof(guard));
    for (size_t i = 0; i < sizeof(guard); i++)
        assert_int_equal(guard[i], 0xff);
    device_release(device, memory);
}

static uint16_t narrow(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float widen(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Uniform in [-1, 1), of bf16. */
static float *values_new(size_t n, uint64_t seed)
{
    float *values = random_new(n, seed);
    for (size_t i = 0; i < n; i++)
        values[i] = widen(narrow(values[i]));
    return values;
}

static void put(Device *device, void *to, const float *values, size_t n)
{
    uint16_t *halves = calloc(n, sizeof(*halves));
    assert_non_null(halves);
    for (size_t i = 0; i < n; i++)
        halves[i] = narrow(values[i]);
    device_upload(device, to, halves, n * sizeof(*halves));
    free(halves);
}

static void *put_new(Device *device, const float *values, size_t n)
{
    void *memory = device_new(device, n * sizeof(uint16_t));
    put(device, memory, values, n);
    return memory;
}

static void assert_halves(Device *device, const char *what, const void *memory,
                          const double *expected, size_t n)
{
    Error err = ERROR_INIT;
    uint16_t *halves = calloc(n, sizeof(*halves));
    float *got = calloc(n, sizeof(*got));
    assert_non_null(halves);
    assert_non_null(got);
    if (device_synchronise(device, &err) < 0)
        fail_msg("%s: %s", what, err.text);
    device_download(device, halves, memory, n * sizeof(*halves));
    for (size_t i = 0; i < n; i++)
        got[i] = widen(halves[i]);
    assert_near(what, got, expected, n, bf16_tolerance);
    free(halves);
    free(got);
}

/* ---- one layer ---- */

typedef struct Case {
    Device *device;
    Linear *linear;
    LinearShape s;
    size_t n_x, n_y, n_w;
    float *x, *w, *bias, *residual, *dy; /* of the host */
    void *dx_, *dy_, *x_, *y_, *w_, *bias_, *residual_, *packed, *workspace;
} Case;

static Case case_new(Device *device, const LinearShape *shape)
{
    Case c = {.device = device, .s = *shape};
    Error err = ERROR_INIT;
    if (linear_new(device, shape, &c.linear, &err) < 0)
        fail_msg("%s", err.text);
    const size_t out = (size_t)shape->out;
    c.n_x = (size_t)shape->rows * (size_t)shape->in;
    c.n_y = (size_t)shape->rows * out;
    c.n_w = out * (size_t)shape->in;
    c.x = values_new(c.n_x, 1);
    c.w = values_new(c.n_w, 2);
    c.bias = values_new(out, 3);
    c.residual = values_new(c.n_y, 4);
    c.dy = values_new(c.n_y, 5);
    c.x_ = put_new(device, c.x, c.n_x);
    c.dx_ = device_new(device, c.n_x * 2);
    c.dy_ = put_new(device, c.dy, c.n_y);
    c.y_ = device_new(device, c.n_y * 2);
    c.residual_ = put_new(device, c.residual, c.n_y);
    c.w_ = device_new(device, c.n_w * sizeof(float));
    device_upload(device, c.w_, c.w, c.n_w * sizeof(float));
    c.bias_ = device_new(device, out * sizeof(float));
    device_upload(device, c.bias_, c.bias, out * sizeof(float));
    c.packed = device_new(device, linear_packed_bytes(c.linear));
    c.workspace = device_new(device, linear_workspace_bytes(c.linear));
    linear_pack(c.linear, c.w_, c.packed);
    return c;
}

static void case_free(Case *c)
{
    const size_t out = (size_t)c->s.out;
    device_end(c->device, c->x_, c->n_x * 2);
    device_end(c->device, c->dx_, c->n_x * 2);
    device_end(c->device, c->dy_, c->n_y * 2);
    device_end(c->device, c->y_, c->n_y * 2);
    device_end(c->device, c->residual_, c->n_y * 2);
    device_end(c->device, c->w_, c->n_w * sizeof(float));
    device_end(c->device, c->bias_, out * sizeof(float));
    device_end(c->device, c->packed, linear_packed_bytes(c->linear));
    device_end(c->device, c->workspace, linear_workspace_bytes(c->linear));
    floats_free(c->x, c->n_x);
    floats_free(c->w, c->n_w);
    floats_free(c->bias, out);
    floats_free(c->residual, c->n_y);
    floats_free(c->dy, c->n_y);
    c->linear = linear_free(c->linear);
}

/* sums[i][j] += the products of rows of a and columns of b, a[i][k] and b[k][j] at these strides. */
static double *product_new(size_t n, size_t m, size_t k, const float *a, size_t a_i, size_t a_k,
                           const float *b, size_t b_k, size_t b_j)
{
    double *sums = doubles_new(n * m);
    for (size_t i = 0; i < n; i++)
        for (size_t l = 0; l < k; l++)
            for (size_t j = 0; j < m; j++)
                sums[i * m + j] += (double)a[i * a_i + l * a_k] * (double)b[l * b_k + j * b_j];
    return sums;
}

static void check_forward(Case *c)
{
    const size_t rows = (size_t)c->s.rows, in = (size_t)c->s.in, out = (size_t)c->s.out;
    double *bare = product_new(rows, out, in, c->x, in, 1, c->w, 1, in);
    double *expected = doubles_new(c->n_y);
    for (int run = 0; run < 6; run++) {
        const bool biased = run % 2 == 1, residual = run >= 2, in_place = run >= 4;
        for (size_t i = 0; i < c->n_y; i++)
            expected[i] = bare[i] + (biased ? (double)c->bias[i % out] : 0) +
                          (residual ? (double)c->residual[i] : 0);
        void *y = device_new(c->device, c->n_y * 2);
        if (in_place)
            put(c->device, y, c->residual, c->n_y);
        linear_forward(c->linear, c->x_, c->w_, c->packed, biased ? c->bias_ : NULL,
                       in_place   ? y
                       : residual ? c->residual_
                                  : NULL,
                       y, c->workspace);
        assert_halves(c->device, "forward", y, expected, c->n_y);
        device_end(c->device, y, c->n_y * 2);
    }
    double *kept = doubles_new(c->n_y); /* the residual is only read */
    for (size_t i = 0; i < c->n_y; i++)
        kept[i] = (double)c->residual[i];
    assert_halves(c->device, "the residual", c->residual_, kept, c->n_y);
    free(kept);
    free(expected);
    free(bare);
}

static void check_backward_data(Case *c)
{
    const size_t rows = (size_t)c->s.rows, in = (size_t)c->s.in, out = (size_t)c->s.out;
    double *expected = product_new(rows, in, out, c->dy, out, 1, c->w, in, 1);
    linear_backward_data(c->linear, c->dy_, c->w_, c->packed, c->dx_, false, c->workspace);
    assert_halves(c->device, "backward by data", c->dx_, expected, c->n_x);

    put(c->device, c->dx_, c->x, c->n_x);
    for (size_t i = 0; i < c->n_x; i++)
        expected[i] += (double)c->x[i];
    linear_backward_data(c->linear, c->dy_, c->w_, c->packed, c->dx_, true, c->workspace);
    assert_halves(c->device, "backward by data, added", c->dx_, expected, c->n_x);
    free(expected);
}

static void check_backward_weight(Case *c)
{
    const size_t rows = (size_t)c->s.rows, in = (size_t)c->s.in, out = (size_t)c->s.out;
    const GradientForm form = linear_gradient_form(c->linear);
    double *expected = product_new(out, in, rows, c->dy, 1, out, c->x, in, 1);
    double *expected_bias = doubles_new(out);
    for (size_t i = 0; i < c->n_y; i++)
        expected_bias[i % out] += (double)c->dy[i];
    assert_int_equal(form.type, DATA_F32);
    assert_int_equal(form.out * form.in * form.taps, c->n_w);

    float *dw = floats_new(c->n_w), *dbias = floats_new(out);
    void *dw_ = device_new(c->device, c->n_w * sizeof(float));
    void *dbias_ = device_new(c->device, out * sizeof(float));
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        linear_backward_weight(c->linear, c->x_, c->dy_, dw_, with_bias ? dbias_ : NULL,
                               c->workspace);
        Error err = ERROR_INIT;
        if (device_synchronise(c->device, &err) < 0)
            fail_msg("%s", err.text);
        device_download(c->device, dw, dw_, c->n_w * sizeof(float));
        assert_near("backward by weight", dw, expected, c->n_w, f32_tolerance);
    }
    device_download(c->device, dbias, dbias_, out * sizeof(float));
    assert_near("gradient of the bias", dbias, expected_bias, out, f32_tolerance);
    device_end(c->device, dw_, c->n_w * sizeof(float));
    device_end(c->device, dbias_, out * sizeof(float));
    floats_free(dw, c->n_w);
    floats_free(dbias, out);
    free(expected);
    free(expected_bias);
}

/* Every layer of sd2-base with its rows cut, and what is no multiple of anything. */
static const LinearShape shapes[] = {{1, 320, 320},    {130, 77, 320},  {77, 320, 130},
                                     {2, 1024, 320},   {5, 1024, 640},  {2, 1024, 1280},
                                     {3, 320, 960},    {2, 320, 2560},  {3, 1280, 320},
                                     {2, 640, 640},    {2, 640, 1920},  {1, 640, 5120},
                                     {2, 2560, 640},   {3, 1280, 1280}, {1, 1280, 3840},
                                     {1, 1280, 10240}, {1, 5120, 1280}, {4, 320, 1280},
                                     {2, 1280, 640},   {1, 1, 1},       {7, 5, 3},
                                     {1, 130, 77},     {77, 130, 31},   {130, 77, 1},
                                     {1, 8, 8},        {9, 16, 24}};

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

static const LinearShape small = {7, 24, 16};

/* The plans that one layer makes; the caller frees. */
static char *make_plans(const LinearShape *shape)
{
    Device *device = open_device(true);
    Linear *linear;
    Error err = ERROR_INIT;
    char *text;
    if (linear_new(device, shape, &linear, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(device_plans(device, &text), 0);
    linear = linear_free(linear);
    device = device_free(device);
    return text;
}

static char *replaced(const char *text, const char *what, const char *by)
{
    const char *at = strstr(text, what);
    assert_non_null(at);
    char *made = NULL;
    assert_true(asprintf(&made, "%.*s%s%s", (int)(at - text), text, by, at + strlen(what)) > 0);
    return made;
}

/* y of the small layer, and the gradient of its weight. */
static void compute(Device *device, uint16_t *y, float *dw)
{
    Error err = ERROR_INIT;
    Case c = case_new(device, &small);
    void *dw_ = device_new(device, c.n_w * sizeof(float));
    linear_forward(c.linear, c.x_, c.w_, c.packed, c.bias_, NULL, c.y_, c.workspace);
    linear_backward_weight(c.linear, c.x_, c.dy_, dw_, NULL, c.workspace);
    assert_int_equal(device_synchronise(device, &err), 0);
    device_download(device, y, c.y_, c.n_y * sizeof(*y));
    device_download(device, dw, dw_, c.n_w * sizeof(*dw));
    device_end(device, dw_, c.n_w * sizeof(float));
    case_free(&c);
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

/* The set with that of the operation, or of all (NULL): a text, or nothing (NULL) in the place of "opaque"; the caller
 * frees. */
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

/* What linear_new() says on a device with these plans. */
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

/* The library knows more of an algorithm than its attributes tell: what was timed is what runs. */
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
    compute_by(told, y[1], dw[2]); /* by the attributes alone */
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

/* As that of another version would be, which says the same by its attributes, other ones, or nothing. */
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

/* Three parts of k in fp32 take 3 * 7 * 16 * 4 bytes. */
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

/* Any of the three products, beside the library's. */
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

/* So a job can run at all. Whatever has no kernel of ours is an error that says what became of each algorithm. */
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
