/* SPDX-License-Identifier: Apache-2.0 */
/* object.h - which objects a checkpoint consists of, and which rank writes which.
 *
 * The table of objects is a function of (parameters, chunks, size of weight files, EMA active or
 * not, plans or not). All ranks compute the same table, each fills in what it wrote, and the manifest lists it.
 *
 * Ownership: object_table_new() fills a table that object_table_clear() empties.
 * Units:     first and count are elements of the flat parameter buffer; bytes are bytes.
 * Errors:    -ENOMEM.
 * Threads:   any.
 */
#pragma once

#include "base/number/hash.h"
#include "manifest/chunk-layout.h"
#include "nn/parameters.h"

enum {
    OBJECT_KEY_MAX = 128,
    WEIGHT_FILE_BYTES = 1 << 30, /* the size of a weight file that a job gets by default */
};

/* In the order of the table. */
typedef enum ObjectKind {
    OBJECT_CONFIG,
    OBJECT_INDEX, /* only when there are several weight files */
    OBJECT_WEIGHTS,
    OBJECT_EMA_CONFIG,
    OBJECT_EMA_INDEX,
    OBJECT_EMA_WEIGHTS,
    OBJECT_MOMENTS,
    OBJECT_PLANS, /* only of a device that has plans (device_plans()) */
    OBJECT_KINDS,
} ObjectKind;

extern const char *const object_kind_name[OBJECT_KINDS];

typedef struct ObjectRecord {
    ObjectKind kind;
    int64_t part;             /* number of the weight file or of the moments' chunk, else 0 */
    char key[OBJECT_KEY_MAX]; /* inside the checkpoint's folder */
    int64_t first, count;     /* the flat range of weights and moments, else 0, 0 */
    uint64_t n_bytes;
    Hash hash;
    uint32_t crc; /* CRC-32C */
    Hash header;  /* of a weight file's bytes before its data, which reads of ranges verify by it */
} ObjectRecord;

static inline bool object_has_header(ObjectKind kind)
{
    return kind == OBJECT_WEIGHTS || kind == OBJECT_EMA_WEIGHTS;
}

typedef struct ObjectTable {
    ObjectRecord *records;
    size_t n_records;
    int64_t n_files; /* weight files of one set */
} ObjectTable;

/* weight_file_bytes: a file ends before the tensor that would make it larger. */
int object_table_new(const ParameterList *parameters, const ChunkLayout *layout,
                     uint64_t weight_file_bytes, bool ema, ObjectTable *ret);
/* Once, for the checkpoints of a device that has plans. */
void object_table_add_plans(ObjectTable *table);
void object_table_clear(ObjectTable *table);
/* The rank that writes the object. */
int object_owner(const ObjectTable *table, const ObjectRecord *record, int world_size);
/* Does the rank write an object of this kind that has elements of the chunk? */
bool object_table_needs(const ObjectTable *table, const ChunkLayout *layout, ObjectKind kind,
                        int64_t chunk, int rank, int world_size);
/* Returns the header's size in a weight file that a manifest lists; manifest_parse() refuses a file without room for
 * one. */
static inline uint64_t object_header_bytes(const ObjectRecord *o)
{
    return o->n_bytes - (uint64_t)o->count * sizeof(float);
}
/* Writes the key of the object of this kind and number. */
void object_key(ObjectKind kind, int64_t part, int64_t n_files, char key[OBJECT_KEY_MAX]);
