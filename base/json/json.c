/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - see json.h. */
#include "base/json/json.h"

#include "base/file-kind.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text/nearest.h"
#include "base/text/secret.h"

#include <math.h>
#include <string.h>

/* When an allocation fails, jansson silently drops the end of a number or an element of an object; the result still
 * looks like a valid record. So the allocator below never fails (memory.h). */
static void *give_memory(size_t n_bytes) { return memory_given(malloc(n_bytes)); }

__attribute__((constructor)) static void guard_memory(void)
{
    /* secret_free() wipes each block, because a JSON text may hold credentials. */
    json_set_alloc_funcs(give_memory, secret_free);
}

size_t json_mark_bytes(const char *text, size_t n_bytes)
{
    return n_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

int json_parse(const char *source, const char *text, size_t n_bytes, json_t **ret, Error *err)
{
    json_error_t e;
    const size_t n_mark = json_mark_bytes(text, n_bytes);
    text += n_mark;
    n_bytes -= n_mark;
    _cleanup_json_ json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &e);
    if (!root) { /* The error must not quote the input: a job may name any file. */
        char kind[128], *near = strstr(e.text, " near '");
        if (near)
            *near = '\0';
        const char *hint = strncmp(e.text, "string or '}'", 13) == 0
                               ? " (a comma too many, or a key without its quotes?)"
                           : strncmp(e.text, "'[' or '{'", 10) == 0
                               ? file_kind_words(text, n_bytes, kind, sizeof(kind))
                               : "";
        return error_set(err, -EINVAL, "%s: line %d, column %d: %s%s", source, e.line, e.column,
                         e.text, hint);
    }
    if (!json_is_object(root))
        return error_set(err, -EINVAL, "%s: expected a JSON object", source);
    *ret = TAKE_PTR(root);
    return 0;
}

int json_parse_bounded(const char *source, const char *text, size_t n_bytes, size_t n_values,
                       json_t **ret, Error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++)
        n += text[i] == '{' || text[i] == '[' || text[i] == ',';
    if (n > n_values)
        return error_set(err, -EINVAL, "%s: more than the %zu values that it may have", source,
                         n_values);
    return json_parse(source, text, n_bytes, ret, err);
}

int json_read_file(const char *path, size_t max_bytes, json_t **ret, Error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    int r = file_read(path, max_bytes, &text, &n_bytes, err);
    if (r < 0)
        return r;
    return json_parse(path, text, n_bytes, ret, err);
}

JsonReader json_open(const char *source, json_t *object, JsonMode mode, Error *err)
{
    return (JsonReader){.source = source, .object = object, .mode = mode, .error = err};
}

void json_out_of_memory(JsonReader *r)
{
    if (r->r == 0)
        r->r = error_set(r->error, -ENOMEM, "%s: out of memory", r->source);
}

_printf_(3, 0) static void refuse_v(JsonReader *r, const char *key, const char *format, va_list ap)
    _printf_(3, 0);
static void refuse_v(JsonReader *r, const char *key, const char *format, va_list ap)
{
    if (r->r < 0)
        return;

    char what[320];
    (void)vsnprintf(what, sizeof(what), format, ap); /* a text that is too long is cut */
    r->r = error_set(r->error, -EINVAL, "%s: %s%s%s: %s", r->source, r->path, *r->path ? "." : "",
                     key, what);
}

void json_refuse(JsonReader *r, const char *key, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    refuse_v(r, key, format, ap);
    va_end(ap);
}

static bool was_read(const JsonReader *r, const char *key)
{
    for (size_t i = 0; i < r->n_asked; i++)
        if (strcmp(r->asked[i], key) == 0)
            return true;
    return false;
}

enum { KNOWN_BYTES = 240 };

static const char *list_known_keys(const JsonReader *r, char ret[KNOWN_BYTES])
{
    size_t used = 0;
    *ret = '\0';
    for (size_t i = 0; i < r->n_asked; i++) {
        if (used + strlen(r->asked[i]) + 8 > KNOWN_BYTES) {
            (void)snprintf(ret + used, KNOWN_BYTES - used, ", ...");
            break;
        }
        used +=
            (size_t)snprintf(ret + used, KNOWN_BYTES - used, "%s%s", used ? ", " : "", r->asked[i]);
    }
    return ret;
}

/* Refuses a key that the reader does not know, and suggests the known key with the most similar name. */
static void refuse_unknown(JsonReader *r, const char *key)
{
    Nearest meant = nearest_to(key);
    char hint[NEAREST_TEXT_BYTES], known[KNOWN_BYTES];
    for (size_t i = 0; i < r->n_asked; i++)
        nearest_offer(&meant, r->asked[i]);
    if (meant.n > 0)
        json_refuse(r, key, "unknown key%s", nearest_text(&meant, hint));
    else
        json_refuse(r, key, "unknown key; there are %s", list_known_keys(r, known));
}

/* Reports that a required key is missing, and suggests an unread key with a similar name, which may be
 * a typing error. */
static void refuse_missing(JsonReader *r, const char *key)
{
    Nearest meant = nearest_to(key);
    const char *there;
    json_t *value;
    if (r->mode == JSON_KNOWN_KEYS && r->object)
        json_object_foreach (r->object, there, value)
            if (!was_read(r, there))
                nearest_offer(&meant, there);
    if (meant.n > 0)
        json_refuse(r, key, "missing (is \"%.60s\" meant to be it?)", meant.words[0]);
    else
        json_refuse(r, key, "missing");
}

int json_close(JsonReader *r)
{
    const char *key;
    json_t *value;
    if (r->r == 0 && r->mode == JSON_KNOWN_KEYS && r->object)
        json_object_foreach (r->object, key, value)
            if (!was_read(r, key)) {
                refuse_unknown(r, key);
                break;
            }
    if (r->r < 0 && r->parent && r->parent->r == 0)
        r->parent->r = r->r;
    return r->r;
}

static json_t *find(JsonReader *r, const char *key, JsonNeed need)
{
    if (r->r < 0)
        return NULL;
    if (!was_read(r, key)) {
        assert(r->n_asked < JSON_KEYS_MAX);
        r->asked[r->n_asked++] = key;
    }
    json_t *value = r->object ? json_object_get(r->object, key) : NULL;
    if (value && !json_is_null(value))
        return value;
    if (need == JSON_REQUIRED)
        refuse_missing(r, key);
    return NULL;
}

static const char *value_text(json_t *value, char *text, size_t size)
{
    _cleanup_free_ char *dump =
        json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    (void)snprintf(text, size, "%.80s", dump ? dump : "?");
    return text;
}

static void refuse_type(JsonReader *r, const char *key, json_t *value, const char *expected)
{
    char text[96];
    json_refuse(r, key, "expected %s, got %s", expected, value_text(value, text, sizeof(text)));
}

bool json_get_int(JsonReader *r, const char *key, JsonNeed need, int64_t min, int64_t max,
                  int64_t *ret)
{
    json_t *value = find(r, key, need);
    if (!value)
        return false;

    int64_t v;
    if (json_is_integer(value)) {
        v = json_integer_value(value);
    } else if (json_is_real(value) && json_real_value(value) == floor(json_real_value(value)) &&
               fabs(json_real_value(value)) < 0x1p53) {
        v = (int64_t)json_real_value(value);
    } else {
        refuse_type(r, key, value, "an integer");
        return false;
    }
    if (v < min || v > max) {
        if (max == INT64_MAX)
            json_refuse(r, key, "%lld is less than %lld", (long long)v, (long long)min);
        else
            json_refuse(r, key, "%lld is not in %lld..%lld", (long long)v, (long long)min,
                        (long long)max);
        return false;
    }
    *ret = v;
    return true;
}

bool json_get_double(JsonReader *r, const char *key, JsonNeed need, double min, double max,
                     double *ret)
{
    json_t *value = find(r, key, need);
    if (!value)
        return false;
    if (!json_is_number(value)) {
        refuse_type(r, key, value, "a number");
        return false;
    }
    double v = json_number_value(value);
    if (!(v >= min && v <= max)) {
        json_refuse(r, key, "%g is not in %g..%g", v, min, max);
        return false;
    }
    *ret = v;
    return true;
}

bool json_get_bool(JsonReader *r, const char *key, JsonNeed need, bool *ret)
{
    json_t *value = find(r, key, need);
    if (!value)
        return false;
    if (!json_is_boolean(value)) {
        refuse_type(r, key, value, "true or false");
        return false;
    }
    *ret = json_is_true(value);
    return true;
}

bool json_get_string(JsonReader *r, const char *key, JsonNeed need, const char **ret)
{
    json_t *value = find(r, key, need);
    if (!value)
        return false;
    if (!json_is_string(value)) {
        refuse_type(r, key, value, "a string");
        return false;
    }
    if (strlen(json_string_value(value)) != json_string_length(value)) {
        json_refuse(r, key, "a NUL character inside a string");
        return false;
    }
    *ret = json_string_value(value);
    return true;
}

bool json_get_text(JsonReader *r, const char *key, JsonNeed need, char *ret, size_t size)
{
    const char *text;
    if (!json_get_string(r, key, need, &text))
        return false;
    if (strlen(text) >= size) {
        json_refuse(r, key, "a text of %zu bytes is longer than %zu bytes", strlen(text), size - 1);
        return false;
    }
    memcpy(ret, text, strlen(text) + 1);
    return true;
}

void json_get_hash(JsonReader *r, const char *key, Hash *ret)
{
    const char *text;
    if (json_get_string(r, key, JSON_REQUIRED, &text) && hash_parse(text, ret) < 0)
        json_refuse(r, key, "%.40s is not a hash of 32 hexadecimal digits", text);
}

json_t *json_hash(Hash hash)
{
    char text[HASH_TEXT_BYTES];
    return json_string(hash_format(hash, text));
}

bool json_get_choice(JsonReader *r, const char *key, JsonNeed need, const char *const *names,
                     size_t n, int *ret)
{
    const char *text;
    if (!json_get_string(r, key, need, &text))
        return false;

    char all[200] = "";
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], text) == 0) {
            *ret = (int)i;
            return true;
        }
        size_t used = strlen(all);
        (void)snprintf(all + used, sizeof(all) - used, "%s%s", i ? ", " : "", names[i]);
    }
    json_refuse(r, key, "%.60s is not one of %s", text, all);
    return false;
}

bool json_get_array(JsonReader *r, const char *key, JsonNeed need, size_t max, json_t **ret)
{
    json_t *value = find(r, key, need);
    if (!value)
        return false;
    if (!json_is_array(value)) {
        refuse_type(r, key, value, "an array");
        return false;
    }
    if (json_array_size(value) > max) {
        json_refuse(r, key, "%zu elements, at most %zu are allowed", json_array_size(value), max);
        return false;
    }
    *ret = value;
    return true;
}

char **json_get_texts(JsonReader *r, const char *key, JsonNeed need, size_t max)
{
    json_t *array = NULL;
    if (!json_get_array(r, key, need, max, &array))
        return NULL;
    if (json_array_size(array) == 0)
        json_refuse(r, key, "is empty");
    char **list = memory_zeroed(json_array_size(array) + 1, sizeof(*list));
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *text = json_string_value(json_array_get(array, i));
        list[i] = memory_text(text ? text : "");
        if (!text)
            json_refuse(r, key, "element %zu is not a text", i);
    }
    return list;
}

bool json_get_any(JsonReader *r, const char *key, JsonNeed need, json_t **ret)
{
    json_t *value = find(r, key, need);
    if (!value)
        return false;
    *ret = value;
    return true;
}

static JsonReader child(JsonReader *r, json_t *object)
{
    return (JsonReader){.object = object,
                        .parent = r,
                        .source = r->source,
                        .mode = r->mode,
                        .error = r->error,
                        .r = r->r};
}

JsonReader json_get_object(JsonReader *r, const char *key, JsonNeed need)
{
    json_t *value = find(r, key, need);
    if (value && !json_is_object(value)) {
        refuse_type(r, key, value, "an object");
        value = NULL;
    }
    JsonReader c = child(r, value);
    (void)snprintf(c.path, sizeof(c.path), "%s%s%s", r->path, *r->path ? "." : "", key);
    return c;
}

JsonReader json_get_element(JsonReader *r, const char *key, json_t *array, size_t i)
{
    json_t *value = r->r < 0 ? NULL : json_array_get(array, i);
    if (value && !json_is_object(value)) {
        refuse_type(r, key, value, "an array of objects");
        value = NULL;
    }
    JsonReader c = child(r, value);
    (void)snprintf(c.path, sizeof(c.path), "%.40s%s%.40s[%zu]", r->path, *r->path ? "." : "", key,
                   i);
    return c;
}

/* ---- keys of one value ---- */

static bool json_same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b) == 1;
}

void json_check_fixed(JsonReader *r, const JsonFixed *fixed, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        json_t *value = json_object_get(r->object, fixed[i].key);
        if (!value)
            continue;
        _cleanup_json_ json_t *wanted = json_loads(fixed[i].value, JSON_DECODE_ANY, NULL);
        assert(wanted);
        if (json_same(value, wanted))
            continue;
        _cleanup_free_ char *text =
            json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
        json_refuse(r, fixed[i].key, "%.80s is not supported, only %s", text ? text : "?",
                    fixed[i].value);
    }
}

bool json_is_fixed(const JsonFixed *fixed, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(fixed[i].key, key) == 0)
            return true;
    return false;
}
