/* SPDX-License-Identifier: Apache-2.0 */
/* copies.h - what some of etcd's records are and were: a person who puts one back by hand has kept it.
 *
 * The newest COPIES_MAX values are kept of records that do not return by themselves (specs, desired, worlds, phases,
 * checkpoints, cordons), and of nodes' records, for the faults that forge them.
 *
 * Ownership: copies_open() makes the only ones of a simulation, copies_close() frees them. A Copy holds until the next
 *            change.
 * Units:     revisions.
 * Errors:    NULL: there is none.
 * Threads:   one.
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
/* As ServerOptions.on_commit. */
void copies_note(int64_t revision, const ServerChange *changes, size_t n);

/* age 0: as the record is; 1: as it was before, and so on. A removal counts, too. */
const Copy *copies_get(KeyKind kind, const char *name, size_t age);
/* The record as it is, if it is there. */
const Copy *copies_now(KeyKind kind, const char *name);
/* Returns the submission that the record names; "": it cannot be read, or names none. */
const char *copy_submission(KeyKind kind, const Copy *copy, char ret[SUBMISSION_BYTES]);
bool copy_is_readable(KeyKind kind, const Copy *copy);
