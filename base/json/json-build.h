/* SPDX-License-Identifier: Apache-2.0 */
/* json-build.h - makes a JSON object key by key, in the order in which its keys are to be written.
 *
 * Ownership: json_build_end() gives the caller the object; values that are added are taken.
 * Units:     none.
 * Errors:    a text that is NULL or not UTF-8, a number that is not finite, a value that is NULL make the object NULL.
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
/* Leaves the key out where text is NULL. */
void json_add_text_if(JsonBuild *b, const char *key, const char *text);
void json_add_int(JsonBuild *b, const char *key, int64_t value);
void json_add_real(JsonBuild *b, const char *key, double value);
void json_add_bool(JsonBuild *b, const char *key, bool value);
json_t *json_build_end(JsonBuild *b);
