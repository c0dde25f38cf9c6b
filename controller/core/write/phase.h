/* SPDX-License-Identifier: Apache-2.0 */
/* phase.h - writes, in a decision, the phase of a job. */
#pragma once

#include "controller/core/state/state.h"

/* Writes an operator's request and, if known, the operator: "stops, asked by anna@laptop". Returns ret. */
const char *decide_requested(const char *what, const char *by, char ret[RECORD_TEXT_MAX + 1]);
/* Writes the phase, guarded by the record that it was derived from. */
void decide_phase(const Cluster *c, const CoreJob *job, JobPhase phase, const char *reason,
                  Decision *d);
/* Writes the phase as it is, guarded by the record: the caller changes what the job's phase and reason do not show. */
void decide_same_phase(const Cluster *c, const CoreJob *job, Decision *d);
/* Writes the phase at the end of a generation, as decide_phase() does; every request that the user has made until now
 * then counts as dealt with. */
void decide_end(const Cluster *c, const CoreJob *job, JobPhase phase, const char *reason,
                Decision *d);
extern const char stopped_before_its_first_step[]; /* a text for PhaseRecord.reason */
/* As decide_end(): with PHASE_STOPPED if no rank is left, otherwise with PHASE_STOPPING. */
void decide_stopped(const Cluster *c, Scratch *s, const CoreJob *job, const char *reason,
                    Decision *d);
/* Requests rank 0 to finish its step, save and exit. */
bool request_leave(const Cluster *c, const CoreJob *job, JobPhase phase, const char *reason,
                   Decision *d);
/* True when the job is pending already, and the job's record either has this reason or may get it later. */
bool phase_reason_can_wait(const Cluster *c, Scratch *s, const CoreJob *job, const char *why);
