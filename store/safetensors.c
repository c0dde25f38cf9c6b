/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - see safetensors.h.
 *
 * A file has the length n of its header (8 bytes), n bytes of JSON, perhaps padded with spaces, and
 * the tensors' bytes without holes. No value of a header is trusted: each number is
 * checked against the file's length before it is used.
 */
#include "store/safetensors.h"

#include "base/file-kind.h"
#include "base/json/json.h"

#include <endian.h>
#include <string.h>

static const struct {
    const char *name;
    int bytes;
    SafetensorsType type;
} dtypes[] = {
    {"F32", 4, SAFETENSORS_F32},           {"F16", 2, SAFETENSORS_F16},
    {"BF16", 2, SAFETENSORS_BF16},         {"I64", 8, SAFETENSORS_INTEGER},
    {"I32", 4, SAFETENSORS_INTEGER},       {"I16", 2, SAFETENSORS_INTEGER},
    {"I8", 1, SAFETENSORS_INTEGER},        {"U64", 8, SAFETENSORS_INTEGER},
    {"U32", 4, SAFETENSORS_INTEGER},       {"U16", 2, SAFETENSORS_INTEGER},
    {"U8", 1, SAFETENSORS_INTEGER},        {"BOOL", 1, SAFETENSORS_INTEGER},
    {"F64", 8, SAFETENSORS_OTHER},         {"C64", 8, SAFETENSORS_OTHER},
    {"F8_E4M3", 1, SAFETENSORS_OTHER},     {"F8_E5M2", 1, SAFETENSORS_OTHER},
    {"F8_E8M0", 1, SAFETENSORS_OTHER},     {"F8_E4M3FNUZ", 1, SAFETENSORS_OTHER},
    {"F8_E5M2FNUZ", 1, SAFETENSORS_OTHER},
};
/* The types from the enum's first to SAFETENSORS_BF16 can also be written. */
enum { WRITTEN_TYPES = SAFETENSORS_BF16 + 1 };

struct Safetensors {
    SafetensorsEntry *entries;
    size_t n;
};

/* Explains a bad header length. A file that begins neither as safetensors nor as another known format is damaged, or
 * was never a safetensors file. */
static int refuse_length(const char *source, const char *first, size_t n_bytes, uint64_t length,
                         uint64_t file_bytes, Error *err)
{
    const bool has_header = n_bytes > sizeof(length) && first[sizeof(length)] == '{';
    const char *kind = has_header ? NULL : file_kind_of(first, n_bytes);
    if (kind)
        return error_set(err, -EINVAL, "%s: is not a safetensors file but %s%s", source, kind,
                         first[0] == 'P' || first[0] == '\x80'
                             ? ", as torch.save() writes; convert it to safetensors"
                             : "");
    if (has_header && length <= file_bytes - sizeof(length))
        return error_set(err, -EINVAL,
                         "%s: a safetensors header of %llu bytes, at most %d are read", source,
                         (unsigned long long)length, SAFETENSORS_HEADER_MAX);
    return error_set(err, has_header ? -EBADMSG : -EINVAL, "%s: %s of %llu bytes in a file of %llu",
                     source,
                     has_header ? "a safetensors header"
                                : "is not a safetensors file, whose header would be one",
                     (unsigned long long)length, (unsigned long long)file_bytes);
}

int safetensors_header_bytes(const char *source, const void *first, size_t n_bytes,
                             uint64_t file_bytes, size_t *ret, Error *err)
{
    uint64_t length;
    if (file_bytes < sizeof(length))
        return error_set(err, -EBADMSG, "%s: %llu bytes are too few for a safetensors file", source,
                         (unsigned long long)file_bytes);
    assert(n_bytes >= sizeof(length));
    memcpy(&length, first, sizeof(length));
    length = le64toh(length);
    if (length > SAFETENSORS_HEADER_MAX || length > file_bytes - sizeof(length))
        return refuse_length(source, first, n_bytes, length, file_bytes, err);
    *ret = sizeof(length) + (size_t)length;
    return 0;
}

static int bad_tensor(const char *source, const char *name, const char *what, Error *err)
{
    return error_set(err, -EBADMSG, "%s: tensor %.100s: %s", source, name, what);
}

static int read_shape(const char *source, const json_t *shape, SafetensorsEntry *e, Error *err)
{
    size_t n_dims = json_array_size(shape);
    if (!json_is_array(shape) || n_dims > SAFETENSORS_DIMS_MAX)
        return bad_tensor(source, e->name, "shape is not an array of at most 8 sizes", err);

    e->n_dims = (int)n_dims;
    e->n_elements = 1;
    for (size_t i = 0; i < n_dims; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return bad_tensor(source, e->name, "shape holds something else than sizes", err);
        e->dims[i] = json_integer_value(dim);
        if (__builtin_mul_overflow(e->n_elements, e->dims[i], &e->n_elements))
            return bad_tensor(source, e->name, "shape has too many elements", err);
    }
    return 0;
}

/* Reads data_offsets, which are relative to the end of the header, at data_begin. */
static int read_offsets(const char *source, const json_t *offsets, uint64_t data_begin,
                        uint64_t file_bytes, int element_bytes, SafetensorsEntry *e, Error *err)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return bad_tensor(source, e->name, "data_offsets are not two integers", err);

    int64_t b = json_integer_value(begin), n = json_integer_value(end);
    if (b < 0 || n < b || (uint64_t)n > file_bytes - data_begin)
        return bad_tensor(source, e->name, "data_offsets lie outside of the file", err);
    e->offset = data_begin + (uint64_t)b;
    e->n_bytes = (uint64_t)(n - b);

    int64_t expected;
    if (__builtin_mul_overflow(e->n_elements, (int64_t)element_bytes, &expected) ||
        (uint64_t)expected != e->n_bytes)
        return bad_tensor(source, e->name, "data_offsets do not fit dtype and shape", err);
    return 0;
}

static int read_entry(const char *source, const char *name, const json_t *value,
                      uint64_t data_begin, uint64_t file_bytes, SafetensorsTypes types,
                      SafetensorsEntry *e, Error *err)
{
    e->name = strdup(name);
    if (!e->name)
        return error_set(err, -ENOMEM, "%s: out of memory", source);
    if (json_object_size(value) != 3)
        return bad_tensor(source, name, "expected dtype, shape and data_offsets", err);

    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    const size_t n_types = types == SAFETENSORS_FLOATS ? WRITTEN_TYPES : ELEMENTSOF(dtypes);
    size_t type = 0;
    while (dtype && type < n_types && strcmp(dtype, dtypes[type].name) != 0)
        type++;
    if (!dtype || type == n_types)
        return error_set(err, dtype ? -EINVAL : -EBADMSG,
                         "%s: tensor %.100s: dtype %.20s is not F32, F16 or BF16", source, name,
                         dtype ? dtype : "(none)");
    e->type = dtypes[type].type;
    e->dtype = dtypes[type].name;

    int r = read_shape(source, json_object_get(value, "shape"), e, err);
    if (r < 0)
        return r;
    return read_offsets(source, json_object_get(value, "data_offsets"), data_begin, file_bytes,
                        dtypes[type].bytes, e, err);
}

static int compare_offsets(const void *a, const void *b)
{
    const SafetensorsEntry *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes; /* empty tensors come first */
}

static int check_contiguous(const char *source, const Safetensors *file, uint64_t data_begin,
                            uint64_t file_bytes, Error *err)
{
    uint64_t at = data_begin;
    for (size_t i = 0; i < file->n; i++) {
        const SafetensorsEntry *e = &file->entries[i];
        if (e->offset != at)
            return bad_tensor(source, e->name,
                              e->offset > at ? "there is a hole before it"
                                             : "it overlaps the tensor before it",
                              err);
        at += e->n_bytes;
    }
    if (at != file_bytes)
        return error_set(err, -EBADMSG, "%s: the file has %llu bytes, its tensors end at %llu",
                         source, (unsigned long long)file_bytes, (unsigned long long)at);
    return 0;
}

int safetensors_open(const char *source, const void *header, size_t n_bytes, uint64_t file_bytes,
                     SafetensorsTypes types, Safetensors **ret, Error *err)
{
    size_t data_begin = 0;
    if (n_bytes < sizeof(uint64_t) || file_bytes < n_bytes)
        return error_set(err, -EBADMSG, "%s: %zu bytes are too few for a safetensors header",
                         source, n_bytes);
    int r = safetensors_header_bytes(source, header, MIN(n_bytes, (size_t)SAFETENSORS_FIRST_BYTES),
                                     file_bytes, &data_begin, err);
    if (r < 0)
        return r;
    if (n_bytes < data_begin)
        return error_set(err, -EBADMSG, "%s: %zu of the header's %zu bytes are there", source,
                         n_bytes, data_begin);

    const char *text = (const char *)header + sizeof(uint64_t);
    size_t length = data_begin - sizeof(uint64_t);
    _cleanup_json_ json_t *root = NULL;
    if (length == 0 || text[0] != '{')
        return error_set(err, -EBADMSG, "%s: the header does not begin with {", source);
    r = json_parse_bounded(source, text, length, SAFETENSORS_VALUES_MAX, &root, err);
    if (r < 0)
        return error_prefix(err, r == -EINVAL ? -EBADMSG : r, "safetensors header");
    if (json_object_size(root) > SAFETENSORS_TENSORS_MAX + 1) /* one more for __metadata__ */
        return error_set(err, -EBADMSG, "%s: more than %d tensors", source,
                         SAFETENSORS_TENSORS_MAX);

    _cleanup_(safetensors_freep) Safetensors *file = calloc(1, sizeof(*file));
    if (file)
        file->entries = calloc(json_object_size(root) + 1, sizeof(*file->entries));
    if (!file || !file->entries)
        return error_set(err, -ENOMEM, "%s: out of memory", source);

    const char *name;
    json_t *value;
    json_object_foreach (root, name, value) {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        r = read_entry(source, name, value, data_begin, file_bytes, types,
                       &file->entries[file->n++], err);
        if (r < 0)
            return r;
    }
    if (file->n > 0)
        qsort(file->entries, file->n, sizeof(*file->entries), compare_offsets);
    r = check_contiguous(source, file, data_begin, file_bytes, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(file);
    return 0;
}

int safetensors_read(Store *store, const char *key, const char *source, uint64_t file_bytes,
                     SafetensorsTypes types, Safetensors **ret, Error *err)
{
    char first[SAFETENSORS_FIRST_BYTES];
    const size_t n_first = MIN(file_bytes, sizeof(first));
    size_t n = 0;
    int r = n_first == 0 ? 0 : store_get_range(store, key, 0, n_first, first, err);
    if (r == 0)
        r = safetensors_header_bytes(source, first, n_first, file_bytes, &n, err);
    if (r < 0)
        return r;
    _cleanup_free_ char *header = malloc(n);
    if (!header)
        return error_set(err, -ENOMEM, "%s: out of memory", source);
    r = store_get_range(store, key, 0, n, header, err);
    return r < 0 ? r : safetensors_open(source, header, n, file_bytes, types, ret, err);
}

Safetensors *safetensors_free(Safetensors *file)
{
    if (!file)
        return NULL;
    for (size_t i = 0; i < file->n; i++)
        free(file->entries[i].name);
    free(file->entries);
    free(file);
    return NULL;
}

size_t safetensors_count(const Safetensors *file) { return file->n; }

const SafetensorsEntry *safetensors_at(const Safetensors *file, size_t i)
{
    assert(i < file->n);
    return &file->entries[i];
}

const SafetensorsEntry *safetensors_find(const Safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->n; i++)
        if (strcmp(file->entries[i].name, name) == 0)
            return &file->entries[i];
    return NULL;
}

/* ---- writing ---- */

static json_t *entry_json(SafetensorsEntry *e, uint64_t *at)
{
    assert(e->n_dims >= 0 && e->n_dims <= SAFETENSORS_DIMS_MAX && e->type != SAFETENSORS_INTEGER);
    json_t *shape = json_array();
    e->n_elements = 1;
    for (int i = 0; i < e->n_dims; i++) {
        assert(e->dims[i] >= 0);
        e->n_elements *= e->dims[i];
        if (json_array_append_new(shape, json_integer(e->dims[i])) < 0) {
            json_decref(shape);
            return NULL;
        }
    }
    e->n_bytes = (uint64_t)e->n_elements * (uint64_t)dtypes[e->type].bytes;
    e->offset = *at; /* relative to the data; the header's length is added later */
    *at += e->n_bytes;
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtypes[e->type].name, "shape", shape,
                     "data_offsets", (json_int_t)e->offset, (json_int_t)*at);
}

int safetensors_header(SafetensorsEntry *entries, size_t n, char **ret, size_t *ret_bytes,
                       Error *err)
{
    _cleanup_json_ json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (json_object_get(root, entries[i].name))
            return error_set(err, -EINVAL, "tensor %s is there twice", entries[i].name);
        if (json_object_set_new(root, entries[i].name, entry_json(&entries[i], &at)) < 0)
            return error_set(err, -ENOMEM, "safetensors header: out of memory");
    }

    _cleanup_free_ char *text = json_dumps(root, JSON_COMPACT);
    if (!text)
        return error_set(err, -ENOMEM, "safetensors header: out of memory");
    size_t length = strlen(text), padded = ROUND_UP(length, 8);
    if (padded > SAFETENSORS_HEADER_MAX)
        return error_set(err, -E2BIG, "safetensors header: %zu bytes, at most %d are allowed",
                         padded, SAFETENSORS_HEADER_MAX);

    char *header = malloc(sizeof(uint64_t) + padded);
    if (!header)
        return error_set(err, -ENOMEM, "safetensors header: out of memory");
    uint64_t le = htole64(padded);
    memcpy(header, &le, sizeof(le));
    memcpy(header + sizeof(le), text, length);
    memset(header + sizeof(le) + length, ' ', padded - length);

    *ret = header;
    *ret_bytes = sizeof(le) + padded;
    for (size_t i = 0; i < n; i++)
        entries[i].offset += *ret_bytes;
    return 0;
}
