/* SPDX-License-Identifier: Apache-2.0 */
/* wait.c - `sdctl job wait`: until a job has reached a phase or a step; driven by the watch,
 * not by polling. */
#include "ctl/arguments.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"

#include <string.h>

typedef struct JobWait {
    Model *model;
    const char *name;
    int phase;      /* JobPhase, or -1 */
    int64_t step;   /* or -1 */
    char text[480]; /* where the job is */
} JobWait;

enum { REACHED = 1, NEVER = 2, MISSING = 3 };

static int judge(JobWait *w)
{
    const ModelJob *job = model_job(w->model, w->name);
    if (!job || !model_is_shown(job))
        return MISSING;
    char why[MODEL_REASON_BYTES];
    const JobPhase phase = model_phase(job);
    const char *reason = job->has_phase ? model_reason(job, why) : "";
    (void)snprintf(w->text, sizeof(w->text), "%s at step %lld%s%s", job_phase_name(phase),
                   (long long)model_step(job), *reason ? ": " : "", reason);
    if ((w->phase >= 0 && (int)phase == w->phase) || (w->step >= 0 && model_step(job) >= w->step))
        return REACHED;
    return model_has_ended(job) ? NEVER : 0;
}

static int on_wait_event(const EtcdEvent *event, void *userdata)
{
    JobWait *w = userdata;
    return event ? model_feed(w->model, event) : judge(w);
}

static int parse_wanted(const char *wanted, JobWait *w)
{
    char *end;
    w->phase = -1;
    w->step = -1;
    if (strncmp(wanted, "step=", 5) == 0) {
        errno = 0;
        w->step = strtoll(wanted + 5, &end, 10);
        return errno || *end || end == wanted + 5 || w->step < 0 ? -EINVAL : 0;
    }
    for (int i = 0; i < PHASE_COUNT; i++)
        if (strcmp(wanted, job_phase_name((JobPhase)i)) == 0) {
            w->phase = i;
            return 0;
        }
    return -EINVAL;
}

static int fail(const JobWait *w, const Arguments *a, int r, Error *err)
{
    if (r == MISSING)
        r = error_set(err, -ENOENT, "no job %s", w->name);
    else if (r == NEVER)
        r = error_set(err, -ECANCELED, "job %s will not reach %s: it is %s", w->name, a->wanted,
                      w->text);
    else if (r == -ETIMEDOUT)
        (void)error_set(err, r, "job %s has not reached %s in %g s: it is %s", w->name, a->wanted,
                        a->timeout_sec, w->text);
    return ctl_fail(err, r);
}

int job_wait(const Arguments *a)
{
    JobWait w = {.name = a->operand};
    if (parse_wanted(a->wanted, &w) < 0)
        return arguments_refuse(a->verb,
                                "--for takes a phase (running, succeeded, ...) or step=N, not "
                                "\"%s\"",
                                a->wanted);

    Error err = ERROR_INIT;
    CtlClient client = {0};
    uint64_t timeout_usec = a->timeout_sec < 0 ? USEC_INFINITY : (uint64_t)(a->timeout_sec * 1e6);
    int r = client_open(&a->client, &client, &err);
    w.model = model_new(client.cluster);
    if (r == 0)
        r = client_watch(&client, on_wait_event, &w, timeout_usec, &err);
    client_close(&client);
    w.model = model_free(w.model);
    if (r != REACHED)
        return fail(&w, a, r, &err);
    printf("job %s is %s\n", w.name, w.text);
    return CTL_DONE;
}
