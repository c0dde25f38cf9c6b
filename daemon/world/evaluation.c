/* SPDX-License-Identifier: Apache-2.0 */
/* evaluation.c - see evaluation.h. */
#include "daemon/world/evaluation.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/macro.h"
#include "daemon/world/job.h"
#include "daemon/world/rank.h"
#include "daemon/world/workload.h"

#include <stdio.h>
#include <string.h>

static char *encode(LocalWorld *local)
{
    EvalRecord record = {.step = local->resume.step,
                         .hash = local->resume.hash,
                         .results = local->evaluation.results,
                         .at_usec = clock_realtime_usec()};
    (void)snprintf(record.uri, sizeof(record.uri), "%s", local->resume.uri);
    (void)snprintf(record.node, sizeof(record.node), "%s",
                   local->job->workload->needs.config->node);
    memcpy(record.submission, local->submission, sizeof(record.submission));
    return eval_record_encode(&record, NULL);
}

static void on_written(LocalWorld *local)
{
    Rank *rank = slots_rank_of(local, local_world_rank0(local));
    ChannelMessage answer = {.type = CHANNEL_COMMITTED,
                             .generation = local->generation,
                             .step = local->resume.step};
    log_info("results of the evaluation of step %lld are written JOB=%s GENERATION=%lld",
             (long long)local->resume.step, local->job->name, (long long)local->generation);
    if (rank)
        rank_send(rank, &answer);
}

void evaluation_init(Evaluation *evaluation, LocalWorld *local)
{
    const char *cluster = local->job->workload->needs.config->cluster;
    record_writer_init(&evaluation->writer, local, false, encode, on_written);
    (void)key_eval(cluster, local->job->name, local->resume.step, evaluation->writer.key);
    record_writer_doubt(&evaluation->writer); /* an earlier world may have written it */
}

void evaluation_clear(Evaluation *evaluation) { record_writer_clear(&evaluation->writer); }

void evaluation_write(Evaluation *evaluation, const ChannelMessage *results)
{
    evaluation->results = results->results;
    record_writer_send(&evaluation->writer);
}

/* Marks of two generations may have one step, and are one entry. At most CHANNEL_HELD_MAX steps are held: only more
 * evaluations of one job than that can read more. */
void evaluation_add_held(const PhaseRecord *phase, const char *submission, ChannelHeld *held)
{
    const EvalProgress *eval = &phase->eval;
    size_t i = 0;
    if (eval->present.step == 0 || strcmp(eval->submission, submission) != 0)
        return;
    while (i < held->n && held->steps[i] != eval->present.step)
        i++;
    if (i < CHANNEL_HELD_MAX)
        held->steps[i] = eval->present.step;
    held->n = MIN(MAX(held->n, i + 1), (size_t)CHANNEL_HELD_MAX);
}
