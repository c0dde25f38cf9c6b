/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoints.c - keeps the commits of a job even if the record checkpoints/<job> is lost.
 *
 * The core keeps the record as it last saw it (observe/commit-records.c). Marks in the records phase, world and
 * progress prove each commit (facts/commits.c). If the record vanishes, does not decode or is older than the marks,
 * no checkpoint is lost: a leader that remembers the record puts it back, or else rank 0 of the next world searches
 * the checkpoint folder. A running world does not end for this: its next commit writes the record again.
 *
 * Guarantees: a known commit, and the mark that a commit is struck out, stay known while this leader lives. */
#include "controller/core/decide/checkpoints.h"

#include "controller/core/facts/commits.h"
#include "controller/core/facts/incidents.h"
#include "controller/core/facts/jobs.h"
#include "controller/core/facts/lost.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/incident.h"
#include "controller/core/write/phase.h"
#include "controller/core/write/world.h"

/* ---- decisions ---- */

static bool put_back(const Cluster *c, const CoreJob *job, Decision *d)
{
    assert(job->checkpoints_lost && job->checkpoints.n_commits > 0);
    char why[RECORD_TEXT_MAX + 1];
    Text t = text_begin(why, sizeof(why));
    lost_write(&t, job->checkpoints_lost, "checkpoints", job->name);
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

static void write_missing(const CoreJob *job, char *ret, size_t size)
{
    bool runs = job->phase.go && phase_is_active(job->phase.phase);
    Text t = text_begin(ret, size);
    Lost lost = job->checkpoints_lost        ? job->checkpoints_lost
                : job->checkpoints_stamp.mod ? LOST_OLDER
                                             : LOST_GONE;
    lost_write(&t, lost, "checkpoints", job->name);
    text_add(&t, ", and step ");
    text_add_int(&t, checkpoints_known_mark(job).step);
    text_add(&t, " was committed; ");
    text_add(&t, runs                    ? "training goes on, and the next commit writes it anew"
                 : job->facts.is_program ? "sdctl job recover names the checkpoint to go on from"
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
    write_missing(job, why, sizeof(why));
    lost_incident(c, job, why, false, d);
    if (job->facts.is_program) /* only a person can name a checkpoint of a program */
        d->incident.severity = SEVERITY_CRITICAL;
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

/* Strikes out the known commits and makes the manifest of the request the newest commit, with a generation of its
 * own, so that no older mark claims a newer commit. The request is an operator's, so the job may take the folder
 * over from another owner. */
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
    commits_append(&d->checkpoints, &named);
    d->phase.committed = checkpoints_mark(&d->checkpoints);
}

bool decide_recover(const Cluster *c, const CoreJob *job, Decision *d)
{
    const Request *request = job_find_request(c, job, "recover");
    if (!request)
        return false;
    const CheckpointCommit *commit = &request->record.commit;
    bool runs = phase_is_active(job->phase.phase);
    bool other = request->record.submission[0] &&
                 !text_equal(request->record.submission, job->facts.submission);
    ResumePoint resume;
    bool known = checkpoints_find_resume(job, &job->checkpoints, &resume);
    const bool cannot_look = job->facts.is_program && known && resume.find == FIND_MUST;
    Text t = text_begin(d->request.answer, sizeof(d->request.answer));
    d->request = request->record;
    d->request_revision = request->stamp.mod;
    d->put_request = true;
    d->request.outcome = REQUEST_DONE;
    if (runs || other || (!commit->uri[0] && (!known || cannot_look))) {
        d->request.outcome = REQUEST_REFUSED;
        text_add(&t, runs    ? "refused: the job runs"
                     : other ? "refused: the job was deleted, and submitted again"
                     : cannot_look
                         ? "refused: nobody can look into a program's folder; name a checkpoint"
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
