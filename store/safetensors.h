/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.h - reads and writes the header of a safetensors file with F32, F16 and BF16 tensors.
 *
 * Files of others also hold tensors of integers (position_ids), and of other types: a reader that asks for them has
 * them listed, without a type that it could compute with.
 *
 * Ownership: safetensors_open() gives the caller a Safetensors that keeps nothing of the bytes.
 * Units:     bytes and elements; little-endian.
 * Errors:    The text names the source, the tensor and what is wrong. -EINVAL: the whole file is of a kind that is
 *            not read (a pickle, a pointer of Git LFS, a dtype, a header that is too large). -EBADMSG: it is damaged
 *            (overlap, bounds, bytes that are missing).
 * Threads:   immutable after opening; any.
 * Source:    the safetensors README (format section).
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "store/store.h"

enum {
    SAFETENSORS_DIMS_MAX = 8,
    SAFETENSORS_HEADER_MAX = 4 << 20, /* bytes; the format allows 100 MB */
    SAFETENSORS_TENSORS_MAX = 1 << 13,
    SAFETENSORS_VALUES_MAX = 1 << 17, /* of JSON */
    SAFETENSORS_FIRST_BYTES = 64,
};

typedef enum SafetensorsType {
    SAFETENSORS_F32,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_INTEGER, /* of any width, or BOOL; never written */
    SAFETENSORS_OTHER,   /* of other floats: F64, F8_E4M3, C64; never written */
} SafetensorsType;

/* Which tensors a file may hold; others are refused by name. */
typedef enum SafetensorsTypes {
    SAFETENSORS_FLOATS,
    SAFETENSORS_ANY, /* of each type with whole bytes, so that the caller can say what the file is */
} SafetensorsTypes;

typedef struct SafetensorsEntry {
    char *name;
    SafetensorsType type;
    const char *dtype; /* its name in the file; constant */
    int n_dims;
    int64_t dims[SAFETENSORS_DIMS_MAX];
    int64_t n_elements;
    uint64_t offset, n_bytes; /* from the start of the file */
} SafetensorsEntry;

typedef struct Safetensors Safetensors;

/* Tells from the file's first n_bytes, 8 at least unless it has fewer, how many safetensors_open() needs. With
 * SAFETENSORS_FIRST_BYTES it can tell what else the file is. */
int safetensors_header_bytes(const char *source, const void *first, size_t n_bytes,
                             uint64_t file_bytes, size_t *ret, Error *err);
/* header holds the file's first n_bytes: at least the 8 bytes of length and the JSON. file_bytes is
 * the length of the whole file. */
int safetensors_open(const char *source, const void *header, size_t n_bytes, uint64_t file_bytes,
                     SafetensorsTypes types, Safetensors **ret, Error *err);
/* Reads the header of the object `key`, which has file_bytes. source names it in errors. */
int safetensors_read(Store *store, const char *key, const char *source, uint64_t file_bytes,
                     SafetensorsTypes types, Safetensors **ret, Error *err);
Safetensors *safetensors_free(Safetensors *file);
DEFINE_CLEANUP(Safetensors, safetensors_free)
/* Tensors in the order in which they lie in the file. */
size_t safetensors_count(const Safetensors *file);
const SafetensorsEntry *safetensors_at(const Safetensors *file, size_t i);
/* NULL: there is no tensor of that name. */
const SafetensorsEntry *safetensors_find(const Safetensors *file, const char *name);

/* Makes the header of a file that holds the tensors one after another in the given order, with
 * metadata {"format":"pt"}; sets n_elements, offset and n_bytes of each entry. The header's length is
 * a multiple of 8; the caller frees *ret. */
int safetensors_header(SafetensorsEntry *entries, size_t n, char **ret, size_t *ret_bytes,
                       Error *err);
