/* SPDX-License-Identifier: Apache-2.0 */
/* test-mds.c - encodings, samples that contradict themselves, checksums, half-precision numbers, and input that the
 * writer refuses. */
#include "base/number/hash.h"
#include "data/mds/checksum.h"
#include "data/mds/npy.h"
#include "data/test/testing-encode.h"
#include "data/test/testing-scratch.h"

#include <math.h>

static void encodings_are_understood_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *encoding;
        int r;
        uint32_t size;
        MdsKind kind;
    } cases[] = {
        {"bytes", 0, 0, MDS_BYTES},
        {"str", 0, 0, MDS_TEXT},
        {"int", 0, 8, MDS_SCALAR},
        {"uint8", 0, 1, MDS_SCALAR},
        {"float16", 0, 2, MDS_SCALAR},
        {"ndarray", 0, 0, MDS_NDARRAY},
        {"ndarray:float32", 0, 0, MDS_NDARRAY},
        {"ndarray:float16:4,16,16", 0, 2048, MDS_NDARRAY},
        {"ndarray:uint8:1,2,3,4,5,6,7,8", 0, 40320, MDS_NDARRAY},
        {"list[jpeg]", 0, 0, MDS_BYTES},
        {"pkl", -EINVAL, 0, 0},
        {"bfloat16", -EINVAL, 0, 0},
        {"", -EINVAL, 0, 0},
        {"ndarrayx", -EINVAL, 0, 0},
        {"ndarray:bfloat16", -EINVAL, 0, 0},
        {"ndarray:float16:", -EINVAL, 0, 0},
        {"ndarray:float16:0", -EINVAL, 0, 0},
        {"ndarray:float16:4,", -EINVAL, 0, 0},
        {"ndarray:float16:4,,4", -EINVAL, 0, 0},
        {"ndarray:float16:-4", -EINVAL, 0, 0},
        {"ndarray:float16: 4", -EINVAL, 0, 0},
        {"ndarray:float16:4x4", -EINVAL, 0, 0},
        {"ndarray:float16:99999999999999999999", -EINVAL, 0, 0},
        {"ndarray:float64:65536,65536", -EINVAL, 0, 0},
        {"ndarray:uint8:1,1,1,1,1,1,1,1,1", -EINVAL, 0, 0},
        {"ndarray::4,16", -EINVAL, 0, 0},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        MdsColumn column = {0};
        int r = mds_column_init("x", cases[i].encoding, &column, &err);
        if (r != cases[i].r ||
            (r == 0 && (column.size != cases[i].size || column.kind != cases[i].kind)))
            fail_msg("\"%s\": %d, size %u (%s)", cases[i].encoding, r, column.size, err.text);
        if (r < 0)
            assert_names(err, "column x");
    }
    MdsColumn column;
    char name[200];
    memset(name, 'n', sizeof(name));
    name[199] = '\0';
    assert_int_equal(mds_column_init(name, "int", &column, NULL), -EINVAL);
    assert_int_equal(mds_column_init("", "int", &column, NULL), -EINVAL);
}

static void samples_that_contradict_themselves_are_refused(void **state)
{
    (void)state;
    MdsColumn columns[3];
    MdsSchema schema;
    assert_int_equal(mds_column_init("a", "bytes", &columns[0], NULL), 0);
    assert_int_equal(mds_column_init("b", "uint16", &columns[1], NULL), 0);
    assert_int_equal(mds_column_init("c", "str", &columns[2], NULL), 0);
    assert_int_equal(mds_schema_init(columns, 3, &schema, NULL), 0);
    assert_int_equal(schema.n_variable, 2);

    const uint8_t good[] = {3, 0, 0, 0, 1, 0, 0, 0, 'x', 'y', 'z', 7, 0, 'q'};
    MdsField fields[3];
    assert_int_equal(mds_sample_split(&schema, good, sizeof(good), fields, NULL), 0);
    assert_int_equal(fields[0].n_bytes, 3);
    assert_memory_equal(fields[1].data, "\7\0", 2);
    assert_memory_equal(fields[2].data, "q", 1);
    for (size_t cut = 0; cut < sizeof(good); cut++) {
        Error err = ERROR_INIT;
        assert_int_equal(mds_sample_split(&schema, good, cut, fields, &err), -EBADMSG);
    }
    uint8_t longer[sizeof(good) + 1] = {0};
    memcpy(longer, good, sizeof(good));
    Error err = ERROR_INIT;
    assert_int_equal(mds_sample_split(&schema, longer, sizeof(longer), fields, &err), -EBADMSG);
    assert_names(err, "behind the last column");
    memset(longer, 0xff, 4);
    assert_int_equal(mds_sample_split(&schema, longer, sizeof(longer), fields, &err), -EBADMSG);
    assert_names(err, "column a");

    columns[2] = columns[0];
    /* Two columns have the same name; then there is no column. */
    assert_int_equal(mds_schema_init(columns, 3, &schema, &err), -EINVAL);
    assert_int_equal(mds_schema_init(columns, 0, &schema, &err), -EINVAL);
}

static void broken_arrays_are_refused(void **state)
{
    (void)state;
    MdsColumn column;
    assert_int_equal(mds_column_init("x", "ndarray", &column, NULL), 0);
    static const struct {
        uint8_t bytes[24];
        size_t n;
        int r;
    } cases[] = {
        {{8, 1 << 2, 3, 1, 2, 3}, 6, 0},
        {{8, 1 << 2 | 1, 3, 0, 1, 2, 3}, 7, 0},
        {{8, 2 << 2 | 2, 1, 0, 0, 0, 2, 0, 0, 0, 1, 2}, 12, 0},
        {{8, 1 << 2 | 3, 1, 0, 0, 0, 0, 0, 0, 0, 9}, 11, 0},
        {{0}, 0, -EBADMSG},
        {{7, 1 << 2, 1, 1}, 4, -EBADMSG},          /* the type does not exist */
        {{8}, 1, -EBADMSG},                        /* the shape is missing */
        {{8, 0, 1}, 3, -EBADMSG},                  /* the shape has no dimensions */
        {{8, 63 << 2, 1}, 3, -EBADMSG},            /* there are more than MDS_DIMS_MAX dimensions */
        {{8, 2 << 2, 1}, 3, -EBADMSG},             /* the shape is cut */
        {{8, 1 << 2, 0}, 3, -EBADMSG},             /* a dimension is 0 */
        {{8, 1 << 2, 3, 1, 2}, 5, -EBADMSG},       /* the values are cut */
        {{8, 1 << 2, 3, 1, 2, 3, 4}, 7, -EBADMSG}, /* there are too many values */
        {{66, 2 << 2 | 3, 255, 255, 255, 15, 0, 0, 0, 0, 255, 255, 255, 15, 0, 0, 0, 0, 1},
         19,
         -EBADMSG},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        MdsArray array;
        Error err = ERROR_INIT;
        int r = mds_array_decode(&column, (MdsField){cases[i].bytes, cases[i].n}, &array, &err);
        if (r != cases[i].r)
            fail_msg("case %zu: %d", i, r);
        if (r < 0)
            assert_names(err, "column x");
    }
    /* An array that is malformed, or contradicts its column, is not encoded. */
    uint8_t header[ARRAY_HEADER_MAX];
    size_t n;
    MdsArray array = {.number = MDS_FLOAT32, .n_dims = 1, .dims = {2}, .values = "", .n_bytes = 7};
    assert_int_equal(encode_array(&column, &array, header, &n), -EINVAL);
    array.n_bytes = 8;
    assert_int_equal(encode_array(&column, &array, header, &n), 0);
    assert_int_equal(mds_column_init("x", "ndarray:float16", &column, NULL), 0);
    assert_int_equal(encode_array(&column, &array, header, &n), -EINVAL);
    assert_int_equal(mds_column_init("x", "ndarray:float32:1,2", &column, NULL), 0);
    assert_int_equal(encode_array(&column, &array, header, &n), -EINVAL);
}

static void numbers_keep_their_range(void **state)
{
    (void)state;
    static const struct {
        const char *encoding;
        int64_t low, high;
    } cases[] = {{"uint8", 0, UINT8_MAX},   {"int8", INT8_MIN, INT8_MAX},
                 {"uint16", 0, UINT16_MAX}, {"int16", INT16_MIN, INT16_MAX},
                 {"uint32", 0, UINT32_MAX}, {"int32", INT32_MIN, INT32_MAX},
                 {"uint64", 0, INT64_MAX},  {"int64", INT64_MIN, INT64_MAX}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        MdsColumn column;
        uint8_t bytes[8];
        int64_t back;
        assert_int_equal(mds_column_init("x", cases[i].encoding, &column, NULL), 0);
        for (int high = 0; high < 2; high++) {
            int64_t v = high ? cases[i].high : cases[i].low;
            assert_int_equal(encode_integer(&column, v, bytes), 0);
            assert_int_equal(mds_integer_decode(&column, (MdsField){bytes, column.size}, &back,
                                                NULL),
                             0);
            assert_int_equal(back, v);
        }
        if (cases[i].high < INT64_MAX)
            assert_int_equal(encode_integer(&column, cases[i].high + 1, bytes), -ERANGE);
        if (cases[i].low > INT64_MIN)
            assert_int_equal(encode_integer(&column, cases[i].low - 1, bytes), -ERANGE);
        assert_int_equal(mds_integer_decode(&column, (MdsField){bytes, column.size - 1}, &back,
                                            NULL),
                         -EBADMSG);
    }
    MdsColumn column;
    int64_t integer;
    double number;
    assert_int_equal(mds_column_init("x", "str_int", &column, NULL), 0);
    assert_int_equal(mds_integer_decode(&column, (MdsField){"-77", 3}, &integer, NULL), 0);
    assert_int_equal(integer, -77);
    static const char *const bad[] = {"", "x", "1x", "99999999999999999999999999999999999"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_true(
            mds_integer_decode(&column, (MdsField){bad[i], strlen(bad[i])}, &integer, NULL) < 0);
    assert_int_equal(mds_integer_decode(&column, (MdsField){"99999999999999999999", 20}, &integer,
                                        NULL),
                     -ERANGE);
    assert_int_equal(mds_integer_decode(&column, (MdsField){"1\0", 2}, &integer, NULL), -EBADMSG);
    assert_int_equal(mds_double_decode(&column, (MdsField){"1e3", 3}, &number, NULL), 0);
    assert_true(number == 1000);
    uint8_t max[8];
    memset(max, 0xff, 8);
    assert_int_equal(mds_column_init("x", "uint64", &column, NULL), 0);
    assert_int_equal(mds_integer_decode(&column, (MdsField){max, 8}, &integer, NULL), -ERANGE);
    assert_int_equal(mds_double_decode(&column, (MdsField){max, 8}, &number, NULL), 0);
    assert_true(number == 0x1p64);
}

/* Every half-precision number is compared with the definition of the format; the CPU's conversion gives the same
 * bits. */
static void halves_are_exact(void **state)
{
    (void)state;
    static uint16_t all[65536];
    static float wide[65536 + 3];
    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    assert_false(half_expand(all, 65536, wide));
    for (int i = 0; i < 65536; i++) {
        float f = half_to_float((uint16_t)i);
        assert_memory_equal(&f, &wide[i], 4);
        int exponent = i >> 10 & 31, mantissa = i & 1023;
        double value = exponent == 31  ? (mantissa ? (double)NAN : (double)INFINITY)
                       : exponent == 0 ? ldexp(mantissa, -24)
                                       : ldexp(1024 + mantissa, exponent - 25);
        value = i & 0x8000 ? -value : value;
        assert_true(isnan(value) ? isnan(f) : (double)f == value && !signbit(f) == !signbit(value));
        if (!isnan(value))
            assert_int_equal(half_from_float(f), i);
    }
    /* A value between two half-precision numbers becomes the nearer number; a value in the middle becomes the number
     * whose last bit is 0. */
    for (int i = 0; i < 0x7bff; i++) {
        double low = (double)half_to_float((uint16_t)i),
               high = (double)half_to_float((uint16_t)(i + 1));
        float middle = (float)((low + high) / 2);
        assert_int_equal(half_from_float(middle), i % 2 == 0 ? i : i + 1);
        assert_int_equal(half_from_float(nextafterf(middle, 0)), i);
        assert_int_equal(half_from_float(nextafterf(middle, INFINITY)), i + 1);
        assert_int_equal(half_from_float(-nextafterf(middle, 0)), i | 0x8000);
    }
    assert_int_equal(half_from_float(65519.99F), 0x7bff);
    assert_int_equal(half_from_float(65520.0F), 0x7c00);
    assert_int_equal(half_from_float(1e30F), 0x7c00);
    assert_int_equal(half_from_float(-(float)INFINITY), 0xfc00);
    assert_true(isnan(half_to_float(half_from_float((float)NAN))));
    assert_int_equal(half_from_float(1e-30F), 0);
    /* The input is unaligned, and its length is not a multiple of a vector's length. */
    uint8_t bytes[2 * 13 + 1];
    for (int i = 0; i < 13; i++)
        memcpy(bytes + 1 + 2 * i, &all[i * 4999], 2);
    assert_true(half_expand(bytes + 1, 13, wide));
    for (int i = 0; i < 13; i++)
        assert_memory_equal(&wide[i], &(float){half_to_float(all[i * 4999])}, 4);
    /* A value that is not finite is found at any place. */
    static const uint16_t bad[] = {0x7c00, 0xfc00, 0x7c01, 0xffff};
    for (int i = 0; i < 13; i++) {
        memcpy(bytes + 1 + 2 * i, &bad[i % 4], 2);
        assert_false(half_expand(bytes + 1, 13, wide));
        memcpy(bytes + 1 + 2 * i, &all[0x7bff], 2);
        assert_true(half_expand(bytes + 1, 13, wide));
    }
}

static void checksums_match_published_values(void **state)
{
    (void)state;
    /* The digests of "abc" in FIPS 180-4, FIPS 202, RFC 1321 and RFC 7693; xxHash's digests are from its own
     * program. */
    static const struct {
        const char *name, *digest;
    } cases[] = {
        {"md5", "900150983cd24fb0d6963f7d28e17f72"},
        {"sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"},
        {"sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"sha3_256", "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532"},
        {"blake2s", "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982"},
        {"xxh32", "32d153ff"},
        {"xxh64", "44bc2cf5ad770999"},
        {"xxh3_64", "78af5f94892f3950"},
        {"xxh128", "06b05ab6733a618578af5f94892f3950"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        uint8_t digest[CHECKSUM_BYTES_MAX], parsed[CHECKSUM_BYTES_MAX], halves[CHECKSUM_BYTES_MAX];
        char text[2 * CHECKSUM_BYTES_MAX + 1];
        int size = checksum_size(cases[i].name);
        assert_int_equal(size * 2, strlen(cases[i].digest));
        assert_good(checksum_bytes(cases[i].name, "abc", 3, digest, &err), err);
        assert_string_equal(hash_format_bytes(digest, (size_t)size, text), cases[i].digest);
        assert_int_equal(checksum_parse(text, (size_t)size, parsed), 0);
        assert_memory_equal(parsed, digest, size);
        Checksum *c;
        assert_good(checksum_new(cases[i].name, &c, &err), err);
        assert_int_equal(checksum_update(c, "a", 1), 0);
        assert_int_equal(checksum_update(c, "bc", 2), 0);
        assert_int_equal(checksum_finish(c, halves), 0);
        assert_memory_equal(halves, digest, size);
        checksum_free(c);
        text[0] = 'x';
        assert_int_equal(checksum_parse(text, (size_t)size, parsed), -EINVAL);
        assert_int_equal(checksum_parse(text, (size_t)size + 1, parsed), -EINVAL);
    }
    assert_int_equal(checksum_size("crc32"), -ENOTSUP);
    Checksum *c;
    assert_int_equal(checksum_new("crc32", &c, NULL), -ENOTSUP);
}

static void the_writer_refuses_what_cannot_be(void **state)
{
    (void)state;
    Scratch scratch = scratch_make();
    Error err = ERROR_INIT;
    MdsColumn column;
    MdsSchema schema;
    Store *store;
    MdsWriter *writer = NULL;
    assert_int_equal(mds_column_init("x", "uint32", &column, NULL), 0);
    assert_int_equal(mds_schema_init(&column, 1, &schema, NULL), 0);
    assert_good(store_open(scratch.path, &store, &err), err);
    static const char *const unsorted[] = {"xxh64", "md5"}, *const unknown[] = {"crc"};
    const MdsWriterOptions bad[] = {{.compression = "gz"},
                                    {.compression = "zstd:0"},
                                    {.compression = "zstd:23"},
                                    {.compression = "zstd:x"},
                                    {.hashes = unsorted, .n_hashes = 2},
                                    {.hashes = unknown, .n_hashes = 1},
                                    {.size_limit = UINT64_C(1) << 32}};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_int_equal(mds_writer_new(store, &schema, &bad[i], &writer, &err), -EINVAL);
    MdsWriterOptions options = {.size_limit = 4096};
    assert_good(mds_writer_new(store, &schema, &options, &writer, &err), err);
    MdsField field = {"12345", 5};
    assert_int_equal(mds_writer_add(writer, &field, &err), -EINVAL);
    assert_names(err, "column x (uint32): 5 bytes, 4 are needed");
    writer = mds_writer_free(writer); /* the dataset is not finished: it has no index.json */
    uint64_t n;
    assert_int_equal(store_head(store, "index.json", &n, NULL), -ENOENT);
    store_free(store);
    scratch_remove(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encodings_are_understood_or_refused),
        cmocka_unit_test(samples_that_contradict_themselves_are_refused),
        cmocka_unit_test(broken_arrays_are_refused),
        cmocka_unit_test(numbers_keep_their_range),
        cmocka_unit_test(halves_are_exact),
        cmocka_unit_test(checksums_match_published_values),
        cmocka_unit_test(the_writer_refuses_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
