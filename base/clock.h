/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - the only place that reads a clock.
 *
 * Ownership: none.
 * Units:     microseconds. boottime counts through suspend and is what deadlines use; realtime
 *            is for people.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "base/macro.h"

uint64_t clock_boottime_usec(void);
uint64_t clock_realtime_usec(void);
/* For the deadline of a condition variable, which cannot name the boottime clock. */
uint64_t clock_monotonic_usec(void);
