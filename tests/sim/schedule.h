/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h - what the simulator does for the program around it (main.c): it plays one schedule (fleet/schedule.c).
 *
 * Ownership: nothing is kept.
 * Units:     none.
 * Errors:    a broken rule is in the result; an assertion ends the process.
 * Threads:   one.
 */
#pragma once

#include "base/macro.h"

typedef struct ScheduleResult {
    bool failed;
    char invariant[16], text[400]; /* of the first that broke */
    uint64_t digest;               /* of its history */
    uint64_t n_events, n_faults, n_worlds, n_commits, n_incidents, n_terms;
} ScheduleResult;

/* talks: prints a line per transition. The same seed and nodes give the same history. */
void schedule_run(uint64_t seed, int n_nodes, bool talks, ScheduleResult *ret);
