/* job_status.c - `sdctl job status` and `job list`. */
#include "ctl/arguments.h"
#include "ctl/model.h"

#include <string.h>
#include <time.h>

static void print_json(json_t *json)
{
    _cleanup_free_ char *text =
        json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) : NULL;
    printf("%s\n", text ? text : "null");
    json_decref(json);
}

static const char *clock_text(uint64_t usec, char text[16])
{
    time_t seconds = (time_t)(usec / USEC_PER_SEC);
    struct tm tm;
    (void)localtime_r(&seconds, &tm);
    (void)strftime(text, 16, "%H:%M:%S", &tm);
    return text;
}

static const char *get_text(json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static double get_number(json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static long long get_count(json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static void print_incidents(const Model *m, const char *name)
{
    bool any = false;
    for (size_t i = 0; i < m->n_incidents; i++) {
        const IncidentRecord *n = &m->incidents[i];
        char at[16];
        if (strcmp(n->job, name) != 0)
            continue;
        if (!any)
            printf("\nincidents\n");
        any = true;
        printf("  %s  %-16s node %s", clock_text(n->at_usec, at), n->cause,
               *n->node ? n->node : "?");
        if (n->rank >= 0)
            printf(" rank %d", n->rank);
        printf(", generation %lld, step %lld: ", (long long)n->generation, (long long)n->step);
        if (n->state == INCIDENT_OPEN)
            printf("OPEN");
        else
            printf("recovered in %.2f s, %lld steps replayed",
                   (double)(n->resolved_usec - n->at_usec) * 1e-6, (long long)n->lost_steps);
        printf("\n            %s\n", n->evidence);
    }
}

static void print_job(const Model *m, const ModelJob *job)
{
    _cleanup_free_ char *dump = NULL;
    json_t *j = model_job_json(m, job);
    json_t *ranks = json_object_get(json_object_get(j, "world"), "ranks");
    json_t *checkpoint = json_object_get(j, "checkpoint");
    json_t *rank;
    size_t i;

    printf("job %s: %s", job->name, get_text(j, "phase"));
    if (*get_text(j, "reason"))
        printf(" (%s)", get_text(j, "reason"));
    printf("\n  step %lld of %lld", get_count(j, "step"), get_count(j, "steps"));
    if (json_is_number(json_object_get(j, "loss")))
        printf(", loss %.5f", get_number(j, "loss"));
    if (json_is_number(json_object_get(j, "samples_per_s")))
        printf(", %.1f samples/s, %.0f s to go", get_number(j, "samples_per_s"),
               get_number(j, "eta_s"));
    printf("\n  generation %lld, %lld ranks", get_count(j, "generation"),
           get_count(json_object_get(j, "world"), "size"));
    if (json_is_number(json_object_get(j, "goodput")))
        printf(", goodput %.1f %%", 100 * get_number(j, "goodput"));
    printf("\n");
    if (json_is_object(checkpoint))
        printf("  checkpoint of step %lld, digest %s\n  %s\n", get_count(checkpoint, "step"),
               get_text(checkpoint, "digest"), get_text(checkpoint, "uri"));
    if (json_array_size(ranks) > 0)
        printf("\n  rank  node              slot  pid       state         step\n");
    json_array_foreach (ranks, i, rank) {
        printf("  %-5lld %-17s %-5lld %-9lld %-13s %lld\n", get_count(rank, "rank"),
               get_text(rank, "node"), get_count(rank, "slot"), get_count(rank, "pid"),
               get_text(rank, "state"), get_count(rank, "step"));
    }
    print_incidents(m, job->name);
    json_decref(j);
}

int job_status(int argc, char **argv)
{
    Arguments a;
    int code = arguments_parse(argc, argv, "job", TAKES_JSON | TAKES_WATCH, 1, &a);
    if (code >= 0)
        return code;
    if (a.watch)
        return job_watch(&a.client, a.operands[0]);

    Error err = ERROR_INIT;
    Client client = {0};
    _cleanup_(model_freep) Model *model = NULL;
    int r = client_open(&a.client, &client, &err);
    if (r == 0)
        r = model_read(&client, &model, &err);
    client_close(&client);
    const ModelJob *job = model ? model_job(model, a.operands[0]) : NULL;
    if (r == 0 && (!job || !job->has_spec))
        r = error_set(&err, -ENOENT, "no job %s", a.operands[0]);
    if (r < 0)
        return ctl_fail(&err, r);
    if (a.json)
        print_json(model_job_json(model, job));
    else
        print_job(model, job);
    return CTL_DONE;
}

int job_list(int argc, char **argv)
{
    Arguments a;
    int code = arguments_parse(argc, argv, "job", TAKES_JSON, 0, &a);
    if (code >= 0)
        return code;
    Error err = ERROR_INIT;
    Client client = {0};
    _cleanup_(model_freep) Model *model = NULL;
    int r = client_open(&a.client, &client, &err);
    if (r == 0)
        r = model_read(&client, &model, &err);
    client_close(&client);
    if (r < 0)
        return ctl_fail(&err, r);

    json_t *all = json_array();
    for (size_t i = 0; i < model->n_jobs; i++)
        if (model->jobs[i].has_spec)
            json_array_append_new(all, model_job_json(model, &model->jobs[i]));
    if (a.json) {
        print_json(all);
        return CTL_DONE;
    }
    json_t *j;
    size_t i;
    printf("%-20s %-11s %-6s %-15s %-10s %s\n", "JOB", "PHASE", "RANKS", "STEP", "SAMPLES/S",
           "REASON");
    json_array_foreach (all, i, j) {
        char step[40], rate[24] = "-";
        (void)snprintf(step, sizeof(step), "%lld/%lld", get_count(j, "step"),
                       get_count(j, "steps"));
        if (json_is_number(json_object_get(j, "samples_per_s")))
            (void)snprintf(rate, sizeof(rate), "%.1f", get_number(j, "samples_per_s"));
        printf("%-20s %-11s %-6lld %-15s %-10s %s\n", get_text(j, "job"), get_text(j, "phase"),
               get_count(json_object_get(j, "world"), "size"), step, rate, get_text(j, "reason"));
    }
    json_decref(all);
    return CTL_DONE;
}
