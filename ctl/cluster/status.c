/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - `sdctl cluster status`: prints faults and advice first; then etcd, leader, nodes, slots, jobs. Without a
 * quorum it prints only the status of etcd's members. */
#include "base/json/json-build.h"
#include "ctl/arguments.h"
#include "ctl/cluster/diagnosis.h"
#include "ctl/cluster/members.h"
#include "ctl/cluster/verbs.h"
#include "ctl/model.h"
#include "ctl/print.h"
#include "ctl/table.h"

#include <string.h>

static json_t *jobs_json(const Model *m)
{
    json_t *jobs = json_array();
    for (size_t i = 0; i < m->n_jobs; i++) {
        const ModelJob *job = &m->jobs[i];
        if (model_is_shown(job))
            json_array_append_new(jobs, json_pack("{s:s, s:s, s:s, s:I, s:i}", "job", job->name,
                                                  "kind", model_kind(job), "phase",
                                                  job_phase_name(model_phase(job)), "step",
                                                  (json_int_t)model_step(job), "ranks",
                                                  job_is_active(job) ? job->world.size : 0));
    }
    return jobs;
}

static bool has_ranks(const Model *m, const char *node)
{
    for (size_t i = 0; i < m->n_jobs; i++)
        for (size_t k = 0; job_is_active(&m->jobs[i]) && k < m->jobs[i].world.n_runs; k++)
            if (strcmp(m->jobs[i].world.runs[k].node, node) == 0)
                return true;
    return false;
}

/* Lists the nodes that get no new ranks, with the reason that the operator or the leader gave. */
static json_t *closed_json(const Model *m)
{
    json_t *closed = json_array();
    for (size_t i = 0; i < m->n_cordons; i++) {
        const char *node = m->cordons[i].node;
        const CordonCause *c = model_cause(m, node, NULL);
        if (!c)
            continue;
        const char *how = c->mode == CORDON_QUARANTINE ? "in quarantine"
                          : c->mode == CORDON_CORDON   ? "cordoned"
                          : has_ranks(m, node)         ? "being drained"
                                                       : "drained";
        json_array_append_new(closed, json_pack("{s:s, s:s, s:s}", "node", node, "how", how,
                                                "reason", c->reason));
    }
    return closed;
}

/* Model m is NULL when the records cannot be read. */
static json_t *status_json(const Model *m, const Members *members, const char *cluster,
                           const char *endpoints)
{
    Judgement judgement = {json_array(), json_array()};
    diagnose_etcd(members, &judgement);
    if (m)
        diagnose_cluster(m, &judgement);
    json_t *j = json_pack("{s:s, s:s, s:b, s:O, s:o, s:o}", "cluster", cluster, "etcd", endpoints,
                          "ok", json_array_size(judgement.wrong) == 0, "wrong", judgement.wrong,
                          "advice", judgement.advice, "members", members_json(members));
    json_decref(judgement.wrong);
    if (!m)
        return j;
    const ClusterSlots s = cluster_slots(m);
    json_t *standby = json_array();
    for (size_t i = 1; i < m->n_candidates; i++)
        json_array_append_new(standby, json_string(m->candidates[i].record.name));
    JsonBuild b = json_build();
    json_add(&b, "notes", judge_notes(m));
    json_add_text(&b, "leader", m->n_candidates > 0 ? m->candidates[0].record.name : "");
    json_add(&b, "standby", standby);
    json_add_int(&b, "nodes", (int64_t)m->n_nodes);
    json_add(&b, "closed", closed_json(m));
    json_add(&b, "slots",
             json_pack("{s:i, s:i, s:i}", "total", s.total, "used", s.used, "free",
                       MAX(0, s.total - s.used - s.closed)));
    json_add(&b, "jobs", jobs_json(m));
    json_t *rest = json_build_end(&b);
    json_object_update(j, rest);
    json_decref(rest);
    return j;
}

static void print_etcd(const Members *m)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < m->n; i++)
        bytes = MAX(bytes, m->members[i].status.db_bytes);
    if (m->n == 1)
        printf("  etcd    %s answers", m->members[0].endpoint);
    else
        printf("  etcd    %zu of %zu members answer", m->n_answered, m->n);
    if (m->n > 1)
        printf(", %s leads", *members_leader(m) ? members_leader(m) : "another one");
    printf("; its database has %.1f MiB\n", (double)bytes / (1 << 20));
}

static void print_nodes(json_t *j)
{
    json_t *slots = json_object_get(j, "slots"), *one;
    size_t i;
    printf("  nodes   %lld with %lld slot%s, %lld used, %lld free\n", json_count(j, "nodes"),
           json_count(slots, "total"), json_count(slots, "total") == 1 ? "" : "s",
           json_count(slots, "used"), json_count(slots, "free"));
    json_array_foreach (json_object_get(j, "closed"), i, one)
        printf("          %s is %s%s%s\n", json_text(one, "node"), json_text(one, "how"),
               *json_text(one, "reason") ? ": " : "", json_text(one, "reason"));
}

static void print_wrong(json_t *j)
{
    json_t *wrong = json_object_get(j, "wrong"), *one;
    size_t i, n = json_array_size(wrong);
    json_array_foreach (wrong, i, one) {
        const char *advice = json_string_value(json_array_get(json_object_get(j, "advice"), i));
        printf("%s!%s %s\n", paint_text(PAINT_BAD), paint_text(PAINT_NONE), json_string_value(one));
        if (advice && *advice)
            printf("    %s\n", advice);
    }
    if (n == 0)
        printf("cluster %s: %sall is well%s\n", json_text(j, "cluster"), paint_text(PAINT_GOOD),
               paint_text(PAINT_NONE));
    else
        printf("cluster %s: %zu thing%s wrong, see above\n", json_text(j, "cluster"), n,
               n == 1 ? " is" : "s are");
}

static void print_rest(json_t *j)
{
    json_t *one;
    size_t i;
    printf("  leader  %s", *json_text(j, "leader") ? json_text(j, "leader") : "nobody");
    json_array_foreach (json_object_get(j, "standby"), i, one)
        printf("%s%s", i == 0 ? "; ready to follow: " : ", ", json_string_value(one));
    printf("\n");
    print_nodes(j);
    json_array_foreach (json_object_get(j, "notes"), i, one)
        printf("  note    %s\n", json_string_value(one));
    json_array_foreach (json_object_get(j, "jobs"), i, one) {
        printf("  job     %s: %s", json_text(one, "job"), json_text(one, "phase"));
        if (json_count(one, "step") > 0 || strcmp(json_text(one, "kind"), "exec") != 0)
            printf(" at step %lld", json_count(one, "step"));
        printf(", %lld rank%s\n", json_count(one, "ranks"),
               json_count(one, "ranks") == 1 ? "" : "s");
    }
}

int cluster_status(const Arguments *a)
{
    Error err = ERROR_INIT, ignored = ERROR_INIT;
    CtlClient client = {0};
    Members members;
    _cleanup_(model_freep) Model *model = NULL;
    int r = client_open(&a->client, &client, &err);
    if (r == 0)
        r = model_read(&client, &model, &err);
    client_close(&client);
    if (members_request(&a->client, &members, &ignored) < 0 || (r < 0 && members.n_answered == 0))
        return ctl_fail(r < 0 ? &err : &ignored, r < 0 ? r : -EIO);

    json_t *j = status_json(model, &members, client.cluster, client.endpoints);
    if (a->json) {
        print_json(j);
    } else {
        print_wrong(j);
        print_etcd(&members);
        if (model)
            print_rest(j);
        json_decref(j);
    }
    return r < 0 ? ctl_fail(&err, r) : CTL_DONE;
}
