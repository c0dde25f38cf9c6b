/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.c - `sdctl job checkpoint`: requests that rank 0 saves after its present step, and waits until a commit
 * newer than the request exists. */
#include "cluster/request.h"
#include "ctl/arguments.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"
#include "ctl/print.h"

#include <string.h>

enum { WAIT_SEC = 60 };
enum { COMMITTED = 1, REFUSED = 2, MISSING = 3 };

typedef struct CheckpointVerbOptions {
    double timeout_sec; /* < 0: not given */
} CheckpointVerbOptions;

#define OPTIONS_STRUCT CheckpointVerbOptions
static const CtlOption options[] = {
    OPTION_TIMEOUT,
};
const CtlOptions job_checkpoint_options = CTL_OPTIONS(options, .timeout_sec = -1);

typedef struct CheckpointRequest {
    Model *model;
    const char *name;
    RequestRecord request;
    char last_uri[RECORD_URI_MAX + 1];
    CheckpointCommit commit;
    char answer[RECORD_TEXT_MAX + 1];
    bool is_refused;
} CheckpointRequest;

static int judge(CheckpointRequest *ask)
{
    const ModelJob *job = model_job(ask->model, ask->name);
    if (!job || !job->has_spec)
        return MISSING;
    const CheckpointCommit *latest = checkpoints_latest(&job->checkpoints);
    if (latest && strcmp(latest->uri, ask->last_uri) != 0) {
        ask->commit = *latest;
        return COMMITTED;
    }
    for (size_t i = 0; i < ask->model->n_requests; i++) {
        const RequestRecord *q = &ask->model->requests[i];
        if (strcmp(q->id, ask->request.id) != 0)
            continue;
        (void)snprintf(ask->answer, sizeof(ask->answer), "%s", q->answer);
        ask->is_refused = request_outcome(q) == REQUEST_REFUSED;
    }
    return ask->is_refused || model_has_ended(job) ? REFUSED : 0;
}

static int on_checkpoint_event(const EtcdEvent *event, void *userdata)
{
    CheckpointRequest *ask = userdata;
    return event ? model_feed(ask->model, event) : judge(ask);
}

static int begin(CtlClient *client, CheckpointRequest *ask, Error *err)
{
    ModelJob *job;
    _cleanup_(model_freep) Model *now = NULL;
    int r = model_read(client, &now, err);
    if (r == 0)
        r = model_find_job(now, ask->name, &job, err);
    if (r == 0 && !(job->has_phase && job->phase.go))
        r = error_set(err, -EINVAL, "job %s does not train now: it is %s", ask->name,
                      job_phase_name(model_phase(job)));
    if (r < 0)
        return r;
    const CheckpointCommit *latest = checkpoints_latest(&job->checkpoints);
    (void)snprintf(ask->last_uri, sizeof(ask->last_uri), "%s", latest ? latest->uri : "");
    memcpy(ask->request.submission, job->spec.submission, sizeof(ask->request.submission));
    return client_request(client, "checkpoint", ask->name, &ask->request, err);
}

static int fail(const CheckpointRequest *ask, double timeout_sec, int r, Error *err)
{
    if (r == MISSING)
        r = error_set(err, -ENOENT, "job %s is gone", ask->name);
    else if (r == REFUSED)
        r = error_set(err, -EBUSY, "job %s: no checkpoint: %s", ask->name,
                      *ask->answer ? ask->answer : "the job has ended");
    else if (r == -ETIMEDOUT)
        (void)error_set(err, r, "job %s: no checkpoint was committed within %g s (%s)", ask->name,
                        timeout_sec, *ask->answer ? ask->answer : "nobody has answered");
    return ctl_fail(err, r);
}

int job_checkpoint(const Arguments *a)
{
    const CheckpointVerbOptions *o = arguments_own(a);
    Error err = ERROR_INIT;
    CtlClient client = {0};
    CheckpointRequest ask = {.name = a->operand};
    const double timeout_sec = o->timeout_sec < 0 ? WAIT_SEC : o->timeout_sec;
    int r = client_open(&a->client, &client, &err);
    if (r == 0)
        r = begin(&client, &ask, &err);
    ask.model = model_new(client.cluster);
    if (r == 0)
        r = client_watch(&client, on_checkpoint_event, &ask, (uint64_t)(timeout_sec * 1e6), &err);
    client_close(&client);
    ask.model = model_free(ask.model);
    if (r != COMMITTED)
        return fail(&ask, timeout_sec, r, &err);
    char digest[HASH_TEXT_BYTES];
    const char *text = print_digest(ask.commit.digest, digest);
    printf("job %s is saved at step %lld%s%s\n  %s\n", ask.name, (long long)ask.commit.step,
           text ? ", digest " : "", text ? text : "", ask.commit.uri);
    return CTL_DONE;
}
