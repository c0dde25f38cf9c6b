/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h - sd-event in virtual time: one loop for each process of a simulated cluster, all in one thread.
 *
 * loop.c defines those functions of libsystemd's sd-event.h that the simulated code calls; a program that links loop.c
 * runs that code unchanged. A call of a function that is not defined here (signals, children, sd_event_loop) does not
 * link.
 *
 *     loops_open(0);
 *     sd_event_new(&event);           // and code that adds sources
 *     while (loops_run(until_usec));  // one callback each
 *     loops_close();                  // after every loop was freed
 *
 * Time stands still while callbacks run, and jumps from one due source to the next.
 *
 * The next loop is the loop whose next source is due first; of several such loops, the loop that has waited longest
 * for its turn.
 *
 * Within a loop, as in sd-event, all sources that are due by now become pending at once. Among pending sources, the
 * source with the lowest priority number runs first, whenever it was due; of equal priorities, the source that became
 * pending first; of these, the source that was due first; then the source that was added first. sd-event does not
 * promise the last two orders, so code must not depend on them.
 *
 * A source with SD_EVENT_ONESHOT is off before its callback runs. Setting a source's time, or switching the source off,
 * makes the source not pending. Accuracies are ignored: a source is never late, except in a frozen loop.
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
/* Returns when the next callback is due; UINT64_MAX: never. */
uint64_t loops_next_usec(void);
/* Runs the next callback, at its time, if it is due by until_usec. Otherwise advances the time to
 * until_usec (unless that is UINT64_MAX) and returns false. */
bool loops_run(uint64_t until_usec);

/* Makes the n-th timer from now on (1: the next) fail with -ENOMEM; 0: no timer fails. */
void loop_refuse_timer(sd_event *loop, unsigned n);

/* Freezes or thaws a loop. A frozen loop runs nothing; its due sources all become pending when it
 * is thawed. */
void loop_freeze(sd_event *loop, bool frozen);
/* Kills the loop's process: the loop runs nothing any more. The objects of the loop must still be freed. */
void loop_kill(sd_event *loop);
bool loop_is_dead(const sd_event *loop);

/* Returns the loop whose code runs: the loop of the callback, or the loop that was entered. NULL:
 * the simulator's own code runs. */
sd_event *loop_current(void);
/* Enters a loop, and returns the loop that was entered before. For code of a process that runs
 * outside of callbacks, such as its start: call loop_enter(loop) before the code, and
 * loop_enter(previous) after it. */
sd_event *loop_enter(sd_event *loop);

/* Sets the offset: realtime = boottime + offset. */
void loop_set_realtime_offset(sd_event *loop, int64_t offset_usec);
int64_t loop_realtime_offset(const sd_event *loop);

/* Sets the machine on which the loop's process runs, counted from 0; 0 if it is not set. */
void loop_set_machine(sd_event *loop, size_t machine);
size_t loop_machine(const sd_event *loop);

/* Sets the events of a descriptor of sd_event_add_io(), which need not be open: EPOLLIN and the
 * like; 0: no events. While the descriptor has events, its sources run again and again. */
void loop_set_ready(sd_event *loop, int fd, uint32_t revents);
