/* object.h - which objects a checkpoint consists of, and which rank writes which.
 *
 * The table of objects is a function of (parameters, chunks, size of weight files, EMA active or
 * not): all ranks compute it alike, each fills in what it wrote, the manifest lists it.
 *
 * Ownership: callers free what a function returns.
 * Units:     first and count are elements of the flat parameter buffer; bytes are bytes.
 * Errors:    -ENOMEM; -EBADMSG from the reader of a weight file.
 * Threads:   any.
 */
#pragma once

#include "base/hash.h"
#include "trainer/nn/parameters.h"
#include "trainer/state/chunk-layout.h"

enum { OBJECT_KEY_MAX = 128, WEIGHT_FILE_BYTES = 1 << 30 /* a weight file's, as it comes */ };

/* In the order of the table. */
typedef enum ObjectKind {
    OBJECT_CONFIG,
    OBJECT_INDEX, /* only when there are several weight files */
    OBJECT_WEIGHTS,
    OBJECT_EMA_CONFIG,
    OBJECT_EMA_INDEX,
    OBJECT_EMA_WEIGHTS,
    OBJECT_MOMENTS,
    OBJECT_KINDS,
} ObjectKind;

extern const char *const object_kind_name[OBJECT_KINDS];

typedef struct ObjectRecord {
    ObjectKind kind;
    int64_t part;             /* number of the weight file or chunk, else 0 */
    char key[OBJECT_KEY_MAX]; /* inside the checkpoint's folder */
    int64_t first, count;     /* the flat range of weights and moments, else 0, 0 */
    uint64_t n_bytes;
    Hash hash;
    uint32_t crc;
    Hash
        header; /* of a weight file: its part before the data, which a restore of ranges reads alone */
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

int object_table_new(const ParameterList *parameters, const ChunkLayout *layout,
                     uint64_t weight_file_bytes, bool ema, ObjectTable *ret);
void object_table_clear(ObjectTable *table);
int object_owner(const ObjectTable *table, const ObjectRecord *record, int world_size);
/* Is the chunk part of something of this kind that the rank writes? */
bool object_table_needs(const ObjectTable *table, const ChunkLayout *layout, ObjectKind kind,
                        int64_t chunk, int rank, int world_size);
/* Of a weight file of a manifest, which saw to it that there is a header in front of the data. */
static inline uint64_t object_header_bytes(const ObjectRecord *o)
{
    return o->n_bytes - (uint64_t)o->count * sizeof(float);
}
/* Writes the key that an object of this kind has. */
void object_key(ObjectKind kind, int64_t part, int64_t n_files, char key[OBJECT_KEY_MAX]);

/* The safetensors header of a weight file; its data are the flat range. */
int weight_file_header(const ParameterList *parameters, const ObjectRecord *record, char **ret,
                       size_t *ret_bytes, Error *err);
/* -EBADMSG unless the header is that of the parameters in the record's range. n_bytes: of the
 * header; the file has record->n_bytes. */
int weight_file_check(const char *source, const ParameterList *parameters,
                      const ObjectRecord *record, const void *header, size_t n_bytes, Error *err);
/* diffusion_pytorch_model.safetensors.index.json of one set. */
int weight_index_format(const ParameterList *parameters, const ObjectTable *table, char **ret);
