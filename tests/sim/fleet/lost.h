/* SPDX-License-Identifier: Apache-2.0 */
/* lost.h - records lost one at a time, by somebody's etcdctl, a bad disk or a restored backup; and how people put them
 * back.
 *
 * A record that does not return by itself is deleted, damaged, put back with an old value, or written by a later
 * version, which is removed again. Such a change counts as made by hand: the books (books.h) do not judge it.
 *
 * Ownership: lost_clear() frees the kept values.
 * Units:     as faults.h.
 * Errors:    none: an action that is not possible now is skipped.
 * Threads:   one.
 */
#pragma once

#include "tests/sim/fleet/fleet.h"

void lost_strike(void);
/* Puts back the values that later versions have overwritten. Call it repeatedly, because the write
 * of a later version may arrive late. */
void lost_heal(void);
/* Returns whether a later version's record is still there, or a job's file that cannot be read. */
bool lost_is_left(void);
/* Does `sdctl job start -f`, with the old job file, if the job lacks its file. */
void lost_give_back(const FleetJob *job);
void lost_clear(void);
