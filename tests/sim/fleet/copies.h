/* SPDX-License-Identifier: Apache-2.0 */
/* copies.h - present and earlier values of some of etcd's records, from which a person puts a record back by hand.
 *
 * The newest COPIES_MAX values are kept: of records that no program writes again by itself (specs, desired, worlds,
 * phases, checkpoints, cordons), and of nodes' records, for the faults that forge them.
 *
 * Units: revisions. Threads: one.
 * Ownership: copies_open() makes the only copies of a simulation, copies_close() frees them. A Copy is valid until the
 *            next change.
 * Errors:    NULL: there is no copy.
 */
#pragma once

#include "cluster/keys.h"
#include "cluster/records.h"
#include "tests/sim/server/server.h"

enum { COPIES_MAX = 16 };

typedef struct Copy {
    int64_t revision;
    char *value; /* NULL: the key was removed */
    size_t n;
} Copy;

void copies_open(const char *cluster);
void copies_close(void);
/* Stores the changes of a transaction; called as ServerOptions.on_commit. */
void copies_note(int64_t revision, const ServerChange *changes, size_t n);

/* Returns a value of the record. age 0: the present value; 1: the value before, and so on. A
 * removal counts as a value, too. */
const Copy *copies_get(KeyKind kind, const char *name, size_t age);
/* Returns the present value of the record, or NULL if there is no record. */
const Copy *copies_now(KeyKind kind, const char *name);
/* Returns the submission that the record names; "" if it cannot be read, or names none. */
const char *copy_submission(KeyKind kind, const Copy *copy, char ret[SUBMISSION_BYTES]);
bool copy_is_readable(KeyKind kind, const Copy *copy);
