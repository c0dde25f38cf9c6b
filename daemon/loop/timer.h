/* SPDX-License-Identifier: Apache-2.0 */
/* timer.h - one-shot timers on the daemon's loop.
 *
 * Every deadline and retry of the daemon uses these timers, so that a program with a clock of its own needs to
 * replace only timer.c.
 *
 * Ownership: a Timer is a value inside its user; timer_stop() releases its event source and accepts a zeroed Timer.
 *            A Timer must not move while it runs.
 * Units:     CLOCK_BOOTTIME microseconds.
 * Errors:    a failure to start a timer (out of memory) goes to Timers.failed, which ends the program: a deadline
 *            that never comes would be worse.
 * Threads:   loop thread only.
 * Invariant: when `due` is called, its timer has already stopped, so `due` may start the timer again or free it.
 */
#pragma once

#include "base/error.h"

typedef struct sd_event sd_event;
typedef struct sd_event_source sd_event_source;

typedef void (*TimerDue)(void *userdata);

/* The loop that timers run on. */
typedef struct Timers {
    sd_event *event;
    void (*failed)(void *userdata, const Error *err); /* ends the program in an orderly way */
    void *userdata;                                   /* passed to `failed` */
} Timers;

typedef struct Timer {
    sd_event_source *source; /* NULL: the timer does not run */
    TimerDue due;
    void *userdata; /* passed to `due` */
} Timer;

/* Starts the timer, or restarts it if it already runs. */
void timer_start(const Timers *timers, Timer *timer, uint64_t after_usec, TimerDue due,
                 void *userdata);
/* Like timer_start(), but `due` is called only when nothing else is pending on the loop. */
void timer_start_idle(const Timers *timers, Timer *timer, uint64_t after_usec, TimerDue due,
                      void *userdata);
void timer_stop(Timer *timer);
static inline bool timer_runs(const Timer *timer) { return timer->source != NULL; }
