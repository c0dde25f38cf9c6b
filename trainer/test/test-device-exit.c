/* SPDX-License-Identifier: Apache-2.0 */
/* test-device-exit.c - what each error of a device costs, and whom. */
#include "base/macro.h"
#include "base/test/testing.h"
#include "trainer/session/device-exit.h"

#include <errno.h>
#include <signal.h>

static void each_error_has_its_price(void **unused)
{
    (void)unused;
    static const struct {
        int r;
        ExitCode code;
    } cases[] = {
        /* this node, this job */
        {-ENODEV, EXIT_NUMERICS},
        {-EPROTO, EXIT_NUMERICS},
        {-ENOTSUP, EXIT_NUMERICS},
        /* the job, wherever it runs */
        {-ENOMEM, EXIT_NEVER_RETRY},
        {-EINVAL, EXIT_NEVER_RETRY},
        /* another time */
        {-EAGAIN, EXIT_RETRY},
        /* the device; so too what nobody thought of */
        {-EIO, EXIT_DEVICE_FAULT},
        {-ETIMEDOUT, EXIT_DEVICE_FAULT},
        {-ENXIO, EXIT_DEVICE_FAULT},
        /* the program */
        {-EFAULT, EXIT_ABORTED},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        assert_int_equal(device_exit_code(cases[i].r), cases[i].code);
}

/* The daemon reports a death by that signal the same, whether it heard the last words or not. */
static void aborted_is_the_signal(void **unused)
{
    (void)unused;
    assert_int_equal(EXIT_ABORTED, -SIGABRT);
    assert_string_equal(exit_code_class(EXIT_ABORTED), "signal");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_error_has_its_price),
        cmocka_unit_test(aborted_is_the_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
