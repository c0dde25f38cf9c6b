/* safetensors.h - reading and writing the safetensors file format, F32, F16 and BF16.
 *
 * Ownership: safetensors_open() gives the caller a Safetensors over borrowed bytes.
 * Units:     bytes and elements; little-endian.
 * Errors:    -EBADMSG with the source's name, the tensor and what is wrong (overlap, bounds, dtype,
 * header size). Threads:   immutable after opening; any. Source:    the safetensors README (format
 * section).
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

typedef enum SafetensorsType { SAFETENSORS_F32, SAFETENSORS_F16, SAFETENSORS_BF16 } SafetensorsType;

typedef struct SafetensorsEntry {
    char *name;
    SafetensorsType type;
    int n_dims;
    int64_t dims[8];
    int64_t n_elements;
    uint64_t offset, n_bytes; /* from the start of the file */
} SafetensorsEntry;

typedef struct Safetensors Safetensors;

/* header must hold at least the 8 bytes of length and the JSON; file_bytes is the length of the
 * whole file. */
int safetensors_open(const char *source, const void *header, size_t n_bytes, uint64_t file_bytes,
                     Safetensors **ret, Error *err);
Safetensors *safetensors_free(Safetensors *file);
DEFINE_CLEANUP(Safetensors, safetensors_free)
size_t safetensors_count(const Safetensors *file);
const SafetensorsEntry *safetensors_at(const Safetensors *file, size_t i);
const SafetensorsEntry *safetensors_find(const Safetensors *file, const char *name);

/* The header of a file that holds the tensors one after another in the given order, with metadata
 * {"format":"pt"}; sets offset and n_bytes of each entry. Caller frees *ret. */
int safetensors_header(SafetensorsEntry *entries, size_t n, char **ret, size_t *ret_bytes,
                       Error *err);
