/* SPDX-License-Identifier: Apache-2.0 */
/* hang.h - checks every rank's progress, a few times a second.
 *
 * A rank that exceeds its bound (watchdog.h) is reported hung with its (step, stage) and killed. If several ranks of
 * a local world exceed their bounds, only the ranks furthest behind are reported and killed: other ranks wait for them.
 *
 * Ownership: none.
 * Units:     CLOCK_BOOTTIME microseconds.
 */
#pragma once

#include "base/macro.h"

typedef struct Workload Workload;

/* Checks all ranks. stood_still_usec: how long this process itself did not run just now; that time does not count
 * against any rank. */
void hang_check(Workload *w, uint64_t now_usec, uint64_t stood_still_usec);
