/* SPDX-License-Identifier: Apache-2.0 */
/* test-device-exit.c - the exit code of each error of a device. */
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
        /* this node lacks something for this job */
        {-ENODEV, EXIT_NUMERICS},
        {-EPROTO, EXIT_NUMERICS},
        {-ENOTSUP, EXIT_NUMERICS},
        /* the job can run nowhere */
        {-ENOMEM, EXIT_NEVER_RETRY},
        {-EINVAL, EXIT_NEVER_RETRY},
        /* a later start may succeed */
        {-EAGAIN, EXIT_RETRY},
        /* the device is broken; an unknown error counts as a broken device, too */
        {-EIO, EXIT_DEVICE_FAULT},
        {-ETIMEDOUT, EXIT_DEVICE_FAULT},
        {-ENXIO, EXIT_DEVICE_FAULT},
        /* the program went wrong */
        {-EFAULT, EXIT_ABORTED},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        assert_int_equal(device_exit_code(cases[i].r), cases[i].code);
}

/* EXIT_ABORTED is equal to the code of a death by SIGABRT. So the daemon reports the same code, whether or not it has
 * received the rank's error message. */
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
