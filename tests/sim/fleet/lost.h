/* SPDX-License-Identifier: Apache-2.0 */
/* lost.h - records lost one at a time, by somebody's etcdctl, a bad disk or a restored backup; and how people put them
 * back.
 *
 * The fault strikes a record that no program writes again by itself. The record is deleted, damaged, or put back with
 * an old value; or a later version writes the record, and the old value is put back some seconds later. All of these
 * changes count as made by hand: the books (books.h) do not judge them.
 *
 * Units: as faults.h. Threads: one.
 * Ownership: lost_clear() frees the kept values.
 * Errors:    none: an action that is not possible now is skipped.
 */
#pragma once

#include "tests/sim/fleet/fleet.h"

void lost_strike(void);
/* Puts back the values that later versions have overwritten. Call it repeatedly, because the write
 * of a later version may arrive late. */
void lost_heal(void);
/* Returns whether etcd still has a record of a later version, or a job file that cannot be read. */
bool lost_is_left(void);
/* Does `sdctl job start -f`, with the old job file, if the job lacks its file. */
void lost_give_back(const FleetJob *job);
void lost_clear(void);
