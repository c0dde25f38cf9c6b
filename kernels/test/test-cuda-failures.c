/* SPDX-License-Identifier: Apache-2.0 */
/* test-cuda-failures.c - tests a kernel that traps, and a GPU that breaks, on the emulated device: their different
 * errno, the kernel's name in the error, and that every later call fails. */
#include "base/fault.h"
#include "base/test/testing.h"
#include "kernels/test/emulator/emulated.h"

#include <string.h>

enum { N = 64 };

static const char *action; /* the action of the second visit of the fault point */
static int visits;

static int visit(const char *point)
{
    if (strcmp(point, "emulated.kernel") != 0 || ++visits < 2)
        return 0;
    return strcmp(action, "efault") == 0 ? -EFAULT : -EIO;
}

static void breaks(const char *how, int r)
{
    const DeviceOptions options = {.kind = DEVICE_CUDA, .type = DATA_F32, .threads = 1};
    Error err = ERROR_INIT;
    Device *device = NULL;
    void *x = NULL, *y = NULL;
    action = how;
    visits = 0;
    assert_int_equal(emulated_device_open(&options, &device, &err), 0);
    assert_int_equal(device_allocate(device, N * sizeof(float), &x, &err), 0);
    assert_int_equal(device_allocate(device, N * sizeof(float), &y, &err), 0);
    silu_forward(device, N, x, y);
    assert_int_equal(device_synchronise(device, &err), 0);
    accumulate(device, N, x, y); /* the device breaks here */
    silu_forward(device, N, x, y);
    assert_int_equal(device_synchronise(device, &err), r);
    assert_non_null(strstr(err.text, "accumulate_kernel"));
    err = ERROR_INIT;
    assert_int_equal(device_await(device, device_fence(device, LANE_COMPUTE), 1000, &err), r);
    assert_non_null(strstr(err.text, "accumulate_kernel"));
    device_release(device, y);
    device_release(device, x);
    (void)device_free(device);
}

static void test_trap(void **state)
{
    (void)state;
    breaks("efault", -EFAULT);
}

static void test_broken(void **state)
{
    (void)state;
    breaks("eio", -EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_trap), cmocka_unit_test(test_broken)};
    fault_lend(visit);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
