/* SPDX-License-Identifier: Apache-2.0 */
/* testing-clock.h - for tests: time that passes when the test says so, and threads that stand still.
 *
 * A program that links testing-clock calls its clock_boottime_usec(), poll(), recv() and send(): a test waits for
 * an event where it would have to guess after how many seconds a busy machine has come to it.
 *
 * Ownership: a gate is the test's, in memory that all processes share (world_share()).
 * Units:     microseconds.
 * Errors:    none.
 * Threads:   any; hooks are set while there is one.
 */
#pragma once

#include "base/macro.h"

#include <poll.h>
#include <stdatomic.h>

/* ---- time stands still until all that is awaited has been seen ---- */

typedef struct ClockGate {
    atomic_int awaited;               /* events */
    atomic_uint_fast64_t opened_usec; /* 0: it is closed */
} ClockGate;

/* This process' clock stands until the gate opens, and then goes on from there. */
void clock_hold(ClockGate *gate);
/* One of the events has been seen. */
void clock_gate_pass(ClockGate *gate);

/* ---- a thread that stands still ---- */

/* From now on this thread's clock is an hour ahead. */
void clock_be_late(void);
/* This thread's clock goes right again, and it stands still no more. */
void clock_be_in_time(void);
/* Before each word that this thread waits for it finds nothing, then stands still until the word has
 * come, and then is late. */
void stand_still_before_words(void);
/* After its next pause, a poll of no descriptors, this thread is late. */
void be_late_after_a_pause(void);
/* After the next word that it sends this thread stands still until the answer has come, and then is
 * late. */
void stand_still_after_word(void);

/* ---- hooks, NULL at first ---- */

typedef struct ClockHooks {
    void (*before_poll)(const struct pollfd *fds, nfds_t n);
    void (*after_poll)(const struct pollfd *fds, nfds_t n);
    void (*before_reading)(void); /* of the clock */
} ClockHooks;
extern ClockHooks clock_hooks;

/* Tells whether these are of a meeting (connector.h) that talks with nobody: it has met all whom it called. */
bool polls_a_listener_only(const struct pollfd *fds, nfds_t n);
