/* SPDX-License-Identifier: Apache-2.0 */
/* test-nearest.c - tests which misspelt words get a suggestion, and which are too different from all known words. */
#include "base/test/testing.h"

#include "base/text/nearest.h"

#include <string.h>

static const char *const words[] = {"start", "status", "stop", "list", "resize",
                                    "logs",  "min",    "max",  "node7"};

static void slips_are_told_from_other_words(void **state)
{
    static const struct {
        const char *asked, *says;
    } cases[] = {
        {"strat", " (did you mean \"start\"?)"},
        {"resise", " (did you mean \"resize\"?)"},
        {"lsit", " (did you mean \"list\"?)"},
        {"log", " (did you mean \"logs\"?)"},
        {"sta", " (did you mean \"start\" or \"status\"?)"},
        {"statu", " (did you mean \"status\"?)"},
        {"stat", " (did you mean \"start\" or \"status\"?)"},
        {"dance", ""},
        {"x", ""},
        {"", ""},
        {"mix", " (did you mean \"min\" or \"max\"?)"},
        {"node9", ""},
        {"nodee7", " (did you mean \"node7\"?)"},
        {"mni", " (did you mean \"min\"?)"},
        {"xin", " (did you mean \"min\"?)"},
        {"mnx", " (did you mean \"max\"?)"},
        {"averylongwordthatislikenootheronethatanybodycouldhavemeanttobe1234", ""},
    };
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char text[NEAREST_TEXT_BYTES];
        Nearest meant = nearest_to(cases[i].asked);
        for (size_t k = 0; k < ELEMENTSOF(words); k++)
            nearest_offer(&meant, words[k]);
        assert_string_equal(nearest_text(&meant, text), cases[i].says);
    }
}

static void what_is_offered_twice_is_said_once(void **state)
{
    char text[NEAREST_TEXT_BYTES];
    Nearest meant = nearest_to("strat");
    (void)state;
    for (int i = 0; i < 3; i++)
        nearest_offer(&meant, "start");
    assert_string_equal(nearest_text(&meant, text), " (did you mean \"start\"?)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slips_are_told_from_other_words),
        cmocka_unit_test(what_is_offered_twice_is_said_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
