/* SPDX-License-Identifier: Apache-2.0 */
/* reference.h - the tables of records.c and a sentence for each record and field, of which
 * docs/reference/etcd-records.md is made.
 *
 * Ownership: everything is static.
 * Units:     none.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "base/field-table.h"

/* The fields of one kind of record; records.c fills it from the tables that it reads and writes by. */
typedef struct RecordTable {
    const char *kind; /* first part of the key below the cluster: "nodes" */
    const Field *fields;
    size_t n_fields;
} RecordTable;

extern const RecordTable record_tables[];
extern const size_t n_record_tables;

typedef struct RecordReference {
    const char *kind, *key, *writer, *help;
} RecordReference;

/* NULL: the record has no description yet. */
const RecordReference *record_reference(const char *kind);
/* field is a path as in "causes[].mode". NULL: the field has no description yet. */
const char *record_field_reference(const char *kind, const char *field);
/* The description at i, "nodes.address"; NULL behind the last one. */
const char *record_described_field(size_t i);
