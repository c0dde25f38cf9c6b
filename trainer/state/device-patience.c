/* SPDX-License-Identifier: Apache-2.0 */
/* device-patience.c - see device-patience.h. */
#include "trainer/state/device-patience.h"

#include "base/fault.h"

#include <pthread.h>
#include <stdatomic.h>

uint64_t device_patience_most_usec = UINT64_MAX;

static void read_patience(void)
{
    if (fault("device.impatient") < 0)
        device_patience_most_usec = 2 * USEC_PER_SEC;
}

uint64_t device_patience(uint64_t usual_usec)
{
    static pthread_once_t asked = PTHREAD_ONCE_INIT;
    (void)pthread_once(&asked, read_patience); /* cannot fail: the arguments are valid */
    return MIN(usual_usec, device_patience_most_usec);
}

bool device_is_idle(Device *device)
{
    static _Atomic(Device *) hangs; /* the device that was not idle at the last check */
    const uint64_t usual_usec = atomic_load(&hangs) == device ? 0 : 10 * USEC_PER_SEC;
    const uint64_t until = clock_monotonic_usec() + device_patience(usual_usec);
    for (int lane = 0; lane < N_LANES; lane++) {
        const uint64_t now = clock_monotonic_usec();
        const Fence fence = device_fence(device, (Lane)lane);
        if (device_await(device, fence, now < until ? until - now : 0, NULL) == -ETIMEDOUT) {
            atomic_store(&hangs, device);
            return false;
        }
    }
    Device *expected = device;
    /* does nothing if `hangs` is another device */
    (void)atomic_compare_exchange_strong(&hangs, &expected, NULL);
    return true; /* a broken device does nothing any more */
}
