/* SPDX-License-Identifier: Apache-2.0 */
/* test-safetensors.c - a written header is read back; an invalid header is refused with the tensor's name. */
#include "base/json/json.h"
#include "base/test/testing.h"
#include "store/safetensors.h"

#include <string.h>

/* Opens a whole file with a header of this JSON and n_data bytes of tensors. */
static int open_json(const char *json, size_t n_data, Safetensors **ret, Error *err)
{
    char bytes[4096] = {0};
    uint64_t length = strlen(json);
    assert_true(8 + length + n_data <= sizeof(bytes));
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, json, length);
    return safetensors_open("test.safetensors", bytes, 8 + length + n_data, 8 + length + n_data,
                            SAFETENSORS_FLOATS, ret, err);
}

static void test_roundtrip(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    SafetensorsEntry in[] = {
        {.name = "b.weight", .n_dims = 4, .dims = {3, 2, 3, 3}},
        {.name = "scalar", .n_dims = 0},
        {.name = "empty", .n_dims = 2, .dims = {0, 7}},
        {.name = "half", .type = SAFETENSORS_BF16, .n_dims = 1, .dims = {3}},
        {.name = "quote\"\\", .type = SAFETENSORS_F16, .n_dims = 1, .dims = {1}},
    };
    _cleanup_free_ char *header = NULL;
    size_t n;
    assert_int_equal(safetensors_header(in, ELEMENTSOF(in), &header, &n, &err), 0);
    assert_int_equal(n % 8, 0);
    uint64_t file_bytes = n + 54 * 4 + 4 + 0 + 6 + 2;

    size_t wanted;
    assert_int_equal(safetensors_header_bytes("f", header, n, file_bytes, &wanted, &err), 0);
    assert_int_equal(wanted, n);

    _cleanup_(safetensors_freep) Safetensors *file = NULL;
    assert_int_equal(safetensors_open("f", header, n, file_bytes, SAFETENSORS_FLOATS, &file, &err),
                     0);
    assert_int_equal(safetensors_count(file), ELEMENTSOF(in));
    for (size_t i = 0; i < ELEMENTSOF(in); i++) {
        const SafetensorsEntry *e = safetensors_find(file, in[i].name);
        assert_non_null(e);
        assert_int_equal(e->type, in[i].type);
        assert_int_equal(e->n_dims, in[i].n_dims);
        assert_memory_equal(e->dims, in[i].dims, sizeof(e->dims));
        assert_int_equal(e->n_elements, in[i].n_elements);
        assert_int_equal(e->offset, in[i].offset);
        assert_int_equal(e->n_bytes, in[i].n_bytes);
    }
    assert_string_equal(safetensors_at(file, 0)->name, "b.weight");
    assert_null(safetensors_find(file, "c"));

    in[1].name = in[0].name;
    char *none = NULL;
    assert_int_equal(safetensors_header(in, ELEMENTSOF(in), &none, &n, &err), -EINVAL);
    assert_null(none);
}

static void test_accepts(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        size_t n_data;
    } cases[] = {
        {"{}", 0},
        {"{\"__metadata__\":{\"format\":\"pt\"}}   ", 0},
        /* the tensors are not in the order of their data */
        {"{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},"
         "\"a\":{\"data_offsets\":[0,4],\"shape\":[2,1],\"dtype\":\"F16\"}}",
         8},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_(safetensors_freep) Safetensors *file = NULL;
        Error err = ERROR_INIT;
        assert_int_equal(open_json(cases[i].json, cases[i].n_data, &file, &err), 0);
    }
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        size_t n_data;
        const char *why;
    } cases[] = {
        {"", 0, "begin with {"},
        {" {}", 0, "begin with {"},
        {"{", 0, "line 1"},
        {"{} x", 0, "line 1"},
        {"{}", 4, "tensors end"},
        {"{\"a\":1}", 0, "tensor a: expected dtype"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, "dtype F64"},
        {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,8]}}", 8, "dtype (none)"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,8]}}", 8, "shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,8]}}", 8, "shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,8]}}", 8, "shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
         "at most 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
         "too many elements"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0,
         "do not fit"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "two integers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "outside"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "outside"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "outside"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "do not fit"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "hole"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         4, "overlaps"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, "uplicate"},
        {"{\"a\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, "dtype I64"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, "dtype F4"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_(safetensors_freep) Safetensors *file = NULL;
        Error err = ERROR_INIT;
        /* A type that other programs use does not mean damage. */
        const bool is_other = strncmp(cases[i].why, "dtype ", 6) == 0 && cases[i].why[6] != '(';
        assert_int_equal(open_json(cases[i].json, cases[i].n_data, &file, &err),
                         is_other ? -EINVAL : -EBADMSG);
        assert_non_null(strstr(err.text, "test.safetensors"));
        if (!strstr(err.text, cases[i].why))
            fail_msg("%s: %s", cases[i].json, err.text);
    }
}

/* With SAFETENSORS_ANY, tensors of integers are listed, and their bytes are checked like those of other tensors. */
static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        int bytes;
    } cases[] = {{"I64", 8}, {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U64", 8},
                 {"U32", 4}, {"U16", 2}, {"U8", 1},  {"BOOL", 1}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        for (int extra = 0; extra < 2; extra++) {
            char file_bytes[256] = {0};
            const int n_data = 3 * cases[i].bytes + extra;
            uint64_t length = (uint64_t)
                snprintf(file_bytes + 8, sizeof(file_bytes) - 8,
                         "{\"a\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%d]}}",
                         cases[i].dtype, n_data);
            memcpy(file_bytes, &length, 8);
            const size_t n = 8 + length + (size_t)n_data;
            _cleanup_(safetensors_freep) Safetensors *file = NULL;
            Error err = ERROR_INIT;
            int r = safetensors_open("f", file_bytes, n, n, SAFETENSORS_ANY, &file, &err);
            assert_int_equal(r, extra ? -EBADMSG : 0);
            if (extra)
                assert_non_null(strstr(err.text, "do not fit"));
            else
                assert_int_equal(safetensors_find(file, "a")->type, SAFETENSORS_INTEGER);
        }
}

/* A type that cannot be used for computing is refused with SAFETENSORS_FLOATS. With SAFETENSORS_ANY it is listed by its
 * name. */
static void test_other_types(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        int bytes;
    } cases[] = {{"F64", 8},     {"C64", 8},         {"F8_E4M3", 1},    {"F8_E5M2", 1},
                 {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char bytes[256] = {0};
        const int n_data = 3 * cases[i].bytes;
        uint64_t length =
            (uint64_t)snprintf(bytes + 8, sizeof(bytes) - 8,
                               "{\"a\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%d]}}",
                               cases[i].dtype, n_data);
        memcpy(bytes, &length, 8);
        const size_t n = 8 + length + (size_t)n_data;
        _cleanup_(safetensors_freep) Safetensors *file = NULL;
        Error err = ERROR_INIT;
        assert_int_equal(safetensors_open("f", bytes, n, n, SAFETENSORS_FLOATS, &file, &err),
                         -EINVAL);
        assert_int_equal(safetensors_open("f", bytes, n, n, SAFETENSORS_ANY, &file, &err), 0);
        assert_int_equal(safetensors_at(file, 0)->type, SAFETENSORS_OTHER);
        assert_string_equal(safetensors_at(file, 0)->dtype, cases[i].dtype);
    }
}

/* A file that is not a safetensors file at all is a wrong file; a safetensors file with missing bytes is damaged. */
static void test_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        uint64_t file_bytes;
        int r;
        const char *why;
    } cases[] = {
        {"version https://git-lfs.github.com/spec/v1\n", 43, 133, -EINVAL, "git lfs pull"},
        {"PK\x03\x04\0\0\x08\x08\0\0\0\0", 12, 1 << 30, -EINVAL, "torch.save() writes; convert"},
        {"\x80\x02}q\0X\x0e\0\0\0", 10, 1 << 20, -EINVAL, "a pickle, as torch.save()"},
        {"{\"a\": 1, \"b\": 2}", 16, 16, -EINVAL, "a JSON text"},
        {"Dear reader, these are not weights", 33, 33, -EINVAL, "is not a safetensors file"},
        {"\xff\xff\xff\x7f\0\0\0\0{\"a\"", 12, UINT64_MAX, -EINVAL, "at most 4194304 are read"},
        {"\xff\xff\0\0\0\0\0\0{\"a\"", 12, 5000, -EBADMSG, "of 65535 bytes in a file of 5000"},
        {"\xff\xff\xff\x7f\0\0\0\0{\"a\"", 12, 5000, -EBADMSG, "in a file of 5000"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        size_t ignored;
        Error err = ERROR_INIT;
        assert_int_equal(safetensors_header_bytes("f", cases[i].bytes, cases[i].n,
                                                  cases[i].file_bytes, &ignored, &err),
                         cases[i].r);
        if (!strstr(err.text, cases[i].why))
            fail_msg("%zu: %s", i, err.text);
    }
}

static void test_lengths(void **state)
{
    (void)state;
    Safetensors *file = NULL;
    Error err = ERROR_INIT;
    uint64_t huge[2] = {UINT64_MAX, 0};
    assert_int_equal(safetensors_open("f", huge, 16, 16, SAFETENSORS_FLOATS, &file, &err), -EINVAL);
    huge[0] = SAFETENSORS_HEADER_MAX + 1;
    huge[1] = '{';
    assert_int_equal(safetensors_open("f", huge, 16, UINT64_MAX, SAFETENSORS_FLOATS, &file, &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, "at most 4194304"));
    huge[0] = 9; /* the file would be long enough, but only a part was read */
    assert_int_equal(safetensors_open("f", huge, 16, 100, SAFETENSORS_FLOATS, &file, &err),
                     -EBADMSG);
    assert_int_equal(safetensors_open("f", huge, 7, 100, SAFETENSORS_FLOATS, &file, &err),
                     -EBADMSG);
    assert_int_equal(safetensors_open("f", huge, 16, 3, SAFETENSORS_FLOATS, &file, &err), -EBADMSG);
    assert_null(file);
}

/* A small file that would need much memory is refused. */
static void test_values(void **state)
{
    (void)state;
    const size_t n = SAFETENSORS_HEADER_MAX;
    _cleanup_free_ char *bytes = malloc(8 + n);
    assert_non_null(bytes);
    uint64_t length = n;
    memcpy(bytes, &length, 8);
    for (size_t i = 0; i < n; i++)
        bytes[8 + i] = "[],"[i % 3];
    memcpy(bytes + 8, "{\"a\":[", 6);
    Safetensors *file = NULL;
    Error err = ERROR_INIT;
    assert_int_equal(safetensors_open("f", bytes, 8 + n, 8 + n, SAFETENSORS_FLOATS, &file, &err),
                     -EBADMSG);
    assert_non_null(strstr(err.text, "more than the 131072 values"));

    /* The largest header that can be written: 8,192 tensors of four dimensions with long names. */
    _cleanup_free_ SafetensorsEntry *entries = calloc(SAFETENSORS_TENSORS_MAX, sizeof(*entries));
    _cleanup_free_ char *names = calloc(SAFETENSORS_TENSORS_MAX, 128), *header = NULL;
    size_t n_header;
    assert_true(entries && names);
    for (size_t i = 0; i < SAFETENSORS_TENSORS_MAX; i++) {
        entries[i] =
            (SafetensorsEntry){.name = names + 128 * i, .n_dims = 4, .dims = {100000, 10000, 3, 3}};
        (void)snprintf(entries[i].name, 128, "%0127zu", i);
    }
    assert_int_equal(safetensors_header(entries, SAFETENSORS_TENSORS_MAX, &header, &n_header, &err),
                     0);
    const SafetensorsEntry *last = &entries[SAFETENSORS_TENSORS_MAX - 1];
    assert_int_equal(safetensors_open("f", header, n_header, last->offset + last->n_bytes,
                                      SAFETENSORS_FLOATS, &file, &err),
                     0);
    file = safetensors_free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roundtrip), cmocka_unit_test(test_accepts),
        cmocka_unit_test(test_refuses),   cmocka_unit_test(test_integers),
        cmocka_unit_test(test_lengths),   cmocka_unit_test(test_values),
        cmocka_unit_test(test_kinds),     cmocka_unit_test(test_other_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
