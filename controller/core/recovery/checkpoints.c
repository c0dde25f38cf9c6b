/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoints.c - the commits of a job, whatever becomes of checkpoints/<job>.
 *
 * The core keeps the record as it last saw it, and marks in phases, worlds and progress witness each commit. A record
 * that vanishes, does not decode or is older than the marks costs no checkpoint: a leader that remembers it puts it
 * back, or else the next world's rank 0 looks into the checkpoint folder. No running world ends for it: its next commit
 * writes the record anew.
 *
 * Entry points: checkpoints_learn(), checkpoints_find_resume(), decide_checkpoints(), decide_found().
 * Guarantees: what was known to be committed or struck out stays so while this leader lives. */
#include "controller/core/recovery/checkpoints.h"

#include "controller/core/cluster-internal.h"
#include "controller/core/decide.h"
#include "controller/core/recovery/incident.h"
#include "controller/core/recovery/lost.h"
#include "controller/core/text.h"

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

static void append(CheckpointsRecord *record, const CheckpointCommit *commit)
{
    if (record->n_commits == RECORD_COMMITS_MAX) {
        for (size_t i = 1; i < RECORD_COMMITS_MAX; i++)
            record->commits[i - 1] = record->commits[i];
        record->n_commits--;
    }
    assert(record->n_commits < RECORD_COMMITS_MAX);
    record->commits[record->n_commits++] = *commit;
}

/* Adds the commits of the record to the known ones. True when the record lacked a known commit. */
static bool merge(CheckpointsRecord *known, const CheckpointsRecord *seen)
{
    CheckpointsRecord *news = (CheckpointsRecord *)seen; /* read only */
    const CommitMark before = checkpoints_mark(known);
    bool lacks = known->n_commits > 0 &&
                 !find_commit(news, &known->commits[known->n_commits - 1]) &&
                 !(seen->n_commits == RECORD_COMMITS_MAX && /* all are newer than the known ones */
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
            append(known, commit);
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
        job->progress = (ProgressRecord){0}; /* it was of the same earlier job */
}

void checkpoints_learn(CoreJob *job, const Event *ev)
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

/* In this order: the newest commit that is not struck out; a search of the folder; the checkpoint to adopt; step 0. */
bool checkpoints_find_resume(const CoreJob *job, const CheckpointsRecord *checkpoints,
                             ResumePoint *ret)
{
    memset(ret, 0, sizeof(*ret));
    if (checkpoints_are_missing(job)) {
        ret->find = FIND_MUST;
        ret->step = checkpoints_known_mark(job).step; /* an estimate, for people */
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
    ret->find = ret->adopt ? FIND_NOTHING : FIND_ANY;
    return true;
}

int64_t checkpoints_resume_step(const CoreJob *job)
{
    ResumePoint resume;
    bool known =
        checkpoints_find_resume(job, &job->checkpoints, &resume) && resume.find == FIND_NOTHING;
    return known ? resume.step : 0;
}

/* ---- decisions ---- */

static bool put_back(const Cluster *c, const CoreJob *job, Decision *d)
{
    assert(job->checkpoints_lost && job->checkpoints.n_commits > 0);
    char why[RECORD_TEXT_MAX + 1];
    Text t = text_begin(why, sizeof(why));
    lost_say(&t, job->checkpoints_lost, "checkpoints", job->name);
    text_add(&t, "; put back as it was known: ");
    text_add_int(&t, (int64_t)job->checkpoints.n_commits);
    text_add(&t, job->checkpoints.n_commits == 1 ? " commit, of step " : " commits, up to step ");
    text_add_int(&t, checkpoints_mark(&job->checkpoints).step);
    d->put_checkpoints = true;
    d->checkpoints = job->checkpoints;
    d->checkpoints_revision = job->checkpoints_stamp.mod;
    d->desired_revision = job->desired_stamp.mod;
    lost_incident(c, job, why, true, d);
    return true;
}

static void say_missing(const CoreJob *job, char *ret, size_t size)
{
    bool runs = job->phase.go && phase_is_active(job->phase.phase);
    Text t = text_begin(ret, size);
    Lost lost = job->checkpoints_lost        ? job->checkpoints_lost
                : job->checkpoints_stamp.mod ? LOST_OLDER
                                             : LOST_GONE;
    lost_say(&t, lost, "checkpoints", job->name);
    text_add(&t, ", and step ");
    text_add_int(&t, checkpoints_known_mark(job).step);
    text_add(&t, " was committed; ");
    text_add(&t, runs ? "training goes on, and the next commit writes it anew"
                 : job->phase.phase >= PHASE_STOPPED
                     ? "sdctl job recover looks into the checkpoint folder"
                     : "the next world looks into the checkpoint folder");
}

bool decide_checkpoints(const Cluster *c, const CoreJob *job, Decision *d)
{
    if (job->checkpoints_lost && job->checkpoints.n_commits > 0)
        return put_back(c, job, d);
    if (!checkpoints_are_missing(job) || lost_find_incident(c, job) || !incident_has_place(c))
        return false;
    char why[RECORD_TEXT_MAX + 1];
    say_missing(job, why, sizeof(why));
    lost_incident(c, job, why, false, d);
    return true;
}

bool decide_found(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d)
{
    ResumePoint resume;
    if (job->world.resume.find == FIND_NOTHING || job->phase.go || checkpoints_are_missing(job) ||
        !checkpoints_find_resume(job, &job->checkpoints, &resume) || !resume.uri[0] || resume.adopt)
        return false;
    if (job->desired.state == DESIRED_STOPPED) {
        decide_stopped(c, s, job, stopped_before_its_first_step, d);
        return true;
    }
    char reason[RECORD_TEXT_MAX + 1];
    Text t = text_begin(reason, sizeof(reason));
    text_add(&t, "goes on from step ");
    text_add_int(&t, resume.step);
    text_add(&t, ", which was found in the checkpoint folder");
    return decide_world(c, s, job, job->phase.phase, reason, d);
}

static const Request *find_request(const Cluster *c, const CoreJob *job)
{
    for (int i = 0; i < c->limits.requests; i++) {
        const RequestRecord *r = &c->requests[i].record;
        if (c->requests[i].used && text_equal(r->kind, "recover") &&
            text_equal(r->target, job->name) && !r->answer[0])
            return &c->requests[i];
    }
    return NULL;
}

/* Strikes out the known commits and makes the manifest the newest one, with a generation of its own, so that no older
 * mark claims a newer commit. An operator asks for it, so the job may take the folder over from another owner. */
static void recover_from(const Cluster *c, const CoreJob *job, const RequestRecord *request,
                         Decision *d)
{
    assert(d->put_phase && request->commit.uri[0]);
    CheckpointCommit named = request->commit;
    text_copy(named.takes_over, sizeof(named.takes_over), request->id);
    named.generation = d->phase.generation;
    named.struck_out = false;
    named.at_usec = c->real_usec;
    d->put_checkpoints = true;
    d->checkpoints = job->checkpoints;
    d->checkpoints_revision = job->checkpoints_stamp.mod;
    text_copy(d->checkpoints.submission, sizeof(d->checkpoints.submission), job->facts.submission);
    for (size_t i = 0; i < d->checkpoints.n_commits; i++)
        d->checkpoints.commits[i].struck_out = true;
    append(&d->checkpoints, &named);
    d->phase.committed = checkpoints_mark(&d->checkpoints);
}

bool decide_recover(const Cluster *c, const CoreJob *job, Decision *d)
{
    const Request *request = find_request(c, job);
    if (!request)
        return false;
    const CheckpointCommit *commit = &request->record.commit;
    bool runs = phase_is_active(job->phase.phase);
    bool other = request->record.submission[0] &&
                 !text_equal(request->record.submission, job->facts.submission);
    ResumePoint resume;
    bool known = checkpoints_find_resume(job, &job->checkpoints, &resume);
    Text t = text_begin(d->request.answer, sizeof(d->request.answer));
    d->request = request->record;
    d->request_revision = request->stamp.mod;
    d->put_request = true;
    if (runs || other || (!commit->uri[0] && !known)) {
        text_add(&t, runs    ? "refused: the job runs"
                     : other ? "refused: the job was deleted, and submitted again"
                             : "refused: none of the commits verifies; name a manifest");
        return true;
    }
    decide_phase(c, job, PHASE_PENDING, "goes on as sdctl job recover said", d);
    d->phase.generation = job_newest_generation(job) + 1;
    d->phase.go = false;
    d->phase.failures_without_progress = d->phase.pauses = 0;
    d->phase.store_lost_usec = 0;
    d->phase.tried_revision = c->seen_revision;
    d->desired_revision = job->desired_stamp.mod;
    d->desired = job->desired;
    d->put_desired = job->desired.state == DESIRED_STOPPED;
    d->desired.state = DESIRED_RUNNING;
    if (commit->uri[0])
        recover_from(c, job, &request->record, d);
    text_add(&t, commit->uri[0] || resume.find != FIND_MUST ? "goes on from step "
                                                            : "looks into the checkpoint folder; "
                                                              "there was step ");
    text_add_int(&t, commit->uri[0] ? commit->step : resume.step);
    return true;
}
