/* SPDX-License-Identifier: Apache-2.0 */
/* npy.c - see npy.h. */
#include "data/mds/npy.h"

#include "base/cleanup.h"
#include "base/file-kind.h"

#include <string.h>

static const struct {
    const char *descr;
    MdsNumber number;
} types[] = {
    {"|u1", MDS_UINT8},   {"|i1", MDS_INT8},   {"<u2", MDS_UINT16},  {"<i2", MDS_INT16},
    {"<f2", MDS_FLOAT16}, {"<u4", MDS_UINT32}, {"<i4", MDS_INT32},   {"<f4", MDS_FLOAT32},
    {"<u8", MDS_UINT64},  {"<i8", MDS_INT64},  {"<f8", MDS_FLOAT64},
};

enum { HEADER_MAX = 4096 };

/* Finds a key in the header, which is a Python dictionary, and returns the text behind the key and its colon. */
static const char *value_of(const char *header, const char *key)
{
    char quoted[32];
    (void)snprintf(quoted, sizeof(quoted), "'%s':", key);
    const char *p = strstr(header, quoted);
    if (!p)
        return NULL;
    p += strlen(quoted);
    return p + strspn(p, " ");
}

static int parse_shape(const char *p, MdsArray *array)
{
    if (!p || *p++ != '(')
        return -EINVAL;
    for (;;) {
        p += strspn(p, " ");
        if (*p == ')')
            /* A scalar, which has no dimensions, is refused. */
            return array->n_dims > 0 ? 0 : -EINVAL;
        char *end;
        errno = 0;
        unsigned long long dim = strtoull(p, &end, 10);
        if (*p < '0' || *p > '9' || errno != 0 || dim < 1 || dim > INT32_MAX ||
            array->n_dims == MDS_DIMS_MAX)
            return -EINVAL;
        array->dims[array->n_dims++] = dim;
        p = end + strspn(end, " ");
        if (*p == ',')
            p++;
        else if (*p != ')')
            return -EINVAL;
    }
}

static int parse_header(const char *source, const char *header, MdsArray *array, Error *err)
{
    const char *descr = value_of(header, "descr"), *fortran = value_of(header, "fortran_order");
    if (!descr || !fortran || *descr != '\'')
        return error_set(err, -EINVAL, "%s: its header has no descr or fortran_order", source);
    for (size_t i = 0; i < ELEMENTSOF(types); i++)
        if (strncmp(descr + 1, types[i].descr, 3) == 0 && descr[4] == '\'')
            array->number = types[i].number;
    if (array->number == MDS_NUMBER_NONE)
        return error_set(err, -EINVAL, "%s: descr %.12s is not supported", source, descr);
    if (strncmp(fortran, "False", 5) != 0)
        return error_set(err, -EINVAL, "%s: fortran_order must be False", source);
    if (parse_shape(value_of(header, "shape"), array) < 0)
        return error_set(err, -EINVAL, "%s: its shape is broken or has more than %d dimensions",
                         source, MDS_DIMS_MAX);
    return 0;
}

int npy_parse(const char *source, const void *data, size_t n_bytes, MdsArray *ret, Error *err)
{
    const uint8_t *p = data;
    char kind[128];
    if (n_bytes < 12 || memcmp(p, "\x93NUMPY", 6) != 0)
        return error_set(err, -EINVAL, "%s is not a .npy file%s", source,
                         file_kind_words(data, n_bytes, kind, sizeof(kind)));
    if (p[6] < 1 || p[6] > 3)
        return error_set(err, -EINVAL, "%s: format version %d is not known", source, p[6]);

    size_t prefix = p[6] == 1 ? 10 : 12;
    uint32_t length = 0;
    memcpy(&length, p + 8, prefix - 8);
    if (length > HEADER_MAX || length > n_bytes - prefix)
        return error_set(err, -EINVAL, "%s: a header of %u bytes in a file of %zu", source, length,
                         n_bytes);
    char header[HEADER_MAX + 1];
    memcpy(header, p + prefix, length);
    header[length] = '\0';

    MdsArray array = {0};
    int r = parse_header(source, header, &array, err);
    if (r < 0)
        return r;
    uint64_t wanted = mds_number_size(array.number);
    for (int i = 0; i < array.n_dims; i++)
        if (__builtin_mul_overflow(wanted, array.dims[i], &wanted))
            return error_set(err, -EINVAL, "%s: its shape is too large", source);
    array.values = p + prefix + length;
    array.n_bytes = n_bytes - prefix - length;
    if (wanted != array.n_bytes)
        return error_set(err, -EINVAL, "%s: %zu bytes of values, its shape needs %llu", source,
                         array.n_bytes, (unsigned long long)wanted);
    *ret = array;
    return 0;
}

int npy_format(const MdsArray *array, char **ret, size_t *ret_bytes)
{
    const char *descr = NULL;
    for (size_t i = 0; i < ELEMENTSOF(types); i++)
        if (types[i].number == array->number)
            descr = types[i].descr;
    assert(descr && array->n_dims >= 1 && array->n_dims <= MDS_DIMS_MAX);

    char header[512];
    size_t n = (size_t)snprintf(header, sizeof(header),
                                "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int i = 0; i < array->n_dims; i++)
        n += (size_t)snprintf(header + n, sizeof(header) - n, "%s%llu", i ? ", " : "",
                              (unsigned long long)array->dims[i]);
    n += (size_t)snprintf(header + n, sizeof(header) - n, "%s), }", array->n_dims == 1 ? "," : "");

    /* NumPy leaves room for the first dimension to grow to 21 digits. The values begin at a multiple of 64; blanks and
     * a newline fill the gap. */
    int digits = snprintf(NULL, 0, "%llu", (unsigned long long)array->dims[0]);
    size_t start = ROUND_UP(10 + n + (size_t)(21 - digits) + 1, (size_t)64);
    char *file = malloc(start + array->n_bytes);
    if (!file)
        return -ENOMEM;
    uint16_t length = (uint16_t)(start - 10);
    memset(file, ' ', start);
    memcpy(file, "\x93NUMPY\x01\x00", 8);
    memcpy(file + 8, &length, sizeof(length));
    memcpy(file + 10, header, n);
    file[start - 1] = '\n';
    memcpy(file + start, array->values, array->n_bytes);
    *ret = file;
    *ret_bytes = start + array->n_bytes;
    return 0;
}
