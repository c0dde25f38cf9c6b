/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - `sdctl job status` and `job list`. */
#include "base/clock.h"
#include "cluster/cost.h"
#include "cluster/room.h"
#include "ctl/arguments.h"
#include "ctl/job/verbs.h"
#include "ctl/job/watch/watch.h"
#include "ctl/model-json.h"
#include "ctl/model.h"
#include "ctl/print.h"
#include "ctl/suggestion.h"
#include "ctl/table.h"
#include "protocol/job.h"
#include "report/report.h"

#include <math.h>
#include <string.h>

static void print_phases(const IncidentRecord *n)
{
    const struct {
        const char *name;
        double sec;
    } phases[] = {{"detect", n->detect_sec},   {"decide", n->decide_sec},
                  {"stop", n->stop_sec},       {"start", n->start_sec},
                  {"restore", n->restore_sec}, {"replay", n->replay_sec}};
    const char *lead = "      ";
    for (size_t i = 0; i < ELEMENTSOF(phases); i++)
        if (phases[i].sec >= 0) {
            printf("%s%s %.2f s", lead, phases[i].name, phases[i].sec);
            lead = ", ";
        }
    if (*lead == ',')
        printf("\n");
}

static void print_incident(const IncidentRecord *n)
{
    char at[TIME_TEXT_BYTES], span[SPAN_TEXT_BYTES];
    printf("  %s  %s", time_text(n->at_usec, at), n->cause);
    if (n->rank >= 0)
        printf(" of rank %d", n->rank);
    if (*n->node)
        printf(" on %s", n->node);
    printf(" at step %lld, generation %lld: ", (long long)n->step, (long long)n->generation);
    if (n->state == INCIDENT_OPEN)
        printf("%sOPEN%s\n", paint_text(PAINT_BAD), paint_text(PAINT_NONE));
    else if (n->ended)
        printf("ended with the job\n");
    else if (!model_ended_world(n))
        printf("over after %s\n", span_text(model_recovery_sec(n), span));
    else
        printf("recovered in %s, %lld step%s again\n", span_text(model_recovery_sec(n), span),
               (long long)n->lost_steps, n->lost_steps == 1 ? "" : "s");
    if (*n->evidence)
        printf("      %s\n", n->evidence);
    print_phases(n);
}

static void print_progress(json_t *j)
{
    char span[SPAN_TEXT_BYTES];
    const int64_t step = json_count(j, "step"), steps = json_count(j, "steps");
    if (step == 0 && steps == 0)
        return; /* a program that reports no steps */
    printf("  step %lld", (long long)step);
    if (steps > 0)
        printf(" of %lld", (long long)steps);
    if (json_has_number(j, "loss"))
        printf(", loss %.5f", json_number(j, "loss"));
    if (json_has_number(j, "samples_per_s"))
        printf(", %.1f samples/s", json_number(j, "samples_per_s"));
    if (json_has_number(j, "eta_s"))
        printf(", %s to go", span_text(json_number(j, "eta_s"), span));
    printf("\n");
}

static void print_world(json_t *j)
{
    json_t *world = json_object_get(j, "world"), *ranks = json_object_get(world, "ranks"), *rank;
    size_t i;
    if (json_array_size(ranks) == 0)
        return;
    printf("\n  rank   node              slot  pid       state         step\n");
    json_array_foreach (ranks, i, rank) {
        printf("  %-6lld %-17s %-5lld %-9lld %-13s %lld\n", json_count(rank, "rank"),
               json_text(rank, "node"), json_count(rank, "slot"), json_count(rank, "pid"),
               json_text(rank, "state"), json_count(rank, "step"));
    }
}

static double ago_sec(uint64_t usec)
{
    uint64_t now_usec = clock_realtime_usec();
    return now_usec > usec ? (double)(now_usec - usec) * 1e-6 : 0;
}

/* Prints the present problems of the job with its store. */
static void print_store(const ModelJob *job)
{
    char span[SPAN_TEXT_BYTES], room[ROOM_TEXT_BYTES] = "";
    const char *advice;
    const ProgressRecord *p = model_progress(job);
    uint64_t next_usec = model_next_try_usec(job), now_usec = clock_realtime_usec();
    if (p && p->unsaved_since_usec)
        printf("  unsaved for %s: %s\n", span_text(ago_sec(p->unsaved_since_usec), span),
               p->save_error);
    if (p && room_describe(p, room, &advice))
        printf("  %s; %s\n", room, advice);
    else if (p && *room)
        printf("  store: %s\n", room);
    if (p && p->waits_since_usec)
        printf("  rank %d has waited for data for %s\n", p->waits_rank,
               span_text(ago_sec(p->waits_since_usec), span));
    if (job->has_progress && job->progress.metrics_lost > 0)
        printf("  metrics of %lld step%s between %lld and %lld are lost; nothing else is\n",
               (long long)job->progress.metrics_lost, job->progress.metrics_lost == 1 ? "" : "s",
               (long long)job->progress.metrics_lost_first,
               (long long)job->progress.metrics_lost_last);
    if (next_usec > now_usec)
        printf("  tries again in %s\n", span_text((double)(next_usec - now_usec) * 1e-6, span));
}

static void print_cost(const ModelJob *job)
{
    CostView v;
    char spent[COST_TEXT_BYTES], lost[COST_TEXT_BYTES], text[COST_TEXT_BYTES];
    cost_look(&job->phase, model_progress(job), clock_realtime_usec(), &v);
    if (!job->has_phase || !v.is_known)
        return;
    printf("  cost %s, of it %s lost to failures", cost_text(v.spent, spent),
           cost_text(v.lost, lost));
    if (v.to_end >= 0)
        printf("; %s to the end", cost_text(v.to_end, text));
    printf("\n");
    if (v.rate > 0)
        printf("    %s an hour", cost_text(v.rate, text));
    if (v.per_1000_steps >= 0)
        printf(", %s per 1,000 steps", cost_text(v.per_1000_steps, text));
    if (v.per_billion_samples >= 0)
        printf(", %s per epoch of 1e9 samples", cost_text(v.per_billion_samples, text));
    printf(v.rate > 0 ? "\n" : "");
}

static void print_divergence(const ModelJob *job)
{
    const ProgressRecord *p = model_progress(job);
    if (p && p->diverging_since)
        printf("  diverging since step %lld: %s\n", (long long)p->diverging_since, p->diverging);
}

static void print_warmup(const ModelJob *job)
{
    char text[REPORT_WARMUP_BYTES];
    _cleanup_(job_freep) Job *spec = NULL;
    Error ignored = ERROR_INIT; /* the job's reason has this error */
    if (job->has_spec && model_has_ended(job) &&
        job_parse(job->name, job->spec.spec, strlen(job->spec.spec), &spec, &ignored) == 0 &&
        *report_warmup(model_phase(job), model_step(job), spec, text))
        printf("  %s\n", text);
}

static void print_job(const Model *m, const ModelJob *job)
{
    _cleanup_json_ json_t *j = model_job_json(m, job);
    json_t *checkpoint = json_object_get(j, "checkpoint");
    size_t n_incidents = 0;

    const Paint paint = paint_of(json_text(j, "phase"));
    printf("job %s: %s%s%s", job->name, paint ? paint_text(paint) : "", json_text(j, "phase"),
           paint ? paint_text(PAINT_NONE) : "");
    if (*json_text(j, "reason"))
        printf(" (%s)", json_text(j, "reason"));
    printf("\n");
    print_progress(j);
    print_warmup(job);
    if (job->has_world) {
        printf("  generation %lld, %lld rank%s", json_count(j, "generation"),
               json_count(json_object_get(j, "world"), "size"), job->world.size == 1 ? "" : "s");
        if (json_has_number(j, "goodput"))
            printf(", goodput %.1f %%", 100 * json_number(j, "goodput"));
        printf("\n");
    }
    if (json_is_object(checkpoint))
        printf("  checkpoint of step %lld%s%s\n    %s\n", json_count(checkpoint, "step"),
               *json_text(checkpoint, "digest") ? ", digest " : "", json_text(checkpoint, "digest"),
               json_text(checkpoint, "uri"));
    if (*json_text(checkpoint, "plans"))
        printf("    computed by the plan set %s\n", json_text(checkpoint, "plans"));
    print_cost(job);
    print_store(job);
    print_divergence(job);
    print_world(j);
    for (size_t i = 0; i < m->n_incidents; i++)
        if (model_is_incident_of(&m->incidents[i], job)) {
            printf(n_incidents++ == 0 ? "\nincidents\n" : "");
            print_incident(&m->incidents[i]);
        }
}

typedef struct StatusOptions {
    bool watch;
} StatusOptions;

#define OPTIONS_STRUCT StatusOptions
static const CtlOption options[] = {
    OPTION_WATCH,
};
const CtlOptions job_status_options = CTL_OPTIONS(options, .watch = false);

int job_status(const Arguments *a)
{
    const StatusOptions *o = arguments_own(a);
    if (o->watch)
        return job_watch(&a->client, a->operand);

    Error err = ERROR_INIT;
    ModelJob *job;
    _cleanup_(model_freep) Model *model = NULL;
    int r = model_open(&a->client, &model, &err);
    if (r == 0)
        r = model_find_any_job(model, a->operand, &job, &err);
    if (r < 0)
        return ctl_fail(&err, r);
    if (a->json)
        print_json(model_job_json(model, job));
    else
        print_job(model, job);
    return CTL_DONE;
}

static void add_line(Table *t, json_t *j)
{
    char age[SPAN_TEXT_BYTES] = "-", eta[SPAN_TEXT_BYTES] = "-";
    json_t *queue = json_object_get(j, "queue");
    if (json_has_number(j, "submitted_at"))
        (void)span_text(ago_sec((uint64_t)(json_number(j, "submitted_at") * 1e6)), age);
    if (json_has_number(j, "eta_s"))
        (void)span_text(json_number(j, "eta_s"), eta);
    table_add(t, PAINT_NONE, "%s", json_text(j, "job"));
    table_add(t, paint_of(json_text(j, "phase")), "%s", json_text(j, "phase"));
    table_add(t, PAINT_NONE, "%s", age);
    table_add(t, PAINT_NONE, "%lld", json_count(json_object_get(j, "world"), "size"));
    if (json_count(j, "steps") > 0)
        table_add(t, PAINT_NONE, "%lld/%lld", json_count(j, "step"), json_count(j, "steps"));
    else if (json_count(j, "step") > 0)
        table_add(t, PAINT_NONE, "%lld", json_count(j, "step"));
    else
        table_add(t, PAINT_NONE, "-");
    if (json_has_number(j, "samples_per_s"))
        table_add(t, PAINT_NONE, "%.1f", json_number(j, "samples_per_s"));
    else
        table_add(t, PAINT_NONE, "-");
    table_add(t, PAINT_NONE, "%s", eta);
    if (json_is_object(queue))
        table_add(t, PAINT_NONE, "%lld of %lld", json_count(queue, "place"),
                  json_count(queue, "of"));
    else
        table_add(t, PAINT_NONE, "-");
    table_add(t, PAINT_NONE, "%s", json_text(j, "reason"));
}

int job_list(const Arguments *a)
{
    Error err = ERROR_INIT;
    _cleanup_(model_freep) Model *model = NULL;
    int r = model_open(&a->client, &model, &err);
    if (r < 0)
        return ctl_fail(&err, r);

    json_t *all = json_array(), *j;
    size_t i;
    for (i = 0; i < model->n_jobs; i++)
        if (model_is_shown(&model->jobs[i]))
            json_array_append_new(all, model_job_json(model, &model->jobs[i]));
    if (a->json) {
        print_json(all);
        return CTL_DONE;
    }
    static const char *const heads[] = {"JOB",       "PHASE", "AGE",   "RANKS", "STEP",
                                        "SAMPLES/S", "ETA",   "PLACE", "REASON"};
    Table *t = table_new(heads, ELEMENTSOF(heads));
    json_array_foreach (all, i, j)
        add_line(t, j);
    table_print(t);
    if (json_array_size(all) == 0)
        suggest_nothing_there(model, "job");
    json_decref(all);
    return CTL_DONE;
}
