/* SPDX-License-Identifier: Apache-2.0 */
/* recover.c - `sdctl job recover`: requests that the leader resumes a job whose record of checkpoints is lost or is
 * refused by the leader. The job resumes from the manifest that is named, or else from the newest of the job's own
 * manifests in its checkpoint folder. */
#include "cluster/request.h"
#include "ctl/arguments.h"
#include "ctl/job/change/named-commit.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"

#include <string.h>

enum { WAIT_SEC = 30 };

typedef struct RecoverOptions {
    int step;           /* -1: not given */
    double timeout_sec; /* < 0: not given */
} RecoverOptions;

#define OPTIONS_STRUCT RecoverOptions
static const CtlOption options[] = {
    {"step", 0, "N", "the step of a program's checkpoint, which only the program can read",
     TAKES_NUMBER(step, 0, INT32_MAX, "a number of steps")},
    OPTION_TIMEOUT,
};
const CtlOptions job_recover_options = CTL_OPTIONS(options, .step = -1, .timeout_sec = -1);

static int name_commit(const ModelJob *job, const Arguments *a, CheckpointCommit *ret, Error *err)
{
    const RecoverOptions *o = arguments_own(a);
    _cleanup_(job_freep) Job *spec = NULL;
    if (!a->second)
        return 0;
    int r = job_parse_any(job->name, job->spec.spec, strlen(job->spec.spec), &spec, err);
    if (r < 0)
        return r;
    if (job_is_program(spec) && o->step < 0)
        return error_set(err, -EINVAL,
                         "job %s is a program: --step N says of which step the checkpoint is",
                         spec->name);
    if (job_is_program(spec))
        return named_commit_of_program(spec, a->second, o->step, ret, err);
    if (o->step >= 0)
        return error_set(err, -EINVAL, "--step: the manifest says of which step it is");
    return named_commit_of_manifest(spec, a->second, ret, err);
}

static int begin(CtlClient *client, const Arguments *a, RequestRecord *request, Error *err)
{
    ModelJob *job;
    _cleanup_(model_freep) Model *now = NULL;
    int r = model_read(client, &now, err);
    if (r == 0)
        r = model_find_job(now, a->operand, &job, err);
    if (r == 0 && !job->has_spec)
        r = error_set(err, -ENOENT, "job %s has no spec: sdctl job start -f FILE gives it back",
                      a->operand);
    if (r == 0)
        r = name_commit(job, a, &request->commit, err);
    if (r < 0)
        return r;
    memcpy(request->submission, job->spec.submission, sizeof(request->submission));
    return client_request(client, "recover", a->operand, request, err);
}

int job_recover(const Arguments *a)
{
    const RecoverOptions *o = arguments_own(a);
    Error err = ERROR_INIT;
    CtlClient client = {0};
    RequestRecord request = {0};
    const double timeout_sec = o->timeout_sec < 0 ? WAIT_SEC : o->timeout_sec;
    int r = client_open(&a->client, &client, &err);
    if (r == 0)
        r = begin(&client, a, &request, &err);
    if (r == 0)
        r = client_await(&client, &request, timeout_sec, &err);
    client_close(&client);
    if (r == -ETIMEDOUT)
        (void)error_set(&err, r, "job %s: no leader has answered within %g s", a->operand,
                        timeout_sec);
    else if (r == 0 && request_outcome(&request) == REQUEST_REFUSED)
        r = error_set(&err, -EBUSY, "job %s: %s", a->operand, request.answer);
    if (r < 0)
        return ctl_fail(&err, r);
    printf("job %s %s\n", a->operand, request.answer);
    return CTL_DONE;
}
