/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - reading JSON that people and other programs wrote, with errors that name file, key and
 * value.
 *
 * A JsonReader reads one object. It keeps its first error: later reads do nothing, and json_close()
 * returns that error. json_close() also refuses keys that the caller never read, unless the reader was opened
 * with JSON_ANY_KEYS (etcd records keep unknown fields; files that people write do not).
 *
 *     JsonReader r = json_open("job.json", root, JSON_KNOWN_KEYS, err);
 *     json_get_int(&r, "steps", JSON_REQUIRED, 1, INT64_MAX, &steps);
 *     JsonReader t = json_get_object(&r, "train", JSON_REQUIRED);
 *     ...
 *     json_close(&t);             // passes the error of t on to r
 *     return json_close(&r);
 *
 * Ownership: readers borrow the json_t. json_parse and json_read_file give the caller a reference
 *            (json_decref, or _cleanup_json_).
 * Units:     as each key defines.
 * Errors:    -EINVAL with "<source>: <path.to.key>: <what is wrong with which value>"; -ENOMEM, which is not a fault
 *            of the text. If jansson itself lacks memory, the process ends (json.c has the reason).
 * Threads:   a reader belongs to one thread.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "base/number/hash.h"

#include <jansson.h>

typedef enum JsonMode { JSON_KNOWN_KEYS, JSON_ANY_KEYS } JsonMode;
typedef enum JsonNeed { JSON_OPTIONAL, JSON_REQUIRED } JsonNeed;

enum { JSON_KEYS_MAX = 64 };

typedef struct JsonReader JsonReader;
struct JsonReader {
    json_t *object; /* NULL: the object is absent, and no json_get_*() finds a value */
    JsonReader *parent;
    const char *source; /* file or etcd key, borrowed */
    char path[96];      /* where the object is: "train.optimizer"; "" for the root */
    JsonMode mode;
    Error *error;
    int r; /* the first error, a negative errno; 0: none */
    const char *asked[JSON_KEYS_MAX];
    size_t n_asked;
};

static inline void json_decref_p(json_t **json) { json_decref(*json); }
#define _cleanup_json_ _cleanup_(json_decref_p)

/* Returns the length of the byte order mark that some editors put in front of a text: 3 or 0. */
size_t json_mark_bytes(const char *text, size_t n_bytes);
/* Parses a text that must be one JSON object, with or without a byte order mark; refuses duplicate keys. */
int json_parse(const char *source, const char *text, size_t n_bytes, json_t **ret, Error *err);
/* Works like json_parse(), but first refuses a text in which '{', '[' and ',' together occur more than n_values times:
 * their count bounds the number of values. The check comes before any allocation, because a text like `[],[],...` takes
 * 50 times its size in memory. */
int json_parse_bounded(const char *source, const char *text, size_t n_bytes, size_t n_values,
                       json_t **ret, Error *err);
int json_read_file(const char *path, size_t max_bytes, json_t **ret, Error *err);

JsonReader json_open(const char *source, json_t *object, JsonMode mode, Error *err);
int json_close(JsonReader *reader);

/* Each json_get_*() returns true if the key is present and its value is good; otherwise *ret is unchanged, so the
 * caller can preset it with the default. A JSON null counts as absent. */
bool json_get_int(JsonReader *r, const char *key, JsonNeed need, int64_t min, int64_t max,
                  int64_t *ret);
bool json_get_double(JsonReader *r, const char *key, JsonNeed need, double min, double max,
                     double *ret);
bool json_get_bool(JsonReader *r, const char *key, JsonNeed need, bool *ret);
/* *ret is borrowed from the json_t. */
bool json_get_string(JsonReader *r, const char *key, JsonNeed need, const char **ret);
/* Reads a required hash, of 32 hexadecimal digits. */
void json_get_hash(JsonReader *r, const char *key, Hash *ret);
/* Makes the JSON text of a hash, which json_get_hash() reads. The caller owns the result. */
json_t *json_hash(Hash hash);
/* Copies the text to ret; a text that does not fit is an error. */
bool json_get_text(JsonReader *r, const char *key, JsonNeed need, char *ret, size_t size);
/* *ret is the value's index in names[n]; the error lists the names. */
bool json_get_choice(JsonReader *r, const char *key, JsonNeed need, const char *const *names,
                     size_t n, int *ret);
/* *ret is a borrowed array of at most max elements. */
bool json_get_array(JsonReader *r, const char *key, JsonNeed need, size_t max, json_t **ret);
/* Returns a list of at most max texts that ends with NULL, and which the caller frees with memory_free_texts(); NULL if
 * the key is missing. A list that is empty is refused. */
char **json_get_texts(JsonReader *r, const char *key, JsonNeed need, size_t max);
/* *ret is borrowed and of any type. */
bool json_get_any(JsonReader *r, const char *key, JsonNeed need, json_t **ret);
JsonReader json_get_object(JsonReader *r, const char *key, JsonNeed need);
/* Opens the i-th element, which must be an object, of an array that json_get_array() found under key. */
JsonReader json_get_element(JsonReader *r, const char *key, json_t *array, size_t i);

/* A key that may have only one value, given as JSON text: the code that reads the object supports no other value. */
typedef struct JsonFixed {
    const char *key, *value;
} JsonFixed;
/* Refuses the first key that is present with another value, or with null; compares numbers by value. A missing key is
 * accepted. */
void json_check_fixed(JsonReader *r, const JsonFixed *fixed, size_t n);
bool json_is_fixed(const JsonFixed *fixed, size_t n, const char *key);

/* Sets the reader's error to "<source>: <path.key>: <text>"; for checks that involve several keys. */
void json_refuse(JsonReader *r, const char *key, const char *format, ...) _printf_(3, 4);
/* Sets -ENOMEM as the reader's error; for a caller that cannot allocate its copy of a value. */
void json_out_of_memory(JsonReader *r);
