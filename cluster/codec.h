/* codec.h - a record's struct and its JSON, tied by one table of fields.
 *
 * The table serves both directions, so a field cannot be written and not read.
 *
 * Ownership: codec_decode() fills *record; allocated parts (FIELD_STRING, FIELD_LIST) are freed by
 *            codec_clear(). codec_encode() gives the caller a string to free.
 * Units:     offsets and sizes in bytes of the struct that the table describes.
 * Errors:    -EINVAL with "<source>: <path>: <what>",
 *            -EPROTONOSUPPORT for a "v" that is not RECORD_VERSION_OLDEST to RECORD_VERSION,
 *            -ENOMEM. Unknown fields are no error and are kept by codec_encode().
 * Threads:   any.
 */
#pragma once

#include "base/json.h"

typedef enum FieldType {
    FIELD_TEXT,   /* char[size] */
    FIELD_STRING, /* char *, allocated */
    FIELD_INT,    /* int, in min..max */
    FIELD_INT64,  /* int64_t or uint64_t below 2^63, in min..max */
    FIELD_DOUBLE, /* NaN and infinity are written as null, which is read as NaN */
    FIELD_BOOL,
    FIELD_CHOICE, /* an enum; names[n_names] */
    FIELD_HASH,
    FIELD_SLOTS, /* uint64_t bit mask as "0-3,6" */
    FIELD_OBJECT,
    FIELD_LIST,  /* T *, allocated, with its size_t count */
    FIELD_ARRAY, /* T[size], with its size_t count */
} FieldType;

typedef struct Field Field;
struct Field {
    const char *name;
    FieldType type;
    JsonNeed need;
    size_t offset;
    size_t size; /* TEXT: bytes; LIST, ARRAY: most elements */
    int64_t min, max;
    const char *const *names;
    size_t n_names;
    /* OBJECT, LIST, ARRAY */
    const Field *fields;
    size_t n_fields;
    size_t element_bytes, count_offset;
    const char *identity; /* LIST, ARRAY: the fields, with blanks between, that tell elements apart
                             when old text is kept */
};

int codec_decode(const char *source, const char *text, size_t n_bytes, const Field *fields,
                 size_t n_fields, void *record, Error *err);
int codec_encode(const void *record, const Field *fields, size_t n_fields, const char *old_text,
                 char **ret);
/* Frees what the table says is allocated; the caller zeroes the struct. */
void codec_clear(void *record, const Field *fields, size_t n_fields);

/* "0-3,6" of a mask and back; the text of an empty mask is "". */
enum { SLOTS_TEXT_MAX = 192 };
const char *slots_format(uint64_t slots, char ret[SLOTS_TEXT_MAX]);
int slots_parse(const char *text, uint64_t *ret);
