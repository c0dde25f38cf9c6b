/* SPDX-License-Identifier: Apache-2.0 */
/* history-commits.c - see history.h: a commit is of the present world, is newer than the last
 * commit, and is never lost. */
#include "tests/history/history-internal.h"

#include <string.h>

static bool is_same(const CheckpointCommit *a, const CheckpointCommit *b)
{
    return a->step == b->step && a->generation == b->generation && strcmp(a->uri, b->uri) == 0;
}

static const CheckpointCommit *find_commit(const CheckpointsRecord *record,
                                           const CheckpointCommit *commit)
{
    for (size_t i = 0; i < record->n_commits; i++)
        if (is_same(&record->commits[i], commit))
            return &record->commits[i];
    return NULL;
}

/* Returns whether the transaction changes a request `job recover` for the job. On such a request the
 * leader writes one commit and strikes out the other commits. */
static bool is_by_request(const HistoryChecker *h, const Entry *e)
{
    for (size_t i = 0; i < h->n_changed; i++) {
        const RequestRecord *request = entry_after(h->changed[i]);
        if (h->changed[i]->kind == KEY_REQUESTS && request &&
            strcmp(request->kind, "recover") == 0 && strcmp(request->target, e->name) == 0)
            return true;
    }
    return false;
}

/* Checks that the record still has all earlier commits, except the oldest commits if the record is full. */
static void judge_kept(HistoryChecker *h, const Entry *e, const CheckpointsRecord *old,
                       const CheckpointsRecord *record)
{
    bool full = record->n_commits == RECORD_COMMITS_MAX, kept = false;
    for (size_t i = 0; i < old->n_commits; i++) {
        const CheckpointCommit *was = &old->commits[i], *is = find_commit(record, was);
        if (!is && (kept || !full))
            HISTORY_BROKEN(h, e, "I4", "step %lld of %s, which was committed, is lost",
                           (long long)was->step, e->name);
        if (is && was->struck_out && !is->struck_out)
            HISTORY_BROKEN(h, e, "I4", "step %lld of %s, which was struck out, counts again",
                           (long long)was->step, e->name);
        kept |= is != NULL;
    }
}

/* Checks new commits. A world that searches the checkpoint folder may commit all checkpoints that
 * it finds, several at once and also those of older generations. */
static void judge_new(HistoryChecker *h, const Entry *e, const CheckpointsRecord *old,
                      const CheckpointsRecord *record)
{
    const WorldRecord *world = entry_after(e->job->world);
    const CheckpointCommit *before = checkpoints_latest(old);
    bool looks = world && world->resume.find != FIND_NOTHING;
    Breach b;
    for (size_t i = 0; i < record->n_commits; i++) {
        const CheckpointCommit *commit = &record->commits[i];
        if (find_commit(old, commit))
            continue;
        h->counts.n_commits++;
        if (looks && commit->generation <= world->generation)
            continue;
        if (!rule_commit_is_of_world(e->name, commit, world, &b))
            history_broken(h, e, &b);
        else if (commit->generation != e->job->went)
            HISTORY_BROKEN(h, e, "I3", "%s-%lld commits step %lld, and never went", e->name,
                           (long long)commit->generation, (long long)commit->step);
        if (!rule_commit_follows(e->name, commit, before ? before->step : -1, &b))
            history_broken(h, e, &b);
        before = commit;
    }
}

void history_judge_commits(HistoryChecker *h, const Entry *e)
{
    static const CheckpointsRecord none;
    const SpecRecord *spec = entry_after(e->job->spec);
    const CheckpointsRecord *old = entry_before(e), *record = entry_after(e);
    const ProgressRecord *progress = entry_after(e->job->progress);
    Breach b;
    if (e->job->touched)
        return;
    if (!e->after.there && e->job->spec->after.there)
        HISTORY_BROKEN(h, e, "lost", "the checkpoints of %s are removed, and the job is there",
                       e->name);
    if (!record)
        return;
    if (!e->job->spec->after.there)
        HISTORY_BROKEN(h, e, "gone", "%s is written, and the job is not there", e->name);
    if (spec && spec->submission[0] && record->submission[0] &&
        strcmp(spec->submission, record->submission) != 0)
        HISTORY_BROKEN(h, e, "lost",
                       "checkpoints of submission %s are written, and %s is the job's",
                       record->submission, spec->submission);
    if (!rule_commits_stay(e->name, old, record, &b))
        history_broken(h, e, &b);
    bool asked = is_by_request(h, e);
    if (!asked) {
        judge_kept(h, e, old ? old : &none, record);
        judge_new(h, e, old ? old : &none, record);
    }
    CommitMark mark = checkpoints_mark(record);
    if (e->job->progress->changes && progress &&
        (commit_mark_is_before(mark, progress->committed) ||
         commit_mark_is_before(progress->committed, mark)))
        HISTORY_BROKEN(h, e, "I4", "step %lld of %s is committed, and its progress says step %lld",
                       (long long)mark.step, e->name, (long long)progress->committed.step);
}

void history_judge_progress(HistoryChecker *h, const Entry *e)
{
    const ProgressRecord *old = entry_before(e), *progress = entry_after(e);
    Breach b;
    if (!progress || e->job->touched)
        return;
    if (!rule_progress_is_of_world(e->name, progress, entry_after(e->job->world), &b))
        history_broken(h, e, &b);
    if (old && old->generation == progress->generation && progress->step < old->step)
        HISTORY_BROKEN(h, e, "progress", "%s-%lld goes back from step %lld to %lld", e->name,
                       (long long)progress->generation, (long long)old->step,
                       (long long)progress->step);
    if (old && progress->generation >= old->generation &&
        commit_mark_is_before(progress->committed, old->committed))
        HISTORY_BROKEN(h, e, "I4", "the progress of %s forgets that step %lld was committed",
                       e->name, (long long)old->committed.step);
}
