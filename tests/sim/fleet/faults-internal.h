/* SPDX-License-Identifier: Apache-2.0 */
/* faults-internal.h - declarations for all files of faults: draws of random numbers, and delayed
 * actions.
 *
 * Units: as faults.h. Errors: none. Threads: one.
 * Ownership: faults.c frees the delayed actions.
 */
#pragma once

#include "tests/sim/fleet/faults.h"

/* Returns the schedule in progress. */
const Play *faults_play(void);
bool faults_are_healed(void);

void play_draw_job(Play *ret, int job);
/* Lets some of the jobs run programs of others. */
void play_draw_programs(Play *ret);
/* Adds a job that evaluates the checkpoints of the first job. Nothing is drawn from the schedule's numbers, so that the
 * rest of the schedule stays the same. */
void play_add_evaluation(Play *ret);

/* Draws a duration, from a moment to several TTL. */
uint64_t faults_some_while(void);
void faults_later(uint64_t usec, void (*act)(int whom), int whom);

static inline int below(int n) { return (int)play_draw_below((uint32_t)n); }
static inline bool chance(int permille) { return below(1000) < permille; }
static inline uint64_t between(uint64_t low_usec, uint64_t high_usec)
{
    return low_usec + play_draw_below((uint32_t)(high_usec - low_usec + 1));
}
