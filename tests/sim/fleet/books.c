/* SPDX-License-Identifier: Apache-2.0 */
/* books.c - see books.h. */
#include "tests/sim/fleet/books.h"

#include "base/memory.h"
#include "cluster/keys.h"
#include "tests/history/history-internal.h"
#include "tests/sim/fleet/checks.h"
#include "tests/sim/fleet/fleet.h"
#include "tests/sim/fleet/trainer.h"
#include "tests/sim/seams/loop.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef enum Author { BY_PROGRAM, BY_PERSON, BY_HAND } Author;

static const char *cluster;
static HistoryChecker *checker;
static JobBooks jobs[FLEET_JOBS_MAX];
static NodeBooks nodes[FLEET_NODES_MAX];
static size_t n_jobs, n_nodes;
static uint64_t digest;
static bool is_broken;
static Breach broken;

void books_break(const char *invariant, const char *format, ...)
{
    va_list ap;
    if (is_broken)
        return;
    is_broken = true;
    broken.invariant = invariant;
    va_start(ap, format);
    (void)vsnprintf(broken.text, sizeof(broken.text), format, ap); /* a long text is cut */
    va_end(ap);
    fleet_say("BROKEN %s: %s", invariant, broken.text);
}

const Breach *books_broken(void) { return is_broken ? &broken : NULL; }

static void on_breach(_unused_ int64_t revision, const char *key, const Breach *breach,
                      _unused_ void *userdata)
{
    books_break(breach->invariant, "%s: %s", key, breach->text);
}

static JobBooks *job_of(const char *name)
{
    for (size_t i = 0; i < n_jobs; i++)
        if (strcmp(jobs[i].name, name) == 0)
            return &jobs[i];
    assert(n_jobs < FLEET_JOBS_MAX);
    JobBooks *job = &jobs[n_jobs++];
    *job = (JobBooks){0};
    (void)snprintf(job->name, sizeof(job->name), "%s", name);
    return job;
}

static NodeBooks *node_of(const char *name)
{
    for (size_t i = 0; i < n_nodes; i++)
        if (strcmp(nodes[i].name, name) == 0)
            return &nodes[i];
    assert(n_nodes < FLEET_NODES_MAX);
    NodeBooks *node = &nodes[n_nodes++];
    *node = (NodeBooks){0};
    (void)snprintf(node->name, sizeof(node->name), "%s", name);
    return node;
}

const JobBooks *books_job(const char *job) { return job_of(job); }
const NodeBooks *books_node(const char *node) { return node_of(node); }

int64_t books_world_revision(const char *name, int64_t generation)
{
    int64_t newest = 0;
    for (const HistoryJob *job = checker->jobs; job; job = job->next)
        for (uint64_t i = 0; i < MIN(job->n_worlds, (uint64_t)BOOKED_WORLDS_MAX); i++)
            if (strcmp(job->spec->name, name) == 0 && job->worlds[i].generation == generation)
                newest = MAX(newest, job->worlds[i].revision);
    return newest;
}

static void mix(const void *bytes, size_t n)
{
    Hash words[2] = {hash_bytes(bytes, n)};
    memcpy(&words[1], &digest, sizeof(digest));
    const Hash h = hash_bytes(words, sizeof(words));
    memcpy(&digest, &h, sizeof(digest));
}

/* ---- etcd's changes ---- */

static void note_spec(int64_t revision, const ServerChange *change, const char *name, Author by)
{
    JobBooks *job = job_of(name);
    SpecRecord spec;
    job->has_spec = change->value != NULL;
    job->spec_by_hand = by == BY_HAND;
    job->spec_created = change->value ? change->create_revision : 0;
    if (!change->value ||
        spec_record_decode(change->key, change->value, change->n_value, &spec, NULL) < 0)
        return;
    if (strcmp(job->submission, spec.submission) != 0) {
        job->committed = job->trained_generation = 0;
        job->born = revision;
    }
    memcpy(job->submission, spec.submission, sizeof(job->submission));
    spec_record_clear(&spec);
}

/* Returns whether the new phase tells a generation to go. The ranks follow the world's record, so
 * the phase must be of the same generation as the world. */
static bool goes(const JobBooks *job, const PhaseRecord *old)
{
    return job->phase.go && job->phase.generation == job->generation &&
           (!old->go || old->generation != job->phase.generation);
}

/* Returns whether the new phase says that an evaluation is done. */
static bool evaluates(const PhaseRecord *old, const PhaseRecord *phase)
{
    const EvalProgress *eval = &phase->eval;
    return old->eval.present.step > 0 && eval->present.step == 0 && eval->n_results > 0 &&
           eval->results[eval->n_results - 1].verdict == EVAL_DONE &&
           eval->results[eval->n_results - 1].step == old->eval.present.step;
}

static void note_phase(int64_t revision, const ServerChange *change, const char *name, Author by)
{
    JobBooks *job = job_of(name);
    const PhaseRecord old = job->phase;
    job->has_phase = change->value && phase_record_decode(change->key, change->value,
                                                          change->n_value, &job->phase, NULL) == 0;
    if (!job->has_phase) {
        job->phase = (PhaseRecord){0};
        return;
    }
    job->phase_revision = revision;
    if (job->phase.phase != old.phase || job->phase.go != old.go || job->phase.leave != old.leave ||
        job->phase.generation != old.generation)
        fleet_say("  %s %s %lld%s%s \"%s\"", name, job_phase_name(job->phase.phase),
                  (long long)job->phase.generation, job->phase.go ? " go" : "",
                  job->phase.leave ? " leave" : "", job->phase.reason);
    if (by != BY_HAND && job->phase.phase == PHASE_FAILED &&
        strstr(job->phase.reason, "not-owner") && !strstr(job->phase.reason, TRAINERS_OTHER_OWNER))
        books_break("owner", "%s has another owner, and nobody says which: %s", name,
                    job->phase.reason);
    if (by != BY_HAND && job->phase.phase == PHASE_SUCCEEDED && old.phase != PHASE_SUCCEEDED)
        trainers_check_finished(name, job->phase.generation);
    if (by != BY_HAND && evaluates(&old, &job->phase))
        trainers_check_finished(name, job->phase.generation);
    if (by != BY_HAND && goes(job, &old))
        trainers_check_go(name, job->phase.generation);
}

static void note_world(const ServerChange *change, const char *name, Author by)
{
    WorldRecord world;
    JobBooks *job = job_of(name);
    job->world_by_hand = by == BY_HAND;
    if (!change->value) {
        job->generation = 0;
        return;
    }
    if (world_record_decode(change->key, change->value, change->n_value, &world, NULL) < 0)
        return;
    job->generation = world.generation;
    if (by != BY_HAND)
        trainers_check_shares(name, &world);
    world_record_clear(&world);
}

static void note_commits(const ServerChange *change, const char *name)
{
    CheckpointsRecord record;
    JobBooks *job = job_of(name);
    if (!change->value ||
        checkpoints_record_decode(change->key, change->value, change->n_value, &record, NULL) < 0)
        return;
    const CheckpointCommit *newest = checkpoints_latest(&record);
    if (!newest || newest->step == job->committed)
        return;
    job->committed = newest->step;
}

static void note_node(const ServerChange *change, const char *name, Author by)
{
    NodeBooks *node = node_of(name);
    const bool is_there = change->value && by != BY_HAND;
    if (is_there)
        node->lease = change->lease;
    else if (node->is_there)
        node->gone_usec = loops_now_usec();
    if (!change->value)
        node->empty_usec = loops_now_usec();
    node->is_there = is_there;
    node->is_forged = change->value && !is_there;
}

static void note_cordon(const ServerChange *change, const char *name)
{
    NodeBooks *node = node_of(name);
    if (!change->value ||
        cordon_record_decode(change->key, change->value, change->n_value, &node->cordon, NULL) < 0)
        node->cordon = (CordonRecord){0};
    for (size_t i = 0; i < node->cordon.n_causes; i++)
        trainers_check_strike(&node->cordon.causes[i]);
}

static void note_desired(int64_t revision, const ServerChange *change, const char *name, Author by)
{
    JobBooks *job = job_of(name);
    job->has_desired =
        change->value && desired_record_decode(change->key, change->value, change->n_value,
                                               &job->desired, NULL) == 0;
    if (change->value && by == BY_PERSON)
        job->word_revision = revision;
    /* the job was deleted: a later job of this name is another job */
    if (!change->value && by == BY_PROGRAM)
        job->spec_by_hand = false;
}

static void note_record(int64_t revision, const ServerChange *change, Author by)
{
    KeyKind kind;
    const char *name;
    if (key_parse(cluster, change->key, &kind, &name) < 0)
        return;
    if (kind == KEY_SPECS)
        note_spec(revision, change, name, by);
    else if (kind == KEY_DESIRED)
        note_desired(revision, change, name, by);
    else if (kind == KEY_WORLDS)
        note_world(change, name, by);
    else if (kind == KEY_PHASES)
        note_phase(revision, change, name, by);
    /* after a change by hand, the books keep the commits that they have noted before */
    else if (kind == KEY_CHECKPOINTS && by != BY_HAND)
        note_commits(change, name);
    else if (kind == KEY_NODES)
        note_node(change, name, by);
    else if (kind == KEY_CORDONS)
        note_cordon(change, name);
}

static Author author_of(const ServerChange *changes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(changes[i].key, BOOKS_BY_HAND) == 0)
            return BY_HAND;
        else if (strcmp(changes[i].key, BOOKS_BY_PERSON) == 0)
            return BY_PERSON;
    return BY_PROGRAM;
}

void books_note(int64_t revision, const ServerChange *changes, size_t n)
{
    const Author by = author_of(changes, n);
    _cleanup_free_ HistoryChange *its = memory_zeroed(n, sizeof(HistoryChange));
    Error err = ERROR_INIT;
    for (size_t i = 0; i < n; i++) {
        const ServerChange *c = &changes[i];
        its[i] = (HistoryChange){.key = c->key,
                                 .value = c->value,
                                 .n_value = c->n_value,
                                 .lease = c->lease,
                                 .version = c->version,
                                 .by_hand = by == BY_HAND};
        mix(c->key, c->n_key);
        mix(c->value ? c->value : "", c->n_value);
        note_record(revision, c, by);
    }
    mix(&revision, sizeof(revision));
    if (history_checker_apply(checker, revision, its, n, &err) < 0)
        books_break("history", "%s", err.text);
}

/* ---- trainers ---- */

void books_trained(const char *name, const char *submission, int64_t generation, int64_t step)
{
    JobBooks *job = job_of(name);
    mix(&step, sizeof(step));
    if (strcmp(job->submission, submission) != 0 || generation < job->trained_generation)
        return; /* the rank's world cannot be reached any more, and so cannot commit */
    job->trained_generation = generation;
    job->trained_usec = loops_now_usec();
}

/* ---- counts, and the end ---- */

BooksCounts books_counts(void)
{
    const HistoryCounts n = history_checker_counts(checker);
    return (BooksCounts){.n_worlds = n.n_worlds,
                         .n_commits = n.n_commits,
                         .n_incidents = n.n_incidents,
                         .n_changes = n.n_changes};
}

void books_end(void)
{
    history_checker_end(checker);
    checks_end(checker);
}

uint64_t books_digest(void) { return digest; }

void books_open(const char *its_cluster)
{
    cluster = its_cluster;
    checker = history_checker_new(cluster, on_breach, NULL);
    checker->witness = checks_witness;
    n_jobs = n_nodes = 0;
    digest = 0;
    is_broken = false;
}

void books_close(void) { checker = history_checker_free(checker); }
