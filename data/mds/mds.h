/* SPDX-License-Identifier: Apache-2.0 */
/* mds.h - MosaicML's shard format: columns, encodings, one sample's bytes.
 *
 * A shard is `u32 n; u32 offset[n + 1]; config JSON; samples`, little-endian throughout. A sample is a u32 size for
 * each column of variable size, then all payloads, both in the order of the columns in index.json. Streaming's writer
 * and mds-writer.h sort column names by code point; Streaming's reader accepts any order.
 *
 * Encodings: bytes str int uint8..uint64 int8..int64 float16..float64 str_int str_float str_decimal
 * ndarray[:type[:d0,d1,..]] json, and pil jpeg png jpeg_array list[pil|jpeg|png] as raw bytes. pkl is refused, since
 * reading it would run code of the file.
 *
 * Units: bytes, elements. Threads: any; no state.
 * Ownership: schemas and arrays are values; fields and decoded arrays point into the sample.
 * Errors:    -EINVAL an impossible column, for example of encoding pkl or of an unknown encoding; -EBADMSG a sample
 *            that contradicts itself, naming the column (callers put file and sample in front).
 * Source:    mosaicml/streaming 0.13.0, streaming/base/format/mds.
 */
#pragma once

#include "base/error.h"

#include <jansson.h>

enum {
    MDS_COLUMNS_MAX = 64,
    MDS_NAME_MAX = 95,
    MDS_DIMS_MAX = 8, /* dimensions of an array; the format allows 63 */
    MDS_SAMPLE_BYTES_MAX = 256 << 20,
    MDS_SHARD_BYTES_MAX = INT32_MAX, /* the largest shard that is held in memory */
};

/* The values are the codes that the MDS format has for these types. */
typedef enum MdsNumber {
    MDS_NUMBER_NONE = 0,
    MDS_UINT8 = 8,
    MDS_INT8 = 9,
    MDS_UINT16 = 16,
    MDS_INT16 = 17,
    MDS_FLOAT16 = 18,
    MDS_UINT32 = 32,
    MDS_INT32 = 33,
    MDS_FLOAT32 = 34,
    MDS_UINT64 = 64,
    MDS_INT64 = 65,
    MDS_FLOAT64 = 66,
} MdsNumber;

typedef enum MdsKind {
    MDS_BYTES,   /* bytes, pictures, and lists of pictures: passed through */
    MDS_TEXT,    /* str, json, str_int, str_float, str_decimal: UTF-8 */
    MDS_SCALAR,  /* int and the numbers of fixed size */
    MDS_NDARRAY, /* an array; the encoding or the sample holds its type and shape */
} MdsKind;

typedef struct MdsColumn {
    char name[MDS_NAME_MAX + 1];
    char encoding[MDS_NAME_MAX + 1]; /* as spelt in index.json */
    MdsKind kind;
    MdsNumber number; /* type of a scalar or array; NONE: each sample states its type */
    int n_dims;       /* dimensions of an array; 0: each sample states its shape */
    uint64_t dims[MDS_DIMS_MAX];
    uint32_t size; /* bytes of the payload; 0: variable */
} MdsColumn;

typedef struct MdsSchema {
    size_t n_columns, n_variable;
    MdsColumn columns[MDS_COLUMNS_MAX];
} MdsSchema;

typedef struct MdsField {
    const void *data;
    size_t n_bytes;
} MdsField;

typedef struct MdsArray {
    MdsNumber number;
    int n_dims;
    uint64_t dims[MDS_DIMS_MAX];
    const void *values; /* the array's values, at any alignment */
    size_t n_bytes;
} MdsArray;

size_t mds_number_size(MdsNumber number);
bool mds_is_float(MdsNumber number);
const char *mds_number_name(MdsNumber number); /* "float16", ... */

/* Makes a column; its kind, number, shape and fixed size follow from the encoding. */
int mds_column_init(const char *name, const char *encoding, MdsColumn *ret, Error *err);

/* Makes a schema of column_names, column_encodings and column_sizes of an index.json entry or a shard's config. The
 * sizes must be the sizes that follow from the encodings. */
int mds_schema_parse(const char *source, json_t *config, MdsSchema *ret, Error *err);
/* Makes a schema of the caller's columns, which may come in any order. */
int mds_schema_init(const MdsColumn *columns, size_t n_columns, MdsSchema *ret, Error *err);
/* Returns the index of a column, or -ENOENT with a text that lists the columns. */
int mds_schema_find(const MdsSchema *schema, const char *name, Error *err);

/* Fills fields[n_columns], which point into the sample. Every byte of the sample must belong to a column. */
int mds_sample_split(const MdsSchema *schema, const void *sample, size_t n_bytes, MdsField *fields,
                     Error *err);

/* Decodes the payload of an ndarray column. */
int mds_array_decode(const MdsColumn *column, MdsField field, MdsArray *ret, Error *err);

/* Decodes a whole number of an integer scalar or str_int column; -ERANGE when it does not fit. */
int mds_integer_decode(const MdsColumn *column, MdsField field, int64_t *ret, Error *err);
/* Decodes a number of a scalar, str_int, str_float or str_decimal column. */
int mds_double_decode(const MdsColumn *column, MdsField field, double *ret, Error *err);
