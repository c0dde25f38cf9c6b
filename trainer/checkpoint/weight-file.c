/* SPDX-License-Identifier: Apache-2.0 */
/* weight-file.c - see weight-file.h. */
#include "trainer/checkpoint/weight-file.h"

#include "base/json/json.h"
#include "protocol/manifest-limits.h"
#include "store/safetensors.h"

#include <string.h>

static_assert((int)SAFETENSORS_TENSORS_MAX >= (int)MANIFEST_TENSORS_MAX, "one file may hold all");

/* Returns the number of parameters in the record's range; the first one has the index *ret_first. */
static size_t parameters_in(const ParameterList *parameters, const ObjectRecord *record,
                            size_t *ret_first)
{
    size_t first = 0, n = 0;
    while (first < parameters->n_items && parameters->items[first].offset < record->first)
        first++;
    while (first + n < parameters->n_items &&
           parameters->items[first + n].offset < record->first + record->count)
        n++;
    *ret_first = first;
    return n;
}

static SafetensorsEntry entry_of(const Parameter *p)
{
    SafetensorsEntry e = {.name = (char *)(uintptr_t)p->name, /* borrowed, only read */
                          .type = SAFETENSORS_F32,
                          .n_dims = p->n_dims};
    for (int i = 0; i < p->n_dims; i++)
        e.dims[i] = p->dims[i];
    return e;
}

int weight_file_header(const ParameterList *parameters, const ObjectRecord *record, char **ret,
                       size_t *ret_bytes, Error *err)
{
    size_t first, n = parameters_in(parameters, record, &first);
    _cleanup_free_ SafetensorsEntry *entries = calloc(n, sizeof(*entries));
    if (!entries)
        return error_set(err, -ENOMEM, "%s: out of memory", record->key);
    for (size_t i = 0; i < n; i++)
        entries[i] = entry_of(&parameters->items[first + i]);
    return safetensors_header(entries, n, ret, ret_bytes, err);
}

int weight_file_check(const char *source, const ParameterList *parameters,
                      const ObjectRecord *record, const void *header, size_t n_bytes, Error *err)
{
    _cleanup_(safetensors_freep) Safetensors *file = NULL;
    int r =
        safetensors_open(source, header, n_bytes, record->n_bytes, SAFETENSORS_FLOATS, &file, err);
    if (r < 0) /* this program wrote the file, so an invalid file is damaged */
        return r == -EINVAL ? error_prefix(err, -EBADMSG, "damaged") : r;

    size_t first, n = parameters_in(parameters, record, &first);
    if (safetensors_count(file) != n)
        return error_set(err, -EBADMSG, "%s: %zu tensors, the model has %zu there", source,
                         safetensors_count(file), n);
    for (size_t i = 0; i < n; i++) {
        const Parameter *p = &parameters->items[first + i];
        const SafetensorsEntry *e = safetensors_at(file, i);
        SafetensorsEntry wanted = entry_of(p);
        if (strcmp(e->name, p->name) != 0)
            return error_set(err, -EBADMSG, "%s: tensor %.100s lies where the model has %s", source,
                             e->name, p->name);
        if (e->type != wanted.type || e->n_dims != wanted.n_dims ||
            memcmp(e->dims, wanted.dims, sizeof(e->dims)) != 0)
            return error_set(err, -EBADMSG,
                             "%s: tensor %s has another shape or type than the "
                             "model's",
                             source, p->name);
        if (e->offset != n_bytes + (uint64_t)(p->offset - record->first) * sizeof(float))
            return error_set(err, -EBADMSG, "%s: tensor %s is not where it should be", source,
                             p->name);
    }
    return 0;
}

int weight_index_format(const ParameterList *parameters, const ObjectTable *table, char **ret)
{
    _cleanup_json_ json_t *map = json_object();
    for (size_t i = 0; i < table->n_records; i++) {
        const ObjectRecord *record = &table->records[i];
        if (record->kind != OBJECT_WEIGHTS)
            continue;
        const char *file = strrchr(record->key, '/') + 1;
        size_t first, n = parameters_in(parameters, record, &first);
        for (size_t k = first; k < first + n; k++)
            if (json_object_set_new(map, parameters->items[k].name, json_string(file)) < 0)
                return -ENOMEM;
    }
    _cleanup_json_ json_t *root =
        json_pack("{s:{s:I}, s:O}", "metadata", "total_size",
                  (json_int_t)parameters->n_elements * (json_int_t)sizeof(float), "weight_map",
                  map);
    char *text = json_dumps(root, JSON_INDENT(2));
    if (!text)
        return -ENOMEM;
    *ret = text;
    return 0;
}
