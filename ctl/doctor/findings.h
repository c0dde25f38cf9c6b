/* SPDX-License-Identifier: Apache-2.0 */
/* findings.h - the table of `sdctl doctor`: what was looked at, what was found, and what to do.
 *
 * Findings that are alike at many places are one row, so that a thousand nodes that are well are a line.
 *
 * Ownership: findings_clear() frees the rows; texts that are added are copied.
 * Units:     none.
 * Errors:    none.
 * Threads:   the main thread.
 */
#pragma once

#include "base/macro.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { FINDING_TEXT_MAX = 400, FINDING_PLACE_MAX = 136 };

typedef enum FindingState {
    FINDING_OK,
    FINDING_NOTE,  /* worth knowing; nothing fails by it, or nobody can tell */
    FINDING_WRONG, /* something fails by it, or will */
} FindingState;

typedef struct Finding {
    const char *check; /* what was looked at: "etcd", "lease_sec" */
    FindingState state;
    char found[FINDING_TEXT_MAX + 1], advice[FINDING_TEXT_MAX + 1]; /* advice: empty for none */
    char key[FINDING_TEXT_MAX + 1]; /* what is alike has the same; found is the first one's words */
    char (*places)[FINDING_PLACE_MAX]; /* nodes, members of etcd, "here" */
    size_t n_places, room;
} Finding;

typedef struct Findings {
    Finding *rows;
    size_t n, room;
} Findings;

/* Adds a finding. check is a static text; advice NULL: none. place NULL: none. Findings in the same words are
 * alike. */
void findings_add(Findings *f, FindingState state, const char *check, const char *place,
                  const char *advice, const char *format, ...) _printf_(6, 7);
/* Works as findings_add(), but what has that key is alike: servers put a number of their own into each error. */
void findings_add_alike(Findings *f, FindingState state, const char *check, const char *place,
                        const char *advice, const char *key, const char *format, ...)
    _printf_(7, 8);
size_t findings_wrong(const Findings *f); /* number of rows */
json_t *findings_json(const Findings *f);
void findings_print(const Findings *f);
void findings_clear(Findings *f);
