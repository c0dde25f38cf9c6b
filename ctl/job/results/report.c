/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - `sdctl job report`: gathers data from etcd and the newest committed checkpoint, and writes one HTML page,
 * which report/ draws. */
#include "report/report.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "ctl/arguments.h"
#include "ctl/job/results/committed.h"
#include "ctl/job/results/eval-list.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"
#include "ctl/print.h"
#include "ctl/waiting.h"
#include "store/access-check.h"

#include <math.h>
#include <string.h>

enum {
    /* With more steps than this, each point is a bucket of steps, drawn as a range. */
    POINTS_MAX = 800,
    GRID_BYTES_MAX = 32 << 20, /* twice the size of a grid of sixteen images of 768 pixels */
    STORE_SEC = 20,            /* time limit of a request to a store */
};

typedef struct Gathered {
    Model *model;
    const ModelJob *job;
    Job *spec;
    CommittedMetrics metrics; /* if the metrics have no lines, `note` has the reason */
    char note[700];
    ReportPoint *points;
    size_t n_points;
    const IncidentRecord **incidents;
    size_t n_incidents;
    const char *alone; /* digest given by --alone; NULL: not given */
    ReportPicture grid, pictures;
    char *uris[2];
    GridNotes notes[2];
    ReportEvals evals;
} Gathered;

static void gathered_clear(Gathered *g)
{
    g->spec = job_free(g->spec);
    g->model = model_free(g->model);
    free(g->metrics.lines);
    free(g->metrics.saved);
    free(g->points);
    free(g->incidents);
    report_evals_clear(&g->evals);
    for (size_t i = 0; i < 2; i++) {
        free(g->uris[i]);
        grid_notes_clear(&g->notes[i]);
    }
}

static void print_lost(Gathered *g)
{
    const CommittedMetrics *m = &g->metrics;
    const char *why = *m->why ? m->why : "they were when segments were merged";
    (void)snprintf(g->note, sizeof(g->note),
                   "The metrics of %lld step%s between %lld and %lld are lost: %s",
                   (long long)m->n_lost, m->n_lost == 1 ? "" : "s", (long long)m->first_lost,
                   (long long)m->last_lost, why);
    fprintf(stderr, "sdctl: the metrics of %lld steps between %lld and %lld are lost: %s\n",
            (long long)m->n_lost, (long long)m->first_lost, (long long)m->last_lost, m->why);
}

/* Reads the metrics. If this fails, the page is still written, without the curves. */
static void read_metrics(Gathered *g)
{
    if (g->spec->kind == JOB_EVAL)
        return;
    if (g->spec->kind == JOB_EXEC) {
        (void)snprintf(g->note, sizeof(g->note),
                       "The losses that a program reports are drawn by the live page alone.");
        return;
    }
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *manifest = NULL;
    const CheckpointCommit *commit = checkpoints_latest(&g->job->checkpoints);
    if (!commit || commit->step == 0) {
        (void)snprintf(g->note, sizeof(g->note), "No checkpoint with metrics is committed yet.");
        return;
    }
    _unused_ _cleanup_(waiting_endp) Waiting *waiting = waiting_begin(commit->uri);
    int r = manifest_read_uri(commit->uri, &commit->hash, &store, &manifest, &err);
    if (r == 0)
        r = committed_metrics(store, manifest, &g->metrics, &err);
    if (r < 0) {
        (void)snprintf(g->note, sizeof(g->note), "%s", err.text);
        fprintf(stderr, "sdctl: the page has no losses: %s\n", err.text);
    } else if (g->metrics.n_lost > 0) {
        print_lost(g);
    }
}

static ReportPoint point_of(const MetricsLine *lines, size_t n, int64_t samples)
{
    double sec = 0;
    ReportPoint p = {.step = lines[n - 1].step,
                     .low = INFINITY,
                     .high = -INFINITY,
                     .samples_per_sec = NAN,
                     .grad_norm = lines[n - 1].grad_norm,
                     .lr = lines[n - 1].lr};
    int counted = 0;
    for (size_t i = 0; i < n; i++)
        sec += lines[i].sec; /* an unknown time (NAN) makes the sum NAN */
    if (sec > 0)
        p.samples_per_sec = (double)samples * (double)n / sec;
    for (size_t i = 0; i < n; i++)
        if (isfinite(lines[i].loss)) {
            p.loss += lines[i].loss;
            p.low = MIN(p.low, lines[i].loss);
            p.high = MAX(p.high, lines[i].loss);
            counted++;
        }
    p.loss = counted > 0 ? p.loss / counted : NAN;
    return p;
}

static void gather_points(Gathered *g)
{
    const CommittedMetrics *m = &g->metrics;
    const size_t width = DIV_ROUND_UP(MAX(m->n_lines, (size_t)1), (size_t)POINTS_MAX);
    g->points = memory_zeroed(POINTS_MAX, sizeof(*g->points));
    for (size_t i = 0; i < m->n_lines; i += width)
        g->points[g->n_points++] =
            point_of(&m->lines[i], MIN(width, m->n_lines - i), g->spec->train.global_batch);
}

static void gather_incidents(Gathered *g)
{
    g->incidents = memory_zeroed(g->model->n_incidents + 1, sizeof(*g->incidents));
    for (size_t i = 0; i < g->model->n_incidents; i++)
        if (model_is_incident_of(&g->model->incidents[i], g->job))
            g->incidents[g->n_incidents++] = &g->model->incidents[i];
}

/* ---- the pictures and the digest of a run alone ---- */

static char *uri_of(const char *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char head[] = "data:image/png;base64,";
    char *uri = memory_zeroed(sizeof(head) + 4 * DIV_ROUND_UP(n, (size_t)3), 1);
    char *to = stpcpy(uri, head);
    for (size_t i = 0; i < n; i += 3) {
        const size_t left = MIN(n - i, (size_t)3);
        uint32_t word = (uint32_t)(uint8_t)bytes[i] << 16;
        if (left > 1)
            word |= (uint32_t)(uint8_t)bytes[i + 1] << 8;
        if (left > 2)
            word |= (uint8_t)bytes[i + 2];
        for (size_t k = 0; k < 4; k++)
            *to++ = k <= left ? digits[word >> (18 - 6 * k) & 63] : '=';
    }
    return uri;
}

/* Reads a picture. If its notes cannot be read, the page still shows the picture, without the notes' text. */
static int read_picture(Gathered *g, int i, const char *option, const char *path,
                        ReportPicture *ret, Error *err)
{
    static const char png[] = "\x89PNG\r\n\x1a\n";
    _cleanup_free_ char *bytes = NULL;
    size_t n;
    Error why = ERROR_INIT;
    if (!path)
        return 0;
    int r = file_read(path, GRID_BYTES_MAX, &bytes, &n, err);
    if (r < 0)
        return error_prefix(err, r, "%s", option);
    if (n < sizeof(png) || memcmp(bytes, png, sizeof(png) - 1) != 0)
        return error_set(err, -EINVAL, "%s %s: not a PNG, as sdctl job sample writes it", option,
                         path);
    ret->uri = g->uris[i] = uri_of(bytes, n);
    r = grid_notes_get(path, bytes, n, &g->notes[i], &why);
    if (r < 0)
        fprintf(stderr, "sdctl: the page does not say what is in %s\n", why.text);
    if (r > 0)
        ret->notes = &g->notes[i];
    return 0;
}

typedef struct ReportOptions {
    const char *out, *alone, *grid, *pictures;
} ReportOptions;

#define OPTIONS_STRUCT ReportOptions
static const CtlOption options[] = {
    OPTION_OUT(.is_needed = true),
    {"alone", 0, "DIGEST", "digest of the same job run alone, to be compared", TAKES(TEXT, alone)},
    {"grid", 0, "FILE", "picture of job sample, to be shown", TAKES(TEXT, grid)},
    {"pictures", 0, "FILE", "the data's own, of job sample --pictures, to be shown beside",
     TAKES(TEXT, pictures)},
};
const CtlOptions job_report_options = CTL_OPTIONS(options, .out = NULL);

static int read_beside(Gathered *g, const Arguments *a, Error *err)
{
    const ReportOptions *o = arguments_own(a);
    Hash ignored;
    if (o->alone && hash_parse(o->alone, &ignored) < 0)
        return error_set(err, -EINVAL, "--alone %.100s: a digest has 32 hexadecimal digits",
                         o->alone);
    g->alone = o->alone;
    int r = read_picture(g, 0, "--grid", o->grid, &g->grid, err);
    return r < 0 ? r : read_picture(g, 1, "--pictures", o->pictures, &g->pictures, err);
}

static int write_page(const Gathered *g, const char *path, Error *err)
{
    Page page;
    ReportJob report = {.cluster = g->model->cluster,
                        .name = g->job->name,
                        .version = SDTRAIN_VERSION,
                        .kind = g->spec->kind,
                        .of = g->spec->of.job,
                        .now_usec = clock_realtime_usec(),
                        .phase = &g->job->phase,
                        .checkpoints = &g->job->checkpoints,
                        .progress = model_progress(g->job),
                        .incidents = g->incidents,
                        .n_incidents = g->n_incidents,
                        .step = g->spec->kind == JOB_EVAL ? 0 : model_step(g->job),
                        .steps =
                            job_is_program(g->spec) ? g->spec->exec.steps : g->spec->train.steps,
                        .goodput = model_goodput(g->job),
                        .saving = model_saving(g->job),
                        .points = g->points,
                        .n_points = g->n_points,
                        .points_note = g->note,
                        .saved = g->metrics.saved,
                        .n_saved = g->metrics.n_saved,
                        .evals = g->evals,
                        .spec = g->spec,
                        .submitted_usec = g->job->spec.submitted_usec,
                        .alone = g->alone,
                        .grid = g->grid,
                        .pictures = g->pictures};
    report.place = model_place(g->model, g->job, &report.n_waiting);
    report_job(&report, &page);
    int r = file_write(path, page.text, page.n_bytes, 0, err);
    page_clear(&page);
    return r;
}

/* Reads what etcd has of the job. */
static int read_job(const Arguments *a, CtlClient *client, Gathered *g, Error *err)
{
    ModelJob *job;
    int r = client_open(&a->client, client, err);
    if (r == 0)
        r = model_read(client, &g->model, err);
    if (r == 0)
        r = model_find_job(g->model, a->operand, &job, err);
    if (r == 0)
        r = job_parse_any(a->operand, job->spec.spec, strlen(job->spec.spec), &g->spec, err);
    if (r == 0 && (g->alone || g->grid.uri || g->pictures.uri))
        r = model_refuse_program(job, err); /* they are of sdtrain's own format */
    if (r < 0)
        return r;
    g->job = job;
    return g->spec->kind == JOB_EVAL
               ? eval_list_add(&g->evals, client, job, err)
               : eval_list_add_followers(&g->evals, client, g->model, job, err);
}

int job_report(const Arguments *a)
{
    const ReportOptions *o = arguments_own(a);
    Error err = ERROR_INIT;
    CtlClient client = {0};
    _cleanup_(gathered_clear) Gathered g = {0};
    int r = read_beside(&g, a, &err);
    if (r == 0)
        r = read_job(a, &client, &g, &err);
    client_close(&client);
    if (r < 0)
        return ctl_fail(&err, r);
    store_requests_within(STORE_SEC);
    read_metrics(&g);
    gather_points(&g);
    gather_incidents(&g);
    r = write_page(&g, o->out, &err);
    if (r < 0)
        return ctl_fail(&err, r);
    printf("the report of job %s is in %s\n", a->operand, o->out);
    return CTL_DONE;
}
