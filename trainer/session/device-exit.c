/* SPDX-License-Identifier: Apache-2.0 */
/* device-exit.c - see device-exit.h. */
#include "trainer/session/device-exit.h"

#include "base/fault.h"
#include "trainer/state/device-patience.h"

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

bool device_exit_blames(Device *device, int *r, Error *err)
{
    Error why = ERROR_INIT;
    int broken = fault("device.broken");
    if (broken < 0)
        (void)error_errno(&why, broken, "the device is broken"); /* the error becomes *r below */
    else
        broken = device_await(device, device_fence(device, LANE_COMPUTE), 0, &why);
    const bool computes = broken == 0 || broken == -ETIMEDOUT;
    if (computes && err->exit == EXIT_STORE_UNREACHABLE && !device_is_idle(device))
        broken = error_set(&why, -EIO, "the device hangs: %s", err->text);
    else if (computes)
        return false;
    *r = error_set(err, broken, "%s", why.text);
    (void)error_set_exit(err, *r, device_exit_code(broken)); /* error_set_exit() returns *r */
    return true;
}
