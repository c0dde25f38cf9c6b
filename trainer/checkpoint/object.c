/* object.c - see object.h. */
#include "trainer/checkpoint/object.h"

#include "base/json.h"
#include "trainer/checkpoint/format/safetensors.h"

#include <string.h>

const char *const object_kind_name[OBJECT_KINDS] = {
    "config", "index", "weights", "ema-config", "ema-index", "ema-weights", "moments",
};

void object_key(ObjectKind kind, int64_t part, int64_t n_files, char key[OBJECT_KEY_MAX])
{
    const char *folder = kind >= OBJECT_EMA_CONFIG ? "unet_ema" : "unet";
    switch (kind) {
    case OBJECT_CONFIG:
    case OBJECT_EMA_CONFIG:
        (void)snprintf(key, OBJECT_KEY_MAX, "%s/config.json", folder);
        return;
    case OBJECT_INDEX:
    case OBJECT_EMA_INDEX:
        (void)snprintf(key, OBJECT_KEY_MAX, "%s/diffusion_pytorch_model.safetensors.index.json",
                       folder);
        return;
    case OBJECT_WEIGHTS:
    case OBJECT_EMA_WEIGHTS:
        if (n_files == 1)
            (void)snprintf(key, OBJECT_KEY_MAX, "%s/diffusion_pytorch_model.safetensors", folder);
        else
            (void)snprintf(key, OBJECT_KEY_MAX,
                           "%s/diffusion_pytorch_model-%05lld-of-%05lld.safetensors", folder,
                           (long long)part + 1, (long long)n_files);
        return;
    case OBJECT_MOMENTS:
        (void)snprintf(key, OBJECT_KEY_MAX, "moments/c%06lld.bin", (long long)part);
        return;
    case OBJECT_KINDS:
        break;
    }
    assert(false);
}

/* ---- the table ---- */

/* Cuts before the tensor with which the file would exceed max_bytes; a larger tensor is alone. */
static int64_t files_plan(const ParameterList *parameters, uint64_t max_bytes, int64_t *firsts)
{
    int64_t n_files = 0, first = 0;
    for (size_t i = 0; i < parameters->n_items; i++) {
        const Parameter *p = &parameters->items[i];
        uint64_t n_bytes = (uint64_t)(p->offset + p->n_elements - first) * sizeof(float);
        if (i == 0 || (n_bytes > max_bytes && p->offset > first)) {
            first = p->offset;
            firsts[n_files++] = first;
        }
    }
    return n_files;
}

static void add(ObjectTable *table, ObjectKind kind, int64_t part, int64_t first, int64_t end)
{
    ObjectRecord *record = &table->records[table->n_records++];
    *record = (ObjectRecord){.kind = kind, .part = part, .first = first, .count = end - first};
    object_key(kind, part, table->n_files, record->key);
}

static void add_set(ObjectTable *table, ObjectKind config, const int64_t *firsts,
                    int64_t n_elements)
{
    add(table, config, 0, 0, 0);
    if (table->n_files > 1)
        add(table, config + OBJECT_INDEX - OBJECT_CONFIG, 0, 0, 0);
    for (int64_t f = 0; f < table->n_files; f++)
        add(table, config + OBJECT_WEIGHTS - OBJECT_CONFIG, f, firsts[f],
            f + 1 < table->n_files ? firsts[f + 1] : n_elements);
}

int object_table_new(const ParameterList *parameters, const ChunkLayout *layout,
                     uint64_t weight_file_bytes, bool ema, ObjectTable *ret)
{
    assert(parameters->n_items > 0 && layout->n_elements == parameters->n_elements);

    _cleanup_free_ int64_t *firsts = calloc(parameters->n_items, sizeof(*firsts));
    if (!firsts)
        return -ENOMEM;
    ObjectTable table = {.n_files = files_plan(parameters, weight_file_bytes, firsts)};
    size_t capacity = 2 * (2 + (size_t)table.n_files) + (size_t)layout->n_chunks;
    table.records = calloc(capacity, sizeof(*table.records));
    if (!table.records)
        return -ENOMEM;

    add_set(&table, OBJECT_CONFIG, firsts, layout->n_elements);
    if (ema)
        add_set(&table, OBJECT_EMA_CONFIG, firsts, layout->n_elements);
    for (int64_t c = 0; c < layout->n_chunks; c++)
        add(&table, OBJECT_MOMENTS, c, chunk_begin(layout, c), chunk_begin(layout, c + 1));
    assert(table.n_records <= capacity);
    *ret = table;
    return 0;
}

void object_table_clear(ObjectTable *table)
{
    free(table->records);
    *table = (ObjectTable){0};
}

int object_owner(const ObjectTable *table, const ObjectRecord *record, int world_size)
{
    switch (record->kind) {
    case OBJECT_WEIGHTS:
        return (int)(record->part % world_size);
    case OBJECT_EMA_WEIGHTS: /* goes on where the weights end, so that ranks share the work */
        return (int)((table->n_files + record->part) % world_size);
    case OBJECT_MOMENTS:
        return chunk_owner(record->part, world_size);
    default:
        return 0;
    }
}

bool object_table_needs(const ObjectTable *table, const ChunkLayout *layout, ObjectKind kind,
                        int64_t chunk, int rank, int world_size)
{
    for (size_t i = 0; i < table->n_records; i++) {
        const ObjectRecord *o = &table->records[i];
        if (o->kind == kind && o->first < chunk_begin(layout, chunk + 1) &&
            o->first + o->count > chunk_begin(layout, chunk) &&
            object_owner(table, o, world_size) == rank)
            return true;
    }
    return false;
}

/* ---- weight files ---- */

/* The parameters that lie in the record's range: [*ret_first, *ret_first + return value). */
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
    SafetensorsEntry e = {.name = (char *)(uintptr_t)p->name, /* borrowed, read only */
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
    int r = safetensors_open(source, header, n_bytes, record->n_bytes, &file, err);
    if (r < 0)
        return r;

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
