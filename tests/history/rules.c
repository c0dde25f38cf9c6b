/* SPDX-License-Identifier: Apache-2.0 */
/* rules.c - see rules.h. */
#include "tests/history/rules.h"

#include "cluster/cordon.h"

#include <stdio.h>
#include <string.h>

bool breach_say(Breach *ret, const char *invariant, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(ret->text, sizeof(ret->text), format, args); /* a long text is cut */
    va_end(args);
    ret->invariant = invariant;
    return false;
}

/* ---- worlds ---- */

bool rule_world_follows(const char *job, const WorldRecord *world, int64_t newest, Breach *ret)
{
    return world->generation > newest ||
           breach_say(ret, "I2", "world %lld of %s comes after world %lld",
                      (long long)world->generation, job, (long long)newest);
}

bool rule_world_has_phase(const char *job, const WorldRecord *world, const PhaseRecord *phase,
                          Breach *ret)
{
    return (phase && phase->generation == world->generation) ||
           breach_say(ret, "I2", "world %lld of %s comes without its phase",
                      (long long)world->generation, job);
}

bool rule_world_resumes(const char *job, const WorldRecord *world, const CheckpointCommit *latest,
                        Breach *ret)
{
    int64_t step = latest ? latest->step : 0;
    return world->resume.find == FIND_MUST || world->resume.step == step ||
           breach_say(ret, "I4",
                      "world %lld of %s resumes at %lld, the latest checkpoint is of %lld",
                      (long long)world->generation, job, (long long)world->resume.step,
                      (long long)step);
}

bool rule_run_is_open(const char *job, const WorldRecord *world, const char *node,
                      const char *machine_id, const CordonRecord *cordon, CordonMode least,
                      Breach *ret)
{
    static const char *const words[] = {"", "cordoned", "drained", "quarantined"};
    const CordonCause *cause =
        cordon ? cordon_strongest(cordon, machine_id, job, world->decided_usec) : NULL;
    return !cause || cause->mode < least ||
           breach_say(ret, "I5", "world %lld of %s uses %s, which is %s: %s",
                      (long long)world->generation, job, node, words[cause->mode], cause->reason);
}

static uint64_t slots_on(const WorldRecord *world, size_t n_runs, const char *node)
{
    uint64_t slots = 0;
    for (size_t i = 0; i < n_runs; i++)
        if (strcmp(world->runs[i].node, node) == 0)
            slots |= world->runs[i].slots;
    return slots;
}

bool rule_world_fits(const char *job, const WorldRecord *world, Breach *ret)
{
    int size = 0;
    for (size_t i = 0; i < world->n_runs; i++)
        size += __builtin_popcountll(world->runs[i].slots);
    if (size != world->size)
        return breach_say(ret, "I6", "world %lld of %s has %d slots for %d ranks",
                          (long long)world->generation, job, size, world->size);
    /* slots_on() searches all earlier runs, which would be slow for a world of thousands of nodes.
     * Such a world needs no search, because its runs are sorted by node, one run for each node. */
    for (size_t i = 1; i < world->n_runs; i++) {
        const WorldRun *run = &world->runs[i];
        bool sorted = strcmp(world->runs[i - 1].node, run->node) < 0;
        if (!sorted && slots_on(world, i, run->node) & run->slots)
            return breach_say(ret, "I6", "world %lld of %s has a slot of %s twice",
                              (long long)world->generation, job, run->node);
    }
    return true;
}

bool rule_worlds_are_apart(const char *job, const WorldRecord *world, const char *other,
                           const WorldRecord *theirs, Breach *ret)
{
    for (size_t i = 0; i < world->n_runs; i++)
        if (slots_on(theirs, theirs->n_runs, world->runs[i].node) & world->runs[i].slots)
            return breach_say(ret, "I6", "%s gets slots of %s that %s holds", job,
                              world->runs[i].node, other);
    return true;
}

bool rule_recovery_has_incident(const char *job, const WorldRecord *world, const PhaseRecord *phase,
                                const IncidentRecord *incident, Breach *ret)
{
    return phase->phase != PHASE_RECOVERING || incident ||
           breach_say(ret, "I10", "world %lld of %s recovers from a failure without an incident",
                      (long long)world->generation, job);
}

/* ---- phases ---- */

bool rule_phase_follows(const char *job, const PhaseRecord *old, const PhaseRecord *phase,
                        Breach *ret)
{
    return !old || phase->generation >= old->generation ||
           breach_say(ret, "I2", "the phase of %s goes back from %lld to %lld", job,
                      (long long)old->generation, (long long)phase->generation);
}

bool rule_phase_is_newer(const char *job, int64_t serial, const PhaseRecord *phase, Breach *ret)
{
    return phase->serial > serial || breach_say(ret, "lost", "phase %lld of %s follows phase %lld",
                                                (long long)phase->serial, job, (long long)serial);
}

bool rule_phase_keeps_submission(const char *job, const PhaseRecord *old, const PhaseRecord *phase,
                                 Breach *ret)
{
    return !old || !old->submission[0] || phase->submission[0] ||
           breach_say(ret, "lost", "a phase of %s says no more which submission it is of", job);
}

bool rule_job_starts_again(const char *job, const PhaseRecord *old, const PhaseRecord *phase,
                           int64_t word_revision, Breach *ret)
{
    bool begins = old && phase->phase == PHASE_PENDING &&
                  (old->phase == PHASE_STOPPED || old->phase == PHASE_FAILED);
    return !begins || word_revision > old->tried_revision ||
           breach_say(ret, "word", "%s starts again, and nobody has said so", job);
}

/* ---- checkpoints and progress ---- */

bool rule_commit_is_of_world(const char *job, const CheckpointCommit *commit,
                             const WorldRecord *world, Breach *ret)
{
    return (world && commit->generation == world->generation) ||
           breach_say(ret, "I3", "%s-%lld commits step %lld in world %lld", job,
                      (long long)commit->generation, (long long)commit->step,
                      (long long)(world ? world->generation : 0));
}

bool rule_commit_follows(const char *job, const CheckpointCommit *commit, int64_t step, Breach *ret)
{
    return commit->step > step || breach_say(ret, "I4", "%s commits step %lld after step %lld", job,
                                             (long long)commit->step, (long long)step);
}

bool rule_commits_stay(const char *job, const CheckpointsRecord *old,
                       const CheckpointsRecord *record, Breach *ret)
{
    return !old || !commit_mark_is_before(checkpoints_mark(record), checkpoints_mark(old)) ||
           breach_say(ret, "I4", "the newest commit of %s goes back from step %lld to %lld", job,
                      (long long)checkpoints_mark(old).step,
                      (long long)checkpoints_mark(record).step);
}

bool rule_progress_is_of_world(const char *job, const ProgressRecord *progress,
                               const WorldRecord *world, Breach *ret)
{
    return (world && world->generation == progress->generation) ||
           breach_say(ret, "I3", "%s-%lld reports progress in world %lld", job,
                      (long long)progress->generation, (long long)(world ? world->generation : 0));
}

/* ---- failures ---- */

static bool counted_before(const CheckpointsRecord *before, const CheckpointCommit *commit)
{
    for (size_t i = 0; i < before->n_commits; i++)
        if (!before->commits[i].struck_out && before->commits[i].step == commit->step &&
            before->commits[i].generation == commit->generation)
            return true;
    return false;
}

bool commits_go_back(const CheckpointsRecord *before, const CheckpointsRecord *after)
{
    bool struck = false, left = false;
    for (size_t i = 0; before && after && i < after->n_commits; i++) {
        left |= !after->commits[i].struck_out;
        struck |= after->commits[i].struck_out && counted_before(before, &after->commits[i]);
    }
    return struck && left;
}

/* Returns whether another rule bounds how often this cause may end a world. */
static bool is_free(const char *cause)
{
    static const char *const causes[] = {"node-left",   "world-lost", "store-unreachable",
                                         "record-lost", "diverging",  "store-trouble",
                                         "growth-stuck"};
    for (size_t i = 0; i < ELEMENTSOF(causes); i++)
        if (strcmp(cause, causes[i]) == 0)
            return true;
    return false;
}

bool rule_failure_is_counted(const char *job, const PhaseRecord *old, const PhaseRecord *phase,
                             const IncidentRecord *incident, const CheckpointsRecord *before,
                             const CheckpointsRecord *after, Breach *ret)
{
    const int was = old->failures_without_progress, is = phase->failures_without_progress;
    const bool goes_back = commits_go_back(before, after);
    if (is > was + 1 || (is > was && goes_back))
        return breach_say(ret, "I7", "%s had %d failures, and has %d%s", job, was, is,
                          goes_back ? " for a commit that is struck out" : "");
    return is != was || was == 0 || !incident || is_free(incident->cause) || goes_back ||
           breach_say(ret, "I7", "%s of %s is not a failure, and has no bound", incident->cause,
                      job);
}

/* ---- incidents and cordons ---- */

bool rule_incident_follows(const char *id, const IncidentRecord *old,
                           const IncidentRecord *incident, Breach *ret)
{
    if (old && old->state == INCIDENT_RESOLVED && incident->state == INCIDENT_OPEN)
        return breach_say(ret, "I10", "incident %s opens again", id);
    return !old || strcmp(old->cause, incident->cause) == 0 ||
           breach_say(ret, "I10", "incident %s turns from %s to %s", id, old->cause,
                      incident->cause);
}

bool rule_incident_is_blamed(const IncidentRecord *incident, const CordonRecord *cordon,
                             bool is_program, Breach *ret)
{
    /* a program's own exit code says nothing about the machine */
    const bool is_own_code = is_program && strncmp(incident->evidence, "exit ", 5) == 0;
    bool strikes = (strcmp(incident->cause, "trainer-died") == 0 && !is_own_code) ||
                   (strcmp(incident->cause, "hang") == 0 && incident->node[0]);
    bool excludes =
        strcmp(incident->cause, "device-fault") == 0 || strcmp(incident->cause, "numerics") == 0;
    bool struck = false, excluded = false;
    for (size_t i = 0; cordon && i < cordon->n_causes; i++) {
        const bool is_own = cordon->causes[i].owner == CORDON_MACHINE ||
                            (cordon->causes[i].owner == CORDON_JOB &&
                             strcmp(cordon->causes[i].job, incident->job) == 0);
        struck |=
            is_own && (cordon->causes[i].mode != CORDON_NONE || cordon->causes[i].strikes > 0);
        excluded |= cordon->causes[i].mode == CORDON_QUARANTINE;
    }
    if (strikes && !struck)
        return breach_say(ret, "blame", "%s of %s costs it no strike", incident->cause,
                          incident->node);
    return !excludes || excluded ||
           breach_say(ret, "blame", "%s of %s does not quarantine it", incident->cause,
                      incident->node);
}

static int strikes_of(const CordonRecord *record, const char *machine_id)
{
    int strikes = 0;
    for (size_t i = 0; record && i < record->n_causes; i++)
        if (strcmp(record->causes[i].machine_id, machine_id) == 0)
            strikes += record->causes[i].strikes;
    return strikes;
}

bool rule_strikes_grow_by_one(const char *node, const CordonRecord *before,
                              const CordonRecord *after, Breach *ret)
{
    for (size_t i = 0; after && i < after->n_causes; i++) {
        const char *machine = after->causes[i].machine_id;
        const int was = strikes_of(before, machine), is = strikes_of(after, machine);
        if (is > was + 1)
            return breach_say(ret, "cordon", "machine %s under %s had %d strikes, and has %d",
                              machine, node, was, is);
    }
    return true;
}

static bool is_quarantined(const CordonRecord *record, const char *machine_id)
{
    const int at = record ? cordon_find(record, CORDON_MACHINE, "", machine_id) : -1;
    return at >= 0 && record->causes[at].mode == CORDON_QUARANTINE;
}

/* Strikes that a machine got under another node name are in another record, so this rule does not see them. */
bool rule_quarantine_is_of_two(const IncidentRecord *incident, const CordonRecord *before,
                               const CordonRecord *after, Breach *ret)
{
    const bool dies =
        strcmp(incident->cause, "trainer-died") == 0 || strcmp(incident->cause, "hang") == 0;
    for (size_t i = 0; dies && after && i < after->n_causes; i++) {
        const CordonCause *cause = &after->causes[i];
        int submissions = 0;
        if (cause->owner != CORDON_MACHINE || !is_quarantined(after, cause->machine_id) ||
            is_quarantined(before, cause->machine_id))
            continue;
        for (size_t k = 0; k < after->n_causes; k++)
            submissions += after->causes[k].strikes > 0 &&
                           strcmp(after->causes[k].machine_id, cause->machine_id) == 0;
        if (submissions == 1)
            return breach_say(ret, "blame", "%s is quarantined only for deaths of %s", after->node,
                              incident->job);
    }
    return true;
}

bool rule_job_is_to_blame(const CordonRecord *one, const CordonRecord *other, Breach *ret)
{
    for (size_t i = 0; i < one->n_causes; i++)
        for (size_t k = 0; k < other->n_causes; k++) {
            const CordonCause *a = &one->causes[i], *b = &other->causes[k];
            if (a->owner == CORDON_JOB && b->owner == CORDON_JOB && a->mode == CORDON_QUARANTINE &&
                b->mode == CORDON_QUARANTINE && a->until_usec > b->since_usec &&
                b->until_usec > a->since_usec && a->way[0] && strcmp(a->way, b->way) == 0 &&
                strcmp(a->submission, b->submission) == 0 && strcmp(a->job, b->job) == 0 &&
                strcmp(a->machine_id, b->machine_id) != 0)
                return breach_say(ret, "blame", "%s and %s are refused by %s for %s", one->node,
                                  other->node, a->job, a->way);
        }
    return true;
}
