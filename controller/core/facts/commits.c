/* SPDX-License-Identifier: Apache-2.0 */
/* commits.c - see commits.h. */
#include "controller/core/facts/commits.h"

#include "controller/core/state/text-buffer.h"

#include <string.h>

void commits_append(CheckpointsRecord *record, const CheckpointCommit *commit)
{
    if (record->n_commits == RECORD_COMMITS_MAX) {
        for (size_t i = 1; i < RECORD_COMMITS_MAX; i++)
            record->commits[i - 1] = record->commits[i];
        record->n_commits--;
    }
    assert(record->n_commits < RECORD_COMMITS_MAX);
    record->commits[record->n_commits++] = *commit;
}

static CommitMark later(CommitMark a, CommitMark b) { return commit_mark_is_before(a, b) ? b : a; }

CommitMark checkpoints_known_mark(const CoreJob *job)
{
    CommitMark mark = later(job->phase.committed, job->world.committed);
    mark = later(later(mark, job->progress.committed), job->ran_mark);
    return later(mark, checkpoints_mark(&job->checkpoints));
}

bool checkpoints_are_missing(const CoreJob *job)
{
    return commit_mark_is_before(checkpoints_mark(&job->checkpoints), checkpoints_known_mark(job));
}

/* Tries in this order: the newest commit that is not struck out; a search of the folder; the checkpoint to adopt;
 * step 0. Nobody can search the folder of a program, whose checkpoints have a form of their own. */
bool checkpoints_find_resume(const CoreJob *job, const CheckpointsRecord *checkpoints,
                             ResumePoint *ret)
{
    memset(ret, 0, sizeof(*ret));
    if (checkpoints_are_missing(job)) {
        ret->find = FIND_MUST;
        ret->step = checkpoints_known_mark(job).step; /* an estimate, shown to people */
        return true;
    }
    for (size_t i = checkpoints->n_commits; i-- > 0;) {
        const CheckpointCommit *commit = &checkpoints->commits[i];
        if (commit->struck_out)
            continue;
        ret->step = commit->step;
        ret->hash = commit->hash;
        text_copy(ret->uri, sizeof(ret->uri), commit->uri);
        text_copy(ret->takes_over, sizeof(ret->takes_over), commit->takes_over);
        return true;
    }
    if (checkpoints->n_commits > 0)
        return false;
    text_copy(ret->uri, sizeof(ret->uri), job->facts.resume_uri);
    ret->adopt = ret->uri[0] != '\0';
    ret->find = ret->adopt || job->facts.is_program ? FIND_NOTHING : FIND_ANY;
    return true;
}

int64_t checkpoints_resume_step(const CoreJob *job)
{
    ResumePoint resume;
    bool known =
        checkpoints_find_resume(job, &job->checkpoints, &resume) && resume.find == FIND_NOTHING;
    return known ? resume.step : 0;
}
