/* SPDX-License-Identifier: Apache-2.0 */
/* test-error.c - tests of Error: its text, to which callers add context, its code, and its exit code, which is not
 * replaced once it is set. */
#include "base/error.h"
#include "base/test/testing.h"

#include <errno.h>

static void error_travels_with_its_text(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    int r = error_errno(&err, -ENOENT, "cannot open %s", "x.json");
    assert_int_equal(r, -ENOENT);
    assert_string_equal(err.text, "cannot open x.json: No such file or directory");
    assert_int_equal(error_prefix(&err, r, "job %s", "a"), -ENOENT);
    assert_string_equal(err.text, "job a: cannot open x.json: No such file or directory");
    assert_int_equal(error_set(NULL, -EIO, "nobody listens"), -EIO);
}

static void the_exit_code_that_was_said_first_stays_with_an_error(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    assert_int_equal(error_set_exit(&err, 0, 75), 0); /* r is 0: not a failure */
    assert_int_equal(err.exit, 0);
    (void)error_set(&err, -EIO, "the device is broken");
    assert_int_equal(err.exit, 0); /* no exit code was set */
    assert_int_equal(error_set_exit(&err, -EIO, 80), -EIO);
    assert_int_equal(error_set_exit(&err, -EIO, 75), -EIO);
    assert_int_equal(err.exit, 80);
    (void)error_prefix(&err, -EPIPE, "step 7");
    assert_string_equal(err.text, "step 7: the device is broken");
    assert_int_equal(err.exit, 80);
    (void)error_set(&err, -EIO, "another one");
    assert_int_equal(err.exit, 0); /* the exit code belonged to the replaced text */
    assert_int_equal(error_set_exit(NULL, -EIO, 80), -EIO);

    (void)error_set_exit(&err, -EIO, 80);
    error_from_outside(&err); /* another process's exit code must not end this one */
    assert_int_equal(err.exit, 0);
    assert_string_equal(err.text, "another one");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_travels_with_its_text),
        cmocka_unit_test(the_exit_code_that_was_said_first_stays_with_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
