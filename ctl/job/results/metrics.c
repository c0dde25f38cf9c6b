/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - `sdctl job metrics`: prints the metrics of every committed step, for other programs.
 *
 * Rows come from the metrics of the newest committed checkpoint. With --follow, each new commit adds rows, until the
 * job ends or sdctl receives a signal. A signal never cuts a batch of rows. Wall times are known only at commits, and
 * are interpolated between them. samples_per_s is an average over neighbouring steps, from the step times in the
 * checkpoint. */
#include "base/clock.h"
#include "ctl/arguments.h"
#include "ctl/export/interrupt.h"
#include "ctl/job/results/committed.h"
#include "ctl/job/results/event-file.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"
#include "ctl/suggestion.h"
#include "ctl/waiting.h"
#include "protocol/job.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

typedef enum Format { JSONL, CSV, TENSORBOARD, FORMATS } Format;

static const char *const format_names[FORMATS] = {"jsonl", "csv", "tensorboard"};

typedef struct MetricsOptions {
    const char *out, *format;
    bool follow;
} MetricsOptions;

typedef struct JobMetrics {
    const char *name;
    const MetricsOptions *options;
    Model *model;
    Format format;
    FILE *to;
    int64_t told_step; /* step of the last row written; 0: none yet */
    Hash told;         /* hash of the last manifest whose rows were written */
    bool told_any, over;
    bool has_begun;       /* the output is open, and has its header */
    bool missing;         /* the job does not exist */
    int64_t global_batch; /* 0: the job file cannot be parsed */
} JobMetrics;

/* Interpolates a step's wall time between the known times, which are those of the job's start and of its commits. */
static double wall_sec(const ModelJob *job, int64_t step)
{
    const CheckpointsRecord *all = &job->checkpoints;
    int64_t before = 0, after = 0;
    uint64_t from_usec = job->phase.started_usec, to_usec = 0;
    for (size_t i = 0; i < all->n_commits && to_usec == 0; i++) {
        const CheckpointCommit *c = &all->commits[i];
        if (c->struck_out || c->at_usec == 0)
            continue;
        if (c->step >= step) {
            after = c->step;
            to_usec = c->at_usec;
        } else {
            before = c->step;
            from_usec = c->at_usec;
        }
    }
    if (to_usec <= from_usec || after <= before)
        return (double)MAX(from_usec, to_usec) * 1e-6;
    double share = (double)(step - before) / (double)(after - before);
    return ((double)from_usec + share * (double)(to_usec - from_usec)) * 1e-6;
}

static void write_number(FILE *to, double value, const char *otherwise)
{
    if (isfinite(value))
        fprintf(to, "%.9g", value);
    else
        fputs(otherwise, to);
}

static void write_row(const JobMetrics *m, double at_sec, const MetricsLine *line)
{
    const char *const names[] = {"loss", "grad_norm", "learning_rate", "samples_per_s"};
    const double speed =
        line->sec > 0 && m->global_batch > 0 ? (double)m->global_batch / line->sec : NAN;
    const double values[] = {line->loss, line->grad_norm, line->lr, speed};
    EventScalar scalars[ELEMENTSOF(names)];
    if (m->format != TENSORBOARD)
        fprintf(m->to, m->format == CSV ? "%lld,%.3f" : "{\"step\":%lld,\"wall_time\":%.3f",
                (long long)line->step, at_sec);
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        scalars[i] = (EventScalar){names[i], values[i]};
        if (m->format == JSONL)
            fprintf(m->to, ",\"%s\":", names[i]);
        else if (m->format == CSV)
            fputs(",", m->to);
        if (m->format != TENSORBOARD)
            write_number(m->to, values[i], m->format == CSV ? "" : "null");
    }
    if (m->format == TENSORBOARD)
        event_file_add(m->to, at_sec, line->step, scalars, ELEMENTSOF(scalars));
    else
        fputs(m->format == CSV ? "\n" : "}\n", m->to);
}

static int64_t samples_of_a_step(const ModelJob *job)
{
    _cleanup_(job_freep) Job *spec = NULL;
    Error ignored = ERROR_INIT;
    int r = job_parse(job->name, job->spec.spec, strlen(job->spec.spec), &spec, &ignored);
    return r < 0 ? 0 : spec->train.global_batch;
}

/* Opens the output file, once there is something to write: a call that is refused keeps what an earlier one has
 * written. For TensorBoard --out is a folder, in which the job's single file is overwritten. */
static int open_out(JobMetrics *m, Error *err)
{
    const MetricsOptions *o = m->options;
    char path[512];
    if (!o->out)
        return 0;
    (void)snprintf(path, sizeof(path), "%s", o->out);
    if (m->format == TENSORBOARD) {
        if (mkdir(o->out, 0777) < 0 && errno != EEXIST)
            return error_errno(err, -errno, "cannot make the folder %s", o->out);
        int n =
            snprintf(path, sizeof(path), "%s/events.out.tfevents.0.sdtrain-%s", o->out, m->name);
        if (n >= (int)sizeof(path))
            return error_set(err, -ENAMETOOLONG, "--out: %.60s... is too long", o->out);
    }
    m->to = fopen(path, "we");
    return m->to ? 0 : error_errno(err, -errno, "cannot write %s", path);
}

static int begin_rows(JobMetrics *m, const ModelJob *job, Error *err)
{
    if (m->has_begun)
        return 0;
    int r = open_out(m, err);
    if (r < 0)
        return r;
    m->has_begun = true;
    m->global_batch = samples_of_a_step(job);
    if (m->format == CSV)
        fputs("step,wall_time,loss,grad_norm,learning_rate,samples_per_s\n", m->to);
    if (m->format == TENSORBOARD)
        event_file_begin(m->to, wall_sec(job, 1));
    return 0;
}

/* Writes all new rows as one batch. A signal ends the process only after the batch. */
static int write_rows(JobMetrics *m, const ModelJob *job, const CommittedMetrics *metrics,
                      Error *err)
{
    interrupt_begin();
    for (size_t i = 0; i < metrics->n_lines; i++)
        if (metrics->lines[i].step > m->told_step) {
            m->told_step = metrics->lines[i].step;
            write_row(m, wall_sec(job, m->told_step), &metrics->lines[i]);
        }
    bool written = fflush(m->to) == 0 && !ferror(m->to);
    int r = written ? 0 : -(errno ? errno : EIO);
    interrupt_end();
    return r < 0 ? error_errno(err, r, "cannot write the metrics of job %s", m->name) : 0;
}

static int write_new_rows(JobMetrics *m, const ModelJob *job, const CheckpointCommit *commit,
                          Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *manifest = NULL;
    CommittedMetrics metrics = {0};
    Waiting *waiting = waiting_begin(commit->uri);
    int r = manifest_read_uri(commit->uri, &commit->hash, &store, &manifest, err);
    if (r == 0)
        r = committed_metrics(store, manifest, &metrics, err);
    waiting = waiting_end(waiting);
    if (r == 0)
        r = begin_rows(m, job, err);
    if (r == 0)
        r = write_rows(m, job, &metrics, err);
    if (r == 0 && metrics.n_lost > 0)
        fprintf(stderr, "sdctl: the metrics of %lld steps between %lld and %lld are lost: %s\n",
                (long long)metrics.n_lost, (long long)metrics.first_lost,
                (long long)metrics.last_lost, metrics.why);
    free(metrics.lines);
    free(metrics.saved);
    return r;
}

/* Returns 1 when there is a commit whose rows are not written yet, or when the job has ended or does not exist. */
static int on_event(const EtcdEvent *event, void *userdata)
{
    JobMetrics *m = userdata;
    if (event)
        return model_feed(m->model, event);
    const ModelJob *job = model_job(m->model, m->name);
    m->missing = !job || !model_is_shown(job);
    if (m->missing)
        return 1;
    const CheckpointCommit *commit = checkpoints_latest(&job->checkpoints);
    m->over = model_has_ended(job);
    return m->over ||
           (commit && commit->step > 0 && (!m->told_any || !hash_equal(m->told, commit->hash)));
}

#define OPTIONS_STRUCT MetricsOptions
static const CtlOption options[] = {
    OPTION_OUT(),
    OPTION_FOLLOW,
    {"output", 'o', "jsonl|csv|tensorboard", "jsonl by default", TAKES(TEXT, format)},
};
const CtlOptions job_metrics_options = CTL_OPTIONS(options, .out = NULL);

/* Reads the job's records. If rows were written before, waits until there is a newer commit, or until the job has ended
 * or does not exist any more. */
static int look(const Arguments *a, JobMetrics *m, Error *err)
{
    CtlClient client = {0};
    int r = client_open(&a->client, &client, err);
    if (r == 0 && m->told_any) {
        m->model = model_new(client.cluster);
        r = client_watch(&client, on_event, m, USEC_INFINITY, err);
    } else if (r == 0) {
        r = model_read(&client, &m->model, err);
        if (r == 0)
            (void)on_event(NULL, m); /* the result is stored in m */
    }
    client_close(&client);
    if (r >= 0 && m->missing)
        r = suggest_job(m->model, m->name, err);
    return MIN(r, 0);
}

static int print_metrics(const Arguments *a, JobMetrics *m, Error *err)
{
    const MetricsOptions *o = arguments_own(a);
    int r = 0;
    for (bool first = true; r == 0 && (first || (o->follow && !m->over)); first = false) {
        m->model = model_free(m->model);
        r = look(a, m, err);
        if (r < 0)
            return r;
        const ModelJob *job = model_job(m->model, m->name);
        if ((r = model_refuse_program(job, err)) < 0)
            return r;
        const CheckpointCommit *commit = checkpoints_latest(&job->checkpoints);
        if (commit && commit->step > 0 && (!m->told_any || !hash_equal(m->told, commit->hash)))
            r = write_new_rows(m, job, commit, err);
        else
            r = begin_rows(m, job, err);
        m->told = commit ? commit->hash : (Hash){0};
        m->told_any = true;
    }
    return r;
}

int job_metrics(const Arguments *a)
{
    const MetricsOptions *o = arguments_own(a);
    Error err = ERROR_INIT;
    JobMetrics m = {.name = a->operand, .options = o, .to = stdout};
    while (o->format && m.format < FORMATS && strcmp(o->format, format_names[m.format]) != 0)
        m.format++;
    if (m.format == FORMATS)
        return arguments_refuse(a->verb, "-o takes jsonl, csv or tensorboard, not \"%s\"",
                                o->format);
    if (m.format == TENSORBOARD && !o->out)
        return arguments_refuse(a->verb, "-o tensorboard needs --out FOLDER");
    int r = print_metrics(a, &m, &err);
    m.model = model_free(m.model);
    if (m.to && m.to != stdout && fclose(m.to) != 0 && r == 0)
        r = error_errno(&err, -errno, "cannot write %s", o->out);
    return r < 0 ? ctl_fail(&err, r) : CTL_DONE;
}
