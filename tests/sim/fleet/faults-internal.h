/* SPDX-License-Identifier: Apache-2.0 */
/* faults-internal.h - what the files of faults share: draws, and what comes later.
 *
 * Ownership: faults.c frees what is to come later.
 * Units:     as faults.h.
 * Errors:    none.
 * Threads:   one.
 */
#pragma once

#include "tests/sim/fleet/faults.h"

/* The schedule that is played. */
const Play *faults_play(void);
bool faults_are_healed(void);

/* From moments to several TTL. */
uint64_t faults_some_while(void);
void faults_later(uint64_t usec, void (*act)(int whom), int whom);

static inline int below(int n) { return (int)play_draw_below((uint32_t)n); }
static inline bool chance(int permille) { return below(1000) < permille; }
static inline uint64_t between(uint64_t low_usec, uint64_t high_usec)
{
    return low_usec + play_draw_below((uint32_t)(high_usec - low_usec + 1));
}
