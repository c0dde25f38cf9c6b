/* SPDX-License-Identifier: Apache-2.0 */
/* field-table.c - see field-table.h. */
#include "base/json/field-table.h"

#include "base/memory.h"
#include "base/number/hash.h"
#include "base/slots.h"
#include "base/text/printable.h"

#include <math.h>
#include <string.h>

/* ---- reading ---- */

static void decode_double(JsonReader *r, const Field *f, double *ret)
{
    if (r->object && json_is_null(json_object_get(r->object, f->name)))
        *ret = NAN;
    else
        json_get_double(r, f->name, f->need, -INFINITY, INFINITY, ret);
}

static void decode_loss(JsonReader *r, const Field *f, double *ret)
{
    json_t *any = NULL;
    if (json_get_any(r, f->name, f->need, &any) && json_is_string(any))
        *ret = NAN;
    else
        json_get_double(r, f->name, f->need, -INFINITY, INFINITY, ret);
}

static void decode_string(JsonReader *r, const Field *f, char **ret)
{
    const char *text;
    if (!json_get_string(r, f->name, f->need, &text))
        return;
    *ret = memory_text(text);
}

static void decode_coded(JsonReader *r, const Field *f, void *ret)
{
    const char *text;
    if (!json_get_string(r, f->name, f->need, &text))
        return;
    int error = f->type == FIELD_HASH ? hash_parse(text, ret) : slots_parse(text, ret);
    if (error < 0)
        json_refuse(r, f->name, "\"%.40s\" is not %s", text,
                    f->type == FIELD_HASH ? "a hash" : "a list of slots like 0-3,6");
}

static void decode_elements(JsonReader *r, const Field *f, char *record)
{
    json_t *array;
    if (!json_get_array(r, f->name, f->need, f->size, &array))
        return;
    size_t n = json_array_size(array);
    char *elements = record + f->offset;
    if (f->type == FIELD_LIST) {
        elements = memory_zeroed(n, f->element_bytes); /* n is at most f->size */
        *(char **)(record + f->offset) = elements;
    }
    *(size_t *)(record + f->count_offset) = n;
    for (size_t i = 0; i < n; i++) {
        JsonReader element = json_get_element(r, f->name, array, i);
        field_table_read(&element, f->fields, f->n_fields, elements + i * f->element_bytes);
        (void)json_close(&element); /* the error of `element`, if any, is passed on to r */
    }
}

static void decode_field(JsonReader *r, const Field *f, char *record)
{
    void *at = record + f->offset;
    int64_t integer;
    switch (f->type) {
    case FIELD_TEXT:
        json_get_text(r, f->name, f->need, at, f->size);
        printable_make(at);
        break;
    case FIELD_VERBATIM:
        json_get_text(r, f->name, f->need, at, f->size);
        break;
    case FIELD_STRING:
        decode_string(r, f, at);
        break;
    case FIELD_INT:
        if (json_get_int(r, f->name, f->need, f->min, f->max, &integer))
            *(int *)at = (int)integer;
        break;
    case FIELD_INT64:
        json_get_int(r, f->name, f->need, f->min, f->max, at);
        break;
    case FIELD_DOUBLE:
        decode_double(r, f, at);
        break;
    case FIELD_LOSS:
        decode_loss(r, f, at);
        break;
    case FIELD_BOOL:
        json_get_bool(r, f->name, f->need, at);
        break;
    case FIELD_CHOICE:
        json_get_choice(r, f->name, f->need, f->names, f->n_names, at);
        break;
    case FIELD_HASH:
    case FIELD_SLOTS:
        decode_coded(r, f, at);
        break;
    case FIELD_OBJECT: {
        JsonReader inner = json_get_object(r, f->name, f->need);
        field_table_read(&inner, f->fields, f->n_fields, at);
        (void)json_close(&inner); /* the error of `inner`, if any, is passed on to r */
        break;
    }
    case FIELD_LIST:
    case FIELD_ARRAY:
        decode_elements(r, f, record);
        break;
    }
}

void field_table_read(JsonReader *r, const Field *fields, size_t n_fields, void *record)
{
    if (!r->object) /* the object is optional, and is missing */
        return;
    for (size_t i = 0; i < n_fields; i++)
        decode_field(r, &fields[i], record);
}

/* ---- writing ---- */

/* Tells whether the old value and our value of a member are the same. Another writer may omit an optional member that
 * is empty or 0, so a missing old value counts as empty or 0. */
static bool is_same_member(const json_t *old, const json_t *ours)
{
    if (!old)
        return json_is_string(ours) ? json_string_length(ours) == 0 : json_integer_value(ours) == 0;
    return json_equal(old, ours);
}

static bool have_same_identity(const char *fields, const json_t *old, const json_t *ours)
{
    while (*fields) {
        size_t n = strcspn(fields, " ");
        if (!is_same_member(json_object_getn(old, fields, n), json_object_getn(ours, fields, n)))
            return false;
        fields += n + (fields[n] == ' ');
    }
    return true;
}

static bool is_in_identity(const char *fields, const char *name)
{
    size_t n = strlen(name);
    for (; *fields; fields += strcspn(fields, " "), fields += *fields == ' ')
        if (strncmp(fields, name, n) == 0 && (fields[n] == ' ' || !fields[n]))
            return true;
    return false;
}

/* Returns a copy of the old element with the same identity, to be overwritten; a new object if there is no such
 * element. */
static json_t *element_to_write(const Field *f, json_t *old_array, const char *element)
{
    if (!f->identity || json_array_size(old_array) == 0)
        return json_object();
    _cleanup_json_ json_t *probe = json_object();
    for (size_t i = 0; i < f->n_fields; i++)
        if (is_in_identity(f->identity, f->fields[i].name))
            field_table_write(probe, &f->fields[i], 1, element);

    size_t i;
    json_t *old;
    json_array_foreach (old_array, i, old)
        if (json_is_object(old) && have_same_identity(f->identity, old, probe))
            return json_copy(old);
    return json_object();
}

static json_t *encode_elements(json_t *object, const Field *f, const char *record)
{
    const char *elements =
        f->type == FIELD_LIST ? *(char *const *)(record + f->offset) : record + f->offset;
    size_t n = *(const size_t *)(record + f->count_offset);
    json_t *old_array = json_object_get(object, f->name);
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++) {
        const char *element = elements + i * f->element_bytes;
        json_t *value = element_to_write(f, old_array, element);
        field_table_write(value, f->fields, f->n_fields, element);
        (void)json_array_append_new(array, value); /* cannot fail: an array accepts any value */
    }
    return array;
}

static json_t *encode_object(json_t *object, const Field *f, const char *record)
{
    json_t *old = json_object_get(object, f->name);
    json_t *value = json_is_object(old) ? json_copy(old) : json_object();
    field_table_write(value, f->fields, f->n_fields, record + f->offset);
    return value;
}

/* Repairs a text that JSON does not accept: the last output of a process may be cut inside a character, or not be UTF-8
 * at all. */
static json_t *encode_text(const char *text)
{
    json_t *value = json_string(text);
    if (value)
        return value;
    _cleanup_free_ char *repaired = memory_text(text);
    printable_repair(repaired);
    return json_string(repaired);
}

static json_t *encode_field(json_t *object, const Field *f, const char *record)
{
    const void *at = record + f->offset;
    char text[MAX((int)SLOTS_TEXT_MAX, (int)HASH_TEXT_BYTES)];
    switch (f->type) {
    case FIELD_TEXT:
    case FIELD_VERBATIM:
        return encode_text(at);
    case FIELD_STRING:
        return encode_text(*(char *const *)at ? *(char *const *)at : "");
    case FIELD_INT:
        return json_integer(*(const int *)at);
    case FIELD_INT64:
        return json_integer(*(const int64_t *)at);
    case FIELD_DOUBLE:
        return isfinite(*(const double *)at) ? json_real(*(const double *)at) : json_null();
    case FIELD_LOSS:
        return isfinite(*(const double *)at) ? json_real(*(const double *)at) : json_string("nan");
    case FIELD_BOOL:
        return json_boolean(*(const bool *)at);
    case FIELD_CHOICE:
        assert((size_t) * (const int *)at < f->n_names);
        return json_string(f->names[*(const int *)at]);
    case FIELD_HASH:
        return json_string(hash_format(*(const Hash *)at, text));
    case FIELD_SLOTS:
        return json_string(slots_format(*(const uint64_t *)at, text));
    case FIELD_OBJECT:
        return encode_object(object, f, record);
    case FIELD_LIST:
    case FIELD_ARRAY:
        return encode_elements(object, f, record);
    }
    return NULL;
}

void field_table_write(json_t *object, const Field *fields, size_t n_fields, const void *record)
{
    for (size_t i = 0; i < n_fields; i++) {
        int r =
            json_object_set_new(object, fields[i].name, encode_field(object, &fields[i], record));
        assert(r == 0); /* every field has a value: texts are made UTF-8, numbers finite */
    }
}

void field_table_clear(void *record, const Field *fields, size_t n_fields)
{
    for (size_t i = 0; i < n_fields; i++)
        if (fields[i].type == FIELD_STRING || fields[i].type == FIELD_LIST)
            free(*(void **)((char *)record + fields[i].offset));
}
