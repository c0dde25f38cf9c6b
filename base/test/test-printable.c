/* SPDX-License-Identifier: Apache-2.0 */
/* test-printable.c - tests which characters of a text from outside may be shown; test-base.c has more
 * of these tests. */
#include "base/error.h"
#include "base/test/testing.h"
#include "base/text/printable.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void assert_becomes(const char *text, const char *wanted)
{
    char copy[100];
    (void)snprintf(copy, sizeof(copy), "%s", text);
    printable_make(copy);
    assert_string_equal(copy, wanted);
}

static void the_direction_of_writing_is_not_steered(void **state)
{
    (void)state;
    assert_becomes("gpj.\u202eexe", "gpj.???exe");
    assert_becomes("\u202a|\u202d|\u2066|\u2069|\u206f|\u200e|\u200f",
                   "???|???|???|???|???|???|???");
    assert_becomes("\u061c|\u2029|\u2070|\u200d", "??|   |\u2070|\u200d");
    assert_becomes("one\u2028two\u2029three", "one   two   three");
    assert_becomes("\u0627\u0644\u0639 \u05d0\u05d1 \u20ac \U0001f600",
                   "\u0627\u0644\u0639 \u05d0\u05d1 \u20ac \U0001f600");
}

/* Bare bytes 0x80 to 0x9f become '?': a terminal in eight-bit mode takes them for the start of a control sequence. The
 * same bytes inside a valid character stay. */
static void bare_control_bytes_go(void **state)
{
    (void)state;
    assert_becomes("\x9b"
                   "31m \x80\x9f",
                   "?31m ??");
    assert_becomes("\xa0\xff", "\xa0\xff");
    assert_becomes("\u00c4\u20ac\u06df\U0001f600", "\u00c4\u20ac\u06df\U0001f600");
    assert_becomes("\xc1\x9b \xed\xa0\x80 \xe2\x80", "\xc1? \xed\xa0? \xe2?"); /* not UTF-8 */
    assert_becomes("\xf8\x88\x80\x80\x80 \xf4\x90\x80\x80", "\xf8???? \xf4???");
    assert_becomes("\xc2\x9b"
                   "31m",
                   "??31m");
}

/* If the cut of a long text falls inside a character, all bytes of that character are removed. */
static void an_error_is_cut_between_characters(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    char text[sizeof(err.text) + 8];
    memset(text, 'x', sizeof(text));
    (void)snprintf(text + sizeof(err.text) - 3, 8, "\u20ac");
    (void)error_set(&err, -EINVAL, "%s", text);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_direction_of_writing_is_not_steered),
        cmocka_unit_test(bare_control_bytes_go),
        cmocka_unit_test(an_error_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
