/* SPDX-License-Identifier: Apache-2.0 */
/* object.h - the objects of a checkpoint, and which rank writes which of them.
 *
 * The table of objects is a function of these: the parameters, the chunks, the size of weight files, whether the EMA is
 * active, and whether there are plans. All ranks compute the same table, each rank fills in the records of the objects
 * that it wrote, and the manifest lists the records.
 *
 * Ownership: object_table_new() fills a table that object_table_clear() empties.
 * Units:     first and count are elements of the flat parameter buffer; bytes are bytes.
 * Errors:    -ENOMEM.
 */
#pragma once

#include "base/number/hash.h"
#include "manifest/chunk-layout.h"
#include "nn/parameters.h"

enum {
    OBJECT_KEY_MAX = 128,
    WEIGHT_FILE_BYTES = 1 << 30, /* the default size of a job's weight files, in bytes */
};

/* The kinds of objects, in the order of the table. */
typedef enum ObjectKind {
    OBJECT_CONFIG,
    OBJECT_INDEX, /* only when there are several weight files */
    OBJECT_WEIGHTS,
    OBJECT_EMA_CONFIG,
    OBJECT_EMA_INDEX,
    OBJECT_EMA_WEIGHTS,
    OBJECT_MOMENTS,
    OBJECT_PLANS, /* only if the device has plans (device_plans()) */
    OBJECT_KINDS,
} ObjectKind;

extern const char *const object_kind_name[OBJECT_KINDS];

typedef struct ObjectRecord {
    ObjectKind kind;
    int64_t part; /* number of the weight file, or of the chunk of the moments; else 0 */
    char key[OBJECT_KEY_MAX]; /* key of the object inside the checkpoint's folder */
    /* the object's range of the flat buffer, for weights and moments; else 0, 0 */
    int64_t first, count;
    uint64_t n_bytes;
    Hash hash;
    uint32_t crc; /* CRC-32C */
    /* hash of the bytes of a weight file that precede its data; a read of a range verifies those
     * bytes by this hash */
    Hash header;
} ObjectRecord;

static inline bool object_has_header(ObjectKind kind)
{
    return kind == OBJECT_WEIGHTS || kind == OBJECT_EMA_WEIGHTS;
}

typedef struct ObjectTable {
    ObjectRecord *records;
    size_t n_records;
    int64_t n_files; /* the number of weight files of one set */
} ObjectTable;

/* Makes the table. A weight file ends before the tensor that would make it larger than weight_file_bytes. */
int object_table_new(const ParameterList *parameters, const ChunkLayout *layout,
                     uint64_t weight_file_bytes, bool ema, ObjectTable *ret);
/* Adds the record of the plans. Call it once, for a checkpoint of a device that has plans. */
void object_table_add_plans(ObjectTable *table);
void object_table_clear(ObjectTable *table);
/* Returns the rank that writes the object. */
int object_owner(const ObjectTable *table, const ObjectRecord *record, int world_size);
/* Returns whether the rank writes an object of this kind that contains elements of the chunk. */
bool object_table_needs(const ObjectTable *table, const ChunkLayout *layout, ObjectKind kind,
                        int64_t chunk, int rank, int world_size);
/* Returns the size of the header of a weight file that a manifest lists. manifest_parse() refuses a
 * file that has no room for a header. */
static inline uint64_t object_header_bytes(const ObjectRecord *o)
{
    return o->n_bytes - (uint64_t)o->count * sizeof(float);
}
/* Writes the key of the object of this kind and part number. */
void object_key(ObjectKind kind, int64_t part, int64_t n_files, char key[OBJECT_KEY_MAX]);
