/* SPDX-License-Identifier: Apache-2.0 */
/* findings.h - the table of `sdctl doctor`. Each row has a check, what the check found, and advice.
 *
 * Equal findings at many places are one row, so that a thousand healthy nodes take one line.
 *
 * Units: none. Errors: none. Threads: the main thread.
 * Ownership: findings_clear() frees the rows; texts that are added are copied.
 */
#pragma once

#include "base/macro.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { FINDING_TEXT_MAX = 400, FINDING_PLACE_MAX = 136 };

typedef enum FindingState {
    FINDING_OK,
    FINDING_NOTE,  /* useful to know, but not known to cause a failure */
    FINDING_WRONG, /* a fault that causes a failure, now or later */
} FindingState;

typedef struct Finding {
    const char *check; /* name of the check: "etcd", "lease_sec" */
    FindingState state;
    char found[FINDING_TEXT_MAX + 1], advice[FINDING_TEXT_MAX + 1]; /* advice: empty for none */
    /* Findings with the same key share a row, and `found` is the text of the first finding. */
    char key[FINDING_TEXT_MAX + 1];
    char (*places)[FINDING_PLACE_MAX]; /* places of the finding: nodes, members of etcd, "here" */
    size_t n_places, room;
} Finding;

typedef struct Findings {
    Finding *rows;
    size_t n, room;
} Findings;

/* Adds a finding. check is a static string; advice and place may be NULL. Findings with the same text become one
 * row. */
void findings_add(Findings *f, FindingState state, const char *check, const char *place,
                  const char *advice, const char *format, ...) _printf_(6, 7);
/* Works as findings_add(), but findings with the same key become one row, even if their texts differ: a
 * server puts a different number into each of its error texts. */
void findings_add_alike(Findings *f, FindingState state, const char *check, const char *place,
                        const char *advice, const char *key, const char *format, ...)
    _printf_(7, 8);
size_t findings_wrong(const Findings *f); /* number of rows with FINDING_WRONG */
json_t *findings_json(const Findings *f);
void findings_print(const Findings *f);
void findings_clear(Findings *f);
