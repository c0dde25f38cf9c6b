/* SPDX-License-Identifier: Apache-2.0 */
/* jobs.h - facts from a job's records: whether it should run or pauses, and how much of its training counts. */
#pragma once

#include "controller/core/state/state.h"

/* True when the user wants the job to run, its job file is good, and no missing or unreadable record prevents it. */
bool job_wants_to_run(const CoreJob *job);
/* Returns the seconds of training that would count if the job's history ended with this step. */
double job_useful_sec(const Cluster *c, const CoreJob *job, int64_t step);
/* Returns the part of job_useful_sec() in which the job waited for saves. */
double job_saving_sec(const Cluster *c, const CoreJob *job, int64_t step);
/* True when a comes before b in the queue: by priority, then by age (the create revision of specs/<job>, which no
 * clock can change). */
bool job_goes_before(const CoreJob *a, const CoreJob *b);
/* True when no rank of the job runs, because its last generation has failed and the next one is not due yet. */
bool job_is_paused(const CoreJob *job);
/* Returns the step that the present world resumed from. If the checkpoint is another job's, only the ranks know
 * the checkpoint's step: until they report that step, returns `otherwise`. */
int64_t job_resumed_step(const Cluster *c, const CoreJob *job, int64_t otherwise);
/* Returns a request of this kind to the job that has no answer yet; NULL: none. */
const Request *job_find_request(const Cluster *c, const CoreJob *job, const char *kind);
