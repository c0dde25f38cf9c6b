/* SPDX-License-Identifier: Apache-2.0 */
/* event-count.h - a counter that wakes the threads that wait for a change of it.
 *
 * It serves a thread that waits for any of several conditions. The thread reads event_count_read(), checks each
 * condition, and calls event_count_wait() with the count that it read. A signal after that reading ends the wait at
 * once, so no wake-up is lost.
 *
 * Ownership: event_count_new() gives the caller an EventCount, which must outlive everything that signals it.
 * Units:     deadlines are clock_monotonic_usec().
 * Errors:    -ENOMEM and other -errno of event_count_new(); nothing else fails.
 * Threads:   any, except that event_count_free() runs while no other thread uses the EventCount.
 */
#pragma once

#include "base/cleanup.h"

#include <stdint.h>

typedef struct EventCount EventCount;

int event_count_new(EventCount **ret);
EventCount *event_count_free(EventCount *events);
DEFINE_CLEANUP(EventCount, event_count_free)
void event_count_signal(EventCount *events);
uint64_t event_count_read(const EventCount *events);
/* Returns when the count differs from `seen`, or at the deadline. */
void event_count_wait(EventCount *events, uint64_t seen, uint64_t deadline_usec);
