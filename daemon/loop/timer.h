/* SPDX-License-Identifier: Apache-2.0 */
/* timer.h - one-shot timers on the daemon's loop.
 *
 * Every deadline and retry of the daemon is one of these, so that a program with a clock of its own needs
 * to replace only timer.c.
 *
 * Ownership: a Timer is a value inside its user; timer_stop() lets go of what it holds and accepts a zeroed
 *            one. A Timer must not move while it runs.
 * Units:     CLOCK_BOOTTIME microseconds.
 * Errors:    an event that never comes is worse than an end: out of memory goes to Timers.failed.
 * Threads:   loop thread only.
 * Invariant: a timer that is due does not run any more when `due` is called, which may start it again or free it.
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
    void *userdata;                                   /* of `failed` */
} Timers;

typedef struct Timer {
    sd_event_source *source; /* NULL: the timer does not run */
    TimerDue due;
    void *userdata; /* of `due` */
} Timer;

/* Starts the timer, or starts it anew when it runs already. */
void timer_start(const Timers *timers, Timer *timer, uint64_t after_usec, TimerDue due,
                 void *userdata);
/* The same, but `due` waits until nothing else is pending on the loop. */
void timer_start_idle(const Timers *timers, Timer *timer, uint64_t after_usec, TimerDue due,
                      void *userdata);
void timer_stop(Timer *timer);
static inline bool timer_runs(const Timer *timer) { return timer->source != NULL; }
