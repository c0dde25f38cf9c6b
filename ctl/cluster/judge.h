/* judge.h - what is wrong with a cluster now, and what to do about it.
 *
 * Ownership: judge_*() append to the caller's arrays.
 * Units:     none.
 * Errors:    none.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/cluster/members.h"
#include "ctl/model.h"

typedef struct Judgement {
    json_t *wrong;  /* strings, the most urgent first */
    json_t *advice; /* as many: what to do; "" for nothing */
} Judgement;

void judge_etcd(const Members *members, Judgement *judgement);
void judge_cluster(const Model *model, Judgement *judgement);

/* It has, or should have, ranks now. */
bool job_is_active(const ModelJob *job);
