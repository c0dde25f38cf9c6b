/* SPDX-License-Identifier: Apache-2.0 */
/* test-reciprocal.c - shows that 1 / d, computed from a GPU's approximation, is correctly rounded for each error that
 * the approximation may have, and that the activations that use 1 / d are right, too. */
#include "base/test/testing.h"
#include "kernels/cpu/vectormath.h"
#include "kernels/cuda/kernels/reciprocal.h"
#include "kernels/test/emulator/emulated.h"

#include <float.h>

enum { MANTISSAS = 1 << 23, ALL_SET = MANTISSAS - 1 };

static float with(float power, uint32_t mantissa)
{
    return float_from_bits(float_bits(power) | mantissa);
}

/* The smallest and the largest allowed power of two. The results for other powers are these results, scaled. */
static const float powers[] = {1.0f, 0x1p125f};

static void every_seed_ends_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(powers); i++)
        for (uint32_t mantissa = 0; mantissa < MANTISSAS; mantissa++) {
            const float d = with(powers[i], mantissa), right = 1.0f / d;
            for (uint32_t off = 0; off < 3; off++) {
                const float seed = float_from_bits(float_bits(right) + off - 1);
                if (reciprocal_of_seed(d, seed) != right)
                    fail_msg("1 / %a from %a is %a", (double)d, (double)seed,
                             (double)reciprocal_of_seed(d, seed));
            }
        }
}

static float newton(float d, float y) { return fmaf(y, fmaf(-d, y, 1.0f), y); }

/* Newton's steps alone may end at a wrong float, so reciprocal_of_seed() does more. */
static void steps_of_newton_may_end_wrong(void **state)
{
    (void)state;
    const float d = with(1.0f, ALL_SET), right = 1.0f / d;
    assert_true(newton(d, 0.5f) == 0.5f && right == 0.5f + 0x1p-24f);
    unsigned n = 0;
    for (uint32_t mantissa = 0; mantissa < MANTISSAS; mantissa++) {
        const float e = with(1.0f, mantissa), above = float_from_bits(float_bits(1.0f / e) + 1);
        n += newton(e, above) != 1.0f / e;
    }
    assert_int_equal(n, 32);
}

/* ---- in the kernels ---- */

enum { VALUES = 1 << 16, ORDERS = 3 };

static float right_sigmoid(float x)
{
    float power;
    const float e = vector_exp_of_power(fminf(fmaxf(-x, -87.0f), 87.0f), &power);
    return 1.0f / fmaf(e, power, 1.0f);
}

static float right_silu(float x) { return x * right_sigmoid(x); }

static float right_silu_slope(float x)
{
    const float s = right_sigmoid(x);
    return s * fmaf(x, 1.0f - s, 1.0f);
}

/* Checks the results of the GPU's kernels for values of all sizes and both signs. `backward`: checks the slope. */
static void check(bool backward, void (*run)(Device *, int64_t, const void *, void *),
                  float (*right)(float))
{
    static const float special[] = {0.0f,     -0.0f,    FLT_MIN,   -FLT_MIN, 0x1p-149f, 86.9f,
                                    -86.9f,   87.0f,    -87.0f,    87.5f,    -87.5f,    88.0f,
                                    -88.0f,   89.0f,    -1000.0f,  0x1p64f,  -0x1p64f,  FLT_MAX,
                                    -FLT_MAX, INFINITY, -INFINITY, NAN};
    static float x[VALUES], y[VALUES], one[VALUES];
    const DeviceOptions options = {.kind = DEVICE_CUDA, .threads = 1, .type = DATA_F32};
    Device *device;
    Error err = ERROR_INIT;
    if (emulated_device_open(&options, &device, &err) < 0)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < VALUES; i++) {
        x[i] = i < ELEMENTSOF(special) ? special[i] : float_from_bits(i * 2654435761u);
        one[i] = 1.0f;
    }
    for (uint64_t seed = 0; seed < ORDERS; seed++) {
        emulated_device_seed(seed);
        if (backward)
            silu_backward(device, VALUES, x, one, y, false);
        else
            run(device, VALUES, x, y);
        for (size_t i = 0; i < VALUES; i++) {
            const float want = right(x[i]);
            if (isnan(want) ? !isnan(y[i]) : float_bits(want) != float_bits(y[i]))
                fail_msg("of %a: %a instead of %a", (double)x[i], (double)y[i], (double)want);
        }
    }
    device = device_free(device);
}

static void silu_is_that_of_divisions(void **state)
{
    (void)state;
    check(false, silu_forward, right_silu);
    check(true, NULL, right_silu_slope);
}

/* GELU has exactly the bits of a CPU, which divides. */
static void gelu_is_that_of_divisions(void **state)
{
    (void)state;
    check(false, gelu_forward, vector_gelu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_seed_ends_right),
        cmocka_unit_test(steps_of_newton_may_end_wrong),
        cmocka_unit_test(silu_is_that_of_divisions),
        cmocka_unit_test(gelu_is_that_of_divisions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
