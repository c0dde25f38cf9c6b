/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h - the interface of the simulator to its program (main.c): plays one schedule (fleet/schedule.c).
 *
 * Ownership: nothing is kept. Units: none. Threads: one.
 * Errors:    a broken rule is in the result; an assertion ends the process.
 */
#pragma once

#include "base/macro.h"

typedef struct ScheduleResult {
    bool failed;
    char invariant[16], text[400]; /* the invariant and the text of the first breach */
    uint64_t digest;               /* digest of the history */
    uint64_t n_events, n_faults, n_worlds, n_commits, n_incidents, n_terms;
} ScheduleResult;

/* Plays a schedule. talks: prints a line for each transition. The same seed and number of nodes
 * give the same history. */
void schedule_run(uint64_t seed, int n_nodes, bool talks, ScheduleResult *ret);
