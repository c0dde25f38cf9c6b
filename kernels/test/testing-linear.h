/* SPDX-License-Identifier: Apache-2.0 */
/* testing-linear.h - checks linear layers in bf16 against float64, for tests of layers and of their plans.
 *
 * Ownership: *_new() give the caller objects for *_free(), or memory for device_end(); the caller frees texts.
 * Units:     elements; bytes of the device's memory.
 * Errors:    a failed assertion ends the test.
 * Threads:   the main thread.
 */
#pragma once

#include "kernels/test/emulator/emulated.h"
#include "kernels/test/testing-reference.h"

/* Rounding to bf16 changes each element by at most 2^-8 of its value. f32_tolerance is for results that are summed in
 * fp32. */
static const double bf16_tolerance = 4e-3, f32_tolerance = 2e-6;

static inline bool by_library(void) { return getenv("SDTRAIN_CUDA_LIBRARIES") != NULL; }

static inline Device *open_device(bool tune)
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

static inline void *device_new(Device *device, size_t n_bytes)
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

static inline void device_end(Device *device, void *memory, size_t n_bytes)
{
    uint8_t guard[GUARD_BYTES];
    device_download(device, guard, (char *)memory + n_bytes, sizeof(guard));
    for (size_t i = 0; i < sizeof(guard); i++)
        assert_int_equal(guard[i], 0xff);
    device_release(device, memory);
}

static inline uint16_t narrow(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float widen(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Returns uniform values in [-1, 1) that are exact in bf16. */
static inline float *values_new(size_t n, uint64_t seed)
{
    float *values = random_new(n, seed);
    for (size_t i = 0; i < n; i++)
        values[i] = widen(narrow(values[i]));
    return values;
}

static inline void put(Device *device, void *to, const float *values, size_t n)
{
    uint16_t *halves = calloc(n, sizeof(*halves));
    assert_non_null(halves);
    for (size_t i = 0; i < n; i++)
        halves[i] = narrow(values[i]);
    device_upload(device, to, halves, n * sizeof(*halves));
    free(halves);
}

static inline void *put_new(Device *device, const float *values, size_t n)
{
    void *memory = device_new(device, n * sizeof(uint16_t));
    put(device, memory, values, n);
    return memory;
}

static inline void assert_halves(Device *device, const char *what, const void *memory,
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
    /* columns: columns of the weight; those of the layer begin at s.first. */
    size_t n_x, n_y, n_w, columns;
    float *x, *w, *bias, *residual, *dy; /* on the host */
    void *dx_, *dy_, *x_, *y_, *w_, *bias_, *residual_, *packed, *workspace;
} Case;

static inline Case case_new(Device *device, const LinearShape *shape)
{
    Case c = {.device = device, .s = *shape};
    Error err = ERROR_INIT;
    if (linear_new(device, shape, &c.linear, &err) < 0)
        fail_msg("%s", err.text);
    const size_t out = (size_t)shape->out;
    c.n_x = (size_t)shape->rows * (size_t)shape->in;
    c.n_y = (size_t)shape->rows * out;
    c.columns = (size_t)(shape->columns > 0 ? shape->columns : shape->in);
    c.n_w = out * c.columns;
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

static inline void case_free(Case *c)
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

/* Returns the sums of a[i][k] b[k][j] over k, for arrays with these strides. */
static inline double *product_new(size_t n, size_t m, size_t k, const float *a, size_t a_i,
                                  size_t a_k, const float *b, size_t b_k, size_t b_j)
{
    double *sums = doubles_new(n * m);
    for (size_t i = 0; i < n; i++)
        for (size_t l = 0; l < k; l++)
            for (size_t j = 0; j < m; j++)
                sums[i * m + j] += (double)a[i * a_i + l * a_k] * (double)b[l * b_k + j * b_j];
    return sums;
}

static inline void check_forward(Case *c)
{
    const size_t rows = (size_t)c->s.rows, in = (size_t)c->s.in, out = (size_t)c->s.out;
    double *bare = product_new(rows, out, in, c->x, in, 1, c->w + c->s.first, 1, c->columns);
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
    double *kept = doubles_new(c->n_y); /* the residual must be unchanged */
    for (size_t i = 0; i < c->n_y; i++)
        kept[i] = (double)c->residual[i];
    assert_halves(c->device, "the residual", c->residual_, kept, c->n_y);
    free(kept);
    free(expected);
    free(bare);
}

static inline void check_backward_data(Case *c)
{
    const size_t rows = (size_t)c->s.rows, in = (size_t)c->s.in, out = (size_t)c->s.out;
    double *expected = product_new(rows, in, out, c->dy, out, 1, c->w + c->s.first, c->columns, 1);
    linear_backward_data(c->linear, c->dy_, c->w_, c->packed, c->dx_, false, c->workspace);
    assert_halves(c->device, "backward by data", c->dx_, expected, c->n_x);

    put(c->device, c->dx_, c->x, c->n_x);
    for (size_t i = 0; i < c->n_x; i++)
        expected[i] += (double)c->x[i];
    linear_backward_data(c->linear, c->dy_, c->w_, c->packed, c->dx_, true, c->workspace);
    assert_halves(c->device, "backward by data, added", c->dx_, expected, c->n_x);
    free(expected);
}

static inline void check_backward_weight(Case *c)
{
    const size_t rows = (size_t)c->s.rows, in = (size_t)c->s.in, out = (size_t)c->s.out;
    const GradientForm form = linear_gradient_form(c->linear);
    double *expected = product_new(out, in, rows, c->dy, 1, out, c->x, in, 1);
    double *expected_bias = doubles_new(out);
    for (size_t i = 0; i < c->n_y; i++)
        expected_bias[i % out] += (double)c->dy[i];
    assert_int_equal(form.type, DATA_F32);
    assert_int_equal(form.out * form.in * form.taps, out * in);

    float *dw = floats_new(c->n_w), *mine = floats_new(out * in), *dbias = floats_new(out);
    void *dw_ = device_new(c->device, c->n_w * sizeof(float));
    void *dbias_ = device_new(c->device, out * sizeof(float));
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        linear_backward_weight(c->linear, c->x_, c->dy_, dw_, with_bias ? dbias_ : NULL,
                               c->workspace);
        Error err = ERROR_INIT;
        if (device_synchronise(c->device, &err) < 0)
            fail_msg("%s", err.text);
        device_download(c->device, dw, dw_, c->n_w * sizeof(float));
        for (size_t i = 0; i < c->n_w; i++) {
            const size_t column = i % c->columns - (size_t)c->s.first;
            if (column < in)
                mine[i / c->columns * in + column] = dw[i];
            else
                assert_true(isnan(dw[i])); /* columns of another layer must be unchanged */
        }
        assert_near("backward by weight", mine, expected, out * in, f32_tolerance);
    }
    device_download(c->device, dbias, dbias_, out * sizeof(float));
    assert_near("gradient of the bias", dbias, expected_bias, out, f32_tolerance);
    device_end(c->device, dw_, c->n_w * sizeof(float));
    device_end(c->device, dbias_, out * sizeof(float));
    floats_free(dw, c->n_w);
    floats_free(mine, out * in);
    floats_free(dbias, out);
    free(expected);
    free(expected_bias);
}

/* ---- plans ---- */

static const LinearShape small = {7, 24, 16};

/* Returns the plans that a device makes for one layer. The caller frees the text. */
static inline char *make_plans(const LinearShape *shape)
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

static inline char *replaced(const char *text, const char *what, const char *by)
{
    const char *at = strstr(text, what);
    assert_non_null(at);
    char *made = NULL;
    assert_true(asprintf(&made, "%.*s%s%s", (int)(at - text), text, by, at + strlen(what)) > 0);
    return made;
}

/* Computes y of the small layer, and the gradient of its weight. */
static inline void compute(Device *device, uint16_t *y, float *dw)
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
