/* SPDX-License-Identifier: Apache-2.0 */
/* test-device-staging.c - data that are copied through page-locked memory arrive complete, whatever their size, and the
 * caller may reuse its memory when the call returns. test-hang tests that every wait has a deadline. */
#include "base/test/testing.h"
#include "trainer/state/device-staging.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 2 << 20 };

static const size_t sizes[] = {0, 1, 4097, PIECE, PIECE + 1, 2 * PIECE + 3, 5 * PIECE - 1};

static Device *open_device(void)
{
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = 1};
    Error err = ERROR_INIT;
    Device *device;
    assert_int_equal(device_open(&options, &device, &err), 0);
    return device;
}

static void test_copies(void **state)
{
    (void)state;
    Device *device = open_device();
    Error err = ERROR_INIT;
    DeviceStaging *staging;
    void *memory;
    char *from = malloc(5 * PIECE), *wanted = malloc(5 * PIECE), *to = malloc(5 * PIECE);
    assert_true(from && wanted && to);
    assert_int_equal(device_allocate(device, 5 * PIECE, &memory, &err), 0);
    assert_int_equal(device_staging_new(device, &staging, &err), 0);
    for (size_t s = 0; s < ELEMENTSOF(sizes); s++) {
        const size_t n = sizes[s];
        for (size_t i = 0; i < n; i++)
            from[i] = wanted[i] = (char)(i * 2654435761u >> 24 ^ s);
        device_clear(device, memory, 5 * PIECE); /* the copy runs after this */
        assert_int_equal(device_staging_upload(staging, memory, from, n, "x", &err), 0);
        if (n > 0)
            assert_true(device_reached(device, device_fence(device, LANE_COMPUTE)));
        memset(from, 0x5a, n);
        memset(to, 0, 5 * PIECE);
        assert_int_equal(device_staging_download(staging, to, memory, 5 * PIECE, "x", &err), 0);
        assert_memory_equal(to, wanted, n);
        for (size_t i = n; i < 5 * PIECE; i++)
            if (to[i] != 0)
                fail_msg("byte %zu after %zu was written", i, n);
    }
    staging = device_staging_free(staging);
    assert_null(device_staging_free(NULL));
    device_release(device, memory);
    (void)device_free(device);
    free(from);
    free(wanted);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
