/* SPDX-License-Identifier: Apache-2.0 */
/* test-errors.c - tests the errno of each error of CUDA, which says whose fault the error is, and the message about
 * missing device nodes. */
#include "base/macro.h"
#include "base/test/testing.h"
#include "kernels/cuda/module/errors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_codes(void **state)
{
    (void)state;
    static const struct {
        cudaError_t code;
        int open, failure;
    } cases[] = {
        {cudaErrorIllegalAddress, -ENODEV, -EFAULT},
        {cudaErrorLaunchFailure, -ENODEV, -EFAULT},
        {cudaErrorAssert, -ENODEV, -EFAULT},
        {cudaErrorIllegalInstruction, -ENODEV, -EFAULT},
        {cudaErrorMisalignedAddress, -ENODEV, -EFAULT},
        {cudaErrorInvalidAddressSpace, -ENODEV, -EFAULT},
        {cudaErrorInvalidPc, -ENODEV, -EFAULT},
        {cudaErrorHardwareStackError, -EIO, -EFAULT},
        {cudaErrorInvalidConfiguration, -ENODEV, -EFAULT},
        {cudaErrorLaunchOutOfResources, -ENODEV, -EFAULT},
        {cudaErrorInvalidValue, -ENODEV, -EFAULT},
        {cudaErrorECCUncorrectable, -EIO, -EIO},
        {cudaErrorNvlinkUncorrectable, -EIO, -EIO},
        {cudaErrorContained, -EIO, -EIO},
        {cudaErrorUnknown, -ENODEV, -EIO},
        {cudaErrorLaunchTimeout, -ENODEV, -EIO},
        {cudaErrorExternalDevice, -ENODEV, -EIO},
        {cudaErrorDevicesUnavailable, -EAGAIN, -EIO},
        {cudaErrorMemoryAllocation, -EAGAIN, -EIO},
        {cudaErrorInsufficientDriver, -ENOTSUP, -EIO},
        {cudaErrorSystemDriverMismatch, -EPROTO, -EIO},
        {cudaErrorNoKernelImageForDevice, -ENOTSUP, -EFAULT},
        {cudaErrorNoDevice, -ENODEV, -EIO},
        {cudaErrorInvalidDevice, -ENODEV, -EIO},
        {cudaErrorSystemNotReady, -ENODEV, -EIO},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        assert_int_equal(cuda_errno_of_open(cases[i].code), cases[i].open);
        assert_int_equal(cuda_errno_of_failure(cases[i].code), cases[i].failure);
    }
    /* An unknown code of a later runtime also has an errno. */
    for (int code = 1; code < 1200; code++) {
        assert_true(cuda_errno_of_open((cudaError_t)code) < 0);
        int r = cuda_errno_of_failure((cudaError_t)code);
        assert_true(r == -EFAULT || r == -EIO);
    }
}

static void test_gpus(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        cudaError_t kernels;
        int r;
        const char *says;
    } cases[] = {
        {"NVIDIA H200", cudaSuccess, 0, ""},
        {"NVIDIA H100 80GB HBM3 MIG 1g.10gb", cudaSuccess, -ENOTSUP, "part of a card"},
        {"NVIDIA A100", cudaErrorNoKernelImageForDevice, -ENOTSUP, "compute capability 8.0"},
        {"NVIDIA A100", cudaErrorInvalidDeviceFunction, -ENOTSUP, "has no kernels"},
        {"NVIDIA H200", cudaErrorECCUncorrectable, -EIO, "takes no kernel: CUDA's error 214"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        assert_int_equal(cuda_gpu_check(cases[i].name, 8, 0, cases[i].kernels, &err), cases[i].r);
        assert_non_null(strstr(err.text, cases[i].says));
        assert_true(cases[i].r == 0 || strstr(err.text, cases[i].name));
    }
}

static void make(const char *folder, const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
}

static void test_nodes(void **state)
{
    (void)state;
    char dev[] = "/tmp/test-errors-XXXXXX", text[512], expected[512], path[128], few[16];
    assert_non_null(mkdtemp(dev));
    assert_int_equal(cuda_nodes_missing(dev, text, sizeof(text)), 2);
    (void)snprintf(expected, sizeof(expected),
                   "; %s/nvidiactl: No such file or directory (is the driver loaded?); "
                   "%s/nvidia-uvm: No such file or directory (nvidia-modprobe -u -c 0, as root, "
                   "makes it)",
                   dev, dev);
    assert_string_equal(text, expected);
    assert_int_equal(cuda_nodes_missing(dev, few, sizeof(few)), 2);
    assert_int_equal(strlen(few), sizeof(few) - 1);

    make(dev, "nvidiactl");
    assert_int_equal(cuda_nodes_missing(dev, text, sizeof(text)), 1);
    assert_null(strstr(text, "nvidiactl"));
    assert_non_null(strstr(text, "nvidia-modprobe -u -c 0"));
    make(dev, "nvidia-uvm");
    assert_int_equal(cuda_nodes_missing(dev, text, sizeof(text)), 0);
    assert_string_equal(text, "");

    static const char *const names[] = {"nvidiactl", "nvidia-uvm", ""};
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dev, names[i]);
        assert_int_equal(remove(path), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes), cmocka_unit_test(test_gpus),
                                       cmocka_unit_test(test_nodes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
