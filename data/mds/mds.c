/* SPDX-License-Identifier: Apache-2.0 */
/* mds.c - see mds.h. */
#include "data/mds/mds.h"

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/number/half.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the format is read and written in place");

static const struct {
    const char *name;
    MdsNumber number;
    size_t size;
} numbers[] = {
    {"uint8", MDS_UINT8, 1}, {"int8", MDS_INT8, 1},       {"uint16", MDS_UINT16, 2},
    {"int16", MDS_INT16, 2}, {"float16", MDS_FLOAT16, 2}, {"uint32", MDS_UINT32, 4},
    {"int32", MDS_INT32, 4}, {"float32", MDS_FLOAT32, 4}, {"uint64", MDS_UINT64, 8},
    {"int64", MDS_INT64, 8}, {"float64", MDS_FLOAT64, 8},
};

size_t mds_number_size(MdsNumber number)
{
    for (size_t i = 0; i < ELEMENTSOF(numbers); i++)
        if (numbers[i].number == number)
            return numbers[i].size;
    return 0;
}

const char *mds_number_name(MdsNumber number)
{
    for (size_t i = 0; i < ELEMENTSOF(numbers); i++)
        if (numbers[i].number == number)
            return numbers[i].name;
    return "?";
}

static MdsNumber find_number(const char *name)
{
    for (size_t i = 0; i < ELEMENTSOF(numbers); i++)
        if (strcmp(numbers[i].name, name) == 0)
            return numbers[i].number;
    return MDS_NUMBER_NONE;
}

/* Parses the dimensions of an ndarray encoding, for example "4,16,16". */
static int parse_dims(const char *text, MdsColumn *column)
{
    uint64_t n_elements = 1;
    for (const char *p = text;; p++) {
        char *end;
        errno = 0;
        unsigned long long dim = strtoull(p, &end, 10);
        if (end == p || *p < '0' || *p > '9' || errno != 0 || dim < 1 || dim > UINT32_MAX ||
            column->n_dims == MDS_DIMS_MAX)
            return -EINVAL;
        if (__builtin_mul_overflow(n_elements, (uint64_t)dim, &n_elements) ||
            n_elements > MDS_SAMPLE_BYTES_MAX)
            return -EINVAL;
        column->dims[column->n_dims++] = dim;
        p = end;
        if (*p == '\0')
            break;
        if (*p != ',')
            return -EINVAL;
    }
    uint64_t n_bytes = n_elements * mds_number_size(column->number);
    if (n_bytes > MDS_SAMPLE_BYTES_MAX)
        return -EINVAL;
    column->size = (uint32_t)n_bytes;
    return 0;
}

static int init_ndarray(const char *config, MdsColumn *column)
{
    column->kind = MDS_NDARRAY;
    if (*config == '\0')
        return 0;

    char number[16];
    size_t length = strcspn(config, ":");
    if (length >= sizeof(number))
        return -EINVAL;
    memcpy(number, config, length);
    number[length] = '\0';
    column->number = find_number(number);
    if (column->number == MDS_NUMBER_NONE)
        return -EINVAL;
    return config[length] == ':' ? parse_dims(config + length + 1, column) : 0;
}

static bool one_of(const char *text, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], text) == 0)
            return true;
    return false;
}

int mds_column_init(const char *name, const char *encoding, MdsColumn *ret, Error *err)
{
    static const char *const texts[] = {"str", "json", "str_int", "str_float", "str_decimal"};
    static const char *const raws[] = {"bytes",     "pil",        "jpeg",
                                       "png",       "jpeg_array", "jpegarray",
                                       "list[pil]", "list[jpeg]", "list[png]"};
    MdsColumn column = {0};
    if (strlen(name) > MDS_NAME_MAX || strlen(encoding) > MDS_NAME_MAX || *name == '\0')
        return error_set(err, -EINVAL, "column \"%.100s\": name or encoding \"%.100s\" is too long",
                         name, encoding);
    memcpy(column.name, name, strlen(name) + 1);
    memcpy(column.encoding, encoding, strlen(encoding) + 1);

    if (strcmp(encoding, "pkl") == 0)
        return error_set(err, -EINVAL,
                         "column %s: encoding pkl is refused, reading it would run code", name);
    if (strncmp(encoding, "ndarray", 7) == 0 && (encoding[7] == '\0' || encoding[7] == ':')) {
        if (init_ndarray(encoding + 7 + (encoding[7] == ':'), &column) < 0)
            return error_set(err, -EINVAL,
                             "column %s: \"%s\" is not an ndarray encoding that can be handled",
                             name, encoding);
    } else if (one_of(encoding, texts, ELEMENTSOF(texts))) {
        column.kind = MDS_TEXT;
    } else if (one_of(encoding, raws, ELEMENTSOF(raws))) {
        column.kind = MDS_BYTES;
    } else {
        column.kind = MDS_SCALAR;
        column.number = strcmp(encoding, "int") == 0 ? MDS_INT64 : find_number(encoding);
        column.size = (uint32_t)mds_number_size(column.number);
        if (column.number == MDS_NUMBER_NONE)
            return error_set(err, -EINVAL, "column %s: encoding \"%s\" is not known", name,
                             encoding);
    }
    *ret = column;
    return 0;
}

static void count_variable(MdsSchema *schema)
{
    schema->n_variable = 0;
    for (size_t i = 0; i < schema->n_columns; i++)
        schema->n_variable += schema->columns[i].size == 0;
}

static int compare_columns(const void *a, const void *b)
{
    /* Texts in UTF-8 that are sorted by bytes are also sorted by code points. */
    return strcmp(((const MdsColumn *)a)->name, ((const MdsColumn *)b)->name);
}

static int check_columns(MdsSchema *schema, const char *source, Error *err)
{
    for (size_t i = 1; i < schema->n_columns; i++)
        for (size_t k = 0; k < i; k++)
            if (compare_columns(&schema->columns[i], &schema->columns[k]) == 0)
                return error_set(err, -EINVAL, "%s: column_names: %s is there twice", source,
                                 schema->columns[i].name);
    count_variable(schema);
    return 0;
}

int mds_schema_init(const MdsColumn *columns, size_t n_columns, MdsSchema *ret, Error *err)
{
    if (n_columns < 1 || n_columns > MDS_COLUMNS_MAX)
        return error_set(err, -EINVAL, "%zu columns, 1 to %d are possible", n_columns,
                         MDS_COLUMNS_MAX);
    MdsSchema schema = {.n_columns = n_columns};
    memcpy(schema.columns, columns, n_columns * sizeof(columns[0]));
    qsort(schema.columns, n_columns, sizeof(columns[0]), compare_columns);
    int r = check_columns(&schema, "columns", err);
    if (r < 0)
        return r;
    *ret = schema;
    return 0;
}

static int parse_column(const char *source, size_t i, json_t *name, json_t *encoding, json_t *size,
                        MdsColumn *ret, Error *err)
{
    if (!json_is_string(name) || !json_is_string(encoding) ||
        strlen(json_string_value(name)) != json_string_length(name))
        return error_set(err, -EINVAL, "%s: column %zu has no name or encoding", source, i);
    int r = mds_column_init(json_string_value(name), json_string_value(encoding), ret, err);
    if (r < 0)
        return error_prefix(err, r, "%s", source);

    /* A size of 0 means a variable size, as in the reader that defined the format. */
    json_int_t declared = json_integer_value(size);
    if (!json_is_null(size) && !json_is_integer(size))
        return error_set(err, -EINVAL, "%s: column_sizes: column %s has no number", source,
                         ret->name);
    if (declared != (json_int_t)ret->size)
        return error_set(err, -EINVAL,
                         "%s: column_sizes: column %s (%s) has %lld, its encoding says %u", source,
                         ret->name, ret->encoding, (long long)declared, ret->size);
    return 0;
}

int mds_schema_parse(const char *source, json_t *config, MdsSchema *ret, Error *err)
{
    json_t *names, *encodings, *sizes;
    JsonReader j = json_open(source, config, JSON_ANY_KEYS, err);
    if (!json_get_array(&j, "column_names", JSON_REQUIRED, MDS_COLUMNS_MAX, &names) ||
        !json_get_array(&j, "column_encodings", JSON_REQUIRED, MDS_COLUMNS_MAX, &encodings) ||
        !json_get_array(&j, "column_sizes", JSON_REQUIRED, MDS_COLUMNS_MAX, &sizes))
        return json_close(&j);

    MdsSchema schema = {.n_columns = json_array_size(names)};
    if (schema.n_columns < 1 || json_array_size(encodings) != schema.n_columns ||
        json_array_size(sizes) != schema.n_columns)
        return error_set(err, -EINVAL,
                         "%s: column_names, column_encodings and column_sizes differ in length",
                         source);
    for (size_t i = 0; i < schema.n_columns; i++) {
        int r = parse_column(source, i, json_array_get(names, i), json_array_get(encodings, i),
                             json_array_get(sizes, i), &schema.columns[i], err);
        if (r < 0)
            return r;
    }
    int r = check_columns(&schema, source, err);
    if (r < 0)
        return r;
    *ret = schema;
    return 0;
}

int mds_schema_find(const MdsSchema *schema, const char *name, Error *err)
{
    char all[320] = "";
    for (size_t i = 0; i < schema->n_columns; i++) {
        if (strcmp(schema->columns[i].name, name) == 0)
            return (int)i;
        size_t used = strlen(all);
        (void)snprintf(all + used, sizeof(all) - used, "%s%s", i ? ", " : "",
                       schema->columns[i].name); /* a long list may be cut */
    }
    return error_set(err, -ENOENT, "no column \"%.60s\"; there are %s", name, all);
}

int mds_sample_split(const MdsSchema *schema, const void *sample, size_t n_bytes, MdsField *fields,
                     Error *err)
{
    const uint8_t *p = sample;
    size_t head = 4 * schema->n_variable;
    if (n_bytes < head)
        return error_set(err, -EBADMSG, "%zu bytes do not hold the sizes of %zu columns", n_bytes,
                         schema->n_variable);

    size_t at = head, variable = 0;
    for (size_t i = 0; i < schema->n_columns; i++) {
        uint32_t size = schema->columns[i].size;
        if (size == 0)
            memcpy(&size, p + 4 * variable++, 4);
        if (size > n_bytes - at)
            return error_set(err, -EBADMSG, "column %s: %u bytes at offset %zu of a sample of %zu",
                             schema->columns[i].name, size, at, n_bytes);
        fields[i] = (MdsField){p + at, size};
        at += size;
    }
    if (at != n_bytes)
        return error_set(err, -EBADMSG, "%zu bytes behind the last column", n_bytes - at);
    return 0;
}

/* Reads the shape in front of the values: a byte with the number of dimensions and their width in bytes, then the
 * dimensions. */
static int decode_shape(const uint8_t **p, size_t *left, MdsArray *array)
{
    if (*left < 1)
        return -EBADMSG;
    int n_dims = **p >> 2;
    size_t width = (size_t)1 << (**p & 3);
    (*p)++, (*left)--;
    if (n_dims < 1 || n_dims > MDS_DIMS_MAX || *left < (size_t)n_dims * width)
        return -EBADMSG;
    for (int i = 0; i < n_dims; i++) {
        uint64_t dim = 0;
        memcpy(&dim, *p, width);
        *p += width, *left -= width;
        if (dim < 1 || dim > MDS_SAMPLE_BYTES_MAX)
            return -EBADMSG;
        array->dims[i] = dim;
    }
    array->n_dims = n_dims;
    return 0;
}

int mds_array_decode(const MdsColumn *column, MdsField field, MdsArray *ret, Error *err)
{
    assert(column->kind == MDS_NDARRAY);
    const uint8_t *p = field.data;
    size_t left = field.n_bytes;
    MdsArray array = {.number = column->number, .n_dims = column->n_dims};
    memcpy(array.dims, column->dims, sizeof(array.dims));

    if (array.number == MDS_NUMBER_NONE) {
        if (left < 1 || mds_number_size(*p) == 0)
            return error_set(err, -EBADMSG, "column %s: no type of an array begins it",
                             column->name);
        array.number = *p++;
        left--;
    }
    if (array.n_dims == 0 && decode_shape(&p, &left, &array) < 0)
        return error_set(err, -EBADMSG, "column %s: its array's shape is broken", column->name);

    uint64_t n_bytes = mds_number_size(array.number);
    for (int i = 0; i < array.n_dims; i++)
        if (__builtin_mul_overflow(n_bytes, array.dims[i], &n_bytes))
            return error_set(err, -EBADMSG, "column %s: its array's shape is too large",
                             column->name);
    if (n_bytes != left)
        return error_set(err, -EBADMSG, "column %s: %zu bytes of values, its shape needs %" PRIu64,
                         column->name, left, n_bytes);
    array.values = p;
    array.n_bytes = left;
    *ret = array;
    return 0;
}

static int refuse_value(const MdsColumn *column, MdsField field, int r, Error *err)
{
    return error_set(err, r, "column %s (%s): a value of %zu bytes cannot be used as a number",
                     column->name, column->encoding, field.n_bytes);
}

/* Copies the text of a str_* column to a C string. Returns false if the text is empty, too long, or holds a NUL. */
static bool number_text(MdsField field, char *text, size_t size)
{
    if (field.n_bytes == 0 || field.n_bytes >= size || memchr(field.data, '\0', field.n_bytes))
        return false;
    memcpy(text, field.data, field.n_bytes);
    text[field.n_bytes] = '\0';
    return true;
}

bool mds_is_float(MdsNumber number)
{
    return number == MDS_FLOAT16 || number == MDS_FLOAT32 || number == MDS_FLOAT64;
}

int mds_integer_decode(const MdsColumn *column, MdsField field, int64_t *ret, Error *err)
{
    if (strcmp(column->encoding, "str_int") == 0) {
        char text[32], *end;
        if (!number_text(field, text, sizeof(text)))
            return refuse_value(column, field, -EBADMSG, err);
        errno = 0;
        long long value = strtoll(text, &end, 10);
        if (errno == ERANGE)
            return refuse_value(column, field, -ERANGE, err);
        if (*end != '\0')
            return refuse_value(column, field, -EBADMSG, err);
        *ret = value;
        return 0;
    }
    if (column->kind != MDS_SCALAR || mds_is_float(column->number) || field.n_bytes != column->size)
        return refuse_value(column, field, -EBADMSG, err);

    uint64_t word = 0;
    memcpy(&word, field.data, field.n_bytes);
    unsigned shift = 64 - 8 * column->size;
    bool is_signed = column->number == MDS_INT8 || column->number == MDS_INT16 ||
                     column->number == MDS_INT32 || column->number == MDS_INT64;
    if (!is_signed && word > INT64_MAX)
        return refuse_value(column, field, -ERANGE, err);
    *ret = is_signed ? (int64_t)(word << shift) >> shift : (int64_t)word;
    return 0;
}

int mds_double_decode(const MdsColumn *column, MdsField field, double *ret, Error *err)
{
    if (column->kind == MDS_TEXT && strncmp(column->encoding, "str_", 4) == 0) {
        char text[64], *end;
        if (!number_text(field, text, sizeof(text)))
            return refuse_value(column, field, -EBADMSG, err);
        double value = strtod(text, &end);
        if (*end != '\0')
            return refuse_value(column, field, -EBADMSG, err);
        *ret = value;
        return 0;
    }
    if (column->kind != MDS_SCALAR || field.n_bytes != column->size)
        return refuse_value(column, field, -EBADMSG, err);

    if (column->number == MDS_FLOAT16) {
        uint16_t half;
        memcpy(&half, field.data, sizeof(half));
        *ret = (double)half_to_float(half);
    } else if (column->number == MDS_FLOAT32) {
        float value;
        memcpy(&value, field.data, sizeof(value));
        *ret = (double)value;
    } else if (column->number == MDS_FLOAT64) {
        memcpy(ret, field.data, sizeof(*ret));
    } else if (column->number == MDS_UINT64) {
        uint64_t value;
        memcpy(&value, field.data, sizeof(value));
        *ret = (double)value;
    } else {
        int64_t value;
        int r = mds_integer_decode(column, field, &value, err);
        if (r < 0)
            return r;
        *ret = (double)value;
    }
    return 0;
}
