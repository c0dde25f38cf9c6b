/* SPDX-License-Identifier: Apache-2.0 */
/* phase.h - writes, in a decision, the phase of a job. */
#pragma once

#include "controller/core/state/state.h"

/* Writes what an operator requested, and who, if that is known: "stops, asked by anna@laptop". Returns ret. */
const char *decide_requested(const char *what, const char *by, char ret[RECORD_TEXT_MAX + 1]);
/* Writes the phase, guarded by the record that it was derived from. */
void decide_phase(const Cluster *c, const CoreJob *job, JobPhase phase, const char *reason,
                  Decision *d);
/* As decide_phase(), when the generation ends: the user's requests up to now are then dealt with. */
void decide_end(const Cluster *c, const CoreJob *job, JobPhase phase, const char *reason,
                Decision *d);
extern const char stopped_before_its_first_step[]; /* a reason of a phase */
/* As decide_end(): with PHASE_STOPPED if no rank is left, otherwise with PHASE_STOPPING. */
void decide_stopped(const Cluster *c, Scratch *s, const CoreJob *job, const char *reason,
                    Decision *d);
/* Requests rank 0 to finish its step, save and exit. */
bool request_leave(const Cluster *c, const CoreJob *job, JobPhase phase, const char *reason,
                   Decision *d);
/* True when the job waits already and the reason is in its record, or may be written later. */
bool phase_reason_can_wait(const Cluster *c, Scratch *s, const CoreJob *job, const char *why);
