/* SPDX-License-Identifier: Apache-2.0 */
/* json-build.h - builds a JSON object key by key, in the order in which its keys are to be written.
 *
 * Ownership: json_build_end() gives the caller the object; the object takes over the values that are added.
 * Units:     none.
 * Errors:    json_build_end() returns NULL if any text was NULL or not UTF-8, a number not finite, or a value NULL.
 * Threads:   one for each JsonBuild.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct JsonBuild {
    json_t *object;
    bool failed;
} JsonBuild;

JsonBuild json_build(void);
void json_add(JsonBuild *b, const char *key, json_t *value);
void json_add_text(JsonBuild *b, const char *key, const char *text);
/* Omits the key if text is NULL. */
void json_add_text_if(JsonBuild *b, const char *key, const char *text);
void json_add_int(JsonBuild *b, const char *key, int64_t value);
void json_add_real(JsonBuild *b, const char *key, double value);
void json_add_bool(JsonBuild *b, const char *key, bool value);
/* Adds a resource limit of this process (RLIMIT_...); -1: it is infinite, which JSON cannot say. */
void json_add_limit(JsonBuild *b, const char *key, int resource);
json_t *json_build_end(JsonBuild *b);
