/* SPDX-License-Identifier: Apache-2.0 */
/* testing-orders.h - for tests: the orders in which a shadow device runs the calls of its lanes.
 *
 * In turn each set of lanes is late while the other lanes run at once. So if only a missing wait would order two calls
 * on different lanes, each of the two calls is first in some order. A few random orders are added. A test with LIBS
 * testing-device and --wrap=device_open opens its CPU with these orders.
 *
 * Ownership: none. Units: none. Errors: none.
 * Threads:   the main thread, while there are no other threads: the functions set environment variables.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>

enum { TESTING_ORDERS_LATE = 16, TESTING_ORDERS_DRAWN = 6 };
enum { TESTING_ORDERS = TESTING_ORDERS_LATE + TESTING_ORDERS_DRAWN };

/* Writes the device's text for a set of late lanes: one bit each for compute, in, out, comm. */
static inline void testing_orders_late(unsigned lanes, char *to, size_t size)
{
    static const char *const names[] = {"/compute", "/in", "/out", "/comm"};
    char text[64] = "";
    size_t n = 0;
    for (unsigned i = 0; i < 4; i++)
        if (lanes & 1U << i)
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", names[i]); /* all names fit */
    (void)snprintf(to, size, "shadow:late=%s", n > 0 ? text + 1 : "none");     /* the text fits */
}

/* Devices that are opened from now on use this order. */
static inline void testing_orders_use(unsigned order)
{
    char text[96];
    if (order < TESTING_ORDERS_LATE)
        testing_orders_late(order, text, sizeof(text));
    else
        (void)snprintf(text, sizeof(text), "shadow:drawn,seed=%u", order - TESTING_ORDERS_LATE);
    (void)setenv("SDTRAIN_TEST_DEVICE", text, 1); /* cannot fail: a valid name */
}

/* From now on the device that a test requests, the CPU, is opened. */
static inline void testing_orders_end(void)
{
    (void)unsetenv("SDTRAIN_TEST_DEVICE"); /* cannot fail: a valid name */
}
