/* SPDX-License-Identifier: Apache-2.0 */
/* decide.h - one job's next decision. Each decide_...() fills the decision and returns true when there is one.
 *
 * Ownership: a decision's world borrows its runs from the Cluster until the next step.
 * Units:     as cluster-internal.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/cluster-internal.h"

bool decide_job(Cluster *c, Scratch *s, CoreJob *job, Decision *d);
/* True when the user wants it to run and nothing that is missing or unreadable forbids it. */
bool job_wants_to_run(const CoreJob *job);
/* Returns the seconds of training that would count, had the job's history ended with this step. */
double job_useful_sec(const Cluster *c, const CoreJob *job, int64_t step);
/* Returns the part of them that waited for saves. */
double job_saving_sec(const Cluster *c, const CoreJob *job, int64_t step);

/* Writes what an operator asked for, with who asked where that is told: "stops, asked by anna@laptop". Returns ret. */
const char *decide_asked(const char *what, const char *by, char ret[RECORD_TEXT_MAX + 1]);
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
/* Places the job's next world. Without enough slots the job waits (PHASE_PENDING); false: it waits already. */
bool decide_world(const Cluster *c, Scratch *s, const CoreJob *job, JobPhase phase,
                  const char *reason, Decision *d);
/* Tells rank 0 to finish its step, save and exit. */
bool ask_to_leave(const Cluster *c, const CoreJob *job, JobPhase phase, const char *reason,
                  Decision *d);
