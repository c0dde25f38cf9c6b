/* SPDX-License-Identifier: Apache-2.0 */
/* lost.h - somebody's etcdctl, a bad disk or a restore from a backup, one record at a time; and what people give back.
 *
 * A record that does not return by itself is deleted, damaged, put back as it once was, or written by a later version,
 * which goes away again. Such a change is one "by hand": books.h judges none of them.
 *
 * Ownership: lost_clear() frees what is kept.
 * Units:     as faults.h.
 * Errors:    none: what cannot be done now is left.
 * Threads:   one.
 */
#pragma once

#include "tests/sim/fleet/fleet.h"

void lost_strike(void);
/* Later versions are gone, and what they have written over is put back; to be called again, for one may come late. */
void lost_heal(void);
/* One is still there, or a job's file that cannot be read. */
bool lost_is_left(void);
/* `sdctl job start -f`, with the file as it was, if the file is what the job lacks. */
void lost_give_back(const FleetJob *job);
void lost_clear(void);
