/* SPDX-License-Identifier: Apache-2.0 */
/* test-floats.c - conversion of a payload's numbers: each value of each type, at each position of an array and at any
 * alignment, becomes the right float, and a value that is not finite is refused. */
#include "base/number/half.h"
#include "base/test/testing.h"
#include "data/floats.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { N_MAX = 37, ROOM = N_MAX * 8 + 8 };

static const MdsNumber types[] = {MDS_FLOAT16, MDS_FLOAT32, MDS_FLOAT64};

/* Puts a value into the array in the array's type. */
static void put(MdsNumber type, uint8_t *bytes, size_t i, double value)
{
    const uint16_t half = half_from_float((float)value);
    const float single = (float)value;
    if (type == MDS_FLOAT16)
        memcpy(bytes + 2 * i, &half, sizeof(half));
    else if (type == MDS_FLOAT32)
        memcpy(bytes + 4 * i, &single, sizeof(single));
    else
        memcpy(bytes + 8 * i, &value, sizeof(value));
}

static void fill(MdsNumber type, uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put(type, bytes, i, (i % 2 ? -1.0 : 1.0) * (double)(i + 1) / 16);
}

static void each_position_is_looked_at(_unused_ void **state)
{
    const double bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t t = 0; t < ELEMENTSOF(types); t++)
        for (size_t n = 1; n <= N_MAX; n++)
            for (size_t at = 0; at <= n; at++) { /* at == n: no value is bad */
                uint8_t room[ROOM], *bytes = room + n % 8;
                float found[N_MAX + 1];
                Error err = ERROR_INIT;
                found[n] = 123;
                fill(types[t], bytes, n);
                if (at < n)
                    put(types[t], bytes, at, bad[(at + n) % ELEMENTSOF(bad)]);
                int r = dataset_expand("column", "x", types[t], bytes, n, found, &err);
                assert_true(found[n] == 123);
                if (r != (at < n ? -EBADMSG : 0))
                    fail_msg("type %zu: position %zu of %zu: %d", t, at, n, r);
                if (r < 0)
                    assert_string_equal(err.text, "column x holds a value that is not finite");
                for (size_t i = 0; i < n && r == 0; i++)
                    assert_true(found[i] == (i % 2 ? -1.0F : 1.0F) * (float)(i + 1) / 16);
            }
}

static int expand_one(MdsNumber type, double value, float *ret)
{
    uint8_t bytes[8];
    put(type, bytes, 0, value);
    return dataset_expand("column", "x", type, bytes, 1, ret, NULL);
}

/* The largest finite value of each type is accepted, and a value that a float cannot hold is not. */
static void the_range_of_floats_ends_where_it_ends(_unused_ void **state)
{
    const double largest = 0x1.fffffep127;
    float found;
    assert_int_equal(expand_one(MDS_FLOAT16, 65504, &found), 0);
    assert_true(found == 65504);
    for (int sign = -1; sign <= 1; sign += 2) {
        assert_int_equal(expand_one(MDS_FLOAT32, sign * largest, &found), 0);
        assert_true(found == (float)(sign * largest));
        assert_int_equal(expand_one(MDS_FLOAT64, sign * largest, &found), 0);
        assert_true(found == (float)(sign * largest));
        assert_int_equal(expand_one(MDS_FLOAT64, sign * 1e39, &found), -EBADMSG);
    }
    /* A value midway between two floats becomes the float whose last bit is 0. */
    assert_int_equal(expand_one(MDS_FLOAT64, 0x1.000001p0, &found), 0);
    assert_true(found == 1);
    assert_int_equal(expand_one(MDS_FLOAT64, 0x1.000003p0, &found), 0);
    assert_true(found == 0x1.000004p0F);
    assert_int_equal(expand_one(MDS_FLOAT32, 0x1p-149, &found), 0); /* a subnormal float */
    assert_true(found == 0x1p-149F);
}

static void other_types_are_refused_by_name(_unused_ void **state)
{
    static const MdsNumber others[] = {MDS_UINT8, MDS_INT32, MDS_INT64};
    for (size_t i = 0; i < ELEMENTSOF(others); i++) {
        const int64_t value = 1;
        float found;
        Error err = ERROR_INIT;
        char wanted[96];
        assert_int_equal(dataset_expand("column", "x", others[i], &value, 1, &found, &err),
                         -EINVAL);
        (void)snprintf(wanted, sizeof(wanted), "column x: values of type %s are not supported",
                       mds_number_name(others[i]));
        assert_string_equal(err.text, wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_position_is_looked_at),
        cmocka_unit_test(the_range_of_floats_ends_where_it_ends),
        cmocka_unit_test(other_types_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
