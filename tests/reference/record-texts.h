/* SPDX-License-Identifier: Apache-2.0 */
/* record-texts.h - a sentence for each record and field, of which docs/reference/etcd-records.md is made.
 *
 * Ownership: everything is static.
 * Units:     none.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include <stddef.h>

typedef struct RecordReference {
    const char *kind, *key, *writer, *help;
} RecordReference;

/* NULL: the record has no description yet. */
const RecordReference *record_reference(const char *kind);
/* field is a path as in "causes[].mode". NULL: the field has no description yet. */
const char *record_field_reference(const char *kind, const char *field);
/* The description at i, "nodes.address"; NULL behind the last one. */
const char *record_described_field(size_t i);
