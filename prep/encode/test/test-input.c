/* SPDX-License-Identifier: Apache-2.0 */
/* test-input.c - the list of a dataset's units: the difference between two lists is named, and equal versions are
 * recognized. */
#include "prep/encode/input.h"

#include "data/test/testing-scratch.h"

typedef struct Case {
    const char *there, *ours;
    const char *says; /* words that the error's text must contain; NULL: the lists are equal */
} Case;

static InputList list_of(const char *text)
{
    InputList list = {0};
    Error err = ERROR_INIT;
    assert_good(input_list_parse("x", text, strlen(text), &list, &err), err);
    return list;
}

#define UNIT(name, bytes) "{\"name\":\"" name "\",\"bytes\":" #bytes ",\"version\":\"v\"}"
#define OTHER(name, bytes) "{\"name\":\"" name "\",\"bytes\":" #bytes ",\"version\":\"w\"}"
#define TARS(units) "{\"units\":[" units "]}"
#define SHARDS(digit, units)                                                                       \
    "{\"index_xxh3_128\":\"0000000000000000000000000000000" digit "\",\"units\":[" units "]}"

static void another_input_is_named(void **state)
{
    (void)state;
    static const Case cases[] = {
        {TARS(UNIT("a.tar", 1)), TARS(UNIT("a.tar", 1)), NULL},
        {TARS(UNIT("a.tar", 1)), TARS(OTHER("a.tar", 1)), NULL}, /* versions do not matter */
        {TARS(UNIT("a.tar", 1) "," UNIT("b.tar", 1)), TARS(UNIT("a.tar", 1)),
         "b.tar is gone from it"},
        {TARS(UNIT("b.tar", 1)), TARS(UNIT("a.tar", 1) "," UNIT("b.tar", 1)), "a.tar is new in it"},
        {TARS(UNIT("a.tar", 1) "," UNIT("b.tar", 1)), TARS(UNIT("b.tar", 1)),
         "a.tar is gone from it"},
        {TARS(UNIT("a.tar", 1)), TARS(UNIT("a.tar", 2)),
         "unit 0 was a.tar of 1 bytes, and is a.tar of 2"},
        {SHARDS("1", UNIT("z", 1) "," UNIT("y", 1)), SHARDS("1", UNIT("z", 1) "," UNIT("x", 1)),
         "unit 1 was y of 1 bytes, and is x of 1"},
        {SHARDS("1", UNIT("z", 1)), SHARDS("1", UNIT("z", 1) "," UNIT("x", 1)), "x is new in it"},
        {SHARDS("1", UNIT("z", 1)), SHARDS("2", UNIT("z", 1)), "the xxh3_128 of its index.json"},
        {SHARDS("1", UNIT("z", 1)), TARS(UNIT("z", 1)), "the xxh3_128 of its index.json"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        InputList there = list_of(cases[i].there), ours = list_of(cases[i].ours);
        int r = input_list_compare(&there, &ours, "file:///out", &err);
        assert_int_equal(r, cases[i].says ? -EEXIST : 0);
        if (cases[i].says) {
            assert_names(err, cases[i].says);
            assert_names(err, "file:///out holds samples of another input");
        }
        char *text = input_list_format(&ours);
        assert_string_equal(text + strlen(text) - 1, "\n");
        InputList again = list_of(text);
        assert_int_equal(input_list_compare(&again, &ours, "x", &err), 0);
        assert_string_equal(again.units[0].version, ours.units[0].version);
        free(text);
        input_list_clear(&again);
        input_list_clear(&there);
        input_list_clear(&ours);
    }
}

static void versions_of_files_and_etags(void **state)
{
    (void)state;
    static const struct {
        const char *noted, *now;
        InputChange change;
    } cases[] = {
        {"12-1700000000.000000001-512", "12-1700000000.000000001-512", INPUT_SAME},
        {"12-1700000000.000000001-512", "13-1700000000.000000001-512", INPUT_COPIED},
        {"12-1700000000.000000001-512", "12-1700000000.000000002-512", INPUT_CHANGED},
        {"12-1700000000.000000001-512", "12-1700000000.000000001-513", INPUT_CHANGED},
        {"9b2cf535f27731c9771645a39863328f", "9b2cf535f27731c9771645a39863328f", INPUT_SAME},
        {"9b2cf535f27731c9771645a39863328f", "0b2cf535f27731c9771645a39863328f", INPUT_CHANGED},
        /* The ETag of an upload of five parts ends with "-5". */
        {"9b2cf535f27731c9771645a39863328f-5", "0b2cf535f27731c9771645a39863328f-5", INPUT_CHANGED},
        {"12345-5", "12346-5", INPUT_CHANGED},
        {"", "12-1700000000.000000001-512", INPUT_SAME},
        {"x", "", INPUT_SAME},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        assert_int_equal(input_compare_versions(cases[i].noted, cases[i].now), cases[i].change);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(another_input_is_named),
                                       cmocka_unit_test(versions_of_files_and_etags)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
