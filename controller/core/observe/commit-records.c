/* SPDX-License-Identifier: Apache-2.0 */
/* commit-records.c - see commit-records.h. */
#include "controller/core/observe/commit-records.h"

#include "controller/core/facts/commits.h"
#include "controller/core/facts/lost.h"
#include "controller/core/state/text-buffer.h"

#include <string.h>

static bool same_commit(const CheckpointCommit *a, const CheckpointCommit *b)
{
    return a->generation == b->generation && a->step == b->step && text_equal(a->uri, b->uri);
}

static CheckpointCommit *find_commit(CheckpointsRecord *record, const CheckpointCommit *commit)
{
    for (size_t i = 0; i < record->n_commits; i++)
        if (same_commit(&record->commits[i], commit))
            return &record->commits[i];
    return NULL;
}

/* Adds the record's commits to the known ones. Returns true if the record lacked a known commit or a known
 * strike-out. */
static bool merge(CheckpointsRecord *known, const CheckpointsRecord *seen)
{
    CheckpointsRecord *news = (CheckpointsRecord *)seen; /* news is only read */
    const CommitMark before = checkpoints_mark(known);
    bool lacks =
        known->n_commits > 0 && !find_commit(news, &known->commits[known->n_commits - 1]) &&
        !(seen->n_commits == RECORD_COMMITS_MAX && /* a full record may have only newer commits */
          commit_mark_is_before(before, checkpoints_mark(seen)));
    for (size_t i = 0; i < known->n_commits; i++) {
        const CheckpointCommit *same = find_commit(news, &known->commits[i]);
        lacks |= same && known->commits[i].struck_out && !same->struck_out;
    }
    for (size_t i = 0; i < seen->n_commits; i++) {
        const CheckpointCommit *commit = &seen->commits[i];
        CheckpointCommit *old = find_commit(known, commit);
        CommitMark mark = {.generation = commit->generation, .step = commit->step};
        if (old)
            old->struck_out |= commit->struck_out;
        else if (commit_mark_is_before(before, mark))
            commits_append(known, commit);
    }
    return lacks;
}

void checkpoints_drop_others(CoreJob *job)
{
    if (!job->facts.submission[0] || !job->checkpoints.submission[0] ||
        text_equal(job->facts.submission, job->checkpoints.submission))
        return;
    memset(&job->checkpoints, 0, sizeof(job->checkpoints));
    job->checkpoints_lost = LOST_NOT;
    if (job->progress.generation > MAX(job->world.generation, job->phase.generation))
        job->progress = (ProgressRecord){0}; /* the progress, too, is of the earlier job */
}

void checkpoints_observe(CoreJob *job, const Event *ev)
{
    const CheckpointsRecord *seen = ev->checkpoints;
    if (!ev->health && !seen && lost_with_its_job(job, job->checkpoints.submission))
        memset(&job->checkpoints, 0, sizeof(job->checkpoints));
    if (!seen) {
        job->checkpoints_lost = lost_by(ev, job->checkpoints.n_commits > 0, false);
        return;
    }
    if (job->checkpoints.n_commits == 0 ||
        !text_equal(job->checkpoints.submission, seen->submission)) {
        job->checkpoints = *seen;
        job->checkpoints_lost = LOST_NOT;
        checkpoints_drop_others(job);
        return;
    }
    assert(text_equal(job->checkpoints.submission, seen->submission));
    CheckpointsRecord known = job->checkpoints;
    job->checkpoints_lost = merge(&known, seen) ? LOST_OLDER : LOST_NOT;
    job->checkpoints = job->checkpoints_lost ? known : *seen;
}
