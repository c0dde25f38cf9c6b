/* SPDX-License-Identifier: Apache-2.0 */
/* json-diff.h - the keys in which two JSON objects differ, with both values.
 *
 * Identities are hashes of canonical objects. Two hashes only show that the objects differ; people need to know where.
 *
 * Units: bytes. Errors: none. Threads: any.
 * Ownership: paths and values are borrowed during the call. json_flat() gives the caller a reference.
 */
#pragma once

#include "base/macro.h"

#include <jansson.h>

/* Returns one flat object with the path of each value as its key: {"data.streams[1].proportion": 0.5}. Arrays that do
 * not hold only objects stay whole. The caller owns the result. */
json_t *json_flat(const json_t *json);

/* was, is: the values, NULL where the key is missing. path is like "train.optimizer.lr". */
typedef void (*JsonDifference)(void *context, const char *path, const json_t *was,
                               const json_t *is);
/* Calls `each` for each key that differs, in the order of names; arrays, and values of different types, are compared as
 * a whole. Returns the number of differences. */
size_t json_each_difference(const json_t *was, const json_t *is, JsonDifference each,
                            void *context);

/* Works like json_each_difference(), but writes text: "side was 256, is 512; keep.width was missing, is \"int64\"". If
 * not all differences fit, the text ends with the number of the others: "; and 3 more". A value takes 60 bytes at most.
 * The text is "" without a difference. */
size_t json_diff_format(const json_t *was, const json_t *is, char *text, size_t size);
/* Works like json_diff_format() on two JSON texts, made flat; returns 0 and "" if one of them is not a JSON object. */
size_t json_diff_texts(const char *was, const char *is, char *text, size_t size);
/* Formats two values, 60 bytes each at most, with enough digits to tell them apart; NULL becomes "missing". The caller
 * owns both texts. */
void json_value_texts(const json_t *was, const json_t *is, char **ret_was, char **ret_is);
