/* SPDX-License-Identifier: Apache-2.0 */
/* device-exit.c - see device-exit.h. */
#include "trainer/device-exit.h"

#include <errno.h>

ExitCode device_exit_code(int r)
{
    switch (r) {
    case -ENODEV:
    case -EPROTO:
    case -ENOTSUP:
        return EXIT_NUMERICS;
    case -ENOMEM:
    case -EINVAL:
        return EXIT_NEVER_RETRY;
    case -EAGAIN:
        return EXIT_RETRY;
    case -EFAULT:
        return EXIT_ABORTED;
    default:
        return EXIT_DEVICE_FAULT;
    }
}
