/* SPDX-License-Identifier: Apache-2.0 */
/* follow.h - `sdctl job evaluate NAME --follow CONTEXT/JOB`: has each checkpoint of a job of another cluster evaluated.
 *
 * It asks both clusters every two seconds what there is, and keeps nothing: phases/<evaluation> has what was named and
 * what has its verdict. So it may be ended and started again at any time, on any machine.
 *
 * Ownership: none.
 * Units:     steps. Threads: the main thread.
 * Errors:    as client.h, for what is wrong at the start; later an etcd that does not answer is waited for.
 */
#pragma once

#include "ctl/client.h"

typedef struct FollowedJob {
    char context[CLUSTER_NAME_MAX + 1], job[RECORD_JOB_MAX + 1];
} FollowedJob;

/* Parses "CONTEXT/JOB". */
int follow_parse(const char *text, FollowedJob *ret, Error *err);
/* Returns 0 when the followed job has succeeded, and each of its checkpoints that is due was named. here: the cluster
 * of the evaluation. From this call on, the environment is that of the other cluster. */
int follow(CtlClient *here, const char *evaluation, const FollowedJob *followed, Error *err);
