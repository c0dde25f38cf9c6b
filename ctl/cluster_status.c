/* cluster_status.c - `sdctl cluster status`: what is wrong first; then leader, nodes, slots, jobs.
 */
#include "cluster/codec.h"
#include "ctl/arguments.h"
#include "ctl/model.h"
#include "ctl/print.h"

#include <string.h>

static void add_wrong(json_t *wrong, const char *format, ...) _printf_(2, 3);
static void add_wrong(json_t *wrong, const char *format, ...)
{
    char text[800];
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    json_array_append_new(wrong, json_string(text));
}

static bool is_active(const ModelJob *job)
{
    return job->has_spec && job->has_world && !model_has_ended(job) &&
           model_phase(job) != PHASE_PENDING;
}

static void judge_nodes(const Model *m, json_t *wrong)
{
    for (size_t i = 0; i < m->n_nodes; i++) {
        const NodeRecord *n = &m->nodes[i];
        const CordonRecord *c = model_cordon(m, n->name);
        if (n->verdict != NODE_HEALTHY)
            add_wrong(wrong, "node %s is not healthy: %s", n->name, n->evidence);
        if (n->bad_slots) {
            char slots[SLOTS_TEXT_MAX];
            add_wrong(wrong, "node %s: slots not to be used: %s", n->name,
                      slots_format(n->bad_slots, slots));
        }
        if (n->lost_slots)
            add_wrong(wrong, "node %s: a process survives SIGKILL; its slot is lost", n->name);
        if (c && c->mode == CORDON_QUARANTINE)
            add_wrong(wrong, "node %s is in quarantine: %s", n->name, c->reason);
    }
    for (size_t i = 0; i < m->n_jobs; i++) {
        const ModelJob *job = &m->jobs[i];
        for (size_t k = 0; is_active(job) && k < job->world.n_runs; k++)
            if (!model_node(m, job->world.runs[k].node))
                add_wrong(wrong, "node %s is missing; job %s has ranks there",
                          job->world.runs[k].node, job->name);
    }
}

static void judge_jobs(const Model *m, json_t *wrong)
{
    for (size_t i = 0; i < m->n_incidents; i++) {
        const IncidentRecord *n = &m->incidents[i];
        const ModelJob *of = model_job(m, n->job);
        if (n->state == INCIDENT_OPEN && !(of && model_phase(of) == PHASE_FAILED)) /* said below */
            add_wrong(wrong, "incident %s is open: %s%s%s: %s", n->id, n->cause,
                      *n->node ? " on " : "", n->node, n->evidence);
    }
    for (size_t i = 0; i < m->n_jobs; i++) {
        const ModelJob *job = &m->jobs[i];
        if (!job->has_spec)
            continue;
        if (model_phase(job) == PHASE_FAILED)
            add_wrong(wrong, "job %s has failed: %s", job->name, job->phase.reason);
        else if (model_phase(job) == PHASE_PENDING)
            add_wrong(wrong, "job %s waits: %s", job->name,
                      job->has_phase ? job->phase.reason : "no controller has looked at it yet");
    }
}

/* Sinks that do not take what they should hear; the oldest incident stands for all. */
static void judge_alerts(const Model *m, json_t *wrong)
{
    for (size_t i = 0; i < m->n_incidents; i++) {
        const AlertRecord *alert = model_alert(m, &m->incidents[i]);
        for (size_t k = 0; alert && !alert->settled && k < alert->n_deliveries; k++) {
            const Delivery *d = &alert->deliveries[k];
            bool said = false;
            for (size_t before = 0; before < i; before++) {
                const AlertRecord *other = model_alert(m, &m->incidents[before]);
                for (size_t n = 0; other && !other->settled && n < other->n_deliveries; n++)
                    said |= other->deliveries[n].attempts > 0 &&
                            strcmp(other->deliveries[n].sink, d->sink) == 0;
            }
            if (d->attempts > 0 && !said)
                add_wrong(wrong, "sink %s has not taken the page of incident %s in %d tries: %s",
                          d->sink, alert->id, d->attempts, d->text);
        }
    }
}

static json_t *wrong_json(const Model *m)
{
    json_t *wrong = json_array();
    if (m->n_candidates == 0)
        add_wrong(wrong, "no controller leads: nothing is decided; training goes on");
    for (size_t i = 0; i < MIN(m->n_complaints, (size_t)MODEL_COMPLAINTS_MAX); i++)
        add_wrong(wrong, "record %s", m->complaints[i]);
    if (m->n_complaints > MODEL_COMPLAINTS_MAX)
        add_wrong(wrong, "%zu more records cannot be read", m->n_complaints - MODEL_COMPLAINTS_MAX);
    judge_nodes(m, wrong);
    judge_jobs(m, wrong);
    judge_alerts(m, wrong);
    return wrong;
}

typedef struct Slots {
    int total, used, closed; /* closed: of nodes that get no new ranks */
} Slots;

static Slots count_slots(const Model *m)
{
    Slots s = {0};
    for (size_t i = 0; i < m->n_nodes; i++) {
        const NodeRecord *n = &m->nodes[i];
        const CordonRecord *c = model_cordon(m, n->name);
        bool open = n->state == NODE_UP && n->verdict <= NODE_SUSPECT &&
                    !(c && c->mode != CORDON_NONE && !*c->job);
        s.total += n->n_slots;
        uint64_t used = 0;
        for (size_t j = 0; j < m->n_jobs; j++)
            for (size_t k = 0; is_active(&m->jobs[j]) && k < m->jobs[j].world.n_runs; k++)
                if (strcmp(m->jobs[j].world.runs[k].node, n->name) == 0)
                    used |= m->jobs[j].world.runs[k].slots;
        s.used += __builtin_popcountll(used);
        s.closed += open ? 0 : n->n_slots - __builtin_popcountll(used);
    }
    return s;
}

static json_t *jobs_json(const Model *m)
{
    json_t *jobs = json_array();
    for (size_t i = 0; i < m->n_jobs; i++) {
        const ModelJob *job = &m->jobs[i];
        if (job->has_spec)
            json_array_append_new(jobs, json_pack("{s:s, s:s, s:I, s:i}", "job", job->name, "phase",
                                                  job_phase_name(model_phase(job)), "step",
                                                  (json_int_t)model_step(job), "ranks",
                                                  is_active(job) ? job->world.size : 0));
    }
    return jobs;
}

static json_t *status_json(const Model *m, const char *endpoints)
{
    const Slots s = count_slots(m);
    json_t *wrong = wrong_json(m), *standby = json_array();
    for (size_t i = 1; i < m->n_candidates; i++)
        json_array_append_new(standby, json_string(m->candidates[i].name));
    return json_pack("{s:s, s:s, s:b, s:o, s:s, s:o, s:i, s:{s:i, s:i, s:i}, s:o}", "cluster",
                     m->cluster, "etcd", endpoints, "ok", json_array_size(wrong) == 0, "wrong",
                     wrong, "leader", m->n_candidates > 0 ? m->candidates[0].name : "", "standby",
                     standby, "nodes", (int)m->n_nodes, "slots", "total", s.total, "used", s.used,
                     "free", MAX(0, s.total - s.used - s.closed), "jobs", jobs_json(m));
}

static void print_status(json_t *j)
{
    json_t *slots = json_object_get(j, "slots"), *one;
    size_t i;
    json_array_foreach (json_object_get(j, "wrong"), i, one)
        printf("! %s\n", json_string_value(one));
    printf("cluster %s: %s\n", json_text(j, "cluster"),
           json_is_true(json_object_get(j, "ok")) ? "all is well" : "see above");
    printf("  etcd    %s answers\n", json_text(j, "etcd"));
    printf("  leader  %s", *json_text(j, "leader") ? json_text(j, "leader") : "nobody");
    json_array_foreach (json_object_get(j, "standby"), i, one)
        printf("%s%s", i == 0 ? "; ready to follow: " : ", ", json_string_value(one));
    printf("\n  nodes   %lld with %lld slots, %lld used, %lld free\n", json_count(j, "nodes"),
           json_count(slots, "total"), json_count(slots, "used"), json_count(slots, "free"));
    json_array_foreach (json_object_get(j, "jobs"), i, one)
        printf("  job     %s: %s at step %lld, %lld rank%s\n", json_text(one, "job"),
               json_text(one, "phase"), json_count(one, "step"), json_count(one, "ranks"),
               json_count(one, "ranks") == 1 ? "" : "s");
}

int cluster_status(const Arguments *a)
{
    Error err = ERROR_INIT;
    Client client = {0};
    _cleanup_(model_freep) Model *model = NULL;
    int r = client_open(&a->client, &client, &err);
    if (r == 0)
        r = model_read(&client, &model, &err);
    client_close(&client);
    if (r < 0)
        return ctl_fail(&err, r);
    json_t *j = status_json(model, client.endpoints);
    if (a->json) {
        print_json(j);
        return CTL_DONE;
    }
    print_status(j);
    json_decref(j);
    return CTL_DONE;
}
