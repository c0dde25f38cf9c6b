/* SPDX-License-Identifier: Apache-2.0 */
/* record-texts.h - a sentence for each record and field; docs/reference/etcd-records.md is made from them.
 *
 * Units: none. Errors: none. Threads: any.
 * Ownership: everything is static.
 */
#pragma once

#include <stddef.h>

typedef struct RecordReference {
    const char *kind, *key, *writer, *help;
} RecordReference;

/* Returns the description of a record, or NULL if the record has no description yet. */
const RecordReference *record_reference(const char *kind);
/* Returns the description of a field, or NULL if the field has no description yet. field is a path
 * such as "causes[].mode". */
const char *record_field_reference(const char *kind, const char *field);
/* Returns the name of the i-th description, such as "nodes.address", or NULL after the last
 * description. */
const char *record_described_field(size_t i);
