/* SPDX-License-Identifier: Apache-2.0 */
/* test-exponent.c - a sum that is accepted cannot overflow, and a sum within the headroom is not redone. */

#include "base/number/philox.h"
#include "base/test/testing.h"
#include "trainer/state/exponent.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static const int64_t grain_counts[] = {1, 2, 3, 4, 5, 8, 9, 31, 32, 128, 1000, 65536};

static bool fits(int exponent, uint32_t maximum, int64_t n_grains, SumWidth width)
{
    double counted = rint(ldexp((double)float_of(maximum), exponent));
    double limit = width == SUM_32 ? 2147483647.0 : 0x1p62;
    /* Both factors are integers below 2^63, which long double multiplies accurately enough. */
    return (long double)counted * (long double)n_grains <= (long double)limit;
}

static void overflow_is_judged_exactly(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 200000; i++) {
        Philox random = philox4x32(1, 2, i);
        int64_t n_grains = grain_counts[random.word[0] % ELEMENTSOF(grain_counts)];
        uint32_t maximum = random.word[1] % 0x7f800000u;
        SumWidth width = random.word[2] & 1 ? SUM_32 : SUM_64;
        /* the exponents are near the exponent at which the sum reaches its limit */
        int above = (int)(maximum >> 23) - 126;
        int exponent = (width == SUM_32 ? 31 : 62) - above - (int)(random.word[3] % 20);
        assert_int_equal(exponent_overflows(exponent, maximum, n_grains, width),
                         !fits(exponent, maximum, n_grains, width));
    }
    /* At the limit: 2^31 - 1 fits, 2^31 does not. */
    assert_false(exponent_overflows(0, bits_of(2147483520.0f), 1, SUM_32));
    assert_true(exponent_overflows(0, bits_of(2147483648.0f), 1, SUM_32));
    assert_false(exponent_overflows(0, bits_of(1073741824.0f - 64), 2, SUM_32));
    assert_true(exponent_overflows(0, bits_of(1073741824.0f), 2, SUM_32));
    assert_false(exponent_overflows(62, bits_of(1.0f), 1, SUM_64));
    assert_true(exponent_overflows(62, bits_of(1.0000001f), 1, SUM_64));
}

static void a_chosen_exponent_has_headroom_of_four_and_wastes_little(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100000; i++) {
        Philox random = philox4x32(3, 4, i);
        int64_t n_grains = grain_counts[random.word[0] % ELEMENTSOF(grain_counts)];
        SumWidth width = random.word[2] & 1 ? SUM_32 : SUM_64;
        uint32_t maximum = random.word[1] % exponent_infinite(n_grains);
        int exponent = exponent_choose(maximum, n_grains, width);
        assert_in_range(exponent - EXPONENT_MIN, 0, EXPONENT_MAX - EXPONENT_MIN);
        /* A finite maximum fits at the exponent that was chosen for it: a redone step is accepted. */
        assert_false(exponent_overflows(exponent, maximum, n_grains, width));

        float grown = float_of(maximum) * 3.99f;
        if (bits_of(grown) < exponent_infinite(n_grains))
            assert_false(exponent_overflows(exponent, bits_of(grown), n_grains, width));
        /* A maximum that is 17 times as large does not fit, unless the exponent was clamped: a sum has at most 4 bits
         * to spare. 2 bits are the headroom, 1 bit comes from rounding the maximum up to a power of two, and 1 bit from
         * rounding the number of grains up. */
        float outgrown = float_of(maximum) * 17.0f;
        if (exponent < EXPONENT_MAX && exponent > EXPONENT_MIN &&
            bits_of(outgrown) < exponent_infinite(n_grains))
            assert_true(exponent_overflows(exponent, bits_of(outgrown), n_grains, width));
    }
    assert_int_equal(exponent_choose(0, 4, SUM_32), EXPONENT_MAX);
    assert_int_equal(exponent_choose(bits_of(1.0f), 4, SUM_32), 31 - 2 - 2 - 1);
    assert_int_equal(exponent_choose(bits_of(1.0f), 5, SUM_64), 62 - 3 - 2 - 1);
}

static void infinite_begins_where_a_sum_could_leave_fp32(void **state)
{
    (void)state;
    assert_int_equal(exponent_infinite(1), bits_of(INFINITY));
    assert_int_equal(exponent_infinite(8), bits_of(0x1p125f));
    assert_int_equal(exponent_infinite(9), bits_of(0x1p124f));
    assert_true(bits_of(NAN) > bits_of(INFINITY));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overflow_is_judged_exactly),
        cmocka_unit_test(a_chosen_exponent_has_headroom_of_four_and_wastes_little),
        cmocka_unit_test(infinite_begins_where_a_sum_could_leave_fp32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
