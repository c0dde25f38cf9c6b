/* SPDX-License-Identifier: Apache-2.0 */
/* dead-man.h - a timer that ends this process with SIGKILL unless it is armed again in time.
 *
 * A rank whose daemon has died or stands still must end by itself: the leader counts on that when it gives the rank's
 * slot to another world.
 *
 * Ownership: dead_man_open() fills a DeadMan, a value; dead_man_close() accepts a zeroed one.
 * Units:     CLOCK_BOOTTIME microseconds, so that a suspended machine's time counts.
 * Errors:    -errno of timer_create().
 * Threads:   any.
 */
#pragma once

#include "base/error.h"

#include <time.h>

typedef struct DeadMan {
    timer_t timer;
    bool is_open;
} DeadMan;

int dead_man_open(DeadMan *ret, Error *err);
/* Ends this process in usec, unless a later call comes before. 0: keeps what was armed. */
void dead_man_arm(DeadMan *dead_man, uint64_t usec);
void dead_man_close(DeadMan *dead_man);
