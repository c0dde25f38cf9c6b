/* SPDX-License-Identifier: Apache-2.0 */
/* testing-device.c - stands between a test and device_open() (ld --wrap): with SDTRAIN_TEST_DEVICE=shadow[:OPTIONS]
 * the CPU that a test opens is a shadow device. CMake's sdtrain_test(... DEVICE) registers a test for both. */
#include "kernels/shadow/shadow.h"

#include <stdlib.h>
#include <string.h>

__typeof__(device_open) __real_device_open, __wrap_device_open;

int __wrap_device_open(const DeviceOptions *options, Device **ret, Error *err)
{
    const char *wanted = getenv("SDTRAIN_TEST_DEVICE");
    const size_t n = strlen("shadow");
    if (!wanted || options->kind != DEVICE_CPU)
        return __real_device_open(options, ret, err);
    if (strncmp(wanted, "shadow", n) != 0 || (wanted[n] != ':' && wanted[n] != '\0'))
        return error_set(err, -EINVAL, "SDTRAIN_TEST_DEVICE=%.100s is not shadow[:OPTIONS]",
                         wanted);
    ShadowOptions shadow;
    int r = shadow_options_parse(wanted[n] ? wanted + n + 1 : "", &shadow, err);
    return r < 0 ? r : shadow_open(options, &shadow, ret, err);
}
