/* SPDX-License-Identifier: Apache-2.0 */
/* json-diff.c - see json-diff.h. */
#include "base/json/json-diff.h"

#include "base/cleanup.h"
#include "base/memory.h"

#include <string.h>

enum { DEPTH_MAX = 32, VALUE_BYTES = 60, MORE_BYTES = 32, DIGITS = 15, DIGITS_EXACT = 17 };

typedef struct Walk {
    JsonDifference each;
    void *context;
    size_t n;
} Walk;

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Returns the keys of both objects, sorted, without duplicates. */
static const char **names_of(const json_t *was, const json_t *is, size_t *ret_n)
{
    size_t n = 0, n_once = 0;
    const char **names =
        memory_zeroed(json_object_size(was) + json_object_size(is) + 1, sizeof(*names));
    const char *name;
    json_t *value;
    /* The casts are safe, because both objects are only read. */
    json_object_foreach ((json_t *)(uintptr_t)was, name, value)
        names[n++] = name;
    json_object_foreach ((json_t *)(uintptr_t)is, name, value)
        names[n++] = name;
    qsort(names, n, sizeof(*names), compare_names);
    for (size_t i = 0; i < n; i++)
        if (n_once == 0 || strcmp(names[n_once - 1], names[i]) != 0)
            names[n_once++] = names[i];
    *ret_n = n_once;
    return names;
}

static void walk(Walk *w, const char *path, int depth, const json_t *was, const json_t *is)
{
    if (was && is && json_equal(was, is))
        return;
    if (!json_is_object(was) || !json_is_object(is) || depth == DEPTH_MAX) {
        w->each(w->context, path, was, is);
        w->n++;
        return;
    }
    size_t n;
    _cleanup_free_ const char **names = names_of(was, is, &n);
    for (size_t i = 0; i < n; i++) {
        _cleanup_free_ char *below = memory_format("%s%s%s", path, *path ? "." : "", names[i]);
        walk(w, below, depth + 1, json_object_get(was, names[i]), json_object_get(is, names[i]));
    }
}

size_t json_each_difference(const json_t *was, const json_t *is, JsonDifference each, void *context)
{
    Walk w = {.each = each, .context = context};
    walk(&w, "", 0, was, is);
    return w.n;
}

/* ---- flat ---- */

static bool holds_objects(const json_t *json)
{
    for (size_t i = 0; i < json_array_size(json); i++)
        if (!json_is_object(json_array_get(json, i)))
            return false;
    return json_array_size(json) > 0;
}

static void flatten(json_t *to, const char *path, int depth, json_t *json)
{
    const char *name;
    json_t *value;
    size_t i;
    if (depth < DEPTH_MAX && json_is_object(json) && json_object_size(json) > 0)
        json_object_foreach (json, name, value) {
            _cleanup_free_ char *below = memory_format("%s%s%s", path, *path ? "." : "", name);
            flatten(to, below, depth + 1, value);
        }
    else if (depth < DEPTH_MAX && holds_objects(json))
        json_array_foreach (json, i, value) {
            _cleanup_free_ char *below = memory_format("%s[%zu]", path, i);
            flatten(to, below, depth + 1, value);
        }
    else
        json_object_set(to, path, json);
}

json_t *json_flat(const json_t *json)
{
    json_t *to = json_object();
    flatten(to, "", 0, (json_t *)(uintptr_t)json); /* the cast is safe: json is only read */
    return to;
}

/* ---- text ---- */

static char *value_text(const json_t *value, int digits)
{
    if (!value)
        return memory_text("missing");
    char *text = memory_given(json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS |
                                                    JSON_REAL_PRECISION((size_t)digits) |
                                                    JSON_ENSURE_ASCII));
    const size_t n = strlen(text), begin = VALUE_BYTES / 3, end = VALUE_BYTES - begin - 3;
    if (n > VALUE_BYTES) { /* only the middle is cut: paths differ mostly at the end */
        memcpy(text + begin, "...", 3);
        memmove(text + begin + 3, text + n - end, end + 1);
    }
    return text;
}

typedef struct Line {
    char *text;
    size_t size, used, n_more;
} Line;

void json_value_texts(const json_t *was, const json_t *is, char **ret_was, char **ret_is)
{
    *ret_was = value_text(was, DIGITS);
    *ret_is = value_text(is, DIGITS);
    if (strcmp(*ret_was, *ret_is) != 0)
        return;
    free(*ret_was); /* two different numbers, such as 0.1 and the next double, need more digits */
    free(*ret_is);
    *ret_was = value_text(was, DIGITS_EXACT);
    *ret_is = value_text(is, DIGITS_EXACT);
}

static void add(void *context, const char *path, const json_t *was, const json_t *is)
{
    Line *line = context;
    _cleanup_free_ char *a = NULL, *b = NULL;
    json_value_texts(was, is, &a, &b);
    _cleanup_free_ char *item =
        memory_format("%s%.100s was %s, is %s", line->used ? "; " : "", path, a, b);
    const size_t n = strlen(item);
    if (line->n_more > 0 || line->used + n + MORE_BYTES >= line->size) {
        line->n_more++;
        return;
    }
    memcpy(line->text + line->used, item, n + 1);
    line->used += n;
}

size_t json_diff_format(const json_t *was, const json_t *is, char *text, size_t size)
{
    Line line = {.text = text, .size = size};
    *text = '\0';
    size_t n = json_each_difference(was, is, add, &line);
    if (line.n_more > 0)
        (void)snprintf(text + line.used, size - line.used, "%s%zu more", line.used ? "; and " : "",
                       line.n_more);
    return n;
}

static json_t *flat_of_text(const char *text)
{
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    json_t *flat = json_is_object(json) ? json_flat(json) : NULL;
    json_decref(json);
    return flat;
}

size_t json_diff_texts(const char *was, const char *is, char *text, size_t size)
{
    json_t *a = flat_of_text(was), *b = flat_of_text(is);
    *text = '\0';
    size_t n = a && b ? json_diff_format(a, b, text, size) : 0;
    json_decref(a);
    json_decref(b);
    return n;
}
