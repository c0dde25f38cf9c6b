/* SPDX-License-Identifier: Apache-2.0 */
/* test-diffusion.c - tests noise, noising, loss, time embedding, and the device itself. */
#include "base/number/exactmath.h"
#include "kernels/test/testing-reference.h"

static void check_noise(Device *device, size_t n, size_t n_each)
{
    const uint64_t key = 0x123456789abcdef0;
    int64_t positions[] = {0, 1, INT64_C(1) << 40, 17};
    assert_true(n <= ELEMENTSOF(positions));
    float *noise = floats_new(n * n_each);
    normal_noise(device, key, (int)n, (int64_t)n_each, positions, noise);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n_each; j++) {
            const Philox p = philox4x32(key, (uint64_t)positions[i], j / 4);
            float pair[2];
            exact_normal_pair(p.word[j % 4 / 2 * 2], p.word[j % 4 / 2 * 2 + 1], pair);
            assert_true(noise[i * n_each + j] == pair[j % 2]);
        }
    floats_free(noise, n * n_each);
}

static void test_noise(void **state)
{
    (void)state;
    Device *device = cpu_open(2);
    check_noise(device, 1, 1);
    check_noise(device, 4, 7);
    check_noise(device, 3, 4096);
    check_noise(device, 2, 1022);
    device = device_free(device);
}

static void test_diffuse(void **state)
{
    (void)state;
    enum { N = 3, EACH = 4099, STEPS = 5 };
    const float a[STEPS] = {1.0f, 0.9f, 0.5f, 0.25f, 0.0f};
    const float b[STEPS] = {0.0f, 0.435f, 0.866f, 0.968f, 1.0f};
    const int32_t t[N] = {4, 0, 2};
    Device *device = cpu_open(2);
    float *x0 = random_new(N * EACH, 1), *noise = random_new(N * EACH, 2);
    float *x_t = floats_new(N * EACH), *target = floats_new(N * EACH);
    for (int v = 0; v < 2; v++) {
        diffuse(device, N, EACH, x0, noise, t, a, b, v == 1, x_t, target);
        for (size_t i = 0; i < N * EACH; i++) {
            const float s = a[t[i / EACH]], r = b[t[i / EACH]];
            assert_true(x_t[i] == s * x0[i] + r * noise[i]);
            assert_true(target[i] == (v ? s * noise[i] - r * x0[i] : noise[i]));
        }
    }
    floats_free(x0, N * EACH);
    floats_free(noise, N * EACH);
    floats_free(x_t, N * EACH);
    floats_free(target, N * EACH);
    device = device_free(device);
}

static void test_loss(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 15, 4096, 4097, 70001};
    Device *device = cpu_open(2);
    for (size_t k = 0; k < ELEMENTSOF(sizes); k++) {
        const size_t n = sizes[k];
        const size_t n_space = workspace_floats(mse_loss_workspace_bytes(device, (int64_t)n));
        float *guess = random_new(n, 1), *target = random_new(n, 2), *slope = floats_new(n);
        float *space = floats_new(n_space);
        double *expected = doubles_new(n), loss = -1, expected_loss = 0;
        for (size_t i = 0; i < n; i++) {
            const double d = (double)guess[i] - (double)target[i];
            expected_loss += d * d / (double)n;
            expected[i] = 0.125 * 2 / (double)n * d;
        }
        mse_loss(device, (int64_t)n, guess, target, 0.125f, &loss, slope, space);
        assert_true(fabs(loss / expected_loss - 1) < 1e-6);
        assert_near("slope of the loss", slope, expected, n, 1e-6);
        floats_free(guess, n);
        floats_free(target, n);
        floats_free(slope, n);
        floats_free(space, n_space);
        free(expected);
    }
    device = device_free(device);
}

static void check_embedding(Device *device, size_t c, bool flip, double shift)
{
    const int32_t t[] = {0, 1, 500, 999};
    const size_t n = ELEMENTSOF(t), half = c / 2;
    float *y = floats_new(n * c);
    time_embedding(device, (int)n, (int)c, flip, shift, t, y);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < half; j++) {
            const double angle =
                (double)t[i] * exp(-log(10000) * (double)j / ((double)half - shift));
            const float cosine = y[i * c + j + (flip ? 0 : half)];
            const float sine = y[i * c + j + (flip ? half : 0)];
            assert_true(fabs((double)cosine - cos(angle)) <
                        1e-4); /* because the angle is rounded to fp32 */
            assert_true(fabs((double)sine - sin(angle)) < 1e-4);
        }
        if (c % 2)
            assert_true(y[i * c + c - 1] == 0);
    }
    assert_true(y[flip ? 0 : half] == 1 && y[flip ? half : 0] == 0); /* t = 0 */
    floats_free(y, n * c);
}

static void test_time_embedding(void **state)
{
    (void)state;
    Device *device = cpu_open(1);
    check_embedding(device, 320, true, 0);
    check_embedding(device, 64, false, 1);
    check_embedding(device, 7, true, 0);
    check_embedding(device, 2, true, 0);
    device = device_free(device);
}

static void test_device(void **state)
{
    (void)state;
    static const struct {
        DeviceOptions options;
        int r;
        const char *says;
    } bad[] = {
        {{.kind = DEVICE_CUDA, .threads = 1, .type = DATA_BF16}, -ENODEV, "no CUDA module"},
        {{.kind = DEVICE_CPU, .threads = 1, .type = DATA_BF16}, -ENOTSUP, "fp32"},
        {{.kind = DEVICE_CPU, .threads = 0, .type = DATA_F32}, -EINVAL, "threads 0"},
    };
    Device *device = NULL;
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        Error err = ERROR_INIT;
        assert_int_equal(device_open(&bad[i].options, &device, &err), bad[i].r);
        assert_null(device);
        assert_non_null(strstr(err.text, bad[i].says));
    }

    Error err = ERROR_INIT;
    void *memory, *empty;
    char text[3] = "ab", back[1000], *numerics, *again;
    static const char zeros[sizeof(back)];
    device = cpu_open(3);
    assert_int_equal(device_type(device), DATA_F32);
    assert_int_equal(device_allocate(device, 1000, &memory, &err), 0);
    assert_int_equal((uintptr_t)memory % DEVICE_ALIGNMENT, 0);
    device_download(device, back, memory, sizeof(back));
    assert_memory_equal(back, zeros, sizeof(back));
    device_upload(device, memory, text, sizeof(text));
    device_download(device, back, memory, sizeof(text));
    assert_string_equal(text, back);
    assert_int_equal(device_allocate(device, 0, &empty, &err), 0);
    assert_int_equal(device_allocate(device, SIZE_MAX - 100, &empty, &err), -ENOMEM);
    assert_int_equal(device_synchronise(device, &err), 0);
    device_release(device, memory);
    device_release(device, empty);
    device_release(device, NULL);

    assert_int_equal(device_numerics(device, &numerics), 0);
    device = device_free(device);
    device = cpu_open(1);
    assert_int_equal(device_numerics(device, &again), 0);
    assert_string_equal(numerics, again);
    free(numerics);
    free(again);
    device = device_free(device);
    assert_null(device_free(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_noise),  cmocka_unit_test(test_diffuse),
        cmocka_unit_test(test_loss),   cmocka_unit_test(test_time_embedding),
        cmocka_unit_test(test_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
