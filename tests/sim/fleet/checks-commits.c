/* SPDX-License-Identifier: Apache-2.0 */
/* checks-commits.c - see checks.h: each commit is complete, continues the commit before it, and is never lost, whatever
 * happens to the record checkpoints/<job>: I3, I4, I9.
 *
 * The ledger has every commit. A job resumes from its newest commit whose checkpoint verifies and was never damaged. */
#include "tests/sim/fleet/checks-internal.h"

#include "tests/sim/fleet/manifests.h"
#include "tests/sim/seams/loop.h"

#include <string.h>

static int64_t step_of(const Booked *booked) { return manifests_get(booked->manifest)->last; }

static Booked *find_booked(Ledger *job, int manifest)
{
    for (int i = 0; i < job->n_booked; i++)
        if (job->booked[i].manifest == manifest)
            return &job->booked[i];
    return NULL;
}

static void book(Ledger *job, int manifest)
{
    if (job->n_booked == BOOKED_COMMITS_MAX)
        memmove(job->booked, job->booked + 1, sizeof(Booked) * (size_t)--job->n_booked);
    job->booked[job->n_booked++] = (Booked){.manifest = manifest};
}

/* Returns the checkpoint from which the job resumes; -1: none. */
static int newest_booked(const Ledger *job)
{
    for (int i = job->n_booked; i-- > 0;)
        if (!job->booked[i].struck)
            return job->booked[i].manifest;
    return -1;
}

static bool is_named(const CheckpointsRecord *record, int manifest)
{
    for (size_t i = 0; i < record->n_commits; i++)
        if (manifest_of(record->commits[i].uri) == manifest)
            return true;
    return false;
}

/* Marks the commits that were removed from the record before the leader had read the record. No
 * program knows such a commit; only the checkpoint folder has its checkpoint. */
static void note_unknown(Ledger *job, const CheckpointsRecord *record)
{
    for (int i = 0; job->broken_commits && i < job->n_booked; i++)
        job->booked[i].unknown = !is_named(record, job->booked[i].manifest);
}

/* Returns the step of the newest commit whose checkpoint was never damaged and which is not
 * `unknown`. */
static int64_t safe_step(const Ledger *job)
{
    int64_t step = 0;
    for (int i = 0; i < job->n_booked; i++)
        if (!job->booked[i].struck && !job->booked[i].unknown &&
            !manifests_was_damaged(job->booked[i].manifest))
            step = step_of(&job->booked[i]);
    return step;
}

/* ---- commits ---- */

static void check_found(const Writing *w, Ledger *job, const CheckpointCommit *newest, int manifest)
{
    const WorldRecord *world = record_of(w, KEY_WORLDS, job->name);
    if (!world || world->resume.find == FIND_NOTHING)
        books_break("I3", "%s commits step %lld, which its world has not trained", job->name,
                    (long long)newest->step);
    if (safe_step(job) > newest->step)
        books_break("lost", "%s finds step %lld, and step %lld was committed", job->name,
                    (long long)newest->step, (long long)safe_step(job));
    for (int i = 0; i < job->n_booked; i++)
        job->booked[i].struck |= step_of(&job->booked[i]) > newest->step;
    if (!find_booked(job, manifest))
        book(job, manifest);
    fleet_say("  %s finds step %lld", job->name, (long long)newest->step);
}

static void check_made(const Writing *w, Ledger *job, const CheckpointCommit *commit, int manifest)
{
    const WorldRecord *world = record_of(w, KEY_WORLDS, job->name);
    const int latest = newest_booked(job);
    const Manifest *m = manifests_get(manifest);
    Breach b;
    /* The record was damaged by hand before the node heard of the success of its commit: so the
     * node commits the same checkpoint again. */
    if (latest == manifest && job->broken_commits)
        return;
    if (!rule_commit_is_of_world(job->name, commit, world, &b) ||
        !rule_commit_follows(job->name, commit, latest >= 0 ? manifests_get(latest)->last : -1, &b))
        books_break(b.invariant, "%s", b.text);
    if (m->generation != commit->generation)
        books_break("I4", "%s-%lld commits the manifest of generation %lld", job->name,
                    (long long)commit->generation, (long long)m->generation);
    if (m->parent != latest)
        books_break("I9", "%s commits step %lld, which does not continue the latest checkpoint",
                    job->name, (long long)commit->step);
    book(job, manifest);
    job->committed_usec = loops_now_usec();
    job->failing_usec = 0;
}

/* Returns whether this world's ranks have trained the checkpoint. If somebody has put the world's
 * record once more, the new ranks may instead find a checkpoint that the world's earlier ranks
 * committed. */
static bool is_made_by(const WorldRecord *world, Ledger *job, int manifest)
{
    if (!world || manifests_get(manifest)->generation != world->generation)
        return false;
    return !books_job(job->name)->world_by_hand || world->resume.find == FIND_NOTHING ||
           !find_booked(job, manifest);
}

/* Checks a commit by a node. */
void checks_commit(const Writing *w, const Entry *e)
{
    const CheckpointsRecord *record = entry_after(e);
    if (!record || !w->is_node || record->n_commits == 0)
        return;
    const CheckpointCommit *commit = &record->commits[record->n_commits - 1];
    const WorldRecord *world = record_of(w, KEY_WORLDS, e->name);
    Ledger *job = ledger_of(e->name);
    const int manifest = manifest_of(commit->uri);
    const Manifest *m = manifests_get(manifest);
    if (m->last != commit->step || strcmp(m->job, e->name) != 0 ||
        strcmp(m->submission, job->submission) != 0)
        books_break("I4", "%s commits step %lld by a manifest of %s's step %lld", e->name,
                    (long long)commit->step, m->job, (long long)m->last);
    if (is_made_by(world, job, manifest))
        check_made(w, job, commit, manifest);
    else
        check_found(w, job, commit, manifest);
    if (!manifests_are_whole(manifest))
        books_break("I9", "%s: up to step %lld some step is not trained exactly once", e->name,
                    (long long)commit->step);
    note_unknown(job, record);
}

/* Checks a leader's change of a checkpoints record: the leader may only strike out commits, or put the record back. */
void checks_rewrite(const Writing *w, const Entry *e)
{
    const CheckpointsRecord *old = entry_before(e), *record = entry_after(e);
    Ledger *job = ledger_of(e->name);
    const Told *told = told_of(w, job);
    Breach b;
    if (!record)
        return;
    if (strcmp(record->submission, job->submission) != 0)
        books_break("lost", "the leader writes the checkpoints of a job that was %s before",
                    e->name);
    if (told && commit_mark_is_before(checkpoints_mark(record), told->committed))
        books_break("lost", "the leader puts back checkpoints of %s up to %lld, and has seen %lld",
                    e->name, (long long)checkpoints_mark(record).step,
                    (long long)told->committed.step);
    if (!rule_commits_stay(e->name, old, record, &b))
        books_break(b.invariant, "%s", b.text);
    for (size_t i = 0; i < record->n_commits; i++) {
        Booked *booked = find_booked(job, manifest_of(record->commits[i].uri));
        if (booked && record->commits[i].struck_out)
            booked->struck = true;
        if (!booked && job->n_booked < BOOKED_COMMITS_MAX && i + 1 == record->n_commits)
            books_break("I4", "the leader makes up a commit of %s, of step %lld", e->name,
                        (long long)record->commits[i].step);
    }
    note_unknown(job, record);
}

/* ---- where a world begins ---- */

void checks_begins(const char *name, const char *submission, int64_t generation, int number)
{
    Ledger *job = ledger_of(name);
    const int64_t step = number >= 0 ? manifests_get(number)->last : 0;
    if (strcmp(job->submission, submission) != 0 || generation < books_job(name)->generation)
        return; /* the world cannot be reached */
    if (safe_step(job) > step && !books_job(name)->world_by_hand)
        books_break("lost", "%s-%lld goes on from step %lld, and step %lld was committed", name,
                    (long long)generation, (long long)step, (long long)safe_step(job));
    for (int i = 0; i < job->n_booked; i++)
        job->booked[i].struck = step_of(&job->booked[i]) > step ||
                                (job->booked[i].struck && job->booked[i].manifest != number);
}
