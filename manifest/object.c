/* SPDX-License-Identifier: Apache-2.0 */
/* object.c - see object.h. */
#include "manifest/object.h"

#include "base/cleanup.h"
#include "base/macro.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

const char *const object_kind_name[OBJECT_KINDS] = {
    "config", "index", "weights", "ema-config", "ema-index", "ema-weights", "moments", "plans",
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
    case OBJECT_PLANS:
        (void)snprintf(key, OBJECT_KEY_MAX, "plans.json");
        return;
    case OBJECT_KINDS:
        break;
    }
    assert(false);
}

/* Divides the weights into files: begins a new file before the tensor with which the file would
 * exceed max_bytes. A tensor that is larger than max_bytes has a file of its own. */
static int64_t files_plan(const ParameterList *parameters, uint64_t max_bytes, int64_t *firsts)
{
    assert(parameters->items[0].offset == 0);
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
    assert(table->n_files > 0 && firsts[0] == 0 && firsts[table->n_files - 1] < n_elements);
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
    size_t capacity =
        2 * (2 + (size_t)table.n_files) + (size_t)layout->n_chunks + 1; /* plus 1 for the plans */
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

void object_table_add_plans(ObjectTable *table)
{
    assert(table->n_records > 0 && table->records[table->n_records - 1].kind == OBJECT_MOMENTS);
    add(table, OBJECT_PLANS, 0, 0, 0); /* object_table_new() allocated space for this record */
}

void object_table_clear(ObjectTable *table)
{
    free(table->records);
    *table = (ObjectTable){0};
}

int object_owner(const ObjectTable *table, const ObjectRecord *record, int world_size)
{
    assert(world_size > 0 && record->part >= 0);
    switch (record->kind) {
    case OBJECT_WEIGHTS:
        return (int)(record->part % world_size);
    /* the EMA files are numbered after the weight files, so that the ranks share the work */
    case OBJECT_EMA_WEIGHTS:
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
