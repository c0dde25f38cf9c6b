/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - the live view of `job start --watch` and `job status --watch`: on a terminal one progress line that is
 * overwritten, elsewhere one line a second; and one line for each event. It ends with the job. */
#include "ctl/job/watch/watch.h"
#include "base/clock.h"
#include "cluster/resume.h"
#include "ctl/interrupt.h"
#include "ctl/model.h"
#include "ctl/print.h"
#include "ctl/suggestion.h"

#include <math.h>
#include <string.h>
#include <sys/ioctl.h>

enum { LINE_MAX_BYTES = 400, BAR_CELLS = 20 };

typedef struct View {
    Model *model;
    const char *name;
    bool terminal;
    int64_t generation; /* the newest generation that was printed */
    int phase;          /* the phase that is shown */
    char line[LINE_MAX_BYTES];
    uint64_t drawn_usec;
} View;

enum { ENDED_WELL = 1, ENDED_BADLY = 2 };

/* Prints a line that stays, above the progress line. */
static void print_line(const View *v, uint64_t at_usec, const char *format, ...) _printf_(3, 4);
static void print_line(const View *v, uint64_t at_usec, const char *format, ...)
{
    char at[TIME_TEXT_BYTES];
    va_list ap;
    printf("%s%s  ", v->terminal ? "\r\033[K" : "", time_text(at_usec, at));
    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
    printf("\n%s", v->terminal ? v->line : "");
    (void)fflush(stdout); /* an error loses only a line of output */
}

/* Writes the step from which the job resumes. If the job takes over the checkpoint of another job or searches for a
 * checkpoint, the step is known only when ranks have found the checkpoint. */
static void print_from(const ModelJob *job, char *ret, size_t size)
{
    const ResumePoint *resume = &job->world.resume;
    int64_t step = model_resumed_step(job);
    step = step >= 0 ? step : resume_point_step(resume);
    if (resume->find == FIND_MUST)
        (void)snprintf(ret, size, "look for a checkpoint of step %lld or later", (long long)step);
    else if (resume->adopt && step == 0)
        (void)snprintf(ret, size, "from %s", resume->uri);
    else
        (void)snprintf(ret, size, "from step %lld", (long long)step);
}

static void print_world(View *v, const ModelJob *job)
{
    const WorldRecord *w = &job->world;
    char from[RECORD_URI_MAX + 48];
    if (!job->has_world || w->generation == v->generation)
        return;
    v->generation = w->generation;
    print_from(job, from, sizeof(from));
    print_line(v, w->decided_usec, "generation %lld: %d rank%s %s%s%s", (long long)w->generation,
               w->size, w->size == 1 ? "" : "s", from, *w->reason ? ", " : "", w->reason);
}

static const IncidentRecord *find_incident(const Model *m, const char *id)
{
    for (size_t i = 0; i < m->n_incidents; i++)
        if (strcmp(m->incidents[i].id, id) == 0)
            return &m->incidents[i];
    return NULL;
}

static void print_incident(const View *v, const IncidentRecord *n, bool is_new)
{
    char rank[24] = "";
    if (n->rank >= 0)
        (void)snprintf(rank, sizeof(rank), " of rank %d", n->rank);
    if (is_new)
        print_line(v, n->at_usec, "%s%s%s%s: %s", n->cause, rank, *n->node ? " on " : "", n->node,
                   n->evidence);
    if (n->state == INCIDENT_RESOLVED && n->ended)
        print_line(v, n->resolved_usec, "%s%s has ended with the job", n->cause, rank);
    else if (n->state == INCIDENT_RESOLVED && !model_ended_world(n))
        print_line(v, n->resolved_usec, "%s is over after %.2f s", n->cause, model_recovery_sec(n));
    else if (n->state == INCIDENT_RESOLVED)
        print_line(v, n->resolved_usec, "recovered from %s%s in %.2f s, %lld step%s again",
                   n->cause, rank, model_recovery_sec(n), (long long)n->lost_steps,
                   n->lost_steps == 1 ? "" : "s");
}

static int feed(View *v, const EtcdEvent *event)
{
    KeyKind kind;
    const char *id;
    if (key_parse(v->model->cluster, event->kv.key, &kind, &id) < 0 || kind != KEY_INCIDENTS)
        return model_feed(v->model, event);
    const IncidentRecord *n = find_incident(v->model, id);
    const bool known = n != NULL, was_over = n && n->state == INCIDENT_RESOLVED;
    (void)model_feed(v->model, event);
    n = find_incident(v->model, id);
    if (n && strcmp(n->job, v->name) == 0 && !was_over)
        if (!known || n->state == INCIDENT_RESOLVED)
            print_incident(v, n, !known);
    return 0;
}

static void format_line(const ModelJob *job, char line[LINE_MAX_BYTES])
{
    const ProgressRecord *p = &job->progress;
    const CheckpointCommit *saved = checkpoints_latest(&job->checkpoints);
    const int64_t step = model_step(job);
    char left[SPAN_TEXT_BYTES];
    size_t n = (size_t)snprintf(line, LINE_MAX_BYTES, "%s  step %lld",
                                job_phase_name(model_phase(job)), (long long)step);
    if (p->steps > 0)
        n += (size_t)snprintf(line + n, LINE_MAX_BYTES - n, "/%lld", (long long)p->steps);
    if (saved && saved->step > 0)
        n += (size_t)snprintf(line + n, LINE_MAX_BYTES - n, "  saved %lld", (long long)saved->step);
    if (p->unsaved_since_usec && model_progress(job))
        n += (size_t)snprintf(line + n, LINE_MAX_BYTES - n, "  UNSAVED");
    if (model_phase(job) == PHASE_RUNNING && job->has_progress && p->step_sec > 0) {
        char loss[48] = "", rate[48] = ""; /* a program need not report them */
        if (isfinite(p->loss))
            (void)snprintf(loss, sizeof(loss), "  loss %.5f", p->loss);
        if (isfinite(p->samples_per_sec))
            (void)snprintf(rate, sizeof(rate), "  %.1f samples/s", p->samples_per_sec);
        (void)snprintf(line + n, LINE_MAX_BYTES - n, "%s%s  %d rank%s%s%s", loss, rate,
                       job->world.size, job->world.size == 1 ? "" : "s",
                       p->steps > 0 ? "  ETA " : "",
                       p->steps > 0 ? span_text((double)(p->steps - step) * p->step_sec, left)
                                    : "");
    } else if (*job->phase.reason && !model_has_ended(job))
        (void)snprintf(line + n, LINE_MAX_BYTES - n, "  %s", job->phase.reason);
}

/* Cuts the line to the terminal's width, because a wrapped line could not be overwritten. If there is room, adds a bar
 * in front. */
static void fit(const ModelJob *job, char line[LINE_MAX_BYTES])
{
    struct winsize size = {0};
    char bare[LINE_MAX_BYTES];
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
        size.ws_col = 80;
    if (strlen(line) >= size.ws_col)
        line[size.ws_col - 1] = '\0';
    if (job->progress.steps == 0 || strlen(line) + BAR_CELLS + 3 >= size.ws_col)
        return;
    double share = (double)model_step(job) / (double)job->progress.steps;
    int full = (int)(CLAMP(share, 0.0, 1.0) * BAR_CELLS);
    memcpy(bare, line, sizeof(bare));
    (void)snprintf(line, LINE_MAX_BYTES, "[%.*s%.*s] %.*s", full,
                   "====================", BAR_CELLS - full, "--------------------",
                   LINE_MAX_BYTES - BAR_CELLS - 4, bare);
}

static void draw(View *v, const ModelJob *job)
{
    char line[LINE_MAX_BYTES];
    const uint64_t now = clock_boottime_usec();
    format_line(job, line);
    if (v->terminal)
        fit(job, line);
    if (strcmp(line, v->line) == 0 || (!v->terminal && v->phase == (int)model_phase(job) &&
                                       !model_has_ended(job) && now < v->drawn_usec + USEC_PER_SEC))
        return;
    v->phase = (int)model_phase(job);
    v->drawn_usec = now;
    memcpy(v->line, line, sizeof(line));
    printf(v->terminal ? "\r\033[K%s" : "%s\n", line);
    (void)fflush(stdout); /* an error loses only a progress line */
}

static int on_job_event(const EtcdEvent *event, void *userdata)
{
    View *v = userdata;
    if (event)
        return feed(v, event);
    const ModelJob *job = model_job(v->model, v->name);
    if (!job || !model_is_shown(job))
        return -ENOENT;
    print_world(v, job);
    draw(v, job);
    if (!model_has_ended(job))
        return 0;
    return model_phase(job) == PHASE_FAILED ? ENDED_BADLY : ENDED_WELL;
}

static void print_end(const View *v)
{
    const ModelJob *job = model_job(v->model, v->name);
    const PhaseRecord *p = &job->phase;
    const CheckpointCommit *saved = checkpoints_latest(&job->checkpoints);
    char digest[HASH_TEXT_BYTES], span[SPAN_TEXT_BYTES];
    printf(v->terminal ? "\n" : "");
    printf("job %s %s at step %lld", job->name, job_phase_name(p->phase),
           (long long)model_step(job));
    if (p->started_usec && p->since_usec > p->started_usec)
        printf(" after %s", span_text((double)(p->since_usec - p->started_usec) * 1e-6, span));
    if (*p->reason)
        printf(": %s", p->reason);
    printf("\n");
    if (saved)
        printf("checkpoint of step %lld%s%s\n  %s\n", (long long)saved->step,
               print_digest(saved->digest, digest) ? ", digest " : "",
               print_digest(saved->digest, digest) ? digest : "", saved->uri);
}

int job_watch(const ClientOptions *options, const char *name)
{
    Error err = ERROR_INIT;
    CtlClient client = {0};
    interrupt_print(
        "job %s goes on; sdctl job status %s --watch looks again, sdctl job stop %s ends it", name,
        name, name);
    View v = {.name = name, .terminal = isatty(STDOUT_FILENO) == 1, .phase = -1};
    int r = client_open(options, &client, &err);
    v.model = model_new(client.cluster);
    if (r == 0)
        r = client_watch(&client, on_job_event, &v, USEC_INFINITY, &err);
    client_close(&client);
    if (r > 0)
        print_end(&v);
    if (r == -ENOENT)
        (void)suggest_job(v.model, name, &err);
    v.model = model_free(v.model);
    if (r < 0)
        return ctl_fail(&err, r);
    return r == ENDED_WELL ? CTL_DONE : CTL_FAILED;
}
