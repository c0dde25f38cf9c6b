/* SPDX-License-Identifier: Apache-2.0 */
/* field-table.h - a struct and its JSON object, tied by one table of fields.
 *
 * A struct that is written by one function and read by another loses a field when only one of them is
 * changed. Here one table serves both directions. Records of etcd, messages of the channel and lines of the
 * journal are such tables.
 *
 * Ownership: field_table_read() fills *record; allocated parts (FIELD_STRING, FIELD_LIST) are freed by
 *            field_table_clear(), and must be NULL before they are read.
 * Units:     offsets and sizes are bytes of the struct that the table describes.
 * Errors:    field_table_read() leaves the first error in the reader, as base/json/json.h says; a key that is in no
 *            row is not an error. field_table_write() has none; keys that are in no row stay as they are.
 * Threads:   any.
 */
#pragma once

#include "base/json/json.h"

typedef enum FieldType {
    FIELD_TEXT, /* char[size]; control characters of what is read become spaces or '?' (base/text/printable.h) */
    FIELD_VERBATIM, /* char[size], read as it comes */
    FIELD_STRING,   /* char *, allocated, read as it comes */
    FIELD_INT,      /* int, in min..max */
    FIELD_INT64,    /* int64_t or uint64_t below 2^63, in min..max */
    FIELD_DOUBLE,   /* NaN and infinity are written as null, which is read as NaN */
    FIELD_LOSS,     /* double; NaN and infinity are written as "nan"; any text is read as NaN */
    FIELD_BOOL,
    FIELD_CHOICE, /* int or enum, an index of names[n_names] */
    FIELD_HASH,
    FIELD_SLOTS,  /* uint64_t bit mask as "0-3,6" (base/slots.h) */
    FIELD_OBJECT, /* a struct inside the struct */
    FIELD_LIST,   /* T *, allocated, with its size_t count */
    FIELD_ARRAY,  /* T[size], with its size_t count */
} FieldType;

typedef struct Field Field;
struct Field {
    const char *name; /* the key */
    FieldType type;
    JsonNeed need; /* JSON_OPTIONAL: a reader leaves the member as it is when the key is missing */
    size_t offset; /* of the member */
    size_t size;   /* TEXT, VERBATIM: bytes; LIST, ARRAY: most elements */
    int64_t min, max;         /* INT, INT64 */
    const char *const *names; /* CHOICE */
    size_t n_names;
    const Field *fields; /* OBJECT, LIST, ARRAY: the table of the inner struct */
    size_t n_fields;
    size_t element_bytes, count_offset; /* LIST, ARRAY */
    /* LIST, ARRAY: names of the fields that tell elements apart when old text is kept, with blanks between; NULL:
     * nothing of an old element is kept. */
    const char *identity;
};

void field_table_read(JsonReader *r, const Field *fields, size_t n_fields, void *record);
/* object may hold old text: keys that are in no row are kept, in elements of lists too. */
void field_table_write(json_t *object, const Field *fields, size_t n_fields, const void *record);
/* Frees what the table says is allocated; the caller zeroes the struct. */
void field_table_clear(void *record, const Field *fields, size_t n_fields);
