/* SPDX-License-Identifier: Apache-2.0 */
/* test-state.c - the training state's ranges: exactly where exactness is promised. */
#include "kernels/test/testing-reference.h"

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static void test_absolute_max(void **state)
{
    (void)state;
    const size_t n = 100003;
    Device *device = cpu_open(2);
    float *g = random_new(n, 1);
    uint32_t max = 0, again;
    g[n - 1] = -1.5f;
    absolute_max(device, (int64_t)n, g, &max);
    assert_int_equal(max, bits_of(1.5f));
    again = bits_of(2.0f);
    absolute_max(device, (int64_t)n, g, &again);
    assert_int_equal(again, bits_of(2.0f));
    g[7] = -INFINITY;
    absolute_max(device, (int64_t)n, g, &max);
    assert_int_equal(max, bits_of(INFINITY));
    g[n / 2] = -NAN;
    absolute_max(device, (int64_t)n, g, &max);
    assert_true(max > bits_of(INFINITY));
    absolute_max(device, 0, g, &again);
    assert_int_equal(again, bits_of(2.0f));
    floats_free(g, n);
    device = device_free(device);
}

/* Ties, signs, both ends of the range, what saturates and what counts as nothing. */
/* The largest float below 2^31. */
enum { SATURATED = 2147483520 };

static void test_quantise_corners(void **state)
{
    (void)state;
    static const struct {
        float g;
        int64_t expected32, expected64;
    } corners[] = {
        {0.5f, 0, 0},
        {1.5f, 2, 2},
        {2.5f, 2, 2},
        {-0.5f, 0, 0},
        {-1.5f, -2, -2},
        {-2.5f, -2, -2},
        {0.49999997f, 0, 0},
        {8388607.5f, 8388608, 8388608},
        {0x1.fffffep30f, 2147483520, 2147483520},
        {-0x1p31f, INT32_MIN, INT32_MIN},
        {0x1p31f, SATURATED, INT64_C(1) << 31},
        {-0x1.8p31f, INT32_MIN, -(INT64_C(3) << 30)},
        {0x1.000002p51f, SATURATED, (INT64_C(1) << 51) + (INT64_C(1) << 28)},
        {0x1.fffffep61f, SATURATED, (INT64_C(1) << 62) - (INT64_C(1) << 38)},
        {0x1p63f, SATURATED, INT64_MAX},
        {-0x1p70f, INT32_MIN, INT64_MIN},
        {INFINITY, 0, 0},
        {-INFINITY, 0, 0},
        {NAN, 0, 0},
    };
    Device *device = cpu_open(1);
    for (size_t i = 0; i < ELEMENTSOF(corners); i++)
        for (int exponent = -40; exponent <= 40; exponent += 40) {
            const float g = corners[i].g * (float)ldexp(1, -exponent);
            int32_t sum = 0;
            int64_t sum64 = 0;
            quantise_add(device, 1, &g, exponent, &sum);
            quantise_add64(device, 1, &g, exponent, &sum64);
            assert_int_equal(sum, (int32_t)corners[i].expected32);
            assert_true(sum64 == corners[i].expected64);
        }
    device = device_free(device);
}

static void test_quantise(void **state)
{
    (void)state;
    const size_t n = 50021;
    const int exponent = 24;
    Device *device = cpu_open(2);
    float *g = random_new(n, 1), *back = floats_new(n);
    int32_t *sum = calloc(n, sizeof(*sum));
    int64_t *sum64 = calloc(n, sizeof(*sum64));
    sum[3] = INT32_MAX;
    sum64[3] = INT64_MAX;
    g[3] = 1.0f;
    quantise_add(device, (int64_t)n, g, exponent, sum);
    quantise_add64(device, (int64_t)n, g, exponent, sum64);
    assert_int_equal(sum[3], INT32_MIN + (1 << 24) - 1); /* wraps */
    assert_true(sum64[3] == INT64_MIN + (1 << 24) - 1);
    sum[3] = 1 << 24;
    sum64[3] = 1 << 24;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(sum[i], (int32_t)nearbyint(ldexp((double)g[i], exponent)));
        assert_true(sum64[i] == sum[i]);
    }
    quantise_add(device, (int64_t)n, g, exponent, sum);
    dequantise(device, (int64_t)n, sum, exponent, 0.5, back);
    for (size_t i = 0; i < n; i++)
        assert_true(back[i] == (float)(ldexp((double)sum[i], -exponent) * 0.5));
    dequantise64(device, (int64_t)n, sum64, exponent, 0.25, back);
    for (size_t i = 0; i < n; i++)
        assert_true(back[i] == (float)(ldexp((double)sum64[i], -exponent) * 0.25));
    /* the extremes that the exponents allow */
    const float tiny = 0x1p-120f, huge = 0x1p100f;
    int32_t one[2] = {0, 0};
    float returned[2];
    quantise_add(device, 1, &tiny, 120, one);
    quantise_add(device, 1, &huge, -100, one + 1);
    assert_int_equal(one[0], 1);
    assert_int_equal(one[1], 1);
    dequantise(device, 1, one, 120, 1, returned);
    dequantise(device, 1, one, -100, 1, returned + 1);
    assert_true(returned[0] == tiny && returned[1] == huge);
    free(sum);
    free(sum64);
    floats_free(g, n);
    floats_free(back, n);
    device = device_free(device);
}

static void test_sum_of_squares(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 15, 16, 17, 1023, 1025, 100003};
    Device *device = cpu_open(2), *single = cpu_open(1);
    for (size_t k = 0; k < ELEMENTSOF(sizes); k++) {
        float *g = random_new(sizes[k], 1);
        long double expected = 0;
        double sum, other;
        for (size_t i = 0; i < sizes[k]; i++)
            expected += (long double)g[i] * (long double)g[i];
        sum_of_squares(device, (int64_t)sizes[k], g, &sum);
        sum_of_squares(single, (int64_t)sizes[k], g, &other);
        assert_true(sum == other);
        assert_true(fabsl((long double)sum / expected - 1) < 1e-13L);
        floats_free(g, sizes[k]);
    }
    double sum = 1;
    sum_of_squares(device, 0, NULL, &sum);
    assert_true(sum == 0);
    device = device_free(device);
    single = device_free(single);
}

/* Ten steps from zero moments; then the same state cut into ranges gives the same bits. */
static void test_adamw(void **state)
{
    (void)state;
    const size_t n = 70001, cuts[] = {0, 1, 17, 16400, 33000, 70001};
    AdamW a = {.lr = 1e-3f,
               .eps = 1e-8f,
               .weight_decay = 0.01f,
               .beta1 = 0.9,
               .beta2 = 0.999,
               .gradient_scale = 0.5f};
    Device *device = cpu_open(2);
    float *w = random_new(n, 1), *m = floats_new(n), *v = floats_new(n);
    float *w2 = random_new(n, 1), *m2 = floats_new(n), *v2 = floats_new(n);
    double *ew = doubles_new(n), *em = doubles_new(n), *ev = doubles_new(n);
    memset(m, 0, n * sizeof(float));
    memset(v, 0, n * sizeof(float));
    memset(m2, 0, n * sizeof(float));
    memset(v2, 0, n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        ew[i] = (double)w[i];
    for (int step = 1; step <= 10; step++) {
        float *g = random_new(n, 100 + (uint64_t)step);
        a.correction1 = (float)(1 - pow(0.9, step));
        a.correction2 = (float)(1 - pow(0.999, step));
        adamw_update(device, &a, (int64_t)n, g, w, m, v);
        for (size_t k = 0; k + 1 < ELEMENTSOF(cuts); k++)
            adamw_update(device, &a, (int64_t)(cuts[k + 1] - cuts[k]), g + cuts[k], w2 + cuts[k],
                         m2 + cuts[k], v2 + cuts[k]);
        for (size_t i = 0; i < n; i++) {
            const double gradient = (double)g[i] * 0.5;
            ew[i] -= 1e-3 * 0.01 * ew[i];
            em[i] = 0.9 * em[i] + 0.1 * gradient;
            ev[i] = 0.999 * ev[i] + 0.001 * gradient * gradient;
            ew[i] -=
                1e-3 / (1 - pow(0.9, step)) * em[i] / (sqrt(ev[i] / (1 - pow(0.999, step))) + 1e-8);
        }
        floats_free(g, n);
    }
    assert_near("weights", w, ew, n, 1e-6);
    assert_near("first moments", m, em, n, 1e-6);
    assert_near("second moments", v, ev, n, 1e-6);
    assert_memory_equal(w, w2, n * sizeof(float));
    assert_memory_equal(m, m2, n * sizeof(float));
    assert_memory_equal(v, v2, n * sizeof(float));

    ema_update(device, 0.75f, (int64_t)n, w, m);
    for (size_t i = 0; i < n; i++)
        assert_true(m[i] == 0.75f * m2[i] + 0.25f * w[i]);
    floats_free(w, n);
    floats_free(m, n);
    floats_free(v, n);
    floats_free(w2, n);
    floats_free(m2, n);
    floats_free(v2, n);
    free(ew);
    free(em);
    free(ev);
    device = device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absolute_max), cmocka_unit_test(test_quantise_corners),
        cmocka_unit_test(test_quantise),     cmocka_unit_test(test_sum_of_squares),
        cmocka_unit_test(test_adamw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
