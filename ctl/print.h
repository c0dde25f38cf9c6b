/* SPDX-License-Identifier: Apache-2.0 */
/* print.h - how verbs print: JSON for programs, times and numbers for people.
 *
 * Ownership: print_json() takes the reference it is given. Texts are borrowed.
 * Units:     usec is CLOCK_REALTIME microseconds; seconds otherwise.
 * Errors:    none.
 * Threads:   the main thread.
 */
#pragma once

#include "base/json.h"
#include "base/macro.h"

enum { TIME_TEXT_BYTES = 32, SPAN_TEXT_BYTES = 24 };

void print_json(json_t *json);

/* Read a member of an object that a verb has made itself; an absent one is "" or 0. */
const char *json_text(json_t *object, const char *key);
double json_number(json_t *object, const char *key);
long long json_count(json_t *object, const char *key);
bool json_has_number(json_t *object, const char *key);

/* Write the local time, "14:03:59" or "2026-01-31 14:03:59", or "-" for 0; return text. */
const char *time_text(uint64_t usec, char text[TIME_TEXT_BYTES]);
const char *date_text(uint64_t usec, char text[TIME_TEXT_BYTES]);
/* Writes "0.42 s", "12 s", "3 min 20 s", "5 h 10 min" or "3 d 4 h"; returns text. */
const char *span_text(double seconds, char text[SPAN_TEXT_BYTES]);
