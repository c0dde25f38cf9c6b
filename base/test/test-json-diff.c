/* SPDX-License-Identifier: Apache-2.0 */
/* test-json-diff.c - differing keys are listed with both values, in order; keys that do not fit are counted. */
#include "base/json/json-diff.h"

#include "base/json/json.h"
#include "base/test/testing.h"

static void differences_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *was, *is, *says;
        size_t n;
    } cases[] = {
        {"{}", "{}", "", 0},
        {"{\"a\": 1, \"b\": {\"c\": [1, 2]}}", "{\"b\": {\"c\": [1, 2]}, \"a\": 1}", "", 0},
        {"{\"side\": 256}", "{\"side\": 512}", "side was 256, is 512", 1},
        {"{\"b\": {\"c\": 1, \"d\": \"x\"}}", "{\"b\": {\"c\": 2, \"d\": \"y\"}}",
         "b.c was 1, is 2; b.d was \"x\", is \"y\"", 2},
        {"{\"keep\": {}}", "{\"keep\": {\"width\": \"int64\"}}",
         "keep.width was missing, is \"int64\"", 1},
        {"{\"a\": null}", "{}", "a was null, is missing", 1},
        {"{\"a\": {\"b\": 1}}", "{\"a\": 3}", "a was {\"b\":1}, is 3", 1},
        {"{\"a\": [1, 2]}", "{\"a\": [2, 1]}", "a was [1,2], is [2,1]", 1},
        {"{\"z\": 1, \"a\": 1}", "{\"z\": 2, \"a\": 2}", "a was 1, is 2; z was 1, is 2", 2},
        {"{\"lr\": 1e-5}", "{\"lr\": 1e-3}", "lr was 1e-5, is 0.001", 1},
        {"{\"lr\": 0.1}", "{\"lr\": 0.10000000000000002}",
         "lr was 0.10000000000000001, is 0.10000000000000002", 1},
        {"{\"a\": \"\\u00e9\\n\"}", "{\"a\": 1}", "a was \"\\u00E9\\n\", is 1", 1},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char text[200];
        json_t *was = json_loads(cases[i].was, 0, NULL), *is = json_loads(cases[i].is, 0, NULL);
        assert_int_equal(json_diff_format(was, is, text, sizeof(text)), cases[i].n);
        assert_string_equal(text, cases[i].says);
        json_decref(was);
        json_decref(is);
    }
}

static void objects_in_arrays_have_paths_of_their_own(void **state)
{
    (void)state;
    static const struct {
        const char *was, *is, *says;
        size_t n;
    } cases[] = {
        {"{\"s\": [{\"p\": 1, \"u\": \"a\"}, {\"p\": 2}]}",
         "{\"s\": [{\"p\": 1, \"u\": \"b\"}, {\"p\": 3}]}",
         "s[0].u was \"a\", is \"b\"; s[1].p was 2, is 3", 2},
        {"{\"s\": [{\"p\": 1}]}", "{\"s\": [{\"p\": 1}, {\"p\": 1}]}", "s[1].p was missing, is 1",
         1},
        {"{\"b\": [1, 2], \"e\": [], \"o\": {}}", "{\"b\": [1, 3], \"e\": [1], \"o\": {\"x\": 1}}",
         "b was [1,2], is [1,3]; e was [], is [1]; o was {}, is missing; o.x was missing, is 1", 4},
        {"{\"s\": [1, {\"p\": 1}]}", "{\"s\": [1, {\"p\": 2}]}",
         "s was [1,{\"p\":1}], is [1,{\"p\":2}]", 1},
        {"", "{}", "", 0},
        {"{}", "[1]", "", 0},
        {"{\"a\": 1}", "{\"a\": 1", "", 0},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char text[300];
        assert_int_equal(json_diff_texts(cases[i].was, cases[i].is, text, sizeof(text)),
                         cases[i].n);
        assert_string_equal(text, cases[i].says);
    }
}

static void what_does_not_fit_is_counted(void **state)
{
    (void)state;
    json_t *was = json_object(), *is = json_object();
    for (int i = 0; i < 40; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "key%02d", i);
        json_object_set_new(was, key, json_integer(i));
    }
    char text[100], small[40], long_text[200];
    assert_int_equal(json_diff_format(was, is, text, sizeof(text)), 40);
    assert_string_equal(text, "key00 was 0, is missing; key01 was 1, is missing; and 38 more");
    assert_int_equal(json_diff_format(was, is, small, sizeof(small)), 40);
    assert_string_equal(small, "40 more");
    json_decref(was);
    json_decref(is);
    /* A long value keeps its front and its end. */
    json_t *a = json_object(), *b = json_object();
    json_object_set_new(a, "uri",
                        json_string("0123456789012345678901234567890123456789012345678901"
                                    "234567890123456789"));
    assert_int_equal(json_diff_format(a, b, long_text, sizeof(long_text)), 1);
    assert_string_equal(long_text,
                        "uri was \"0123456789012345678...456789012345678901234567890123456789\", "
                        "is missing");
    json_decref(a);
    json_decref(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(differences_are_named),
                                       cmocka_unit_test(objects_in_arrays_have_paths_of_their_own),
                                       cmocka_unit_test(what_does_not_fit_is_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
