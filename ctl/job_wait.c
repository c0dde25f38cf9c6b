/* job_wait.c - `sdctl job wait`: until a job has reached a phase or a step; driven by the watch,
 * not by polling. */
#include "ctl/arguments.h"
#include "ctl/model.h"

#include <string.h>

typedef struct Wait {
    Model *model;
    const char *name;
    int phase;    /* JobPhase, or -1 */
    int64_t step; /* or -1 */
    bool listed;  /* the present state is known */
    char text[320];
} Wait;

enum { REACHED = 1, NEVER = 2, MISSING = 3 };

static bool is_final(JobPhase phase)
{
    return phase == PHASE_SUCCEEDED || phase == PHASE_FAILED || phase == PHASE_STOPPED;
}

static int judge(Wait *w)
{
    const ModelJob *job = model_job(w->model, w->name);
    if (!job || !job->has_spec)
        return MISSING;
    JobPhase phase = job->has_phase ? job->phase.phase : PHASE_PENDING;
    (void)snprintf(w->text, sizeof(w->text), "%s at step %lld%s%s", job_phase_name(phase),
                   (long long)model_step(job), job->has_phase && *job->phase.reason ? ": " : "",
                   job->has_phase ? job->phase.reason : "");
    if ((w->phase >= 0 && (int)phase == w->phase) || (w->step >= 0 && model_step(job) >= w->step))
        return REACHED;
    return is_final(phase) ? NEVER : 0;
}

static int on_event(const EtcdEvent *event, bool initial, void *userdata)
{
    (void)initial;
    Wait *w = userdata;
    if (event)
        return model_feed(w->model, event);
    return judge(w);
}

static int parse_wanted(const char *wanted, Wait *w)
{
    w->phase = -1;
    w->step = -1;
    if (strncmp(wanted, "step=", 5) == 0) {
        char *end;
        w->step = strtoll(wanted + 5, &end, 10);
        return *end || end == wanted + 5 || w->step < 0 ? -EINVAL : 0;
    }
    for (int i = 0; i < PHASE_COUNT; i++)
        if (strcmp(wanted, job_phase_name((JobPhase)i)) == 0) {
            w->phase = i;
            return 0;
        }
    return -EINVAL;
}

int job_wait(int argc, char **argv)
{
    Arguments a;
    Wait w = {0};
    int code = arguments_parse(argc, argv, "job", TAKES_FOR | TAKES_TIMEOUT, 1, &a);
    if (code >= 0)
        return code;
    if (!a.wanted || parse_wanted(a.wanted, &w) < 0) {
        fprintf(stderr,
                "sdctl: job wait: --for takes a phase (running, succeeded, ...) or step=N\n");
        return CTL_USAGE;
    }
    w.name = a.operands[0];

    Error err = ERROR_INIT;
    Client client = {0};
    int r = client_open(&a.client, &client, &err);
    if (r == 0)
        r = model_new(client.cluster, &w.model);
    if (r == 0)
        r = client_watch(&client, on_event, &w,
                         a.timeout_sec < 0 ? USEC_INFINITY : (uint64_t)(a.timeout_sec * 1e6), &err);
    client_close(&client);
    w.model = model_free(w.model);
    if (r == REACHED) {
        printf("job %s is %s\n", w.name, w.text);
        return CTL_DONE;
    }
    if (r == MISSING)
        r = error_set(&err, -ENOENT, "no job %s", w.name);
    if (r == NEVER)
        r = error_set(&err, -ECANCELED, "job %s will not reach %s: it is %s", w.name, a.wanted,
                      w.text);
    if (r == -ETIMEDOUT && *w.text)
        (void)error_set(&err, r, "job %s has not reached %s in time: it is %s", w.name, a.wanted,
                        w.text);
    else if (r == -ETIMEDOUT)
        r = error_set(&err, -ECONNREFUSED, "etcd at %s does not answer", client.endpoints);
    return ctl_fail(&err, r);
}
