/* SPDX-License-Identifier: Apache-2.0 */
/* test-elementwise.c - tests activations, sums and copies against float64 or exactly. */
#include "kernels/cpu/vectormath.h"
#include "kernels/test/testing-reference.h"

#define TOLERANCE 1e-6

/* Each function of vectormath.h has a small relative error over its whole range, compared with libm in double. */
static void test_functions(void **state)
{
    (void)state;
    for (double x = -86.9; x < 88; x += 0.00137)
        assert_true(fabs((double)vector_exp((float)x) / exp((double)(float)x) - 1) < 1.5e-7);
    assert_true(vector_exp(-87.5f) == 0.0f && vector_exp(-1e30f) == 0.0f);
    assert_true(vector_exp(-INFINITY) == 0.0f && vector_exp(0.0f) == 1.0f);
    assert_true(isfinite(vector_exp(INFINITY)) && vector_exp(INFINITY) > 1e38f);
    assert_true(isnan(vector_exp(NAN)) && isnan(vector_silu(NAN)));
    for (double x = -12; x < 12; x += 0.00171) {
        const double v = (double)(float)x;
        const double distribution = 0.5 * erfc(-v / sqrt(2.0));
        const double density = exp(-0.5 * v * v) / sqrt(2 * 3.14159265358979323846);
        float d, p;
        vector_normal((float)x, &d, &p);
        /* the exponent x^2 / 2 is rounded, too */
        assert_true(fabs((double)p / distribution - 1) < 6e-7 + 6e-8 * v * v);
        assert_true(fabs((double)d / density - 1) < 3e-7 + 6e-8 * v * v);
    }
    assert_true(vector_silu(-1000.0f) <= 0.0f && vector_silu(-1000.0f) > -1e-30f);
    assert_true(vector_silu(1000.0f) == 1000.0f);
}

static void check_silu(Device *device, size_t n)
{
    float *x = random_new(n, 1), *dy = random_new(n, 2), *y = floats_new(n), *dx = floats_new(n);
    double *expected = doubles_new(n), *slope = doubles_new(n);
    for (size_t i = 0; i < n; i++) {
        x[i] *= 10;
        const double s = 1 / (1 + exp(-(double)x[i]));
        expected[i] = (double)x[i] * s;
        slope[i] = (double)dy[i] * s * (1 + (double)x[i] * (1 - s));
    }
    silu_forward(device, (int64_t)n, x, y);
    assert_near("silu", y, expected, n, TOLERANCE);
    silu_backward(device, (int64_t)n, x, dy, dx, false);
    assert_near("silu backward", dx, slope, n, TOLERANCE);
    memcpy(dx, x, n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        slope[i] += (double)x[i];
    silu_backward(device, (int64_t)n, x, dy, dx, true);
    assert_near("silu backward, added", dx, slope, n, TOLERANCE);
    floats_free(x, n);
    floats_free(dy, n);
    floats_free(y, n);
    floats_free(dx, n);
    free(expected);
    free(slope);
}

static void test_silu(void **state)
{
    (void)state;
    Device *device = cpu_open(2);
    static const size_t sizes[] = {1, 7, 8, 15, 17, 8191, 8192, 8193, 50001};
    for (size_t i = 0; i < ELEMENTSOF(sizes); i++)
        check_silu(device, sizes[i]);
    device = device_free(device);
}

static void check_gelu(Device *device, size_t n)
{
    float *x = random_new(n, 1), *y = floats_new(n);
    double *expected = doubles_new(n);
    for (size_t i = 0; i < n; i++) {
        x[i] *= 6;
        expected[i] = (double)x[i] * 0.5 * erfc(-(double)x[i] / sqrt(2.0));
    }
    gelu_forward(device, (int64_t)n, x, y);
    assert_near("gelu", y, expected, n, TOLERANCE);
    for (size_t i = 0; i < n; i++) /* the exponent is rounded, too */
        assert_true(fabs((double)y[i] - expected[i]) <= 4e-6 * fabs(expected[i]) + 1e-37);
    floats_free(x, n);
    floats_free(y, n);
    free(expected);
}

static void test_gelu(void **state)
{
    (void)state;
    Device *device = cpu_open(2);
    static const size_t sizes[] = {1, 7, 8, 15, 8191, 8192, 8193, 50001, 3 * 4096};
    for (size_t i = 0; i < ELEMENTSOF(sizes); i++)
        check_gelu(device, sizes[i]);
    device = device_free(device);
}

static void check_embedding(Device *device, size_t n, size_t tokens, size_t c, size_t vocabulary)
{
    const size_t size = n * tokens * c;
    float *words = random_new(vocabulary * c, 1), *positions = random_new(tokens * c, 2);
    float *y = floats_new(size);
    int32_t *ids = (int32_t *)(void *)floats_new(n * tokens);
    for (size_t i = 0; i < n * tokens; i++)
        ids[i] = (int32_t)(i * 7919 % vocabulary);
    /* The first id names the last row, and the last id the first row. */
    ids[0] = (int32_t)vocabulary - 1;
    ids[n * tokens - 1] = 0;
    embedding_forward(device, (int)n, (int)tokens, (int)c, words, positions, ids, y);
    for (size_t i = 0; i < size; i++) {
        const size_t row = i / c, word = (size_t)ids[row];
        assert_true(y[i] == words[word * c + i % c] + positions[row % tokens * c + i % c]);
    }
    floats_free((float *)(void *)ids, n * tokens);
    floats_free(words, vocabulary * c);
    floats_free(positions, tokens * c);
    floats_free(y, size);
}

static void test_embedding(void **state)
{
    (void)state;
    Device *device = cpu_open(2);
    check_embedding(device, 1, 1, 1, 1);
    check_embedding(device, 3, 9, 16, 60);
    check_embedding(device, 2, 5, 7, 11);
    check_embedding(device, 1, 77, 1024, 50); /* the text encoder of SD2 */
    device = device_free(device);
}

static void check_geglu(Device *device, size_t rows, size_t f)
{
    float *x = random_new(rows * 2 * f, 1), *dy = random_new(rows * f, 2);
    float *y = floats_new(rows * f), *dx = floats_new(rows * 2 * f),
          *alone = floats_new(rows * 2 * f);
    float *sums = floats_new(2 * f);
    const size_t n_workspace = geglu_workspace_bytes(device, (int64_t)rows, (int)f) / sizeof(float);
    float *workspace = floats_new(n_workspace + 1);
    double *expected = doubles_new(rows * f), *slope = doubles_new(rows * 2 * f);
    double *sum = doubles_new(2 * f);
    for (size_t i = 0; i < rows * 2 * f; i++)
        x[i] *= 4;
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < f; i++) {
            const double v = (double)x[row * 2 * f + i], g = (double)x[row * 2 * f + f + i];
            const double p = 0.5 * erfc(-g / sqrt(2.0)), s = (double)dy[row * f + i];
            const double density = exp(-0.5 * g * g) / sqrt(2 * 3.14159265358979323846);
            expected[row * f + i] = v * g * p;
            slope[row * 2 * f + i] = s * g * p;
            slope[row * 2 * f + f + i] = s * v * (p + g * density);
        }
    geglu_forward(device, (int64_t)rows, (int)f, x, y);
    assert_near("geglu", y, expected, rows * f, TOLERANCE);
    geglu_backward(device, (int64_t)rows, (int)f, x, dy, alone, NULL, NULL);
    geglu_backward(device, (int64_t)rows, (int)f, x, dy, dx, sums, workspace);
    assert_near("geglu backward", dx, slope, rows * 2 * f, TOLERANCE);
    assert_memory_equal(dx, alone, rows * 2 * f * sizeof(float));
    for (size_t i = 0; i < rows * 2 * f; i++)
        sum[i % (2 * f)] += (double)dx[i];
    assert_near("geglu's sums", sums, sum, 2 * f, TOLERANCE);
    floats_free(x, rows * 2 * f);
    floats_free(dy, rows * f);
    floats_free(y, rows * f);
    floats_free(dx, rows * 2 * f);
    floats_free(alone, rows * 2 * f);
    floats_free(sums, 2 * f);
    floats_free(workspace, n_workspace + 1);
    free(expected);
    free(slope);
    free(sum);
}

static void test_geglu(void **state)
{
    (void)state;
    Device *device = cpu_open(2);
    check_geglu(device, 1, 1);
    check_geglu(device, 7, 10);
    check_geglu(device, 33, 257);
    check_geglu(device, 1025, 8);
    check_geglu(device, 3000, 9);
    check_geglu(device, 61000, 1); /* a GPU adds up the rows in 60 pieces */
    check_geglu(device, 5, 1280);  /* this shape and the next two are shapes of sd2-base */
    check_geglu(device, 5, 2560);
    check_geglu(device, 3, 5120);
    device = device_free(device);
}

static void check_sums(Device *device, size_t n)
{
    float *a = random_new(n, 1), *b = random_new(n, 2), *y = floats_new(n);
    memcpy(y, b, n * sizeof(float));
    accumulate(device, (int64_t)n, a, y);
    for (size_t i = 0; i < n; i++)
        assert_true(y[i] == b[i] + a[i]);
    cast_from_f32(device, (int64_t)n, a, y);
    assert_memory_equal(a, y, n * sizeof(float));
    cast_to_f32(device, (int64_t)n, b, y);
    assert_memory_equal(b, y, n * sizeof(float));
    floats_free(a, n);
    floats_free(b, n);
    floats_free(y, n);
}

static void test_sums(void **state)
{
    (void)state;
    Device *device = cpu_open(2);
    check_sums(device, 20003);
    check_sums(device, 20004);
    static const struct {
        int n, pixels, c;
    } sums[] = {{1, 1, 1},    {3, 65, 31},   {2, 1024, 64}, {2, 77, 100},
                {5, 200, 33}, {2, 4100, 40}, {1, 2051, 33}, {2, 64, 1280}};
    for (size_t k = 0; k < ELEMENTSOF(sums); k++) {
        const size_t images = (size_t)sums[k].n, pixels = (size_t)sums[k].pixels;
        const size_t c = (size_t)sums[k].c;
        float *dy = random_new(images * pixels * c, 3), *to = floats_new(images * c);
        double *expected = doubles_new(images * c);
        for (size_t i = 0; i < images * pixels * c; i++)
            expected[i / (pixels * c) * c + i % c] += (double)dy[i];
        spatial_sum(device, sums[k].n, sums[k].pixels, sums[k].c, dy, to);
        assert_near("spatial sum", to, expected, images * c, TOLERANCE);
        floats_free(dy, images * pixels * c);
        floats_free(to, images * c);
        free(expected);
    }
    device = device_free(device);
}

/* Equal bytes have equal fingerprints at any address, and the device adds to the old value; one changed bit and two
 * exchanged words give other fingerprints. The value is that of splitmix64, so that all devices agree. */
static void test_fingerprints(void **state)
{
    (void)state;
    enum { WORDS = 5001 };
    Device *device = cpu_open(2);
    float *a = random_new(WORDS, 1), *b = floats_new(WORDS + 4);
    uint64_t *sums = (uint64_t *)(void *)floats_new(32);
    static const size_t bytes[] = {0, 1, 3, 4, 12, 18, 4 * 256, 4 * WORDS - 2, 4 * WORDS};
    for (size_t i = 0; i < ELEMENTSOF(bytes); i++) {
        uint64_t expected = 0;
        for (size_t at = 0; at < bytes[i]; at += 4) {
            uint32_t word = 0;
            memcpy(&word, (char *)a + at, MIN(bytes[i] - at, (size_t)4));
            uint64_t x = (at / 4 + 1) * 0x9e3779b97f4a7c15u ^ word;
            x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
            x = (x ^ x >> 27) * 0x94d049bb133111ebu;
            expected += x ^ x >> 31;
        }
        sums[0] = sums[1] = 7;
        memcpy(b + 1, a, bytes[i]);
        fingerprint(device, bytes[i], a, &sums[0]);
        fingerprint(device, bytes[i], b + 1, &sums[1]);
        assert_true(sums[0] == expected + 7);
        assert_true(sums[1] == expected + 7);
    }
    sums[0] = sums[1] = sums[2] = 0;
    fingerprint(device, 4 * WORDS, a, &sums[0]);
    ((char *)a)[4 * WORDS - 1] ^= 1;
    fingerprint(device, 4 * WORDS, a, &sums[1]);
    ((char *)a)[4 * WORDS - 1] ^= 1;
    const float first = a[0];
    a[0] = a[1];
    a[1] = first;
    fingerprint(device, 4 * WORDS, a, &sums[2]);
    assert_true(sums[0] != sums[1] && sums[0] != sums[2] && sums[1] != sums[2]);
    floats_free(a, WORDS);
    floats_free(b, WORDS + 4);
    floats_free((float *)(void *)sums, 32);
    device = device_free(device);
}

/* Checks the count of infinite and NaN elements among n elements that repeat the patterns below. */
static void check_non_finite(Device *device, DataType type, size_t n, size_t skip)
{
    static const uint32_t wide[] = {0x7f800000, 0xff800000, 0x7f800001, 0xffffffff, 0x7f7fffff,
                                    0xff7fffff, 0x00000000, 0x807fffff, 0x3f807f80, 0x7f007f80};
    static const uint16_t narrow[] = {0x7f80, 0xff80, 0x7f81, 0xffff, 0x7f7f,
                                      0xff7f, 0x0000, 0x807f, 0x3f80, 0x7f00};
    static const uint16_t half[] = {0x7c00, 0xfc00, 0x7c01, 0xffff, 0x7bff,
                                    0xfbff, 0x0000, 0x83ff, 0x3c00, 0x7b00};
    enum { BAD = 4 }; /* the first BAD patterns of each type are not finite */
    float *data = floats_new(n + 8);
    uint64_t *count = (uint64_t *)(void *)floats_new(32), expected = 5;
    memset(data, 0, (n + 8) * sizeof(float));
    memset(data, 0xff, skip * sizeof(float)); /* neighbours, which must not be counted */
    memset((char *)(data + skip) + n * data_type_bytes(type), 0xff, 8);
    for (size_t i = 0; i < n; i++) {
        const size_t k = i * 7 % ELEMENTSOF(wide);
        if (type == DATA_F32)
            memcpy(data + skip + i, &wide[k], sizeof(wide[k]));
        else
            memcpy((uint16_t *)(void *)(data + skip) + i, type == DATA_BF16 ? &narrow[k] : &half[k],
                   sizeof(narrow[k]));
        expected += k < BAD;
    }
    count[0] = 5;
    count_non_finite(device, type, (int64_t)n, data + skip, count);
    assert_int_equal(count[0], expected);
    free(data);
    floats_free((float *)(void *)count, 32);
}

/* Checks a single value that is not finite at each place of a pack, and behind the packs. */
static void check_each_place(Device *device, DataType type, size_t n)
{
    static const uint32_t bad[][3] = {{0x7f800000, 0xff800000, 0x7f800001},
                                      {0x7f80, 0xff80, 0x7f81},
                                      {0x7c00, 0xfc00, 0x7c01}};
    static const uint32_t largest[] = {0xff7fffff, 0xff7f, 0xfbff};
    const size_t bytes = data_type_bytes(type), k = type == DATA_F32    ? 0
                                                    : type == DATA_BF16 ? 1
                                                                        : 2;
    float *data = floats_new(n);
    uint64_t *count = (uint64_t *)(void *)floats_new(32);
    for (size_t i = 0; i < n; i++)
        memcpy((char *)data + i * bytes, &largest[k], bytes);
    for (size_t i = 0; i < n; i++) {
        memcpy((char *)data + i * bytes, &bad[k][i % 3], bytes);
        count[0] = 0;
        count_non_finite(device, type, (int64_t)n, data, count);
        if (count[0] != 1)
            fail_msg("%d values of %zu at place %zu", (int)count[0], n, i);
        memcpy((char *)data + i * bytes, &largest[k], bytes);
    }
    floats_free(data, n);
    floats_free((float *)(void *)count, 32);
}

static void test_non_finite(void **state)
{
    (void)state;
    Device *device = cpu_open(2);
    const char *other = getenv("SDTRAIN_TEST_DEVICE");
    const bool has_half = !other || !strstr(other, "emulated");
    static const size_t n[] = {0, 1, 2, 3, 7, 8, 9, 15, 16, 255, 1024, 4099, 40001};
    for (size_t i = 0; i < ELEMENTSOF(n); i++)
        for (size_t skip = 0; skip < 4; skip++)
            for (DataType type = DATA_F32; type <= (has_half ? DATA_F16 : DATA_BF16); type++)
                check_non_finite(device, type, n[i], skip);
    for (size_t m = 1; m <= 35; m++)
        for (DataType type = DATA_F32; type <= (has_half ? DATA_F16 : DATA_BF16); type++)
            check_each_place(device, type, m);
    device = device_free(device);
}

static void check_concat(Device *device, size_t rows, size_t ca, size_t cb)
{
    const size_t c = ca + cb;
    float *a = random_new(rows * ca, 1), *b = random_new(rows * cb, 2), *y = floats_new(rows * c);
    float *da = floats_new(rows * ca), *db = floats_new(rows * cb);
    concat_forward(device, (int64_t)rows, (int)ca, (int)cb, a, b, y);
    for (size_t i = 0; i < rows * c; i++)
        assert_true(y[i] == (i % c < ca ? a[i / c * ca + i % c] : b[i / c * cb + i % c - ca]));
    concat_backward(device, (int64_t)rows, (int)ca, (int)cb, y, da, false, db, false);
    assert_memory_equal(a, da, rows * ca * sizeof(float));
    assert_memory_equal(b, db, rows * cb * sizeof(float));
    concat_backward(device, (int64_t)rows, (int)ca, (int)cb, y, da, true, db, false);
    for (size_t i = 0; i < rows * ca; i++)
        assert_true(da[i] == a[i] + a[i]);
    assert_memory_equal(b, db, rows * cb * sizeof(float));
    concat_backward(device, (int64_t)rows, (int)ca, (int)cb, y, da, false, db, true);
    assert_memory_equal(a, da, rows * ca * sizeof(float));
    for (size_t i = 0; i < rows * cb; i++)
        assert_true(db[i] == b[i] + b[i]);
    floats_free(a, rows * ca);
    floats_free(b, rows * cb);
    floats_free(y, rows * c);
    floats_free(da, rows * ca);
    floats_free(db, rows * cb);
}

static void test_concat(void **state)
{
    (void)state;
    Device *device = cpu_open(2);
    check_concat(device, 1, 1, 1);
    check_concat(device, 7, 3, 10);
    check_concat(device, 300, 64, 33);
    static const size_t sd2[][2] = {{320, 320}, {640, 320}, {640, 640}, {1280, 640}, {1280, 1280}};
    for (size_t i = 0; i < ELEMENTSOF(sd2); i++)
        check_concat(device, 5, sd2[i][0], sd2[i][1]);
    check_concat(device, 300, 64, 40);
    check_concat(device, 5, 33, 64);
    device = device_free(device);
}

static void check_upsample(Device *device, size_t n, size_t h, size_t w, size_t c)
{
    const size_t from_h = (h + 1) / 2, from_w = (w + 1) / 2;
    const size_t n_x = n * from_h * from_w * c, n_y = n * h * w * c;
    float *x = random_new(n_x, 1), *y = floats_new(n_y), *dy = random_new(n_y, 2);
    float *dx = floats_new(n_x);
    double *expected = doubles_new(n_x);
    upsample_forward(device, (int)n, (int)h, (int)w, (int)c, x, y);
    for (size_t i = 0; i < n_y; i++) {
        const size_t column = i / c % w, row = i / c / w % h;
        const size_t at = ((i / (h * w * c) * from_h + row / 2) * from_w + column / 2) * c + i % c;
        assert_true(y[i] == x[at]);
        expected[at] += (double)dy[i];
    }
    upsample_backward(device, (int)n, (int)h, (int)w, (int)c, dy, dx, false);
    assert_near("upsample backward", dx, expected, n_x, TOLERANCE);
    memcpy(dx, x, n_x * sizeof(float));
    for (size_t i = 0; i < n_x; i++)
        expected[i] += (double)x[i];
    upsample_backward(device, (int)n, (int)h, (int)w, (int)c, dy, dx, true);
    assert_near("upsample backward, added", dx, expected, n_x, TOLERANCE);
    floats_free(x, n_x);
    floats_free(y, n_y);
    floats_free(dy, n_y);
    floats_free(dx, n_x);
    free(expected);
}

static void test_upsample(void **state)
{
    (void)state;
    Device *device = cpu_open(2);
    check_upsample(device, 1, 1, 1, 1);
    check_upsample(device, 1, 2, 2, 1);
    check_upsample(device, 2, 6, 10, 7);
    check_upsample(device, 3, 16, 8, 64);
    check_upsample(device, 2, 5, 10, 7); /* odd sides, which lack the last copy */
    check_upsample(device, 2, 6, 9, 3);
    check_upsample(device, 3, 7, 1, 64);
    check_upsample(device, 1, 4, 6, 1280);
    check_upsample(device, 2, 9, 5, 40);
    device = device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),    cmocka_unit_test(test_silu),
        cmocka_unit_test(test_geglu),        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_fingerprints), cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_embedding),    cmocka_unit_test(test_concat),
        cmocka_unit_test(test_upsample),     cmocka_unit_test(test_non_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
