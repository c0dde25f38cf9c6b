/* SPDX-License-Identifier: Apache-2.0 */
/* record-tables.h - the fields of each kind of record, as records.c reads and writes them. Tests and the program that
 * generates docs/reference/etcd-records.md use these tables.
 *
 * Ownership: everything is static.
 */
#pragma once

#include "base/json/field-table.h"
#include "cluster/records.h"

typedef struct RecordTable {
    const char *kind; /* first part of the key below the cluster: "nodes" */
    const Field *fields;
    size_t n_fields;
} RecordTable;

extern const RecordTable record_tables[];
extern const size_t n_record_tables;

/* Checks rules that the table of worlds cannot express: the nodes' names are valid, and every rank has one slot. */
int record_check_world(const char *source, const WorldRecord *world, Error *err);
