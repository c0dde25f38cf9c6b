/* SPDX-License-Identifier: Apache-2.0 */
/* testing-clock.h - for tests: a clock that the test stops and advances, and threads that are delayed.
 *
 * A program that links testing-clock calls its versions of clock_boottime_usec(), poll(), recv() and send(). So a test
 * waits for an event, where it would otherwise have to guess after how many seconds a busy machine reaches that event.
 *
 * Units: microseconds. Errors: none.
 * Ownership: a gate is the test's, in memory that all processes share (world_share()).
 * Threads:   any; hooks are set while there is only one thread.
 */
#pragma once

#include "base/macro.h"

#include <poll.h>
#include <stdatomic.h>

/* ---- a clock that stands still until all awaited events have been seen ---- */

typedef struct ClockGate {
    atomic_int awaited;               /* number of events still awaited */
    atomic_uint_fast64_t opened_usec; /* 0: the gate is closed */
} ClockGate;

/* Stops this process' clock until the gate opens; then the clock continues from the same time. */
void clock_hold(ClockGate *gate);
/* Records that one of the awaited events has been seen. The last one opens the gate. */
void clock_gate_pass(ClockGate *gate);

/* ---- a delayed thread ---- */

/* From now on this thread's clock is an hour ahead. */
void clock_be_late(void);
/* Sets this thread's clock right again, and ends its delays. */
void clock_be_in_time(void);
/* From now on, each time this thread is to receive, it first finds nothing, then waits until data
 * have arrived, and from then on its clock is late. */
void stand_still_before_words(void);
/* After this thread's next pause (a poll of no descriptors) its clock is late. */
void be_late_after_a_pause(void);
/* After its next send, this thread waits until the answer has arrived; then its clock is late. */
void stand_still_after_word(void);

/* ---- hooks, initially NULL ---- */

typedef struct ClockHooks {
    void (*before_poll)(const struct pollfd *fds, nfds_t n);
    void (*after_poll)(const struct pollfd *fds, nfds_t n);
    void (*before_reading)(void); /* is called before each reading of the clock in this process */
} ClockHooks;
extern ClockHooks clock_hooks;

/* Returns whether the descriptors are those that a connector (connector.h) polls when all calls
 * that it made have succeeded and no connection is in progress. */
bool polls_a_listener_only(const struct pollfd *fds, nfds_t n);
