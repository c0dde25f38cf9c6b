/* SPDX-License-Identifier: Apache-2.0 */
/* test-record-bounds.c - each field of each record at the bounds given in the tables of records.c: a list of the
 * maximum length is accepted, and one more element is refused with an error that names the field. Texts, numbers, words
 * and missing fields are tested likewise. */

#include "base/json/json.h"
#include "base/memory.h"
#include "base/slots.h"
#include "base/test/testing.h"
#include "cluster/record-tables.h"
#include "cluster/records.h"

#include <string.h>

static const RecordTable *table;
static json_t *root;
static size_t n_lists, n_texts, n_numbers;

/* ---- good values ---- */

static json_t *object_of(const Field *fields, size_t n);

static json_t *value_of(const Field *f)
{
    switch (f->type) {
    case FIELD_INT:
    case FIELD_INT64:
        return json_integer(f->min);
    case FIELD_DOUBLE:
    case FIELD_LOSS:
        return json_real(0.5);
    case FIELD_BOOL:
        return json_true();
    case FIELD_CHOICE:
        return json_string(f->names[f->n_names - 1]);
    case FIELD_HASH:
        return json_string("00112233445566778899aabbccddeeff");
    case FIELD_SLOTS:
        return json_string("0");
    case FIELD_OBJECT:
        return object_of(f->fields, f->n_fields);
    case FIELD_LIST:
    case FIELD_ARRAY:
        return json_array();
    default:
        return json_string("x");
    }
}

static void put(json_t *object, const char *name, json_t *value)
{
    assert_int_equal(json_object_set_new(object, name, value), 0);
}

/* Makes an object that has only the required fields. */
static json_t *object_of(const Field *fields, size_t n)
{
    json_t *object = json_object();
    for (size_t i = 0; i < n; i++)
        if (fields[i].need == JSON_REQUIRED)
            put(object, fields[i].name, value_of(&fields[i]));
    return object;
}

static json_t *array_of(const Field *f, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++)
        assert_int_equal(json_array_append_new(array, object_of(f->fields, f->n_fields)), 0);
    return array;
}

/* ---- reading ---- */

static size_t struct_bytes(const Field *fields, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const Field *f = &fields[i];
        size_t own = sizeof(Hash); /* the largest type that has no size in the table */
        if (f->type == FIELD_TEXT || f->type == FIELD_VERBATIM)
            own = f->size;
        else if (f->type == FIELD_ARRAY)
            own = f->size * f->element_bytes;
        else if (f->type == FIELD_OBJECT)
            own = struct_bytes(f->fields, f->n_fields);
        bytes = MAX(bytes, f->offset + own);
        bytes = MAX(bytes, f->count_offset + sizeof(size_t));
    }
    return bytes;
}

static int read_root(Error *err)
{
    void *record = memory_zeroed(1, struct_bytes(table->fields, table->n_fields));
    JsonReader r = json_open("the key", root, JSON_ANY_KEYS, err);
    field_table_read(&r, table->fields, table->n_fields, record);
    const int result = json_close(&r);
    field_table_clear(record, table->fields, table->n_fields);
    free(record);
    return result;
}

static void assert_taken(json_t *object, const Field *f, json_t *value)
{
    Error err = ERROR_INIT;
    put(object, f->name, value);
    if (read_root(&err) < 0)
        fail_msg("%s: %s", table->kind, err.text);
}

static void assert_refused(json_t *object, const Field *f, json_t *value)
{
    Error err = ERROR_INIT;
    put(object, f->name, value);
    if (read_root(&err) != -EINVAL)
        fail_msg("%s: %s is taken", table->kind, f->name);
    if (!strstr(err.text, f->name) || !strstr(err.text, "the key: "))
        fail_msg("%s: %s: %s", table->kind, f->name, err.text);
}

/* ---- bounds ---- */

static void walk(const Field *fields, size_t n, json_t *object);

static void try_text(const Field *f, json_t *object)
{
    char *text = memory_zeroed(1, f->size + 1);
    memset(text, 'x', f->size);
    assert_refused(object, f, json_string(text));
    text[f->size - 1] = '\0';
    assert_taken(object, f, json_string(text));
    assert_refused(object, f, json_integer(1));
    free(text);
    n_texts++;
}

static void try_number(const Field *f, json_t *object)
{
    assert_true(f->min < f->max);
    assert_taken(object, f, json_integer(f->min));
    assert_taken(object, f, json_integer(f->max));
    if (f->min > INT64_MIN)
        assert_refused(object, f, json_integer(f->min - 1));
    if (f->max < INT64_MAX)
        assert_refused(object, f, json_integer(f->max + 1));
    assert_refused(object, f, json_string("1"));
    n_numbers++;
}

static void try_list(const Field *f, json_t *object)
{
    if (f->n_fields > 0) {
        put(object, f->name, array_of(f, 1));
        walk(f->fields, f->n_fields, json_array_get(json_object_get(object, f->name), 0));
    }
    assert_taken(object, f, array_of(f, 0));
    assert_taken(object, f, array_of(f, f->size));
    assert_refused(object, f, array_of(f, f->size + 1));
    assert_refused(object, f, json_object());
    n_lists++;
}

static void try_field(const Field *f, json_t *object)
{
    switch (f->type) {
    case FIELD_TEXT:
    case FIELD_VERBATIM:
        try_text(f, object);
        break;
    case FIELD_INT:
    case FIELD_INT64:
        try_number(f, object);
        break;
    case FIELD_CHOICE:
        for (size_t i = 0; i < f->n_names; i++)
            assert_taken(object, f, json_string(f->names[i]));
        assert_refused(object, f, json_string("no such word"));
        break;
    case FIELD_HASH:
        assert_taken(object, f, json_string("00112233445566778899aabbccddeeff"));
        assert_refused(object, f, json_string("00112233445566778899aabbccddeef"));
        break;
    case FIELD_SLOTS: {
        char last[16];
        /* The text has two digits, so it cannot be cut. */
        (void)snprintf(last, sizeof(last), "%d", RECORD_SLOTS_MAX - 1);
        assert_taken(object, f, json_string(last));
        (void)snprintf(last, sizeof(last), "%d", RECORD_SLOTS_MAX); /* two digits, so not cut */
        assert_refused(object, f, json_string(last));
        break;
    }
    case FIELD_OBJECT:
        put(object, f->name, object_of(f->fields, f->n_fields));
        walk(f->fields, f->n_fields, json_object_get(object, f->name));
        break;
    case FIELD_LIST:
    case FIELD_ARRAY:
        try_list(f, object);
        break;
    case FIELD_BOOL:
        assert_taken(object, f, json_false());
        assert_refused(object, f, json_string("yes"));
        break;
    case FIELD_STRING:
    case FIELD_DOUBLE:
        assert_refused(object, f, json_array());
        break;
    case FIELD_LOSS:
        assert_taken(object, f, json_string("nan"));
        break;
    }
}

/* Tries every field of object, which is root or a part of root. */
static void walk(const Field *fields, size_t n, json_t *object)
{
    for (size_t i = 0; i < n; i++) {
        const Field *f = &fields[i];
        try_field(f, object);
        Error err = ERROR_INIT;
        for (int null = 0; null < 2; null++) {
            (void)json_object_del(object, f->name); /* the field may be missing already */
            if (null)
                put(object, f->name, json_null());
            assert_int_equal(read_root(&err), f->need == JSON_REQUIRED ? -EINVAL : 0);
            if (f->need == JSON_REQUIRED)
                assert_non_null(strstr(err.text, f->name));
        }
        (void)json_object_del(object, f->name); /* the field is present, so this succeeds */
        if (f->need == JSON_REQUIRED)
            put(object, f->name, value_of(f));
    }
}

static void each_field_ends_where_its_table_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_record_tables; i++) {
        Error err = ERROR_INIT;
        table = &record_tables[i];
        root = object_of(table->fields, table->n_fields);
        if (read_root(&err) < 0)
            fail_msg("%s", err.text);
        walk(table->fields, table->n_fields, root);
        json_decref(root);
    }
    print_message("%zu records: %zu lists, %zu texts, %zu numbers\n", n_record_tables, n_lists,
                  n_texts, n_numbers);
    assert_true(n_lists >= 10 && n_texts >= 50 && n_numbers >= 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_field_ends_where_its_table_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
