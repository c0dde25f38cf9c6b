/* SPDX-License-Identifier: Apache-2.0 */
/* page-model.c - see page-model.h. */
#include "controller/page-model.h"

#include "base/memory.h"
#include "cluster/pace.h"
#include "controller/alerting/payload.h"
#include "controller/core/step/survey.h"
#include "report/times.h"

#include <math.h>
#include <string.h>

enum { INCIDENTS_MAX = 50, JOB_INCIDENTS_MAX = 200 };

/* ---- incidents ---- */

typedef bool (*IncidentTest)(const IncidentRecord *incident, const void *userdata);

static int compare_incidents(const void *a, const void *b)
{
    const IncidentRecord *const *left = a, *const *right = b;
    return ((*left)->at_usec > (*right)->at_usec) - ((*left)->at_usec < (*right)->at_usec);
}

/* Returns all incidents that pass the test, sorted by time; the caller frees the array. */
static size_t gather_incidents(const Cluster *c, IncidentTest test, const void *userdata,
                               const IncidentRecord ***ret)
{
    const IncidentRecord *incident;
    size_t n = 0, room = 0;
    *ret = NULL;
    for (int i = 0; cluster_survey_incident(c, i, &incident); i++) {
        if (!incident || !test(incident, userdata))
            continue;
        *ret = memory_grow(*ret, n, &room, sizeof(**ret));
        (*ret)[n++] = incident;
    }
    if (n > 1)
        qsort(*ret, n, sizeof(**ret), compare_incidents);
    return n;
}

static bool is_open(const IncidentRecord *incident, _unused_ const void *userdata)
{
    return incident->state == INCIDENT_OPEN;
}

typedef struct Submission {
    const char *job, *id;
} Submission;

static bool is_of_submission(const IncidentRecord *incident, const void *userdata)
{
    const Submission *s = userdata;
    return strcmp(incident->job, s->job) == 0 && strcmp(incident->submission, s->id) == 0;
}

/* ---- a job ---- */

static int find_job(const Cluster *c, const char *name, JobSurvey *ret)
{
    for (int i = 0; cluster_survey_job(c, i, ret); i++)
        if (strcmp(ret->name, name) == 0)
            return i;
    return -1;
}

bool page_model_has_job(const Cluster *c, const char *name)
{
    JobSurvey survey;
    return find_job(c, name, &survey) >= 0;
}

/* Returns the place of the i-th job among the waiting jobs, from 1, and their number in *ret_n; 0: the job does not
 * wait. */
static int place_of(const Cluster *c, int i, int *ret_n)
{
    JobRecords records;
    int place = 0;
    *ret_n = 0;
    for (int k = 0; cluster_survey_records(c, k, &records); k++) {
        *ret_n += records.waits;
        if (k == i && records.waits)
            place = *ret_n;
    }
    return place;
}

static JobKind kind_of(const JobRecords *records)
{
    return records->facts->is_eval ? JOB_EVAL : records->facts->is_program ? JOB_EXEC : JOB_TRAIN;
}

/* An evaluation has no steps of its own. */
static int64_t step_of(const JobSurvey *survey, const JobRecords *records)
{
    if (records->facts->is_eval)
        return 0;
    const int64_t saved = survey->has_checkpoint ? survey->checkpoint_step : 0;
    return records->progress ? MAX(records->progress->step, saved) : saved;
}

/* Returns NAN if it is unknown, as that of a program that reports no steps. */
static double goodput_of(const JobSurvey *survey, const JobRecords *records)
{
    const bool counts = kind_of(records) == JOB_TRAIN || step_of(survey, records) > 0;
    return counts && survey->goodput >= 0 ? survey->goodput : NAN;
}

/* ---- evaluations ---- */

static void add_evals(const PageSource *s, const JobSurvey *survey, const JobRecords *records,
                      ReportEvals *to)
{
    const SeenEval *seen;
    for (size_t i = 0; (seen = curves_eval(s->seen, survey->name, i)); i++)
        report_add_results(to, survey->name, seen->text, seen->n);
    report_add_evals(to, survey->name, records->phase);
}

/* Gathers what the job has evaluated, or what other jobs have found of this submission's checkpoints. */
static void gather_evals(const PageSource *s, const char *name, const JobRecords *job,
                         ReportEvals *ret)
{
    JobSurvey survey;
    JobRecords records;
    for (int i = 0; cluster_survey_job(s->cluster, i, &survey) &&
                    cluster_survey_records(s->cluster, i, &records);
         i++) {
        const JobFacts *facts = records.facts;
        const bool is_own = strcmp(survey.name, name) == 0;
        const bool follows = strcmp(facts->of_job, name) == 0 &&
                             strcmp(records.phase->eval.submission, job->facts->submission) == 0;
        if (facts->is_eval && (is_own || follows))
            add_evals(s, &survey, &records, ret);
    }
}

/* Returns a note that names the steps which the controller has not seen; "": no note is needed. */
static const char *note_points(const PageSource *s, JobKind kind, const ReportPoint *points,
                               size_t n, char ret[300])
{
    char when[TIME_TEXT_BYTES];
    const char *more =
        kind == JOB_TRAIN ? " sdctl job report draws all that checkpoints remember." : "";
    ret[0] = '\0';
    if (n == 0)
        (void)snprintf(ret, 300,
                       "This controller has seen no step%s of the job since it began to look at "
                       "%s.%s",
                       kind == JOB_TRAIN ? "" : " with a loss", date_text(s->seen_usec, when),
                       more);
    else if (points[0].step > 2)
        (void)snprintf(ret, 300, "As seen by this controller since %s, from step %lld on.%s",
                       date_text(s->seen_usec, when), (long long)points[0].step, more);
    return ret;
}

bool page_model_job(const PageSource *s, const char *name, Page *ret)
{
    JobSurvey survey;
    JobRecords records;
    const int i = find_job(s->cluster, name, &survey);
    if (i < 0 || !cluster_survey_records(s->cluster, i, &records))
        return false;
    _cleanup_free_ const IncidentRecord **incidents = NULL;
    _cleanup_(report_evals_clear) ReportEvals evals = {0};
    const Submission submission = {.job = survey.name, .id = records.facts->submission};
    const size_t n = gather_incidents(s->cluster, is_of_submission, &submission, &incidents);
    const size_t left_out = n > JOB_INCIDENTS_MAX ? n - JOB_INCIDENTS_MAX : 0;
    int64_t saved[RECORD_COMMITS_MAX];
    size_t n_saved = 0;
    for (size_t k = 0; k < records.checkpoints->n_commits; k++)
        if (!records.checkpoints->commits[k].struck_out)
            saved[n_saved++] = records.checkpoints->commits[k].step;
    char note[300];
    ReportJob job = {.cluster = s->cluster_name,
                     .name = survey.name,
                     .version = SDTRAIN_VERSION,
                     .kind = kind_of(&records),
                     .of = records.facts->of_job,
                     .now_usec = s->now_usec,
                     .live = true,
                     .phase = records.phase,
                     .checkpoints = records.checkpoints,
                     .progress = records.progress,
                     .incidents = incidents + left_out,
                     .n_incidents = n - left_out,
                     .step = step_of(&survey, &records),
                     .steps = survey.steps,
                     .goodput = survey.goodput >= 0 ? survey.goodput : NAN,
                     .saving = survey.saving,
                     .advice = payload_advice,
                     .saved = saved,
                     .n_saved = n_saved};
    job.place = place_of(s->cluster, i, &job.n_waiting);
    job.points = curves_points(s->seen, survey.name, &job.n_points);
    if (job.kind == JOB_TRAIN || job.step > 0) /* others may have no steps */
        job.points_note = note_points(s, job.kind, job.points, job.n_points, note);
    gather_evals(s, name, &records, &evals);
    job.evals = evals;
    report_job(&job, ret);
    return true;
}

/* ---- the cluster ---- */

static ReportJobLine *gather_jobs(const Cluster *c, ReportCluster *report)
{
    ReportJobLine *lines = NULL;
    size_t room = 0;
    JobSurvey j;
    JobRecords records;
    for (int i = 0; cluster_survey_job(c, i, &j) && cluster_survey_records(c, i, &records); i++) {
        lines = memory_grow(lines, report->n_jobs, &room, sizeof(*lines));
        report->n_running += j.phase == PHASE_RUNNING;
        report->n_waiting += records.waits;
        lines[report->n_jobs++] =
            (ReportJobLine){.name = j.name,
                            .reason = records.phase->reason,
                            .phase = j.phase,
                            .ranks = j.world_size,
                            .wanted = j.wanted_size,
                            .place = records.waits ? (int)report->n_waiting : 0,
                            .step = step_of(&j, &records),
                            .steps = j.steps,
                            .loss = records.progress ? records.progress->loss : NAN,
                            .samples_per_sec = records.progress && j.phase == PHASE_RUNNING
                                                   ? j.samples_per_sec
                                                   : NAN,
                            .to_go_sec = records.progress && j.phase == PHASE_RUNNING
                                             ? progress_to_go_sec(records.progress, j.steps)
                                             : NAN,
                            .goodput = goodput_of(&j, &records)};
    }
    return lines;
}

static ReportNodeLine *gather_nodes(const Cluster *c, ReportCluster *report)
{
    ReportNodeLine *lines = NULL;
    size_t room = 0;
    NodeSurvey n;
    for (int i = 0; cluster_survey_node(c, i, &n); i++) {
        lines = memory_grow(lines, report->n_nodes, &room, sizeof(*lines));
        const bool sick = n.up && (n.verdict != NODE_HEALTHY || n.n_lost_slots > 0);
        report->n_up += n.up;
        report->n_slots += n.n_slots;
        lines[report->n_nodes++] =
            (ReportNodeLine){.name = n.name,
                             .text = n.cordoned                          ? n.reason
                                     : n.up && n.verdict != NODE_HEALTHY ? n.evidence
                                     : n.n_lost_slots > 0                ? "a slot is lost"
                                                                         : "",
                             .state = n.absent     ? "lost"
                                      : !n.up      ? "left"
                                      : n.cordoned ? cordon_mode_names[n.mode]
                                      : sick       ? node_verdict_names[n.verdict]
                                                   : "up",
                             .job = n.job,
                             .n_slots = n.n_slots,
                             .n_lost_slots = n.n_lost_slots,
                             .up = n.up,
                             .ill = n.absent || n.cordoned || sick};
    }
    return lines;
}

void page_model_cluster(const PageSource *s, Page *ret)
{
    _cleanup_free_ const IncidentRecord **incidents = NULL;
    const size_t n = gather_incidents(s->cluster, is_open, NULL, &incidents);
    ReportCluster report = {.cluster = s->cluster_name,
                            .version = SDTRAIN_VERSION,
                            .leader = s->leader,
                            .term = s->term,
                            .now_usec = s->now_usec,
                            .note =
                                cluster_hold_until(s->cluster)
                                    ? "Many nodes vanished at once: nobody is replaced until it "
                                      "is known why, or some time has passed."
                                    : "",
                            .n_free_slots = cluster_free_slots(s->cluster),
                            .incidents = incidents,
                            .n_incidents = MIN(n, (size_t)INCIDENTS_MAX),
                            .n_more_incidents = n - MIN(n, (size_t)INCIDENTS_MAX),
                            .advice = payload_advice};
    _cleanup_free_ ReportJobLine *jobs = gather_jobs(s->cluster, &report);
    _cleanup_free_ ReportNodeLine *nodes = gather_nodes(s->cluster, &report);
    report.jobs = jobs;
    report.nodes = nodes;
    report_cluster(&report, ret);
}
