/* SPDX-License-Identifier: Apache-2.0 */
/* edit.c - see edit.h. */
#include "ctl/job/start/edit.h"

#include "base/json/json.h"
#include "base/memory.h"
#include "protocol/job.h"

#include <string.h>

enum { KEY_DEPTH_MAX = 8, WORD_MAX = 63 };

/* One step of the path to a value: a key of an object, or an element of an array. */
typedef struct Place {
    char key[WORD_MAX + 1];
    long index; /* -1: the place is a key */
} Place;

static int refuse(const char *set, const char *what, Error *err)
{
    return error_set(err, -EINVAL, "--set %.100s: %s", set, what);
}

/* Splits the text before '=', such as "data.streams[0].uri", into places. */
static int split(const char *set, Place places[KEY_DEPTH_MAX], size_t *ret_n, Error *err)
{
    const char *p = set, *end = strchr(set, '=');
    size_t n = 0;
    if (!end || end == set)
        return refuse(set, "is not KEY=VALUE, as train.steps=500", err);
    while (p < end) {
        if (n == KEY_DEPTH_MAX)
            return refuse(set, "the key is deeper than any of a job file", err);
        Place *place = &places[n++];
        *place = (Place){.index = -1};
        if (*p == '[') {
            char *after;
            errno = 0;
            place->index = strtol(p + 1, &after, 10);
            if (n == 1 || errno || after == p + 1 || *after != ']' || place->index < 0)
                return refuse(set, "an element of an array is written as streams[0]", err);
            p = after + 1;
        } else {
            size_t length = strcspn(p, ".[=");
            if (length == 0 || length > WORD_MAX)
                return refuse(set, "is not KEY=VALUE, as train.optimizer.lr=1e-4", err);
            memcpy(place->key, p, length);
            p += length;
        }
        if (*p == '.')
            p++;
        else if (p < end && *p != '[')
            return refuse(set, "keys are joined by '.', as train.optimizer.lr", err);
    }
    if (end[-1] == '.')
        return refuse(set, "a key is missing after the last '.'", err);
    *ret_n = n;
    return 0;
}

/* Reads the value as JSON, or else as a plain text. A value that begins like JSON but is not valid JSON is refused. */
static int read_value(const char *set, json_t **ret, Error *err)
{
    const char *text = strchr(set, '=') + 1;
    *ret = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (!*ret && *text && strchr("{[\"", *text))
        return refuse(set, "the value is not JSON (does the shell take its quotes away?)", err);
    if (!*ret)
        *ret = json_string(text);
    assert(*ret); /* cannot fail: set_one() has checked that the text is UTF-8 */
    return 0;
}

static json_t *get(json_t *at, const Place *place)
{
    return place->index < 0 ? json_object_get(at, place->key)
                            : json_array_get(at, (size_t)place->index);
}

/* Goes down the path by one place. A missing object is created; a missing array element is an error. */
static int go(const char *set, json_t *at, const Place *place, json_t **ret, Error *err)
{
    *ret = get(at, place);
    if (*ret && !json_is_null(*ret))
        return 0;
    if (place->index >= 0)
        return refuse(set, "the array has no such element", err);
    *ret = json_object();
    json_object_set_new(at, place->key, *ret);
    return 0;
}

static int put(const char *set, json_t *at, const Place *place, json_t *value, Error *err)
{
    if (place->index < 0 && json_is_null(value))
        (void)json_object_del(at, place->key); /* fails if the key is missing, which is all right */
    else if (place->index < 0)
        json_object_set(at, place->key, value);
    else if (json_array_set(at, (size_t)place->index, value) < 0)
        return refuse(set, "the array has no such element", err);
    return 0;
}

static int set_one(json_t *root, const char *set, Error *err)
{
    Place places[KEY_DEPTH_MAX];
    size_t n = 0;
    json_t *at = root;
    _cleanup_json_ json_t *value = NULL, *whole = json_string(set);
    int r = whole ? split(set, places, &n, err) : refuse(set, "it is not UTF-8", err);
    if (r == 0)
        r = read_value(set, &value, err);
    for (size_t i = 0; r == 0 && i < n; i++) {
        if (places[i].index < 0 ? !json_is_object(at) : !json_is_array(at))
            return refuse(set,
                          places[i].index < 0 ? "what stands before the last '.' is not an object"
                                              : "what stands before the '[' is not an array",
                          err);
        r = i + 1 < n ? go(set, at, &places[i], &at, err) : put(set, at, &places[i], value, err);
    }
    return r;
}

int job_edit(const char *source, const char *text, const OptionTexts *sets, const char *name,
             char **ret, Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    int r = json_parse(source, text, strlen(text), &root, err);
    for (int i = 0; r == 0 && i < sets->n; i++)
        r = set_one(root, sets->items[i], err);
    if (r < 0)
        return r;
    if (name && json_object_set_new(root, "name", json_string(name)) < 0)
        return error_set(err, -EINVAL, "--name: it is not UTF-8");
    _cleanup_free_ char *dump = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (!dump)
        return error_set(err, -EINVAL, "%s: cannot be written again", source);
    if (asprintf(ret, "%s\n", dump) < 0)
        return error_errno(err, -ENOMEM, "%s", source);
    return 0;
}
