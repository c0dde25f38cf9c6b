/* SPDX-License-Identifier: Apache-2.0 */
/* device-patience.h - how long the host waits for a device, and whether it may release what the device uses.
 *
 * A device may hang. No wait is without a deadline, and memory that a lane may still use is kept: the process
 * is about to end.
 *
 * Ownership: none.
 * Units:     microseconds.
 * Errors:    none.
 * Threads:   any.
 *
 * Fault points: device.impatient.
 */
#pragma once

#include "base/clock.h"
#include "kernels/kernels.h"

/* How long a device may take to reach a fence. A daemon that sees a hang kills long before. Other ranks wait for ten
 * minutes (session.c): this rank says first that the device is its own. */
enum { DEVICE_TIMEOUT_SEC = 540 };
#define DEVICE_TIMEOUT_USEC (device_patience(DEVICE_TIMEOUT_SEC * USEC_PER_SEC))

/* No wait is longer, for tests; device.impatient makes it two seconds. */
extern uint64_t device_patience_most_usec;

/* The deadline of a wait that usually gets usual_usec. */
uint64_t device_patience(uint64_t usual_usec);

/* Waits for all lanes before an end releases memory: ten seconds at most, and not at all where it has waited in vain
 * before. false: they may use it still. */
bool device_is_idle(Device *device);
