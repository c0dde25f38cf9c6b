/* SPDX-License-Identifier: Apache-2.0 */
/* checker-commits.c - see checker.h: what was committed is whole, continues what was committed before, and is
 * never lost, whatever becomes of checkpoints/<job>: I3, I4, I9.
 *
 * The books know every commit. One that verifies, and has always done so, is what its job goes on from. */
#include "tests/sim/checker.h"

#include "tests/sim/universe.h"

#include <string.h>

#define BROKEN(u, invariant, ...) sim_fail(&(u)->sim, invariant, __VA_ARGS__)

static const ModelManifest *manifest_of(const Universe *u, const Booked *booked)
{
    return &u->store.manifests[booked->manifest];
}

static Booked *find_booked(JobBooks *books, int manifest)
{
    for (int i = 0; i < books->n_booked; i++)
        if (books->booked[i].manifest == manifest)
            return &books->booked[i];
    return NULL;
}

static void book(JobBooks *books, int manifest)
{
    if (books->n_booked == BOOKED_MAX)
        memmove(books->booked, books->booked + 1, sizeof(Booked) * (size_t)--books->n_booked);
    books->booked[books->n_booked++] = (Booked){.manifest = manifest};
}

/* That the job goes on from; -1: none. */
static int newest_booked(const JobBooks *books)
{
    for (int i = books->n_booked; i-- > 0;)
        if (!books->booked[i].struck)
            return books->booked[i].manifest;
    return -1;
}

/* Nothing was ever wrong with it. */
static const ModelManifest *safe_manifest(const Universe *u, const JobBooks *books)
{
    const ModelManifest *safe = NULL;
    for (int i = 0; i < books->n_booked; i++) {
        const ModelManifest *m = manifest_of(u, &books->booked[i]);
        if (!books->booked[i].struck && !m->was_corrupt && !m->removed)
            safe = m;
    }
    return safe;
}

/* ---- commits ---- */

static void check_found(Universe *u, int job, const CheckpointsRecord *record)
{
    JobBooks *books = &u->checker.jobs[job];
    const WorldRecord *world = etcd_record(&u->etcd, KEY_WORLDS, universe_job_name(job));
    const CheckpointCommit *newest = &record->commits[record->n_commits - 1];
    int manifest = store_find(&u->store, newest->uri);
    const ModelManifest *safe = safe_manifest(u, books);
    if (!world || world->resume.find == FIND_NOTHING)
        BROKEN(u, "I3", "%s commits step %lld, which its world has not trained",
               universe_job_name(job), (long long)newest->step);
    if (safe && safe->last > newest->step)
        BROKEN(u, "lost", "%s finds step %lld, and step %lld was committed", universe_job_name(job),
               (long long)newest->step, (long long)safe->last);
    for (int i = 0; i < books->n_booked; i++)
        books->booked[i].struck |= manifest_of(u, &books->booked[i])->last > newest->step;
    if (!find_booked(books, manifest))
        book(books, manifest);
    sim_say(&u->sim, "  %s finds step %lld", universe_job_name(job), (long long)newest->step);
}

static void check_made(Universe *u, int job, const CheckpointCommit *commit, int manifest)
{
    const char *name = universe_job_name(job);
    JobBooks *books = &u->checker.jobs[job];
    const WorldRecord *world = etcd_record(&u->etcd, KEY_WORLDS, name);
    const ModelManifest *m = &u->store.manifests[manifest];
    int latest = newest_booked(books);
    Breach b;
    if (!rule_commit_is_of_world(name, commit, world, &b) ||
        !rule_commit_follows(name, commit, latest >= 0 ? u->store.manifests[latest].last : -1, &b))
        checker_breach(u, &b);
    if (m->generation != commit->generation)
        BROKEN(u, "I4", "%s-%lld commits the manifest of generation %lld", name,
               (long long)commit->generation, (long long)m->generation);
    if (m->parent != latest)
        BROKEN(u, "I9", "%s commits step %lld, which does not continue the latest checkpoint", name,
               (long long)commit->step);
    book(books, manifest);
    sim_say(&u->sim, "  %s-%lld commits step %lld", name, (long long)commit->generation,
            (long long)commit->step);
    books->committed_usec = u->sim.now_usec;
    books->failing_usec = 0;
    u->checker.n_commits++;
}

void checker_commit(Universe *u, int job, const CheckpointsRecord *record)
{
    const char *name = universe_job_name(job);
    const CheckpointCommit *commit = &record->commits[record->n_commits - 1];
    const ModelKey *world = etcd_find(&u->etcd, KEY_WORLDS, name);
    int manifest = store_find(&u->store, commit->uri);
    int64_t step;
    if (manifest < 0) {
        BROKEN(u, "I4", "%s commits step %lld without a manifest", name, (long long)commit->step);
        return;
    }
    const ModelManifest *m = &u->store.manifests[manifest];
    if (m->last != commit->step || m->job != job ||
        strcmp(m->submission, u->checker.jobs[job].submission) != 0)
        BROKEN(u, "I4", "%s commits step %lld by a manifest of %lld", name, (long long)commit->step,
               (long long)m->last);
    if (world && m->world_revision != world->mod_revision)
        check_found(u, job, record);
    else
        check_made(u, job, commit, manifest);
    if (!store_history_is_whole(&u->store, manifest, &step))
        BROKEN(u, "I9", "%s: step %lld is not trained exactly once", name, (long long)step);
}

void checker_rewrite(Universe *u, const struct ModelController *leader, int job,
                     const CheckpointsRecord *record)
{
    const char *name = universe_job_name(job);
    JobBooks *books = &u->checker.jobs[job];
    const CheckpointsRecord *old = etcd_record(&u->etcd, KEY_CHECKPOINTS, name);
    const Seen *seen = leader ? &leader->seen[job] : NULL;
    if (strcmp(record->submission, books->submission) != 0)
        BROKEN(u, "lost", "the leader writes the checkpoints of a job that was %s before", name);
    if (seen && strcmp(seen->submission, books->submission) == 0 &&
        commit_mark_is_before(checkpoints_mark(record), seen->committed))
        BROKEN(u, "lost", "the leader puts back checkpoints of %s up to %lld, and has seen %lld",
               name, (long long)checkpoints_mark(record).step, (long long)seen->committed.step);
    Breach b;
    if (!rule_commits_stay(name, old, record, &b))
        checker_breach(u, &b);
    for (size_t i = 0; i < record->n_commits; i++) {
        Booked *booked = find_booked(books, store_find(&u->store, record->commits[i].uri));
        if (booked && record->commits[i].struck_out)
            booked->struck = true;
        if (!booked && books->n_booked < BOOKED_MAX && i + 1 == record->n_commits)
            BROKEN(u, "I4", "the leader makes up a commit of %s, of step %lld", name,
                   (long long)record->commits[i].step);
    }
}

/* ---- where a world begins, and what goes ---- */

void checker_resumes(Universe *u, const Ring *ring)
{
    JobBooks *books = &u->checker.jobs[ring->job];
    const Process *rank0 = ring->members[0];
    const ModelManifest *safe = safe_manifest(u, books);
    int64_t step = rank0->resume >= 0 ? u->store.manifests[rank0->resume].last : 0;
    if (ring->world_revision < books->born)
        return; /* of the job that had the name before: nobody reaches it */
    if (safe && safe->last > step)
        BROKEN(u, "lost", "%s-%lld goes on from step %lld, and step %lld was committed",
               universe_job_name(ring->job), (long long)ring->generation, (long long)step,
               (long long)safe->last);
    for (int i = 0; i < books->n_booked; i++)
        books->booked[i].struck =
            manifest_of(u, &books->booked[i])->last > step ||
            (books->booked[i].struck && books->booked[i].manifest != rank0->resume);
}

void checker_manifest_goes(Universe *u, int manifest, int latest)
{
    const ModelManifest *m = &u->store.manifests[manifest];
    const JobBooks *books = &u->checker.jobs[m->job];
    int newest = STORE_KEEP_LAST;
    if (m->last > u->store.manifests[latest].last)
        BROKEN(u, "retention", "%s: step %lld goes, and only step %lld is committed",
               universe_job_name(m->job), (long long)m->last,
               (long long)u->store.manifests[latest].last);
    for (int i = books->n_booked; i-- > 0 && newest > 0;) {
        if (books->booked[i].struck)
            continue;
        newest--;
        if (books->booked[i].manifest == manifest)
            BROKEN(u, "retention", "%s: step %lld goes, one of the newest %d",
                   universe_job_name(m->job), (long long)m->last, STORE_KEEP_LAST);
    }
}

void checker_success(Universe *u, int job)
{
    int newest = newest_booked(&u->checker.jobs[job]);
    int64_t step = newest >= 0 ? u->store.manifests[newest].last : 0;
    if (step != u->options.jobs[job].steps)
        BROKEN(u, "I9", "%s has succeeded, and step %lld is committed", universe_job_name(job),
               (long long)step);
}
