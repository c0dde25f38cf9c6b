/* SPDX-License-Identifier: Apache-2.0 */
/* test-joined.c - tests operations that read two tensors as one, in bf16, by the plain kernels and by a library: a
 * GroupNorm gives the same bits as for the concatenation, and two products have the error of one more rounding. */
#include "kernels/test/testing-linear.h"

/* ---- GroupNorm ---- */

/* Operands and results of one run, all in device memory. */
typedef struct Norm {
    GroupNormShape s;
    size_t rows;
    void *x[2], *dx[2], *y, *dy; /* x and dx: one tensor, or two */
    float *gamma, *beta, *saved, *dgamma, *dbeta;
    void *workspace;
    Device *device;
} Norm;

static size_t channels(const Norm *n, int i)
{
    return (size_t)(i > 0 ? n->s.c_second : n->s.c - n->s.c_second);
}

static size_t groups_floats(const Norm *n) { return (size_t)(n->s.n * n->s.groups) * 2; }

/* Uploads the channels of part i. `values` contains all channels. */
static void *part_new(const Norm *n, const float *values, int i)
{
    const size_t c = channels(n, i), first = i > 0 ? channels(n, 0) : 0;
    float *part = floats_new(n->rows * c);
    for (size_t k = 0; k < n->rows * c; k++)
        part[k] = values[k / c * (size_t)n->s.c + first + k % c];
    void *memory = put_new(n->device, part, n->rows * c);
    floats_free(part, n->rows * c);
    return memory;
}

static float *parameters_new(const Norm *n, uint64_t seed)
{
    const size_t bytes = (size_t)n->s.c * sizeof(float);
    float *values = random_new((size_t)n->s.c, seed), *memory = device_new(n->device, bytes);
    for (int i = 0; i < n->s.c; i++)
        values[i] += 1.5f;
    device_upload(n->device, memory, values, bytes);
    floats_free(values, (size_t)n->s.c);
    return memory;
}

static Norm norm_new(Device *device, const GroupNormShape *shape)
{
    Norm n = {.s = *shape,
              .rows = (size_t)shape->n * (size_t)shape->h * (size_t)shape->w,
              .device = device};
    const size_t c = (size_t)shape->c, all = n.rows * c;
    float *x = random_new(all, 1), *dy = random_new(all, 2), *before = random_new(all, 3);
    for (int i = 0; i < (shape->c_second > 0 ? 2 : 1); i++) {
        n.x[i] = part_new(&n, x, i);
        n.dx[i] = part_new(&n, before, i);
    }
    n.y = device_new(device, all * 2);
    n.dy = put_new(device, dy, all);
    n.gamma = parameters_new(&n, 4);
    n.beta = parameters_new(&n, 5);
    n.saved = device_new(device, groups_floats(&n) * sizeof(float));
    n.dgamma = device_new(device, c * sizeof(float));
    n.dbeta = device_new(device, c * sizeof(float));
    n.workspace = device_new(device, group_norm_workspace_bytes(device, shape));
    floats_free(x, all);
    floats_free(dy, all);
    floats_free(before, all);
    return n;
}

static void norm_run(const Norm *n, bool add_first, bool add_second)
{
    group_norm_forward(n->device, &n->s, n->x[0], n->x[1], n->gamma, n->beta, n->y, n->saved);
    group_norm_backward(n->device, &n->s, n->x[0], n->x[1], n->gamma, n->beta, n->saved, n->dy,
                        n->dx[0], add_first, n->dx[1], add_second, n->dgamma, n->dbeta,
                        n->workspace);
}

static void norm_free(const Norm *n)
{
    const size_t c = (size_t)n->s.c, all = n->rows * c;
    for (int i = 0; i < (n->s.c_second > 0 ? 2 : 1); i++) {
        device_end(n->device, n->x[i], n->rows * channels(n, i) * 2);
        device_end(n->device, n->dx[i], n->rows * channels(n, i) * 2);
    }
    device_end(n->device, n->y, all * 2);
    device_end(n->device, n->dy, all * 2);
    device_end(n->device, n->gamma, c * sizeof(float));
    device_end(n->device, n->beta, c * sizeof(float));
    device_end(n->device, n->saved, groups_floats(n) * sizeof(float));
    device_end(n->device, n->dgamma, c * sizeof(float));
    device_end(n->device, n->dbeta, c * sizeof(float));
    device_end(n->device, n->workspace, group_norm_workspace_bytes(n->device, &n->s));
}

static void assert_equal_on_device(Device *device, const char *what, const void *a, const void *b,
                                   size_t n_bytes)
{
    char *copies[] = {malloc(n_bytes), malloc(n_bytes)};
    assert_true(copies[0] && copies[1]);
    device_download(device, copies[0], a, n_bytes);
    device_download(device, copies[1], b, n_bytes);
    if (memcmp(copies[0], copies[1], n_bytes) != 0)
        fail_msg("%s has other bits", what);
    free(copies[0]);
    free(copies[1]);
}

/* Compares dx of two tensors with dx of their concatenation. add_first and add_second: dx of the first (second) tensor
 * is added to old values. */
static void check_norm(Device *device, const GroupNormShape *shape, bool add_first, bool add_second)
{
    GroupNormShape whole = *shape;
    Error err = ERROR_INIT;
    whole.c_second = 0;
    const Norm two = norm_new(device, shape), one = norm_new(device, &whole);
    const size_t c = (size_t)shape->c;
    uint16_t *dx = calloc(one.rows * c, sizeof(*dx));
    assert_non_null(dx);
    norm_run(&two, add_first, add_second);
    for (int i = 0; i < 2; i++) {
        const size_t width = channels(&two, i), first = i > 0 ? channels(&two, 0) : 0;
        uint16_t *part = calloc(one.rows * width, sizeof(*part));
        assert_non_null(part);
        float *before = random_new(one.rows * c, 3);
        put(device, one.dx[0], before, one.rows * c);
        floats_free(before, one.rows * c);
        norm_run(&one, i > 0 ? add_second : add_first, false);
        assert_int_equal(device_synchronise(device, &err), 0);
        device_download(device, dx, one.dx[0], one.rows * c * sizeof(*dx));
        device_download(device, part, two.dx[i], one.rows * width * sizeof(*part));
        for (size_t k = 0; k < one.rows * width; k++)
            if (part[k] != dx[k / width * c + first + k % width])
                fail_msg("%d+%d channels: part %d of dx differs at %zu", shape->c - shape->c_second,
                         shape->c_second, i, k);
        free(part);
    }
    assert_equal_on_device(device, "y", one.y, two.y, one.rows * c * 2);
    assert_equal_on_device(device, "saved", one.saved, two.saved,
                           groups_floats(&one) * sizeof(float));
    assert_equal_on_device(device, "dgamma", one.dgamma, two.dgamma, c * sizeof(float));
    assert_equal_on_device(device, "dbeta", one.dbeta, two.dbeta, c * sizeof(float));
    free(dx);
    norm_free(&one);
    norm_free(&two);
}

static void a_group_norm_of_two_tensors_is_that_of_both(void **unused)
{
    (void)unused;
    static const GroupNormShape shapes[] = {
        {1, 3, 3, 2560, 32, 1e-5, true, 1280},
        {1, 3, 3, 1920, 32, 1e-5, true, 640}, /* a group of 60 has channels of both tensors */
        {2, 4, 4, 960, 32, 1e-5, true, 320},
        {1, 5, 4, 640, 32, 1e-5, false, 320},
        {2, 23, 24, 40, 4, 1e-5, true, 16},  /* clusters of two blocks */
        {1, 64, 64, 120, 4, 1e-5, true, 48}, /* backward reads x and dy twice */
        {2, 9, 9, 35, 5, 1e-5, true, 15},    /* rows do not consist of packs */
        {1, 2, 3, 40, 4, 1e-5, false, 20},   /* few pixels; packs with channels of both tensors */
    };
    Device *device = open_device(false);
    assert_true(reads_joined(device));
    for (size_t i = 0; i < ELEMENTSOF(shapes); i++)
        check_norm(device, &shapes[i], i % 2 == 1, i % 3 == 1);
    check_norm(device, &shapes[1], true, false);
    check_norm(device, &shapes[6], false, true);
    device = device_free(device);
}

/* ---- a linear layer ---- */

static const double half_ulp = 0x1p-8; /* the largest rounding error of bf16, relative to a value */

/* Checks two products, the second added to the first, which was rounded to bf16. Each element's error is at most what
 * both roundings and sums of fp32 in any order may cause. Returns the error of all elements, relative to their norm. */
static double check_two_products(Device *device, int64_t rows, int first, int second, int out)
{
    const int in = first + second;
    Case c[] = {case_new(device, &(LinearShape){rows, first, out, .columns = in}),
                case_new(device, &(LinearShape){rows, second, out, .first = first, .columns = in})};
    Error err = ERROR_INIT;
    linear_forward(c[0].linear, c[0].x_, c[0].w_, c[0].packed, c[0].bias_, NULL, c[0].y_,
                   c[0].workspace);
    linear_forward(c[1].linear, c[1].x_, c[1].w_, c[1].packed, NULL, c[0].y_, c[0].y_,
                   c[1].workspace);
    assert_int_equal(device_synchronise(device, &err), 0);
    uint16_t *y = calloc(c[0].n_y, sizeof(*y));
    assert_non_null(y);
    device_download(device, y, c[0].y_, c[0].n_y * sizeof(*y));

    double distance = 0, norm = 0;
    for (size_t i = 0; i < c[0].n_y; i++) {
        const size_t row = i / (size_t)out, column = i % (size_t)out;
        const double bias = (double)c[0].bias[column];
        double part[2] = {bias, 0}, sizes = fabs(bias) * (1 + 2 * half_ulp);
        for (int p = 0; p < 2; p++)
            for (int k = 0; k < c[p].s.in; k++) {
                const float x = c[p].x[row * (size_t)c[p].s.in + (size_t)k];
                const double term =
                    (double)x *
                    (double)c[p].w[column * (size_t)in + (size_t)c[p].s.first + (size_t)k];
                part[p] += term;
                sizes += fabs(term);
            }
        /* A library also rounds the bias. */
        const double sums = (in + 3) * 0x1p-24 * sizes + half_ulp * fabs(bias);
        const double once = half_ulp * (fabs(part[0]) + sums) + sums;
        const double bound = once + half_ulp * (fabs(part[0] + part[1]) + once);
        const double off = (double)widen(y[i]) - part[0] - part[1];
        if (!(fabs(off) <= bound))
            fail_msg("%d+%d: element %zu is off by %g, at most %g", first, second, i, off, bound);
        distance += off * off;
        norm += (part[0] + part[1]) * (part[0] + part[1]);
    }
    free(y);
    case_free(&c[0]);
    case_free(&c[1]);
    return sqrt(distance / norm);
}

static void a_second_product_costs_one_rounding(void **unused)
{
    (void)unused;
    static const int sd2[][3] = {
        {1280, 1280, 1280}, {1280, 640, 1280}, {1280, 640, 640},
        {640, 320, 640},    {640, 320, 320},   {320, 320, 320},
    };
    Device *device = open_device(by_library());
    for (size_t i = 0; i < ELEMENTSOF(sd2); i++) {
        const double distance = check_two_products(device, 3, sd2[i][0], sd2[i][1], sd2[i][2]);
        print_message("%d+%d -> %d: off by %.5f of the norm\n", sd2[i][0], sd2[i][1], sd2[i][2],
                      distance);
        assert_true(distance < 0.0025); /* one rounding gives 0.0017 */
    }
    (void)check_two_products(device, 5, 24, 16, 8);
    (void)check_two_products(device, 5, 7, 6, 5);
    device = device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_norm_of_two_tensors_is_that_of_both),
        cmocka_unit_test(a_second_product_costs_one_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
