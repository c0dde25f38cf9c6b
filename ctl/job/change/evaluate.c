/* SPDX-License-Identifier: Apache-2.0 */
/* evaluate.c - `sdctl job evaluate`: has a job of kind eval evaluate a checkpoint that is named, or each checkpoint of
 * a job of another cluster (follow.c). */
#include "cluster/request.h"
#include "ctl/arguments.h"
#include "ctl/interrupt.h"
#include "ctl/job/change/follow.h"
#include "ctl/job/change/named-commit.h"
#include "ctl/job/results/eval-list.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"

#include <math.h>
#include <string.h>

enum { ANSWER_SEC = 30 };
enum { HAS_VERDICT = 1, IS_GONE = 2 };

typedef struct EvaluateOptions {
    int step; /* -1: not given */
    bool wait;
    double timeout_sec; /* < 0: not given */
    const char *follow;
} EvaluateOptions;

#define OPTIONS_STRUCT EvaluateOptions
static const CtlOption options[] = {
    {"step", 0, "N", "the step of a program's checkpoint, which only the program can read",
     TAKES_NUMBER(step, 1, INT32_MAX, "a number of steps")},
    {"wait", 0, NULL, "wait for the verdict, and print it with its numbers", TAKES(NOTHING, wait)},
    OPTION_TIMEOUT,
    {"follow", 0, "CONTEXT/JOB",
     "each checkpoint of that job of another cluster, until it has succeeded", TAKES(TEXT, follow)},
};
const CtlOptions job_evaluate_options = CTL_OPTIONS(options, .step = -1, .timeout_sec = -1);

static int name_commit(const ModelJob *job, const Arguments *a, CheckpointCommit *ret, Error *err)
{
    const EvaluateOptions *o = arguments_own(a);
    _cleanup_(job_freep) Job *spec = NULL;
    int r = job_parse_any(job->name, job->spec.spec, strlen(job->spec.spec), &spec, err);
    if (r < 0)
        return r;
    if (spec->kind != JOB_EVAL)
        return error_set(err, -EINVAL, "job %s: kind: \"%s\": it evaluates no checkpoints",
                         job->name, job_kind_name(spec->kind));
    if (o->step >= 0 && !job_is_program(spec))
        return error_set(err, -EINVAL, "--step: the manifest says of which step it is");
    if (o->step >= 0)
        return named_commit_of_program(spec, a->second, o->step, ret, err);
    r = named_commit_of_manifest(spec, a->second, ret, err);
    if (r == 0 && !job_exec_may_register(spec, ret->uri))
        return error_set(err, -EINVAL, "%s: outside of checkpoint.uri of job %s (%s)", ret->uri,
                         job->name, spec->checkpoint.uri);
    return r;
}

static int begin(CtlClient *client, const Arguments *a, RequestRecord *request, Error *err)
{
    ModelJob *job;
    _cleanup_(model_freep) Model *model = NULL;
    int r = model_read(client, &model, err);
    if (r == 0)
        r = model_find_job(model, a->operand, &job, err);
    if (r == 0)
        r = name_commit(job, a, &request->commit, err);
    if (r < 0)
        return r;
    memcpy(request->submission, job->spec.submission, sizeof(request->submission));
    r = client_request(client, "evaluate", a->operand, request, err);
    if (r == 0)
        r = client_await(client, request, ANSWER_SEC, err);
    if (r == -ETIMEDOUT)
        return error_set(err, r, "job %s: no leader has answered within %d s", a->operand,
                         ANSWER_SEC);
    if (r == 0 && request_outcome(request) != REQUEST_DONE)
        return error_set(err, -EBUSY, "job %s: %s", a->operand, request->answer);
    return r;
}

/* ---- --wait ---- */

typedef struct Awaited {
    Model *model;
    const char *job;
    const RequestRecord *request;
    EvalVerdict verdict;
} Awaited;

static int judge(Awaited *w)
{
    const ModelJob *job = model_job(w->model, w->job);
    const CheckpointCommit *commit = &w->request->commit;
    if (!job || !job->has_spec || strcmp(job->spec.submission, w->request->submission) != 0)
        return IS_GONE;
    const EvalProgress *eval = &job->phase.eval;
    for (size_t i = 0; i < eval->n_asked; i++)
        if (eval->asked[i].step == commit->step)
            return 0; /* a verdict of before may be there until the evaluation begins */
    for (size_t i = 0; i < eval->n_results; i++)
        if (eval->results[i].step == commit->step &&
            eval->results[i].generation == commit->generation) {
            w->verdict = eval->results[i].verdict;
            return HAS_VERDICT;
        }
    return 0;
}

static int on_event(const EtcdEvent *event, void *userdata)
{
    Awaited *w = userdata;
    return event ? model_feed(w->model, event) : judge(w);
}

static int print_results(CtlClient *client, const Awaited *w, Error *err)
{
    _cleanup_(report_evals_clear) ReportEvals list = {0};
    int r = eval_list_add(&list, client, model_job(w->model, w->job), err);
    if (r < 0)
        return r;
    printf("step %lld: %s", (long long)w->request->commit.step, eval_verdict_names[w->verdict]);
    for (size_t i = 0; i < list.n; i++) {
        const EvalRecord *record = list.list[i].record;
        if (list.list[i].step != w->request->commit.step || !record)
            continue;
        for (size_t k = 0; k < record->results.n_numbers; k++)
            printf("%s %s %.6g", k == 0 ? ":" : ",", record->results.numbers[k].name,
                   record->results.numbers[k].value);
    }
    printf("\n");
    if (w->verdict != EVAL_DONE)
        return error_set(err, -EBUSY, "step %lld is not evaluated: sdctl job events %s says why",
                         (long long)w->request->commit.step, w->job);
    return 0;
}

static int await_verdict(CtlClient *client, const char *job, const RequestRecord *request,
                         double timeout_sec, Error *err)
{
    _cleanup_(model_freep) Model *model = model_new(client->cluster);
    Awaited w = {.model = model, .job = job, .request = request};
    int r = client_watch(client, on_event, &w,
                         timeout_sec < 0 ? USEC_INFINITY : (uint64_t)(timeout_sec * 1e6), err);
    if (r == -ETIMEDOUT)
        return error_set(err, r, "job %s: step %lld has no verdict after %g s", job,
                         (long long)request->commit.step, timeout_sec);
    if (r == IS_GONE)
        return error_set(err, -ENOENT, "job %s is gone", job);
    return r < 0 ? r : print_results(client, &w, err);
}

/* ---- the verb ---- */

static int evaluate_one(CtlClient *client, const Arguments *a, Error *err)
{
    const EvaluateOptions *o = arguments_own(a);
    RequestRecord request = {0};
    int r = begin(client, a, &request, err);
    if (r < 0)
        return r;
    printf("job %s %s\n", a->operand, request.answer);
    if (!o->wait)
        return 0;
    interrupt_print("not waiting any more; job %s evaluates the checkpoint nevertheless",
                    a->operand);
    return await_verdict(client, a->operand, &request, o->timeout_sec, err);
}

int job_evaluate(const Arguments *a)
{
    const EvaluateOptions *o = arguments_own(a);
    Error err = ERROR_INIT;
    CtlClient client = {0};
    FollowedJob followed;
    if (!o->follow == !a->second)
        return arguments_refuse(a->verb, "give either a manifest or --follow CONTEXT/JOB");
    if (o->follow && (o->step >= 0 || o->wait || o->timeout_sec >= 0))
        return arguments_refuse(a->verb, "--follow goes with none of --step, --wait, --timeout");
    int r = o->follow ? follow_parse(o->follow, &followed, &err) : 0;
    if (r == 0)
        r = client_open(&a->client, &client, &err);
    if (r == 0)
        r = o->follow ? follow(&client, a->operand, &followed, &err)
                      : evaluate_one(&client, a, &err);
    client_close(&client);
    if (r < 0)
        return ctl_fail(&err, r);
    if (o->follow)
        printf("job %s of context %s has succeeded, and its checkpoints are named\n", followed.job,
               followed.context);
    return CTL_DONE;
}
