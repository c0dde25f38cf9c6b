/* SPDX-License-Identifier: Apache-2.0 */
/* test-npy.c - .npy files that are not supported are refused by name: each part of the header, and each bound. */
#include "data/mds/npy.h"

#include "base/test/testing.h"

#include <errno.h>
#include <string.h>

enum { FILE_MAX = 8192, HEADER_MAX = 4096 };

/* Makes a file with a version, a header and n_values bytes behind the header. length: the header's length as the file
 * states it; -1: the true length. */
static size_t make(uint8_t file[FILE_MAX], int version, const char *header, size_t n_header,
                   long length, size_t n_values)
{
    const size_t prefix = version == 1 ? 10 : 12;
    const uint32_t says = length < 0 ? (uint32_t)n_header : (uint32_t)length;
    memset(file, 0, FILE_MAX);
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (uint8_t)version;
    memcpy(file + 8, &says, prefix - 8);
    memcpy(file + prefix, header, n_header);
    assert_true(prefix + n_header + n_values <= FILE_MAX);
    return prefix + n_header + n_values;
}

static int parse(const char *header, size_t n_values, MdsArray *ret, Error *err)
{
    static uint8_t file[FILE_MAX];
    size_t n = make(file, 1, header, strlen(header), -1, n_values);
    return npy_parse("x.npy", file, n, ret, err);
}

#define HEADER(descr, order, shape)                                                                \
    "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }"

static void headers_say_what_they_hold(_unused_ void **state)
{
    static const struct {
        const char *header;
        size_t n_values;
        int n_dims;
        const char *words; /* words that the error's text must contain; NULL: the file is good */
    } cases[] = {
        {HEADER("<f2", "False", "(3,)"), 6, 1, NULL},
        {HEADER("<f2", "False", "(2, 3)"), 12, 2, NULL},
        {HEADER("<f4", "False", "(1, 2, 3)"), 24, 3, NULL},
        {HEADER("<f8", "False", "( 2 , 1 )"), 16, 2, NULL},
        {HEADER("<f2", "False", "(3,)"), 5, 0, "5 bytes of values, its shape needs 6"},
        {HEADER("<f2", "False", "(3,)"), 7, 0, "7 bytes of values, its shape needs 6"},
        {HEADER("<f2", "True", "(3,)"), 6, 0, "fortran_order must be False"},
        {HEADER("<f3", "False", "(3,)"), 6, 0, "is not supported"},
        {HEADER("<f22", "False", "(3,)"), 6, 0, "is not supported"},
        {HEADER("<f2", "False", "()"), 2, 0, "its shape is broken"},
        {HEADER("<f2", "False", "(0,)"), 0, 0, "its shape is broken"},
        {HEADER("<f2", "False", "(-1,)"), 2, 0, "its shape is broken"},
        {HEADER("<f2", "False", "(+1,)"), 2, 0, "its shape is broken"},
        {HEADER("<f2", "False", "(a,)"), 2, 0, "its shape is broken"},
        {HEADER("<f2", "False", "(1;2)"), 4, 0, "its shape is broken"},
        {HEADER("<f2", "False", "[1, 2]"), 4, 0, "its shape is broken"},
        {HEADER("|u1", "False", "(2147483648,)"), 0, 0, "its shape is broken"},
        {HEADER("|u1", "False", "(2147483647,)"), 0, 0, "its shape needs 2147483647"},
        {HEADER("|u1", "False", "(18446744073709551616,)"), 0, 0, "its shape is broken"},
        {HEADER("<f8", "False", "(2147483647, 2147483647, 2147483647)"), 0, 0,
         "its shape is too large"},
        {HEADER("<f2", "False", "(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)"), 2, 0,
         "more than "},
        {"{'descr': '<f2', 'shape': (3,), }", 6, 0, "no descr or fortran_order"},
        {"{'fortran_order': False, 'shape': (3,), }", 6, 0, "no descr or fortran_order"},
        {"{'descr': [('x', '<f2')], 'fortran_order': False, 'shape': (3,), }", 6, 0,
         "no descr or fortran_order"},
        {"{'descr': '<f2', 'fortran_order': False, }", 6, 0, "its shape is broken"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        MdsArray array;
        Error err = ERROR_INIT;
        int r = parse(cases[i].header, cases[i].n_values, &array, &err);
        if (r != (cases[i].words ? -EINVAL : 0) ||
            (cases[i].words && !strstr(err.text, cases[i].words)))
            fail_msg("case %zu: %d, %s", i, r, err.text);
        if (r == 0)
            assert_int_equal(array.n_dims, cases[i].n_dims);
        else
            assert_non_null(strstr(err.text, "x.npy"));
    }
}

/* The longest allowed header is accepted. A longer header is refused, and so is a header whose stated length leads out
 * of the file. */
static void lengths_are_bounded(_unused_ void **state)
{
    static const char header[] = HEADER("|u1", "False", "(1,)");
    static char padded[HEADER_MAX + 1];
    memset(padded, ' ', sizeof(padded));
    memcpy(padded, header, strlen(header));
    for (int version = 1; version <= 3; version++) {
        static uint8_t file[FILE_MAX];
        MdsArray array;
        Error err = ERROR_INIT;
        size_t n = make(file, version, padded, HEADER_MAX, -1, 1);
        assert_int_equal(npy_parse("x.npy", file, n, &array, &err), 0);
        n = make(file, version, padded, HEADER_MAX + 1, -1, 1);
        assert_int_equal(npy_parse("x.npy", file, n, &array, &err), -EINVAL);
        assert_non_null(strstr(err.text, "a header of 4097 bytes"));
        n = make(file, version, header, strlen(header), (long)strlen(header) + 2, 1);
        assert_int_equal(npy_parse("x.npy", file, n, &array, &err), -EINVAL);
        assert_non_null(strstr(err.text, "a header of "));
    }
    uint8_t file[FILE_MAX];
    MdsArray array;
    Error err = ERROR_INIT;
    size_t n = make(file, 4, header, strlen(header), -1, 1);
    assert_int_equal(npy_parse("x.npy", file, n, &array, &err), -EINVAL);
    assert_non_null(strstr(err.text, "format version 4 is not known"));
    file[6] = 0;
    assert_int_equal(npy_parse("x.npy", file, n, &array, &err), -EINVAL);
    for (n = 0; n < 12; n++)
        assert_int_equal(npy_parse("x.npy", file, n, &array, &err), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_say_what_they_hold),
        cmocka_unit_test(lengths_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
