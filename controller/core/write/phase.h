/* SPDX-License-Identifier: Apache-2.0 */
/* phase.h - writes, in a decision, the phase of a job.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

/* Writes what an operator asked for, with who asked where that is told: "stops, asked by anna@laptop". Returns ret. */
const char *decide_requested(const char *what, const char *by, char ret[RECORD_TEXT_MAX + 1]);
/* Writes the phase, guarded by the one that it was derived from. */
void decide_phase(const Cluster *c, const CoreJob *job, JobPhase phase, const char *reason,
                  Decision *d);
/* As decide_phase(), where the generation ends: what the user asked for until now is dealt with. */
void decide_end(const Cluster *c, const CoreJob *job, JobPhase phase, const char *reason,
                Decision *d);
extern const char stopped_before_its_first_step[]; /* a reason */
/* As decide_end() with PHASE_STOPPED once no rank is left; until then the phase is PHASE_STOPPING. */
void decide_stopped(const Cluster *c, Scratch *s, const CoreJob *job, const char *reason,
                    Decision *d);
/* Tells rank 0 to finish its step, save and exit. */
bool request_leave(const Cluster *c, const CoreJob *job, JobPhase phase, const char *reason,
                   Decision *d);
/* True when the job waits, and the reason stands in its record or is written later. */
bool phase_reason_can_wait(const Cluster *c, Scratch *s, const CoreJob *job, const char *why);
