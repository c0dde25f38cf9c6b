/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.h - reads and writes the header of a safetensors file with F32, F16 and BF16 tensors.
 *
 * Other programs' files may also have tensors of integers (position_ids), and of other types. A reader can choose to
 * list such tensors as well; their types cannot be used for computing.
 *
 * Ownership: safetensors_open() gives the caller a Safetensors, which does not refer to the header's bytes.
 * Units:     bytes and elements; little-endian.
 * Errors:    The text names the source, the tensor and what is wrong. -EINVAL: the whole file is of a kind that is
 *            not supported (a pickle, a pointer of Git LFS, a dtype, a header that is too large). -EBADMSG: the file
 *            is damaged (overlap, bounds, missing bytes).
 * Threads:   immutable after opening; any.
 * Source:    the safetensors README (format section).
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "store/store.h"

enum {
    SAFETENSORS_DIMS_MAX = 8,
    SAFETENSORS_HEADER_MAX = 4 << 20, /* the largest header in bytes; the format allows 100 MB */
    SAFETENSORS_TENSORS_MAX = 1 << 13,
    SAFETENSORS_VALUES_MAX = 1 << 17, /* the largest number of values in a header's JSON */
    SAFETENSORS_FIRST_BYTES = 64,
};

typedef enum SafetensorsType {
    SAFETENSORS_F32,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_INTEGER, /* integers of any width, or BOOL; never written */
    SAFETENSORS_OTHER,   /* other floats: F64, F8_E4M3, C64; never written */
} SafetensorsType;

/* The tensors that a file may have; a tensor of another type is refused by its name. */
typedef enum SafetensorsTypes {
    SAFETENSORS_FLOATS,
    SAFETENSORS_ANY, /* all types whose values are whole bytes, also those not for computing */
} SafetensorsTypes;

typedef struct SafetensorsEntry {
    char *name;
    SafetensorsType type;
    const char *dtype; /* name of the type in the file; constant */
    int n_dims;
    int64_t dims[SAFETENSORS_DIMS_MAX];
    int64_t n_elements;
    uint64_t offset, n_bytes; /* offset: from the start of the file */
} SafetensorsEntry;

typedef struct Safetensors Safetensors;

/* Computes from the file's first n_bytes (at least 8, or the whole file) how many bytes safetensors_open() needs. With
 * SAFETENSORS_FIRST_BYTES, the error can name the format of a file that is not safetensors. */
int safetensors_header_bytes(const char *source, const void *first, size_t n_bytes,
                             uint64_t file_bytes, size_t *ret, Error *err);
/* Parses a header. `header` has the file's first n_bytes: at least the 8 bytes of length and the JSON. file_bytes is
 * the length of the whole file. */
int safetensors_open(const char *source, const void *header, size_t n_bytes, uint64_t file_bytes,
                     SafetensorsTypes types, Safetensors **ret, Error *err);
/* Reads the header of the object `key`, whose length is file_bytes. source names the object in errors. */
int safetensors_read(Store *store, const char *key, const char *source, uint64_t file_bytes,
                     SafetensorsTypes types, Safetensors **ret, Error *err);
Safetensors *safetensors_free(Safetensors *file);
DEFINE_CLEANUP(Safetensors, safetensors_free)
/* The tensors are in the order of their bytes in the file. */
size_t safetensors_count(const Safetensors *file);
const SafetensorsEntry *safetensors_at(const Safetensors *file, size_t i);
/* Returns NULL if there is no tensor of that name. */
const SafetensorsEntry *safetensors_find(const Safetensors *file, const char *name);

/* Makes the header of a file that has the tensors one after another in the given order, with metadata {"format":"pt"};
 * sets n_elements, offset and n_bytes of each entry. The header's length is a multiple of 8; the caller frees *ret. */
int safetensors_header(SafetensorsEntry *entries, size_t n, char **ret, size_t *ret_bytes,
                       Error *err);
