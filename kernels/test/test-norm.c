/* SPDX-License-Identifier: Apache-2.0 */
/* test-norm.c - tests GroupNorm and LayerNorm against float64, forward and backward. */
#include "kernels/test/testing-reference.h"

#define TOLERANCE 2e-6

/* Normalises sets of elements: element i of x belongs to set[i] and to channel i % c. */
typedef struct Norm {
    size_t n, c, n_sets;
    const size_t *set;
    double eps;
    bool silu;
    const float *x, *gamma, *beta, *dy;
    double *y, *dx, *dgamma, *dbeta;
} Norm;

static void reference(const Norm *r)
{
    double *mean = doubles_new(r->n_sets), *square = doubles_new(r->n_sets);
    double *size = doubles_new(r->n_sets), *sum = doubles_new(r->n_sets);
    double *sum_normal = doubles_new(r->n_sets), *slope = doubles_new(r->n);

    for (size_t i = 0; i < r->n; i++) {
        mean[r->set[i]] += (double)r->x[i];
        size[r->set[i]]++;
    }
    for (size_t s = 0; s < r->n_sets; s++)
        mean[s] /= size[s];
    for (size_t i = 0; i < r->n; i++)
        square[r->set[i]] += pow((double)r->x[i] - mean[r->set[i]], 2) / size[r->set[i]];
    for (size_t i = 0; i < r->n; i++) {
        const size_t s = r->set[i], c = i % r->c;
        const double normal = ((double)r->x[i] - mean[s]) / sqrt(square[s] + r->eps);
        const double z = normal * (double)r->gamma[c] + (double)r->beta[c];
        const double sigmoid = 1 / (1 + exp(-z));
        double dz = (double)r->dy[i];
        if (r->silu)
            dz *= sigmoid * (1 + z * (1 - sigmoid));
        r->y[i] = r->silu ? z * sigmoid : z;
        r->dgamma[c] += dz * normal;
        r->dbeta[c] += dz;
        slope[i] = dz * (double)r->gamma[c];
        sum[s] += slope[i] / size[s];
        sum_normal[s] += slope[i] * normal / size[s];
    }
    for (size_t i = 0; i < r->n; i++) {
        const size_t s = r->set[i];
        const double inverse = 1 / sqrt(square[s] + r->eps);
        const double normal = ((double)r->x[i] - mean[s]) * inverse;
        r->dx[i] = inverse * (slope[i] - sum[s] - normal * sum_normal[s]);
    }
    free(mean);
    free(square);
    free(size);
    free(sum);
    free(sum_normal);
    free(slope);
}

typedef struct Case {
    Norm r;
    size_t *set;
    float *x, *gamma, *beta, *dy, *y, *dx, *dgamma, *dbeta, *saved, *space;
    size_t n_saved, n_space;
} Case;

static Case case_new(size_t n, size_t c, size_t n_sets, double eps, bool silu, float offset,
                     size_t space_bytes)
{
    Case k = {.set = calloc(n, sizeof(size_t)),
              .x = random_new(n, 1),
              .gamma = random_new(c, 2),
              .beta = random_new(c, 3),
              .dy = random_new(n, 4),
              .y = floats_new(n),
              .dx = floats_new(n),
              .dgamma = floats_new(c),
              .dbeta = floats_new(c),
              .saved = floats_new(n_sets * 2),
              .n_saved = n_sets * 2,
              .n_space = workspace_floats(space_bytes)};
    k.space = floats_new(k.n_space);
    for (size_t i = 0; i < n; i++)
        k.x[i] = k.x[i] * 2 + offset;
    for (size_t i = 0; i < c; i++)
        k.gamma[i] += 1.5f;
    k.r = (Norm){n,
                 c,
                 n_sets,
                 k.set,
                 eps,
                 silu,
                 k.x,
                 k.gamma,
                 k.beta,
                 k.dy,
                 doubles_new(n),
                 doubles_new(n),
                 doubles_new(c),
                 doubles_new(c)};
    return k;
}

static void case_free(Case *k)
{
    free(k->set);
    floats_free(k->x, k->r.n);
    floats_free(k->gamma, k->r.c);
    floats_free(k->beta, k->r.c);
    floats_free(k->dy, k->r.n);
    floats_free(k->y, k->r.n);
    floats_free(k->dx, k->r.n);
    floats_free(k->dgamma, k->r.c);
    floats_free(k->dbeta, k->r.c);
    floats_free(k->saved, k->n_saved);
    floats_free(k->space, k->n_space);
    free(k->r.y);
    free(k->r.dx);
    free(k->r.dgamma);
    free(k->r.dbeta);
}

/* Checks gradients. If each set of values that are normalised together has only one element, dx is zero, except for
 * what rounding leaves after the cancellation. */
static void check_gradients(Case *k, bool added)
{
    double *expected = doubles_new(k->r.n);
    bool cancels = k->r.n == k->r.n_sets;
    for (size_t i = 0; i < k->r.n; i++)
        expected[i] = k->r.dx[i] + (added ? (double)k->dy[i] : 0);
    if (cancels && !added)
        for (size_t i = 0; i < k->r.n; i++)
            assert_true(fabsf(k->dx[i]) < 1e-3f);
    else
        assert_near("dx", k->dx, expected, k->r.n, cancels ? 1e-3 : TOLERANCE * 2);
    if (!cancels)
        assert_near("dgamma", k->dgamma, k->r.dgamma, k->r.c, TOLERANCE * 4);
    assert_near("dbeta", k->dbeta, k->r.dbeta, k->r.c, TOLERANCE);
    free(expected);
}

static void check_group_norm(Device *device, const GroupNormShape *s, float offset)
{
    const size_t pixels = (size_t)(s->h * s->w), c = (size_t)s->c, n = (size_t)s->n * pixels * c;
    Case k = case_new(n, c, (size_t)(s->n * s->groups), s->eps, s->silu, offset,
                      group_norm_workspace_bytes(device, s));
    for (size_t i = 0; i < n; i++)
        k.set[i] = i / (pixels * c) * (size_t)s->groups + i % c / (c / (size_t)s->groups);
    reference(&k.r);

    group_norm_forward(device, s, k.x, NULL, k.gamma, k.beta, k.y, k.saved);
    assert_near("group norm", k.y, k.r.y, n, TOLERANCE * (1 + (double)offset));
    if (offset == 0) {
        group_norm_backward(device, s, k.x, NULL, k.gamma, k.beta, k.saved, k.dy, k.dx, false, NULL,
                            false, k.dgamma, k.dbeta, k.space);
        check_gradients(&k, false);
        memcpy(k.dx, k.dy, n * sizeof(float));
        group_norm_backward(device, s, k.x, NULL, k.gamma, k.beta, k.saved, k.dy, k.dx, true, NULL,
                            false, k.dgamma, k.dbeta, k.space);
        check_gradients(&k, true);
    }
    case_free(&k);
}

static void test_group_norm(void **state)
{
    (void)state;
    static const GroupNormShape shapes[] = {{2, 3, 5, 32, 32, 1e-5, true},
                                            {1, 4, 4, 64, 32, 1e-5, true},
                                            {3, 7, 3, 96, 32, 1e-6, false},
                                            {2, 5, 5, 320, 32, 1e-5, true},
                                            {1, 6, 9, 60, 2, 1e-5, true},
                                            {1, 1, 1, 40, 4, 1e-5, false},
                                            {2, 8, 8, 6, 1, 1e-5, false},
                                            {1, 9, 9, 200, 2, 1e-5, true},
                                            {1, 2, 33, 130, 1, 1e-6, true},
                                            {1, 1, 1, 5, 5, 1e-2, false},
                                            /* channels of sd2-base */
                                            {1, 5, 6, 320, 32, 1e-5, true},
                                            {1, 4, 5, 640, 32, 1e-5, true},
                                            {2, 3, 5, 960, 32, 1e-5, true},
                                            {1, 4, 4, 1280, 32, 1e-5, true},
                                            {1, 3, 3, 1920, 32, 1e-5, true},
                                            {1, 2, 4, 2560, 32, 1e-5, true},
                                            {1, 4, 4, 640, 32, 1e-6, false},
                                            /* many pixels, and about as few pixels as lines */
                                            {2, 17, 19, 80, 8, 1e-5, true},
                                            {1, 16, 16, 33, 3, 1e-5, false},
                                            {2, 2, 4, 40, 4, 1e-5, true},
                                            {2, 3, 3, 40, 4, 1e-5, true},
                                            /* shapes for clusters of two and eight blocks */
                                            {2, 23, 24, 40, 4, 1e-5, true},
                                            {1, 47, 45, 40, 4, 1e-5, false}};
    Device *device = cpu_open(2);
    for (size_t i = 0; i < ELEMENTSOF(shapes); i++)
        check_group_norm(device, &shapes[i], 0);
    check_group_norm(device, &shapes[3], 100); /* a mean far above the deviation */
    check_group_norm(device, &shapes[17], 100);
    device = device_free(device);
}

static void check_layer_norm(Device *device, const LayerNormShape *s, float offset)
{
    const size_t c = (size_t)s->c, n = (size_t)s->rows * c;
    Case k = case_new(n, c, (size_t)s->rows, s->eps, false, offset,
                      layer_norm_workspace_bytes(device, s));
    for (size_t i = 0; i < n; i++)
        k.set[i] = i / c;
    reference(&k.r);
    float *sums = floats_new(c), *alone = floats_new(n);
    double *expected = doubles_new(c);

    layer_norm_forward(device, s, k.x, k.gamma, k.beta, k.y, k.saved);
    assert_near("layer norm", k.y, k.r.y, n, TOLERANCE * (1 + (double)offset));
    if (offset == 0) {
        layer_norm_backward(device, s, k.x, k.gamma, k.saved, k.dy, k.dx, false, k.dgamma, k.dbeta,
                            NULL, k.space);
        check_gradients(&k, false);
        memcpy(k.dx, k.dy, n * sizeof(float));
        memcpy(alone, k.dy, n * sizeof(float));
        layer_norm_backward(device, s, k.x, k.gamma, k.saved, k.dy, alone, true, k.dgamma, k.dbeta,
                            NULL, k.space);
        layer_norm_backward(device, s, k.x, k.gamma, k.saved, k.dy, k.dx, true, k.dgamma, k.dbeta,
                            sums, k.space);
        check_gradients(&k, true);
        assert_memory_equal(k.dx, alone, n * sizeof(float));
        for (size_t i = 0; i < n; i++)
            expected[i % c] += (double)k.dx[i];
        assert_near("layer norm's sums", sums, expected, c, TOLERANCE);
    }
    case_free(&k);
    floats_free(sums, c);
    floats_free(alone, n);
    free(expected);
}

static void test_layer_norm(void **state)
{
    (void)state;
    static const LayerNormShape shapes[] = {{1, 7, 1e-5},    {5, 16, 1e-5},   {64, 64, 1e-5},
                                            {65, 33, 1e-5},  {130, 10, 1e-6}, {200, 320, 1e-5},
                                            {3, 1280, 1e-5}, {9, 2048, 1e-5}, {300, 40, 1e-5},
                                            {4, 1, 1e-2},    {9, 640, 1e-5},  {5, 2600, 1e-5}};
    Device *device = cpu_open(2);
    for (size_t i = 0; i < ELEMENTSOF(shapes); i++)
        check_layer_norm(device, &shapes[i], 0);
    check_layer_norm(device, &shapes[5], 100);
    device = device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_norm),
        cmocka_unit_test(test_layer_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
