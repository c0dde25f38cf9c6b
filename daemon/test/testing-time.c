/* SPDX-License-Identifier: Apache-2.0 */
/* testing-time.c - see testing-seams.h: clocks and timers. */
#include "base/clock.h"
#include "daemon/test/testing-seams.h"

enum { TIMERS_MAX = 96 };

static uint64_t now_usec;
uint64_t ahead_usec;

uint64_t clock_boottime_usec(void) { return now_usec; }
uint64_t clock_realtime_usec(void) { return now_usec + ahead_usec; }
uint64_t clock_monotonic_usec(void) { return now_usec; }

static struct {
    Timer *timer; /* NULL: the entry is free */
    uint64_t due_usec, serial;
    bool idle;
} timers[TIMERS_MAX];
static uint64_t n_timers_started;

void timer_stop(Timer *timer)
{
    for (size_t i = 0; i < TIMERS_MAX; i++)
        if (timers[i].timer == timer)
            timers[i].timer = NULL;
    timer->source = NULL;
}

static void start_timer(Timer *timer, uint64_t after_usec, TimerDue due, void *userdata, bool idle)
{
    size_t i = 0;
    timer_stop(timer);
    while (i < TIMERS_MAX && timers[i].timer)
        i++;
    assert_true(i < TIMERS_MAX);
    *timer = (Timer){.source = (sd_event_source *)timer, .due = due, .userdata = userdata};
    timers[i].timer = timer;
    timers[i].due_usec = now_usec + after_usec;
    timers[i].serial = ++n_timers_started;
    timers[i].idle = idle;
}

void timer_start(_unused_ const Timers *loop, Timer *timer, uint64_t after_usec, TimerDue due,
                 void *userdata)
{
    start_timer(timer, after_usec, due, userdata, false);
}

void timer_start_idle(_unused_ const Timers *loop, Timer *timer, uint64_t after_usec, TimerDue due,
                      void *userdata)
{
    start_timer(timer, after_usec, due, userdata, true);
}

static bool comes_first(size_t a, size_t b)
{
    if (timers[a].due_usec != timers[b].due_usec)
        return timers[a].due_usec < timers[b].due_usec;
    return timers[a].idle != timers[b].idle ? timers[b].idle : timers[a].serial < timers[b].serial;
}

static bool fire_one(uint64_t until_usec)
{
    size_t first = TIMERS_MAX;
    for (size_t i = 0; i < TIMERS_MAX; i++)
        if (timers[i].timer && timers[i].due_usec <= until_usec &&
            (first == TIMERS_MAX || comes_first(i, first)))
            first = i;
    if (first == TIMERS_MAX)
        return false;
    Timer *timer = timers[first].timer;
    TimerDue due = timer->due;
    void *userdata = timer->userdata;
    now_usec = MAX(now_usec, timers[first].due_usec);
    timer_stop(timer);
    due(userdata); /* due() may have freed the timer */
    return true;
}

void pass(uint64_t usec)
{
    uint64_t until_usec = now_usec + usec;
    while (fire_one(until_usec))
        ;
    now_usec = until_usec;
}

void stall(uint64_t usec) { now_usec += usec; }

void time_begin(void)
{
    now_usec = 1000 * USEC_PER_SEC;
    ahead_usec = 0;
}

void time_end(void)
{
    for (size_t i = 0; i < TIMERS_MAX; i++)
        assert_null(timers[i].timer);
}
