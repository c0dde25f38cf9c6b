/* SPDX-License-Identifier: Apache-2.0 */
/* wait.c - `sdctl job wait`, and --wait of `job stop` and `job resize`: waits until a job has reached a phase, a step
 * or a size. It uses an etcd watch and does not poll. */
#include "ctl/job/change/wait.h"
#include "base/text/nearest.h"
#include "ctl/interrupt.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"
#include "ctl/suggestion.h"

#include <string.h>

typedef struct JobWait {
    Model *model;
    const char *name;
    const char *wanted; /* the goal as text, for messages */
    int phase;          /* JobPhase to wait for, or -1 */
    int64_t step;       /* step to wait for, or -1 */
    bool stops;         /* a job that succeeds before it stops counts as stopped */
    int size;           /* number of ranks to wait for; 0: any */
    char text[480];     /* the job's present phase and step as text */
} JobWait;

enum { REACHED = 1, NEVER = 2, MISSING = 3, CHANGED = 4 };

static bool is_reached(const JobWait *w, const ModelJob *job)
{
    const JobPhase phase = model_phase(job);
    if (w->size > 0)
        return phase == PHASE_RUNNING && job->has_world && job->world.size == w->size;
    if (w->phase == PHASE_STOPPED && phase == PHASE_SUCCEEDED)
        return w->stops;
    return (w->phase >= 0 && (int)phase == w->phase) ||
           (w->step >= 0 && model_step(job) >= w->step);
}

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
    if (is_reached(w, job))
        return REACHED;
    if (w->size > 0 && job->has_desired && job->desired.target != w->size)
        return CHANGED;
    return model_has_ended(job) ? NEVER : 0;
}

static int on_wait_event(const EtcdEvent *event, void *userdata)
{
    JobWait *w = userdata;
    return event ? model_feed(w->model, event) : judge(w);
}

typedef struct WaitOptions {
    const char *wanted;
    double timeout_sec; /* < 0: not given */
} WaitOptions;

#define OPTIONS_STRUCT WaitOptions
static const CtlOption options[] = {
    {"for", 0, "PHASE|step=N", "what to wait for", TAKES(TEXT, wanted), .is_needed = true},
    OPTION_TIMEOUT,
};
const CtlOptions job_wait_options = CTL_OPTIONS(options, .timeout_sec = -1);

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

static int refuse_wanted(const Arguments *a)
{
    const WaitOptions *o = arguments_own(a);
    char hint[NEAREST_TEXT_BYTES], phases[160] = "";
    Nearest meant = nearest_to(o->wanted);
    for (int i = 0; i < PHASE_COUNT; i++) {
        size_t used = strlen(phases);
        nearest_offer(&meant, job_phase_name((JobPhase)i));
        (void)snprintf(phases + used, sizeof(phases) - used, "%s%s", i ? ", " : "",
                       job_phase_name((JobPhase)i));
    }
    return arguments_refuse(a->verb, "--for takes a phase (%s) or step=N, not \"%s\"%s", phases,
                            o->wanted, nearest_text(&meant, hint));
}

static int fail(const JobWait *w, double timeout_sec, int r, Error *err)
{
    if (r == MISSING)
        r = suggest_job(w->model, w->name, err);
    else if (r == NEVER && w->stops)
        r = error_set(err, -ECANCELED, "job %s does not stop any more: it is %s", w->name, w->text);
    else if (r == NEVER)
        r = error_set(err, -ECANCELED, "job %s will not reach %s: it is %s", w->name, w->wanted,
                      w->text);
    else if (r == CHANGED)
        r = error_set(err, -ECANCELED, "job %s was told another size meanwhile: it is %s", w->name,
                      w->text);
    else if (r == -ETIMEDOUT)
        (void)error_set(err, r, "job %s has not reached %s in %g s: it is %s", w->name, w->wanted,
                        timeout_sec, w->text);
    return ctl_fail(err, r);
}

static int wait_for(const Arguments *a, double timeout_sec, JobWait *w)
{
    Error err = ERROR_INIT;
    CtlClient client = {0};
    uint64_t timeout_usec = timeout_sec < 0 ? USEC_INFINITY : (uint64_t)(timeout_sec * 1e6);
    w->name = a->operand;
    (void)fflush(stdout); /* so that earlier output appears before the wait */
    interrupt_print(w->stops
                        ? "job %s stops all the same; sdctl job wait %s --for stopped waits again"
                    : w->size
                        ? "job %s is resized all the same; sdctl job status %s shows how far it is"
                        : "job %s goes on; sdctl job status %s shows how far it is",
                    w->name, w->name);
    int r = client_open(&a->client, &client, &err);
    w->model = model_new(client.cluster);
    if (r == 0)
        r = client_watch(&client, on_wait_event, w, timeout_usec, &err);
    client_close(&client);
    int code = CTL_DONE;
    if (r == REACHED)
        printf("job %s is %s\n", w->name, w->text);
    else
        code = fail(w, timeout_sec, r, &err);
    w->model = model_free(w->model);
    return code;
}

int job_wait(const Arguments *a)
{
    const WaitOptions *o = arguments_own(a);
    JobWait w = {.wanted = o->wanted};
    if (parse_wanted(o->wanted, &w) < 0)
        return refuse_wanted(a);
    return wait_for(a, o->timeout_sec, &w);
}

int job_wait_stopped(const Arguments *a, double timeout_sec)
{
    JobWait w = {.wanted = "its end", .phase = PHASE_STOPPED, .step = -1, .stops = true};
    return wait_for(a, timeout_sec, &w);
}

int job_wait_size(const Arguments *a, int size, double timeout_sec)
{
    char wanted[32];
    JobWait w = {.wanted = wanted, .phase = -1, .step = -1, .size = size};
    (void)snprintf(wanted, sizeof(wanted), "%d rank%s", size, size == 1 ? "" : "s");
    return wait_for(a, timeout_sec, &w);
}
