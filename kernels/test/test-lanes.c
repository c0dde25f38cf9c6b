/* SPDX-License-Identifier: Apache-2.0 */
/* test-lanes.c - tests copies, fences and waits of the device's lanes. */
#include "base/clock.h"
#include "kernels/test/testing-reference.h"

enum { N = 1 << 20, COPIES = 5000 }; /* more copies than a lane has room for */

static void test_copies_keep_their_order(void **state)
{
    (void)state;
    Device *device = cpu_open(2);
    Error err = ERROR_INIT;
    void *memory, *host;
    assert_int_equal(device_allocate(device, COPIES * sizeof(int), &memory, &err), 0);
    assert_int_equal((uintptr_t)memory % DEVICE_ALIGNMENT, 0);
    assert_int_equal(device_host_allocate(device, sizeof(int), &host, &err), 0);
    int numbers[COPIES], last = 0;
    for (int i = 0; i < COPIES; i++)
        numbers[i] = i;
    device_send(device, LANE_IN, memory, numbers, sizeof(numbers));
    device_wait(device, LANE_OUT, device_fence(device, LANE_IN));
    Fence middle = {0};
    assert_true(device_reached(device, middle));
    for (int i = 0; i < COPIES; i++) { /* all write to one place: the last copy stays */
        device_fetch(device, LANE_OUT, host, (const int *)memory + i, sizeof(int));
        if (i == COPIES / 2)
            middle = device_fence(device, LANE_OUT);
    }
    const Fence end = device_fence(device, LANE_OUT);
    assert_int_equal(device_await(device, end, USEC_INFINITY, &err), 0);
    assert_true(device_reached(device, middle) && device_reached(device, end));
    memcpy(&last, host, sizeof(last));
    assert_int_equal(last, COPIES - 1);
    device_host_release(device, host);
    device_release(device, memory);
    device = device_free(device);
}

/* A result computed after a wait is not seen by a copy that was queued before the wait. */
static void test_compute_waits_for_the_copy(void **state)
{
    (void)state;
    Device *device = cpu_open(2);
    Error err = ERROR_INIT;
    void *memory, *host;
    assert_int_equal(device_allocate(device, N, &memory, &err), 0);
    assert_int_equal(device_host_allocate(device, N, &host, &err), 0);
    for (int round = 0; round < 50; round++) {
        device_clear(device, memory, N);
        device_wait(device, LANE_OUT, device_fence(device, LANE_COMPUTE));
        device_fetch(device, LANE_OUT, host, memory, N);
        const Fence copied = device_fence(device, LANE_OUT);
        device_wait(device, LANE_COMPUTE, copied);
        device_upload(device, memory, "x", 1);
        assert_int_equal(device_await(device, copied, USEC_INFINITY, &err), 0);
        assert_int_equal(*(const char *)host, 0);
    }
    assert_int_equal(device_synchronise(device, &err), 0);
    device_fetch(device, LANE_OUT, host, memory, N);
    assert_int_equal(device_synchronise(device, &err), 0);
    assert_int_equal(*(const char *)host, 'x');
    device_host_release(device, host);
    device_release(device, memory);
    device_release(device, NULL);
    device = device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_keep_their_order),
        cmocka_unit_test(test_compute_waits_for_the_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
