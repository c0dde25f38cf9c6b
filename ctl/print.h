/* SPDX-License-Identifier: Apache-2.0 */
/* print.h - how verbs print: JSON for programs, times and numbers for people.
 *
 * Ownership: print_json() and print_json_exact() take the reference that they are given. Texts are borrowed.
 * Units:     usec is CLOCK_REALTIME microseconds; seconds otherwise.
 */
#pragma once

#include "base/json/json.h"
#include "base/macro.h"
#include "base/number/hash.h"
#include "report/times.h"

void print_json(json_t *json);
/* As print_json(), with all digits of each number. */
void print_json_exact(json_t *json);

/* These functions read a member of a JSON object that the verb itself has made. A missing member is "" or 0. */
const char *json_text(json_t *object, const char *key);
double json_number(json_t *object, const char *key);
long long json_count(json_t *object, const char *key);
bool json_has_number(json_t *object, const char *key);

/* Writes the text of a checkpoint's digest and returns it; NULL: a program's checkpoint has none. */
const char *print_digest(Hash digest, char text[HASH_TEXT_BYTES]);
