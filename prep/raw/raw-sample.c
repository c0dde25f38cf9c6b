/* SPDX-License-Identifier: Apache-2.0 */
/* raw-sample.c - see raw-sample.h. */
#include "prep/raw/raw-sample.h"

#include "base/json/json.h"
#include "prep/raw/utf8.h"

#include <stdarg.h>
#include <string.h>

enum { JSON_VALUES_MAX = 1 << 16 };

static const char *const names[RAW_N_REASONS] = {
    [RAW_FINE] = "fine",
    [RAW_NO_IMAGE] = "no-image",
    [RAW_NO_CAPTION] = "no-caption",
    [RAW_NOT_UTF8] = "not-utf8",
    [RAW_TRUNCATED] = "truncated",
    [RAW_TOO_LARGE] = "too-large",
    [RAW_TWO_IMAGES] = "two-images",
    [RAW_DUPLICATE_KEY] = "duplicate-key",
    [RAW_SPARSE] = "sparse",
    [RAW_BAD_JSON] = "bad-json",
    [RAW_APART] = "apart",
};

const char *raw_reason_name(RawReason reason)
{
    assert(reason < RAW_N_REASONS);
    return names[reason];
}

void raw_sample_clear(RawSample *sample)
{
    free(sample->key);
    free(sample->picture);
    free(sample->caption);
    json_decref(sample->fields);
    *sample = (RawSample){0};
}

void raw_sample_reject(RawSample *sample, RawReason reason, const char *format, ...)
{
    if (sample->reason != RAW_FINE)
        return;
    sample->reason = reason;
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(sample->why, sizeof(sample->why), format, ap);
    va_end(ap);
}

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a text";
    case JSON_NULL:
        return "null";
    case JSON_TRUE:
    case JSON_FALSE:
        return "true or false";
    default:
        return "a number";
    }
}

/* A JSON tree takes up to 50 times the memory of its text, so a text with too many commas and brackets is refused
 * before it is parsed. */
static bool has_many_values(const char *text, size_t n_bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++)
        n += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return n > JSON_VALUES_MAX;
}

/* ---- NaN and Infinity in JSON ---- */

/* Python's json module writes these words for missing or infinite floats; they are not valid JSON. */
static const char *const float_words[] = {"NaN", "Infinity", "-Infinity"};
#define NOTHING "null"

/* Returns the length of the word (NaN, ...) at the start of text; 0: text does not start with one. */
static size_t float_word_bytes(const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < ELEMENTSOF(float_words); i++) {
        const size_t n = strlen(float_words[i]);
        if (n <= n_bytes && memcmp(text, float_words[i], n) == 0)
            return n;
    }
    return 0;
}

/* Copies the text, with null in place of each of float_words outside strings. Returns the length of the result; `to`
 * may be NULL. */
static size_t replace_float_words(const char *text, size_t n_bytes, char *to)
{
    bool in_string = false;
    size_t n = 0;
    for (size_t i = 0, step; i < n_bytes; i += step) {
        const char *from = text + i;
        size_t n_from = step = in_string && *from == '\\' && i + 1 < n_bytes ? 2 : 1;
        const size_t word = in_string ? 0 : float_word_bytes(from, n_bytes - i);
        if (word > 0) {
            from = NOTHING;
            n_from = strlen(NOTHING);
            step = word;
        } else if (*from == '"') {
            in_string = !in_string;
        }
        if (to)
            memcpy(to + n, from, n_from);
        n += n_from;
    }
    return n;
}

static bool may_have_float_words(const char *text, size_t n_bytes)
{
    return memmem(text, n_bytes, "NaN", 3) || memmem(text, n_bytes, "Infinity", 8);
}

/* ---- .json ---- */

static int load(const char *text, size_t n_bytes, json_t **ret, json_error_t *error)
{
    char *replaced = NULL;
    if (may_have_float_words(text, n_bytes)) {
        const size_t n = replace_float_words(text, n_bytes, NULL);
        replaced = malloc(n + 1);
        if (!replaced)
            return -ENOMEM;
        replace_float_words(text, n_bytes, replaced);
        text = replaced;
        n_bytes = n;
    }
    *ret = json_loadb(text, n_bytes, JSON_ALLOW_NUL, error);
    free(replaced);
    return !*ret && json_error_code(error) == json_error_out_of_memory ? -ENOMEM : 0;
}

int raw_sample_take_json(RawSample *sample, const char *text, size_t n_bytes,
                         const char *caption_key)
{
    const size_t n_mark = json_mark_bytes(text, n_bytes);
    text += n_mark;
    n_bytes -= n_mark;
    if (has_many_values(text, n_bytes)) {
        raw_sample_reject(sample, RAW_BAD_JSON, ".json: more than %d values", JSON_VALUES_MAX);
        return 0;
    }
    json_error_t error;
    json_t *root;
    if (load(text, n_bytes, &root, &error) < 0)
        return -ENOMEM;
    if (!json_is_object(root)) {
        /* Half of a surrogate pair, such as "\ud800", comes from a writer that cut a text inside the pair. It is
         * rejected as not UTF-8. */
        bool code = !root && (json_error_code(&error) == json_error_invalid_utf8 ||
                              strstr(error.text, "nicode"));
        raw_sample_reject(sample, code ? RAW_NOT_UTF8 : RAW_BAD_JSON, ".json: %s",
                          root ? "is not an object" : error.text);
        json_decref(root);
        return 0;
    }
    json_decref(sample->fields);
    sample->fields = root;
    json_t *caption = caption_key ? json_object_get(root, caption_key) : NULL;
    if (sample->caption || !caption)
        return 0;
    if (!json_is_string(caption)) {
        raw_sample_reject(sample, RAW_NO_CAPTION, ".json: %s is %s", caption_key,
                          type_name(caption));
        return 0;
    }
    sample->n_caption = json_string_length(caption);
    sample->caption = malloc(sample->n_caption + 1);
    if (!sample->caption)
        return -ENOMEM;
    memcpy(sample->caption, json_string_value(caption), sample->n_caption + 1);
    return 0;
}

void raw_sample_check(RawSample *sample, bool keep_missing)
{
    if (keep_missing && sample->reason == RAW_NO_CAPTION)
        sample->reason = RAW_FINE;
    if (!sample->picture)
        raw_sample_reject(sample, RAW_NO_IMAGE, "there is no picture");
    if (!sample->caption && !keep_missing)
        raw_sample_reject(sample, RAW_NO_CAPTION, "there is no caption");
    if (!sample->caption)
        return;
    size_t n = utf8_prefix(sample->caption, sample->n_caption);
    if (n < sample->n_caption)
        raw_sample_reject(sample, RAW_NOT_UTF8, "byte %zu of the caption is not UTF-8", n);
}
