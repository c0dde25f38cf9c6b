/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - `sdctl job report`: gathers what etcd and the newest committed checkpoint say, and
 * writes one HTML page. */
#include "ctl/job/report.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "cluster/cost.h"
#include "ctl/arguments.h"
#include "ctl/job/verbs.h"
#include "ctl/print.h"

#include <math.h>
#include <string.h>

const IncidentRecord *report_next_incident(const JobReport *r, size_t *i)
{
    while (*i < r->model->n_incidents) {
        const IncidentRecord *n = &r->model->incidents[(*i)++];
        if (model_is_incident_of(n, r->job))
            return n;
    }
    return NULL;
}

uint64_t report_end_usec(const JobReport *r)
{
    return model_has_ended(r->job) ? r->job->phase.since_usec : r->now_usec;
}

/* Metrics that cannot be read leave the curve out, not the page. */
static void read_metrics(JobReport *r)
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *manifest = NULL;
    const CheckpointCommit *commit = checkpoints_latest(&r->job->checkpoints);
    if (!commit || commit->step == 0) {
        (void)snprintf(r->metrics_note, sizeof(r->metrics_note),
                       "No checkpoint with metrics is committed yet.");
        return;
    }
    int result = manifest_read_uri(commit->uri, &commit->hash, &store, &manifest, &err);
    if (result == 0)
        result = committed_metrics(store, manifest, &r->metrics, &err);
    if (result < 0) {
        (void)snprintf(r->metrics_note, sizeof(r->metrics_note), "%s", err.text);
        fprintf(stderr, "sdctl: the page has no losses: %s\n", err.text);
    } else if (r->metrics.n_lost > 0) {
        (void)snprintf(r->metrics_note, sizeof(r->metrics_note), "%s", r->metrics.why);
        fprintf(stderr, "sdctl: the metrics of %lld steps between %lld and %lld are lost: %s\n",
                (long long)r->metrics.n_lost, (long long)r->metrics.first_lost,
                (long long)r->metrics.last_lost, r->metrics.why);
    }
}

static void put_tiles(json_t *page, const JobReport *r)
{
    const PhaseRecord *p = &r->job->phase;
    const CommittedMetrics *m = &r->metrics;
    const double goodput = model_goodput(r->job);
    const IncidentRecord *n;
    char span[SPAN_TEXT_BYTES];
    int n_incidents = 0;
    double lost_sec = 0;
    long long again = 0;
    for (size_t i = 0; (n = report_next_incident(r, &i)); n_incidents++) {
        double sec = model_ended_world(n) ? model_recovery_sec(n) : 0;
        lost_sec += isfinite(sec) ? sec : 0;
        again += n->lost_steps;
    }
    report_put(page, "step=%lld n_incidents=%d lost=%s again=%lld", (long long)model_step(r->job),
               n_incidents, span_text(lost_sec, span), again);
    if (m->n_lines > 0)
        report_put(page, "loss=%.4f", m->lines[m->n_lines - 1].loss);
    if (isfinite(goodput))
        report_put(page, "goodput=%.1f", 100 * goodput);
    if (p->started_usec)
        report_put(page, "time=%s",
                   span_text((double)(report_end_usec(r) - p->started_usec) * 1e-6, span));
}

static void put_cost(json_t *page, const JobReport *r)
{
    CostView v;
    char spent[COST_TEXT_BYTES], lost[COST_TEXT_BYTES], steps[COST_TEXT_BYTES],
        samples[COST_TEXT_BYTES], end[COST_TEXT_BYTES];
    cost_look(&r->job->phase, model_progress(r->job), r->now_usec, &v);
    if (!v.is_known)
        return;
    report_put(page, "cost=%s cost_lost=%s", cost_text(v.spent, spent), cost_text(v.lost, lost));
    if (v.to_end >= 0)
        report_put(page, "cost_end=%s", cost_text(v.to_end, end));
    if (v.per_1000_steps >= 0 && v.per_billion_samples >= 0)
        report_put(page, "cost_steps=%s cost_samples=%s", cost_text(v.per_1000_steps, steps),
                   cost_text(v.per_billion_samples, samples));
}

static void put_lost_metrics(json_t *page, const CommittedMetrics *m)
{
    if (m->n_lost > 0)
        report_put(page, "lost_steps=%lld plural=%s first_lost=%lld last_lost=%lld why_lost=%s",
                   (long long)m->n_lost, m->n_lost == 1 ? "" : "s", (long long)m->first_lost,
                   (long long)m->last_lost,
                   *m->why ? m->why : "they were when segments were merged");
}

static void put_facts(json_t *page, const JobReport *r)
{
    static const char *const precision[] = {"fp32", "bf16", "fp16"};
    static const char *const reduction[] = {"exact", "exact64",
                                            "float: bits may differ between worlds"};
    const Job *s = r->spec;
    const CheckpointCommit *c = checkpoints_latest(&r->job->checkpoints);
    char text[HASH_TEXT_BYTES], when[TIME_TEXT_BYTES];
    report_put(page, "steps=%lld batch=%lld grains=%lld grain=%lld", (long long)s->train.steps,
               (long long)s->train.global_batch, (long long)s->train.n_grains,
               (long long)s->train.grain);
    report_put(page, "device=%s", s->train.device == JOB_DEVICE_CUDA ? "cuda" : "cpu");
    report_put(page, "precision=%s reduction=%s lr=%g warmup=%lld clip=%g seed=%llu",
               precision[s->train.precision], reduction[s->train.reduction], s->train.optimizer.lr,
               (long long)s->train.optimizer.warmup_steps, s->train.optimizer.clip_norm,
               (unsigned long long)s->train.seed);
    report_put(page, "model=%s submitted=%s identity=%s", s->model.config_uri,
               date_text(r->job->spec.submitted_usec, when), hash_format(s->identity, text));
    json_t *streams = report_list(page, "streams");
    for (size_t i = 0; i < s->data.n_streams; i++)
        report_put(streams, "uri=%s proportion=%g", s->data.streams[i].uri,
                   s->data.streams[i].proportion);
    if (c)
        report_put(page, "saved_step=%lld saved_generation=%lld digest=%s manifest=%s",
                   (long long)c->step, (long long)c->generation, hash_format(c->digest, text),
                   c->uri);
}

static json_t *page_of(const JobReport *r)
{
    const JobPhase phase = model_phase(r->job);
    const char *tone = phase == PHASE_SUCCEEDED ? "good" : phase == PHASE_FAILED ? "bad" : "";
    char when[TIME_TEXT_BYTES];
    json_t *page = json_object();
    report_put(page, "job=%s phase=%s tone=%s reason=%s cluster=%s metrics_note=%s", r->job->name,
               job_phase_name(phase), tone, r->job->has_phase ? r->job->phase.reason : "",
               r->model->cluster, r->metrics_note);
    report_put(page, "version=%s written=%s", SDTRAIN_VERSION, date_text(r->now_usec, when));
    put_tiles(page, r);
    put_cost(page, r);
    put_lost_metrics(page, &r->metrics);
    report_put_drawings(page, r);
    put_facts(page, r);
    return page;
}

static int write_page(const JobReport *report, const char *path, Error *err)
{
    char *text = NULL;
    size_t n_bytes = 0;
    _cleanup_json_ json_t *page = page_of(report);
    FILE *to = memory_given(open_memstream(&text, &n_bytes));
    report_fill(to, page);
    bool failed = ferror(to) != 0;
    failed = fclose(to) != 0 || failed;
    int r = failed ? error_set(err, -EIO, "cannot make the page")
                   : file_write(path, text, n_bytes, 0, err);
    free(text);
    return r;
}

int job_report(const Arguments *a)
{
    Error err = ERROR_INIT;
    ModelJob *job;
    _cleanup_(model_freep) Model *model = NULL;
    _cleanup_(job_freep) Job *spec = NULL;
    int r = model_open(&a->client, &model, &err);
    if (r == 0)
        r = model_find_job(model, a->operand, &job, &err);
    if (r == 0)
        r = job_parse(a->operand, job->spec.spec, strlen(job->spec.spec), &spec, &err);
    if (r < 0)
        return ctl_fail(&err, r);

    JobReport report = {.model = model,
                        .job = job,
                        .spec = spec,
                        .now_usec = clock_realtime_usec()};
    read_metrics(&report);
    r = write_page(&report, a->out, &err);
    free(report.metrics.lines);
    free(report.metrics.saved);
    if (r < 0)
        return ctl_fail(&err, r);
    printf("the report of job %s is in %s\n", a->operand, a->out);
    return CTL_DONE;
}
