/* SPDX-License-Identifier: Apache-2.0 */
/* json-diff.h - the keys in which two JSON objects differ, with both values.
 *
 * Identities are hashes of canonical objects. Two hashes tell that something differs; people need to know what.
 *
 * Ownership: paths and values are borrowed during the call. json_flat() gives the caller a reference.
 * Units:     bytes.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "base/macro.h"

#include <jansson.h>

/* One object of all that lies in json, by its path: {"data.streams[1].proportion": 0.5}. Arrays of other values than
 * objects stay whole. The caller's. */
json_t *json_flat(const json_t *json);

/* was, is: NULL where the key is missing. The path is "train.optimizer.lr". */
typedef void (*JsonDifference)(void *context, const char *path, const json_t *was,
                               const json_t *is);
/* Calls back for each key that differs, in the order of names; arrays and values of unlike types are compared whole.
 * Returns how many there were. */
size_t json_each_difference(const json_t *was, const json_t *is, JsonDifference each,
                            void *context);

/* Works as json_each_difference(), but writes text: "side was 256, is 512; keep.width was missing, is \"int64\"". The
 * text ends with the number of differences that do not fit: "; and 3 more". A value has 60 bytes at most. "" without a
 * difference. */
size_t json_diff_format(const json_t *was, const json_t *is, char *text, size_t size);
/* The same of two texts, made flat; 0 and "" where one of them is not a JSON object. */
size_t json_diff_texts(const char *was, const char *is, char *text, size_t size);
/* Two values as text, of 60 bytes at most, with as many digits as tell them apart; NULL: "missing". The caller's. */
void json_value_texts(const json_t *was, const json_t *is, char **ret_was, char **ret_is);
