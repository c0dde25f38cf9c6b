/* SPDX-License-Identifier: Apache-2.0 */
/* testing-orders.h - for tests: the orders in which a shadow device is let run what its lanes hold.
 *
 * Each set of lanes is late while the others run at once, so that of any two calls on different lanes, of which only a
 * missing wait orders one before the other, each comes first somewhere. A few drawn orders stand beside them. A test
 * with LIBS testing-device and --wrap=device_open opens its CPU as told here.
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    none.
 * Threads:   the main thread, which has no others: it sets the environment.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>

enum { TESTING_ORDERS_LATE = 16, TESTING_ORDERS_DRAWN = 6 };
enum { TESTING_ORDERS = TESTING_ORDERS_LATE + TESTING_ORDERS_DRAWN };

/* A bit for each lane: compute, in, out, comm. */
static inline void testing_orders_late(unsigned lanes, char *to, size_t size)
{
    static const char *const names[] = {"/compute", "/in", "/out", "/comm"};
    char text[64] = "";
    size_t n = 0;
    for (unsigned i = 0; i < 4; i++)
        if (lanes & 1U << i)
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", names[i]); /* it has room */
    (void)snprintf(to, size, "shadow:late=%s", n > 0 ? text + 1 : "none");     /* as above */
}

/* The devices that are opened from now on have this order. */
static inline void testing_orders_use(unsigned order)
{
    char text[96];
    if (order < TESTING_ORDERS_LATE)
        testing_orders_late(order, text, sizeof(text));
    else
        (void)snprintf(text, sizeof(text), "shadow:drawn,seed=%u", order - TESTING_ORDERS_LATE);
    (void)setenv("SDTRAIN_TEST_DEVICE", text, 1); /* a valid name */
}

/* They are what was asked for: the CPU. */
static inline void testing_orders_end(void)
{
    (void)unsetenv("SDTRAIN_TEST_DEVICE"); /* a valid name */
}
