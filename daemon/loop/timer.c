/* SPDX-License-Identifier: Apache-2.0 */
/* timer.c - see timer.h. */
#include "daemon/loop/timer.h"

#include <systemd/sd-event.h>

enum { ACCURACY_USEC = 1000 };

void timer_stop(Timer *timer) { timer->source = sd_event_source_disable_unref(timer->source); }

static int on_timer_event(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Timer *timer = userdata;
    TimerDue due = timer->due;
    void *its = timer->userdata;
    timer_stop(timer);
    due(its); /* due() may have freed the timer */
    return 0;
}

static void start(const Timers *timers, Timer *timer, uint64_t after_usec, TimerDue due,
                  void *userdata, int64_t priority)
{
    assert(due);
    timer_stop(timer);
    timer->due = due;
    timer->userdata = userdata;
    int r = sd_event_add_time_relative(timers->event, &timer->source, CLOCK_BOOTTIME, after_usec,
                                       ACCURACY_USEC, on_timer_event, timer);
    if (r >= 0)
        r = sd_event_source_set_priority(timer->source, priority);
    if (r < 0) {
        Error err = ERROR_INIT;
        (void)error_errno(&err, r, "cannot arm a timer"); /* the error is passed on below */
        timers->failed(timers->userdata, &err);
    }
}

void timer_start(const Timers *timers, Timer *timer, uint64_t after_usec, TimerDue due,
                 void *userdata)
{
    start(timers, timer, after_usec, due, userdata, SD_EVENT_PRIORITY_NORMAL);
}

void timer_start_idle(const Timers *timers, Timer *timer, uint64_t after_usec, TimerDue due,
                      void *userdata)
{
    start(timers, timer, after_usec, due, userdata, SD_EVENT_PRIORITY_IDLE);
}
