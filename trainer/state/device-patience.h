/* SPDX-License-Identifier: Apache-2.0 */
/* device-patience.h - how long the host waits for a device, and whether it may release memory that the device uses.
 *
 * A device may hang. Every wait has a deadline, and memory that a lane may still use is not released, since the process
 * is about to end.
 *
 * Ownership: none. Units: microseconds. Errors: none. Threads: any.
 *
 * Fault points: device.impatient.
 */
#pragma once

#include "base/clock.h"
#include "kernels/kernels.h"

/* How long a device may take to reach a fence. A daemon that notices a hang kills the rank long before. Other ranks
 * wait for ten minutes (session.c), so that this rank reports first that its own device hangs. */
enum { DEVICE_TIMEOUT_SEC = 540 };
#define DEVICE_TIMEOUT_USEC (device_patience(DEVICE_TIMEOUT_SEC * USEC_PER_SEC))

/* Upper bound of every wait, for tests; device.impatient makes it two seconds. */
extern uint64_t device_patience_most_usec;

/* Returns the timeout of a wait whose usual timeout is usual_usec. */
uint64_t device_patience(uint64_t usual_usec);

/* Waits for all lanes before memory is released at the end: ten seconds at most, and not at all if an earlier wait was
 * in vain. Returns false if lanes may still use the memory. */
bool device_is_idle(Device *device);
