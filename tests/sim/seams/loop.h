/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h - sd-event in virtual time: one loop for each process of a simulated cluster, all in one thread.
 *
 * loop.c defines the functions of libsystemd's sd-event.h that code which runs apart from a process calls; a program
 * that links it runs that code unchanged. A function that is not defined here (signals, children, sd_event_loop) does
 * not link.
 *
 *     loops_open(0);
 *     sd_event_new(&event);           // and code that adds sources
 *     while (loops_run(until_usec));  // one callback each
 *     loops_close();                  // after every loop was freed
 *
 * Time stands still while callbacks run, and jumps from one due source to the next.
 *
 * Which callback is next:
 *   - between loops: the one whose next source is due first; of several, the one that has waited longest for its turn.
 *   - within a loop, as in sd-event: all sources that are due by now become pending at once. Among the pending sources,
 *     the lowest priority number comes first, whenever it was due; of equal priorities, the source that became pending
 *     first; of these, the one that was due first; then the one that was added first. sd-event leaves the last two
 *     open, so code must not depend on them.
 *   - SD_EVENT_ONESHOT is off before its callback runs. Setting a time or switching a source off takes back that it is
 *     pending. Accuracies are ignored: a source is never late, except in a frozen loop.
 *
 * Ownership: as sd-event's: sources hold a reference on their loop. loops_close() asserts that all is freed.
 * Units:     *_usec is microseconds of CLOCK_BOOTTIME.
 * Errors:    as sd-event's: -ESTALE once the loop has finished. Misuse that sd-event would refuse is asserted.
 * Threads:   one, also for all of a simulation's variables.
 */
#pragma once

#include "base/macro.h"

#include <systemd/sd-event.h>

void loops_open(uint64_t boottime_usec);
void loops_close(void);

uint64_t loops_now_usec(void);
/* When the next callback is due: UINT64_MAX for never. */
uint64_t loops_next_usec(void);
/* Runs the next callback if it is due by until_usec, at its time. Otherwise lets time pass until then (until_usec
 * UINT64_MAX: lets none pass) and returns false. */
bool loops_run(uint64_t until_usec);

/* The n-th timer from now on (1: the next) is refused with -ENOMEM, as without memory; 0: none. */
void loop_refuse_timer(sd_event *loop, unsigned n);

/* A frozen loop runs nothing; its sources wait, and are all pending at once when it goes on. */
void loop_freeze(sd_event *loop, bool frozen);
/* Its process was killed: it runs nothing any more. Its objects are freed as always. */
void loop_kill(sd_event *loop);
bool loop_is_dead(const sd_event *loop);

/* The loop whose code runs: that of the callback, or the one entered. NULL: the simulator itself. */
sd_event *loop_current(void);
/* For code that runs outside callbacks, as a process that starts: loop_enter(loop) ... loop_enter(previous). */
sd_event *loop_enter(sd_event *loop);

/* realtime = boottime + offset. */
void loop_set_realtime_offset(sd_event *loop, int64_t offset_usec);
int64_t loop_realtime_offset(const sd_event *loop);

/* The machine that its process runs on, counted from 0; 0 unless told. */
void loop_set_machine(sd_event *loop, size_t machine);
size_t loop_machine(const sd_event *loop);

/* Says what is to be had from a descriptor of sd_event_add_io(), which need not be open: EPOLLIN and such, 0 for
 * nothing. Its sources run again and again until that changes. */
void loop_set_ready(sd_event *loop, int fd, uint32_t revents);
