/* job_watch.c - the live view of `job start --watch` and `job status --watch`: one line that moves,
 * and a line for each thing that happens. Ends with the job. */
#include "base/clock.h"
#include "ctl/model.h"

#include <string.h>

enum { PLAIN_PERIOD_SEC = 1 };

typedef struct View {
    Model *model;
    const char *name;
    bool terminal;
    size_t incidents_seen, incidents_resolved;
    int64_t generation;
    int phase;
    int64_t step;
    uint64_t drawn_usec;
} View;

static void clear_line(const View *v)
{
    if (v->terminal)
        printf("\r\033[K");
}

static void say_world(View *v, const ModelJob *job)
{
    if (!job->has_world || job->world.generation == v->generation)
        return;
    clear_line(v);
    printf("generation %lld: %d rank%s from step %lld%s%s\n", (long long)job->world.generation,
           job->world.size, job->world.size == 1 ? "" : "s", (long long)job->world.resume.step,
           *job->world.reason ? ", " : "", job->world.reason);
    v->generation = job->world.generation;
}

static void say_incidents(View *v)
{
    size_t seen = 0, resolved = 0;
    for (size_t i = 0; i < v->model->n_incidents; i++) {
        const IncidentRecord *n = &v->model->incidents[i];
        if (strcmp(n->job, v->name) != 0)
            continue;
        if (seen++ >= v->incidents_seen) {
            clear_line(v);
            printf("incident %s: %s, node %s rank %d: %s\n", n->id, n->cause,
                   *n->node ? n->node : "?", n->rank, n->evidence);
        }
        if (n->state == INCIDENT_RESOLVED && resolved++ >= v->incidents_resolved) {
            clear_line(v);
            printf("incident %s is over after %.2f s; %lld steps are trained again\n", n->id,
                   (double)(n->resolved_usec - n->at_usec) * 1e-6, (long long)n->lost_steps);
        }
    }
    v->incidents_seen = MAX(v->incidents_seen, seen);
    v->incidents_resolved = MAX(v->incidents_resolved, resolved);
}

static void draw_progress(View *v, const ModelJob *job, JobPhase phase)
{
    const uint64_t now = clock_boottime_usec();
    const int64_t step = model_step(job);
    const bool moved = (int)phase != v->phase || step != v->step;
    if (!moved || (!v->terminal && (int)phase == v->phase &&
                   now < v->drawn_usec + PLAIN_PERIOD_SEC * USEC_PER_SEC))
        return;
    v->phase = (int)phase;
    v->step = step;
    v->drawn_usec = now;

    const ProgressRecord *p = &job->progress;
    clear_line(v);
    printf("%-10s step %lld/%lld", job_phase_name(phase), (long long)step, (long long)p->steps);
    if (phase == PHASE_RUNNING && job->has_progress && p->samples_per_sec > 0 && p->step > 0) {
        double left_sec = (double)(p->steps - step) * (double)p->samples_seen / (double)p->step /
                          p->samples_per_sec;
        printf("  loss %.5f  %.1f samples/s  %d rank%s  ETA %.0f s", p->loss, p->samples_per_sec,
               job->world.size, job->world.size == 1 ? "" : "s", left_sec);
    } else if (*job->phase.reason) {
        printf("  %s", job->phase.reason);
    }
    printf(v->terminal ? "" : "\n");
    (void)fflush(stdout); /* a lost line of progress is no loss */
}

static int on_event(const EtcdEvent *event, bool initial, void *userdata)
{
    (void)initial;
    View *v = userdata;
    if (event)
        return model_feed(v->model, event);
    const ModelJob *job = model_job(v->model, v->name);
    if (!job || !job->has_spec)
        return -ENOENT;
    JobPhase phase = job->has_phase ? job->phase.phase : PHASE_PENDING;
    say_world(v, job);
    say_incidents(v);
    draw_progress(v, job, phase);
    return phase == PHASE_SUCCEEDED || phase == PHASE_STOPPED ? 1 : phase == PHASE_FAILED ? 2 : 0;
}

int job_watch(const ClientOptions *options, const char *name)
{
    Error err = ERROR_INIT;
    Client client = {0};
    View v = {.name = name, .terminal = isatty(STDOUT_FILENO) == 1, .phase = -1, .step = -1};
    int r = client_open(options, &client, &err);
    if (r == 0)
        r = model_new(client.cluster, &v.model);
    if (r == 0)
        r = client_watch(&client, on_event, &v, USEC_INFINITY, &err);
    client_close(&client);
    if (r > 0 && v.terminal)
        printf("\n");
    const ModelJob *job = v.model ? model_job(v.model, name) : NULL;
    if (r > 0 && job && *job->phase.reason)
        printf("%s: %s\n", job_phase_name(job->phase.phase), job->phase.reason);
    if (r == -ENOENT)
        (void)error_set(&err, r, "no job %s", name);
    v.model = model_free(v.model);
    if (r < 0)
        return ctl_fail(&err, r);
    return r == 1 ? CTL_DONE : CTL_FAILED;
}
