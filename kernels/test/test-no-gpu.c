/* SPDX-License-Identifier: Apache-2.0 */
/* test-no-gpu.c - tests the real CUDA module on a machine without a driver, and with the address of a GPU that no
 * machine has. */
#include "base/test/testing.h"
#include "kernels/kernels.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static bool has_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver)
        (void)dlclose(driver);
    return driver != NULL;
}

static void test_refuses(void **state)
{
    (void)state;
    const DeviceOptions options = {.kind = DEVICE_CUDA,
                                   .type = DATA_F32,
                                   .threads = 1,
                                   .pci_address = "fffe:fe:1f"};
    Error err = ERROR_INIT;
    Device *device = NULL;
    assert_int_equal(setenv("SDTRAIN_CUDA_MODULE", MODULE, 1), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(device_open(&options, &device, &err), -ENODEV);
        assert_null(device);
        const char *said = has_driver() ? "fffe:fe:1f" : "no NVIDIA driver: libcuda.so.1 does not";
        if (!strstr(err.text, said))
            fail_msg("\"%s\" does not say \"%s\"", err.text, said);
    }
    if (!has_driver())
        assert_non_null(strstr(err.text, "/dev/nvidia-uvm: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
