/* SPDX-License-Identifier: Apache-2.0 */
/* field-table.h - a struct and its JSON object, both described by one table of fields.
 *
 * If one function writes a struct and another reads it, a field is lost when only one of the functions is changed.
 * Here one table serves both directions. Records in etcd, messages of the channel and lines of the journal are such
 * tables.
 *
 * Ownership: field_table_read() fills *record; allocated parts (FIELD_STRING, FIELD_LIST) are freed by
 *            field_table_clear(), and must be NULL before they are read.
 * Units:     offsets and sizes are bytes of the struct that the table describes.
 * Errors:    field_table_read() leaves the first error in the reader (base/json/json.h); a key without a row in the
 *            table is not an error. field_table_write() cannot fail; keys without a row stay as they are.
 * Threads:   any.
 */
#pragma once

#include "base/json/json.h"

typedef enum FieldType {
    FIELD_TEXT, /* char[size]; control characters become spaces or '?' when read (base/text/printable.h) */
    FIELD_VERBATIM, /* char[size], read unchanged */
    FIELD_STRING,   /* char *, allocated, read unchanged */
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
    const char *name; /* the key in the JSON object */
    FieldType type;
    JsonNeed need;            /* JSON_OPTIONAL: if the key is missing, the member keeps its value */
    size_t offset;            /* where the member begins in the struct */
    size_t size;              /* TEXT, VERBATIM: bytes; LIST, ARRAY: maximum number of elements */
    int64_t min, max;         /* INT, INT64: the smallest and the largest value */
    const char *const *names; /* CHOICE: the texts of the values */
    size_t n_names;
    const Field *fields; /* OBJECT, LIST, ARRAY: the table of the inner struct */
    size_t n_fields;
    /* LIST, ARRAY: the size of an element, and where the count begins in the struct */
    size_t element_bytes, count_offset;
    /* LIST, ARRAY: the names, separated by blanks, of the fields that identify an element. When an element is written,
     * the unknown keys of the old element with the same identity are kept. NULL: nothing of old elements is kept. */
    const char *identity;
};

void field_table_read(JsonReader *r, const Field *fields, size_t n_fields, void *record);
/* Writes the record into object, which may hold an older version: keys without a row are kept, also in elements of
 * lists. */
void field_table_write(json_t *object, const Field *fields, size_t n_fields, const void *record);
/* Frees the allocated fields of the record; the caller must zero the struct afterwards. */
void field_table_clear(void *record, const Field *fields, size_t n_fields);
