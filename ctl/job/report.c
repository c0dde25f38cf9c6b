/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - `sdctl job report`: gathers what etcd and the newest committed checkpoint say, and
 * writes one HTML page. */
#include "ctl/job/report.h"
#include "base/memory.h"
#include "ctl/arguments.h"

#include "base/clock.h"
#include "base/file.h"
#include "ctl/job/verbs.h"

#include <string.h>

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

static int write_page(const JobReport *report, const char *path, Error *err)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *to = memory_given(open_memstream(&text, &n_bytes));
    report_write_page(to, report);
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
    report_clear(&report);
    if (r < 0)
        return ctl_fail(&err, r);
    printf("the report of job %s is in %s\n", a->operand, a->out);
    return CTL_DONE;
}
