/* SPDX-License-Identifier: Apache-2.0 */
/* history-job.c - see history.h: checks the specs, desired states, worlds and phases of a job, and keeps the books of
 * the job. */
#include "tests/history/history-internal.h"

#include "base/json/json.h"
#include "base/memory.h"

#include <string.h>

static bool is_gone(const HistoryChecker *h, const char *submission)
{
    for (uint64_t i = 0; submission[0] && i < MIN(h->n_gone, (uint64_t)BOOKED_GONE_MAX); i++)
        if (strcmp(h->gone[i], submission) == 0)
            return true;
    return false;
}

/* Returns whether both submissions are known and differ. Records of early versions have no
 * submission. */
static bool is_other(const char *a, const char *b) { return a[0] && b[0] && strcmp(a, b) != 0; }

/* Checks that a record is not of a job that was removed, nor of an earlier job with the same name. */
static void judge_submission(HistoryChecker *h, const Entry *e, const char *submission)
{
    const SpecRecord *spec = entry_after(e->job->spec);
    if (!e->job->spec->after.there && !e->job->touched)
        HISTORY_BROKEN(h, e, "gone", "%s is written, and the job is not there", e->name);
    if (is_gone(h, submission))
        HISTORY_BROKEN(h, e, "gone", "%s is written, which was removed", e->name);
    else if (spec && is_other(spec->submission, submission))
        HISTORY_BROKEN(h, e, "lost", "submission %s of %s is written, and %s is the job's",
                       submission, e->name, spec->submission);
}

/* ---- specs and desired ---- */

static void judge_spec(HistoryChecker *h, const Entry *e)
{
    const SpecRecord *old = entry_before(e), *spec = entry_after(e);
    const HistoryJob *job = e->job;
    const Entry *const parts[] = {job->desired, job->world, job->phase, job->checkpoints,
                                  job->progress};
    if (spec && is_gone(h, spec->submission))
        HISTORY_BROKEN(h, e, "lost", "%s is put back, which was removed", e->name);
    if (spec && old && is_other(old->submission, spec->submission))
        HISTORY_BROKEN(h, e, "lost", "another job takes the place of %s, which is there", e->name);
    for (size_t i = 0; !e->after.there && !job->touched && i < ELEMENTSOF(parts); i++)
        if (parts[i]->after.there)
            HISTORY_BROKEN(h, parts[i], "gone", "%s is removed, and this stays", e->name);
    const PhaseRecord *phase = entry_before(job->phase);
    if (!e->after.there && !job->phase->touched && phase && phase_is_active(phase->phase))
        HISTORY_BROKEN(h, e, "I3", "%s is removed while it is %s", e->name,
                       job_phase_name(phase->phase));
}

static void judge_desired(HistoryChecker *h, const Entry *e)
{
    if (e->after.there && !e->job->spec->after.there && !e->job->touched)
        HISTORY_BROKEN(h, e, "gone", "%s is written, and the job is not there", e->name);
}

/* ---- worlds ---- */

static void judge_cordons(HistoryChecker *h, const Entry *e, const PhaseRecord *phase,
                          const WorldRun *run)
{
    const WorldRecord *world = entry_after(e);
    Entry *node = history_find(h, KEY_NODES, run->node);
    Entry *cordon = history_find(h, KEY_CORDONS, run->node);
    const NodeRecord *machine = entry_after(node);
    Breach b;
    if (!machine || machine->incarnation != run->incarnation)
        return; /* the node may be another machine by now, and the machine of the run may be gone */
    /* The world must obey a cordon that the leader knew when it decided. The next world obeys a
     * later cordon. */
    bool known = cordon && !cordon->touched &&
                 (cordon->changes || cordon->after.revision <= phase->tried_revision);
    if (known && !rule_run_is_open(e->name, world, run->node, machine->machine_id,
                                   entry_after(cordon), CORDON_CORDON, &b))
        history_broken(h, e, &b);
    if (node->after.revision <= phase->tried_revision &&
        (machine->n_slots < 64 ? run->slots >> machine->n_slots : 0))
        HISTORY_BROKEN(h, e, "I6", "world %lld of %s uses slots that %s does not have",
                       (long long)world->generation, e->name, run->node);
    if (node->after.revision <= phase->tried_revision &&
        (run->slots & (machine->lost_slots | machine->bad_slots)))
        HISTORY_BROKEN(h, e, "I6", "world %lld of %s uses a lost or a bad slot of %s",
                       (long long)world->generation, e->name, run->node);
}

static void judge_others(HistoryChecker *h, const Entry *e)
{
    const WorldRecord *world = entry_after(e);
    Breach b;
    for (const HistoryJob *other = h->jobs; other; other = other->next) {
        const WorldRecord *theirs = entry_after(other->world);
        const PhaseRecord *phase = entry_after(other->phase);
        const bool yields =
            other->of[0] && !e->job->of[0]; /* an evaluation, to a job that is none */
        if (other != e->job && !other->touched && theirs && phase &&
            phase_is_active(phase->phase) && !yields &&
            !rule_worlds_are_apart(e->name, world, other->world->name, theirs, &b))
            history_broken(h, e, &b);
    }
}

/* Checks that the world has at most the wanted number of ranks, if the leader knew that number. */
static void judge_wanted(HistoryChecker *h, const Entry *e, const PhaseRecord *phase)
{
    const WorldRecord *world = entry_after(e);
    const Entry *wanted = e->job->desired;
    const DesiredRecord *desired = entry_after(wanted);
    if (!desired || wanted->touched || wanted->after.revision > phase->tried_revision)
        return;
    int most = desired->target > 0 ? desired->target : desired->max;
    most = MAX(most, (int)e->job->per_node); /* no world is smaller than the share of one node */
    if (world->size < 1 || world->size > most)
        HISTORY_BROKEN(h, e, "size", "world %lld of %s has %d ranks, and %d are wanted at most",
                       (long long)world->generation, e->name, world->size, most);
    if (desired->state != DESIRED_RUNNING)
        HISTORY_BROKEN(h, e, "word", "%s gets world %lld, and is to be %s", e->name,
                       (long long)world->generation,
                       desired->state == DESIRED_STOPPED ? "stopped" : "deleted");
}

static void judge_resume(HistoryChecker *h, const Entry *e)
{
    const WorldRecord *old = entry_before(e), *world = entry_after(e);
    const CheckpointsRecord *checkpoints = entry_after(e->job->checkpoints);
    Breach b;
    if (e->job->of[0])
        history_judge_evaluated(h, e);
    else if (!world->resume.adopt &&
             !rule_world_resumes(e->name, world,
                                 checkpoints ? checkpoints_latest(checkpoints) : NULL, &b))
        history_broken(h, e, &b);
    bool backwards = old && strcmp(old->submission, world->submission) == 0 &&
                     commit_mark_is_before(world->committed, old->committed);
    if (backwards ||
        (checkpoints && commit_mark_is_before(world->committed, checkpoints_mark(checkpoints))))
        HISTORY_BROKEN(h, e, "I4",
                       "world %lld of %s knows only of step %lld, and more is committed",
                       (long long)world->generation, e->name, (long long)world->committed.step);
}

static void judge_world(HistoryChecker *h, const Entry *e)
{
    const WorldRecord *world = entry_after(e);
    const PhaseRecord *phase = entry_after(e->job->phase);
    Breach b;
    if (!e->after.there && e->job->spec->after.there)
        HISTORY_BROKEN(h, e, "lost", "the world of %s is removed, and the job is there", e->name);
    if (!world)
        return;
    judge_submission(h, e, world->submission);
    h->counts.n_worlds++;
    /* a leader may not know a record that was changed by hand */
    bool unknown = e->touched && e->job->phase->touched;
    if (!unknown && !rule_world_follows(e->name, world, e->job->generation, &b))
        history_broken(h, e, &b);
    if (!rule_world_has_phase(e->name, world, e->job->phase->changes ? phase : NULL, &b))
        history_broken(h, e, &b);
    if (!rule_world_fits(e->name, world, &b))
        history_broken(h, e, &b);
    judge_others(h, e);
    if (!e->job->touched)
        judge_resume(h, e);
    if (!phase)
        return;
    judge_wanted(h, e, phase);
    for (size_t i = 0; i < world->n_runs; i++)
        judge_cordons(h, e, phase, &world->runs[i]);
    const Entry *incident =
        world->incident[0] ? history_find(h, KEY_INCIDENTS, world->incident) : NULL;
    /* after a change by hand, an old phase `recovering` may have been put back without its incident */
    if (!e->job->touched && !e->job->of[0] &&
        !rule_recovery_has_incident(e->name, world, phase, entry_after(incident), &b))
        history_broken(h, e, &b);
}

/* ---- phases ---- */

/* Checks that a job starts again only by a desired state that is newer than its end, or by `job
 * recover`. */
static void judge_word(HistoryChecker *h, const Entry *e)
{
    const PhaseRecord *old = entry_before(e), *phase = entry_after(e);
    Breach b;
    for (size_t i = 0; i < h->n_changed; i++)
        if (h->changed[i]->kind == KEY_REQUESTS)
            return;
    const Entry *word = e->job->desired;
    if (!rule_job_starts_again(e->name, old, phase, word->after.there ? word->after.revision : 0,
                               &b))
        history_broken(h, e, &b);
}

static void judge_success(HistoryChecker *h, const Entry *e)
{
    const PhaseRecord *old = entry_before(e), *phase = entry_after(e);
    const CheckpointsRecord *checkpoints = entry_after(e->job->checkpoints);
    const CheckpointCommit *latest = checkpoints ? checkpoints_latest(checkpoints) : NULL;
    if (old && old->phase == PHASE_SUCCEEDED && phase->phase != PHASE_SUCCEEDED &&
        phase->phase != PHASE_PENDING)
        HISTORY_BROKEN(h, e, "word", "%s has succeeded, and is %s", e->name,
                       job_phase_name(phase->phase));
    if (phase->phase == PHASE_SUCCEEDED && e->job->steps &&
        (latest ? latest->step : 0) < e->job->steps)
        HISTORY_BROKEN(h, e, "I9", "%s has succeeded, and step %lld of %lld is committed", e->name,
                       (long long)(latest ? latest->step : 0), (long long)e->job->steps);
}

/* Returns the new incident that ends the job's world; NULL if there is no new incident. */
static const IncidentRecord *find_new_incident(const HistoryChecker *h, const HistoryJob *job)
{
    for (size_t i = 0; i < h->n_changed; i++) {
        const Entry *e = h->changed[i];
        const IncidentRecord *incident = entry_after(e);
        if (e->kind == KEY_INCIDENTS && incident && !e->before.there &&
            strcmp(incident->job, job->phase->name) == 0)
            return incident;
    }
    return NULL;
}

static void judge_failures(HistoryChecker *h, const Entry *e, const PhaseRecord *old)
{
    const Entry *commits = e->job->checkpoints;
    const PhaseRecord *phase = entry_after(e);
    const IncidentRecord *incident = find_new_incident(h, e->job);
    Breach b;
    if (!rule_failure_is_counted(e->name, old, phase, incident, entry_before(commits),
                                 entry_after(commits), &b))
        history_broken(h, e, &b);
}

/* Checks that a generation is told to go only once, and only when its world exists. */
static void judge_signals(HistoryChecker *h, const Entry *e)
{
    static const PhaseRecord none;
    const PhaseRecord *before = entry_before(e), *phase = entry_after(e);
    const WorldRecord *world = entry_after(e->job->world);
    const PhaseRecord *old = before && before->generation == phase->generation ? before : &none;
    if (phase->go && !old->go) {
        if (phase->generation <= e->job->went)
            HISTORY_BROKEN(h, e, "I3", "generation %lld of %s goes twice",
                           (long long)phase->generation, e->name);
        if (!world || world->generation != phase->generation || !phase_is_active(phase->phase))
            HISTORY_BROKEN(h, e, "I3", "generation %lld of %s goes in world %lld, and is %s",
                           (long long)phase->generation, e->name,
                           (long long)(world ? world->generation : 0),
                           job_phase_name(phase->phase));
        history_judge_go(h, e);
    }
    if (old->go && !phase->go && phase_is_active(phase->phase) && !phase->pause_usec)
        HISTORY_BROKEN(h, e, "I3", "generation %lld of %s, which went, is told to wait",
                       (long long)phase->generation, e->name);
    if (phase->leave && !phase->go)
        HISTORY_BROKEN(h, e, "I3", "generation %lld of %s leaves before it went",
                       (long long)phase->generation, e->name);
}

static void judge_phase(HistoryChecker *h, const Entry *e)
{
    const PhaseRecord *old = entry_before(e), *phase = entry_after(e);
    Breach b;
    if (e->job->touched) {
        if (phase)
            judge_submission(h, e, phase->submission);
        return;
    }
    if (!e->after.there && e->job->spec->after.there)
        HISTORY_BROKEN(h, e, "lost", "the phase of %s is removed, and the job is there", e->name);
    if (!phase)
        return;
    judge_submission(h, e, phase->submission);
    if (!rule_phase_keeps_submission(e->name, old, phase, &b))
        history_broken(h, e, &b);
    if (old && is_other(old->submission, phase->submission))
        old = NULL; /* the old record is of another job; judge_spec() reports that */
    if (!rule_phase_follows(e->name, old, phase, &b))
        history_broken(h, e, &b);
    if (!rule_phase_is_newer(e->name, e->job->serial, phase, &b))
        history_broken(h, e, &b);
    if (old && commit_mark_is_before(phase->committed, old->committed))
        HISTORY_BROKEN(h, e, "I4", "the phase of %s forgets that step %lld was committed", e->name,
                       (long long)old->committed.step);
    if (old)
        judge_failures(h, e, old);
    if (old && e->job->of[0])
        history_judge_verdicts(h, e, old);
    judge_word(h, e);
    judge_success(h, e);
    judge_signals(h, e);
}

void history_judge_job(HistoryChecker *h, const Entry *e)
{
    switch (e->kind) {
    case KEY_SPECS:
        judge_spec(h, e);
        break;
    case KEY_DESIRED:
        judge_desired(h, e);
        break;
    case KEY_WORLDS:
        judge_world(h, e);
        break;
    default:
        judge_phase(h, e);
        break;
    }
}

/* ---- the books ---- */

static void book_file(HistoryJob *job, const char *text)
{
    _cleanup_json_ json_t *file = json_loads(text, 0, NULL);
    const json_t *train = json_object_get(file, "train"), *world = json_object_get(file, "world");
    const char *of = json_string_value(json_object_get(json_object_get(file, "of"), "job"));
    (void)snprintf(job->of, sizeof(job->of), "%s", of ? of : "");
    job->steps = json_integer_value(json_object_get(train, "steps"));
    job->per_node = json_integer_value(json_object_get(world, "per_node"));
}

static void book_spec(HistoryChecker *h, const Entry *e)
{
    HistoryJob *job = e->job;
    const SpecRecord *spec = entry_after(e);
    if (!e->after.there || (spec && strcmp(spec->submission, job->submission) != 0)) {
        if (!e->after.there && job->submission[0])
            memcpy(h->gone[h->n_gone++ % BOOKED_GONE_MAX], job->submission, SUBMISSION_BYTES);
        memset(job->submission, 0, sizeof(job->submission));
        job->of[0] = '\0';
        job->generation = job->serial = job->went = job->steps = job->per_node = 0;
        job->touched = job->spec->touched = job->desired->touched = job->world->touched = false;
        job->phase->touched = job->checkpoints->touched = job->progress->touched = false;
    }
    if (spec) {
        memcpy(job->submission, spec->submission, SUBMISSION_BYTES);
        book_file(job, spec->spec);
    }
}

static void book_world(HistoryJob *job, const Entry *e)
{
    const WorldRecord *world = entry_after(e);
    if (!world)
        return;
    job->generation = MAX(job->generation, world->generation);
    BookedWorld *booked = &job->worlds[job->n_worlds++ % BOOKED_WORLDS_MAX];
    free(booked->runs);
    *booked = (BookedWorld){.revision = e->after.revision,
                            .generation = world->generation,
                            .runs = memory_zeroed(world->n_runs, sizeof(WorldRun)),
                            .n_runs = world->n_runs};
    memcpy(booked->runs, world->runs, world->n_runs * sizeof(WorldRun));
}

static void book_phase(HistoryJob *job, const PhaseRecord *phase)
{
    job->generation = MAX(job->generation, phase->generation);
    job->serial = MAX(job->serial, phase->serial);
    if (phase->go)
        job->went = MAX(job->went, phase->generation);
}

/* Records a change by hand. A world is booked whoever wrote it, because the daemons obey every
 * world's record. */
void history_book_hand(Entry *e)
{
    e->touched = true;
    if (e->job)
        e->job->touched = true;
    if (e->kind == KEY_WORLDS)
        book_world(e->job, e);
}

void history_book_job(HistoryChecker *h, const Entry *e)
{
    if (e->kind == KEY_SPECS)
        book_spec(h, e);
    else if (e->kind == KEY_WORLDS)
        book_world(e->job, e);
    else if (e->kind == KEY_PHASES && entry_after(e))
        book_phase(e->job, entry_after(e));
}
