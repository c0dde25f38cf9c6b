/* SPDX-License-Identifier: Apache-2.0 */
/* test-conv.c - tests convolution and linear layers against float64, forward and backward. */
#include "kernels/test/testing-reference.h"

#define TOLERANCE 2e-6

typedef struct Case {
    Device *device;
    ConvShape s;
    int ho, wo, pad;
    size_t n_x, n_y, n_w;
    float *x, *w, *bias, *per_image, *residual, *dy;
    float *packed, *workspace;
    size_t n_packed, n_workspace;
    Conv *conv;
} Case;

static Case case_new(Device *device, const ConvShape *s)
{
    Error err = ERROR_INIT;
    Case c = {.device = device,
              .s = *s,
              .ho = s->pad_end ? s->h / 2 : (s->h - 1) / s->stride + 1,
              .wo = s->pad_end ? s->w / 2 : (s->w - 1) / s->stride + 1,
              .pad = s->pad_end ? 0 : s->kernel / 2};
    c.n_x = (size_t)s->n * (size_t)s->h * (size_t)s->w * (size_t)s->c_in;
    c.n_y = (size_t)s->n * (size_t)c.ho * (size_t)c.wo * (size_t)s->c_out;
    c.n_w = (size_t)s->c_out * (size_t)s->c_in * (size_t)(s->kernel * s->kernel);
    c.x = random_new(c.n_x, 1);
    c.w = random_new(c.n_w, 2);
    c.bias = random_new((size_t)s->c_out, 3);
    c.per_image = random_new((size_t)(s->n * s->c_out), 4);
    c.residual = random_new(c.n_y, 5);
    c.dy = random_new(c.n_y, 6);
    if (conv_new(device, s, &c.conv, &err) < 0)
        fail_msg("%s", err.text);
    c.n_packed = workspace_floats(conv_packed_bytes(c.conv));
    c.n_workspace = workspace_floats(conv_workspace_bytes(c.conv));
    c.packed = floats_new(c.n_packed);
    c.workspace = floats_new(c.n_workspace);
    conv_pack(c.conv, c.w, c.packed);
    return c;
}

static void case_free(Case *c)
{
    floats_free(c->x, c->n_x);
    floats_free(c->w, c->n_w);
    floats_free(c->bias, (size_t)c->s.c_out);
    floats_free(c->per_image, (size_t)(c->s.n * c->s.c_out));
    floats_free(c->residual, c->n_y);
    floats_free(c->dy, c->n_y);
    floats_free(c->packed, c->n_packed);
    floats_free(c->workspace, c->n_workspace);
    c->conv = conv_free(c->conv);
}

/* Calls body for every product x[xi] * w[wi] in the sum of y[yi]. */
#define FOR_PRODUCTS(c, body)                                                                      \
    for (int n = 0; n < (c)->s.n; n++)                                                             \
        for (int oy = 0; oy < (c)->ho; oy++)                                                       \
            for (int ox = 0; ox < (c)->wo; ox++)                                                   \
                for (int ky = 0; ky < (c)->s.kernel; ky++)                                         \
                    for (int kx = 0; kx < (c)->s.kernel; kx++) {                                   \
                        int iy = oy * (c)->s.stride + ky - (c)->pad;                               \
                        int ix = ox * (c)->s.stride + kx - (c)->pad;                               \
                        if (iy < 0 || iy >= (c)->s.h || ix < 0 || ix >= (c)->s.w)                  \
                            continue;                                                              \
                        for (int o = 0; o < (c)->s.c_out; o++)                                     \
                            for (int i = 0; i < (c)->s.c_in; i++) {                                \
                                int yi = ((n * (c)->ho + oy) * (c)->wo + ox) * (c)->s.c_out + o;   \
                                int xi = ((n * (c)->s.h + iy) * (c)->s.w + ix) * (c)->s.c_in + i;  \
                                int wi =                                                           \
                                    ((o * (c)->s.c_in + i) * (c)->s.kernel + ky) * (c)->s.kernel + \
                                    kx;                                                            \
                                body;                                                              \
                            }                                                                      \
                    }

static void check_forward(Case *c)
{
    double *expected = doubles_new(c->n_y);
    const size_t per_image = (size_t)(c->ho * c->wo * c->s.c_out), c_out = (size_t)c->s.c_out;
    FOR_PRODUCTS(c, expected[yi] += (double)c->x[xi] * (double)c->w[wi]);

    float *y = floats_new(c->n_y);
    conv_forward(c->conv, c->x, c->packed, NULL, NULL, NULL, y, c->workspace);
    assert_near("forward", y, expected, c->n_y, TOLERANCE);

    for (size_t i = 0; i < c->n_y; i++)
        expected[i] += (double)c->bias[i % c_out];
    conv_forward(c->conv, c->x, c->packed, c->bias, NULL, NULL, y, c->workspace);
    assert_near("forward, bias", y, expected, c->n_y, TOLERANCE);

    for (size_t i = 0; i < c->n_y; i++)
        expected[i] += (double)c->per_image[i / per_image * c_out + i % c_out];
    conv_forward(c->conv, c->x, c->packed, c->bias, c->per_image, NULL, y, c->workspace);
    assert_near("forward, per image", y, expected, c->n_y, TOLERANCE);

    for (size_t i = 0; i < c->n_y; i++)
        expected[i] += (double)c->residual[i];
    conv_forward(c->conv, c->x, c->packed, c->bias, c->per_image, c->residual, y, c->workspace);
    assert_near("forward, residual", y, expected, c->n_y, TOLERANCE);

    memcpy(y, c->residual, c->n_y * sizeof(float));
    conv_forward(c->conv, c->x, c->packed, c->bias, c->per_image, y, y, c->workspace);
    assert_near("forward, residual in place", y, expected, c->n_y, TOLERANCE);
    floats_free(y, c->n_y);
    free(expected);
}

static void check_backward_data(Case *c)
{
    double *expected = doubles_new(c->n_x);
    FOR_PRODUCTS(c, expected[xi] += (double)c->dy[yi] * (double)c->w[wi]);

    float *dx = floats_new(c->n_x);
    conv_backward_data(c->conv, c->dy, c->w, c->packed, dx, false, c->workspace);
    assert_near("backward by data", dx, expected, c->n_x, TOLERANCE);

    memcpy(dx, c->x, c->n_x * sizeof(float));
    for (size_t i = 0; i < c->n_x; i++)
        expected[i] += (double)c->x[i];
    conv_backward_data(c->conv, c->dy, c->w, c->packed, dx, true, c->workspace);
    assert_near("backward by data, added", dx, expected, c->n_x, TOLERANCE);
    floats_free(dx, c->n_x);
    free(expected);
}

/* Computes the gradient and converts it from the device's order to the order of the state. */
static void weight_gradient(Case *c, float *dw, float *dbias)
{
    const GradientForm form = conv_gradient_form(c->conv);
    const GradientPlace place = {.n = (int64_t)c->n_w, .n_tensors = 1};
    const GradientSink sink = {.kind = SINK_PLAIN, .to = dw};
    float *left = floats_new(c->n_w);
    assert_true(gradient_form_bytes(&form) <= c->n_w * sizeof(float));
    conv_backward_weight(c->conv, c->x, c->dy, left, dbias, c->workspace);
    gradient_take(c->device, &form, left, &place, &sink);
    floats_free(left, c->n_w);
}

static void check_backward_weight(Case *c)
{
    const size_t c_out = (size_t)c->s.c_out;
    double *expected = doubles_new(c->n_w), *expected_bias = doubles_new(c_out);
    FOR_PRODUCTS(c, expected[wi] += (double)c->dy[yi] * (double)c->x[xi]);
    for (size_t i = 0; i < c->n_y; i++)
        expected_bias[i % c_out] += (double)c->dy[i];

    float *dw = floats_new(c->n_w), *dbias = floats_new(c_out);
    weight_gradient(c, dw, NULL);
    assert_near("backward by weight", dw, expected, c->n_w, TOLERANCE);
    assert_true(dbias[0] == GUARD_VALUE);
    weight_gradient(c, dw, dbias);
    assert_near("backward by weight, with bias", dw, expected, c->n_w, TOLERANCE);
    assert_near("gradient of the bias", dbias, expected_bias, c_out, TOLERANCE);
    floats_free(dw, c->n_w);
    floats_free(dbias, c_out);
    free(expected);
    free(expected_bias);
}

/* Sizes that are one more or less than a tile, a panel, a block or a run, with both kernels and strides. */
static const ConvShape shapes[] = {
    {1, 1, 1, 1, 1, 3, 1},
    {2, 5, 7, 3, 5, 3, 1},
    {1, 8, 8, 16, 16, 3, 1},
    {2, 4, 4, 17, 33, 3, 1},
    {1, 3, 9, 257, 7, 3, 1},
    {1, 2, 1, 5, 260, 3, 1},
    {3, 1, 5, 10, 30, 3, 1},
    {1, 33, 37, 4, 8, 3, 1},
    {1, 2, 1030, 3, 4, 3, 1},
    {2, 130, 2, 4, 3, 3, 1},
    {2, 8, 8, 6, 12, 3, 2},
    {1, 7, 5, 9, 20, 3, 2},
    {2, 1, 1, 4, 4, 3, 2},
    {1, 1, 6, 3, 17, 3, 2},
    {1, 9, 2, 30, 10, 3, 2},
    {2, 6, 6, 5, 18, 1, 1},
    {1, 1, 1, 2310, 3, 1, 1},
    {1, 33, 32, 7, 97, 1, 1},
    {1, 5, 6, 8, 7, 1, 2},
    {2, 3, 3, 40, 2, 1, 2},
    {1, 16, 16, 64, 4, 3, 1},
    {1, 16, 16, 4, 64, 3, 1},
    {2, 12, 12, 48, 112, 3, 1},
    /* channels of sd2-base */
    {1, 4, 4, 320, 320, 3, 1},
    {1, 6, 8, 4, 320, 3, 1},
    {1, 6, 8, 320, 4, 3, 1},
    {1, 4, 4, 320, 320, 3, 2},
    {1, 3, 3, 960, 320, 1, 1},
    /* padded at the end: the shape of an autoencoder, odd sides, and sides that are all padding */
    {2, 8, 12, 6, 12, 3, 2, true},
    {1, 2, 2, 3, 5, 3, 2, true},
    {3, 2, 10, 17, 33, 3, 2, true},
    {1, 7, 5, 9, 20, 3, 2, true},
    {1, 6, 9, 4, 3, 3, 2, true},
    {1, 4, 66, 128, 128, 3, 2, true},
    {1, 4, 2062, 3, 4, 3, 2, true}};

static void test_convolution(void **state)
{
    (void)state;
    Device *device = cpu_open(2);
    for (size_t i = 0; i < ELEMENTSOF(shapes); i++) {
        Case c = case_new(device, &shapes[i]);
        check_forward(&c);
        check_backward_data(&c);
        check_backward_weight(&c);
        case_free(&c);
    }
    device = device_free(device);
}

/* A linear layer gives the bits of the 1x1 convolution with the same weights and rows. */
static void test_linear(void **state)
{
    (void)state;
    static const LinearShape linears[] = {{1, 1, 1},     {7, 5, 3},      {16, 64, 64},
                                          {77, 130, 31}, {1025, 10, 6},  {8, 2305, 9},
                                          {64, 16, 512}, {16, 320, 960}, {9, 320, 2560},
                                          {9, 1280, 320}};
    Device *device = cpu_open(2);
    for (size_t i = 0; i < ELEMENTSOF(linears); i++) {
        const LinearShape *l = &linears[i];
        const ConvShape shape = {1, 1, (int)l->rows, l->in, l->out, 1, 1};
        Case c = case_new(device, &shape);
        check_forward(&c);
        check_backward_data(&c);
        check_backward_weight(&c);

        Linear *linear;
        Error err = ERROR_INIT;
        assert_int_equal(linear_new(device, l, &linear, &err), 0);
        assert_int_equal(linear_packed_bytes(linear), conv_packed_bytes(c.conv));
        assert_int_equal(linear_workspace_bytes(linear), conv_workspace_bytes(c.conv));
        linear_pack(linear, c.w, c.packed);
        float *a = floats_new(c.n_y), *b = floats_new(c.n_y);
        float *dx = floats_new(c.n_x), *ex = floats_new(c.n_x);
        float *dw = floats_new(c.n_w), *ew = floats_new(c.n_w);
        linear_forward(linear, c.x, c.w, c.packed, c.bias, c.residual, a, c.workspace);
        conv_forward(c.conv, c.x, c.packed, c.bias, NULL, c.residual, b, c.workspace);
        assert_memory_equal(a, b, c.n_y * sizeof(float));
        linear_backward_data(linear, c.dy, c.w, c.packed, dx, false, c.workspace);
        conv_backward_data(c.conv, c.dy, c.w, c.packed, ex, false, c.workspace);
        assert_memory_equal(dx, ex, c.n_x * sizeof(float));
        linear_backward_weight(linear, c.x, c.dy, dw, NULL, c.workspace);
        conv_backward_weight(c.conv, c.x, c.dy, ew, NULL, c.workspace);
        assert_memory_equal(dw, ew, c.n_w * sizeof(float));
        floats_free(a, c.n_y);
        floats_free(b, c.n_y);
        floats_free(dx, c.n_x);
        floats_free(ex, c.n_x);
        floats_free(dw, c.n_w);
        floats_free(ew, c.n_w);
        linear = linear_free(linear);
        case_free(&c);
    }
    device = device_free(device);
}

static void test_refuses_shapes(void **state)
{
    (void)state;
    static const ConvShape bad[] = {{0, 4, 4, 4, 4, 3, 1},         {1, 4, 4, 4, 4, 5, 1},
                                    {1, 4, 4, 4, 4, 3, 3},         {1, 4, 4, 0, 4, 3, 1},
                                    {65536, 1024, 64, 4, 4, 3, 1}, {1, 4, 4, 4, 4, 3, 1, true},
                                    {1, 4, 4, 4, 4, 1, 2, true},   {1, 1, 4, 4, 4, 3, 2, true},
                                    {1, 4, 1, 4, 4, 3, 2, true}};
    static const LinearShape bad_linear[] = {{0, 4, 4}, {INT64_C(1) << 32, 4, 4}, {4, 0, 4}};
    Device *device = cpu_open(1);
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        Conv *conv = NULL;
        Error err = ERROR_INIT;
        assert_int_equal(conv_new(device, &bad[i], &conv, &err), -EINVAL);
        assert_null(conv);
        assert_non_null(strstr(err.text, "not supported"));
    }
    for (size_t i = 0; i < ELEMENTSOF(bad_linear); i++) {
        Linear *linear = NULL;
        Error err = ERROR_INIT;
        assert_int_equal(linear_new(device, &bad_linear[i], &linear, &err), -EINVAL);
        assert_null(linear);
        assert_non_null(strstr(err.text, "not supported"));
    }
    assert_null(conv_free(NULL));
    assert_null(linear_free(NULL));
    device = device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolution),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_refuses_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
