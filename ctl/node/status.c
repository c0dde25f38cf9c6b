/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - `sdctl node list|status`: shows the nodes' own records and the decisions about them. Nodes that have a
 * cordon or health record but no node record are shown as gone, left or lost. */
#include "base/json/json-build.h"
#include "base/slots.h"
#include "ctl/arguments.h"
#include "ctl/model.h"
#include "ctl/node/health.h"
#include "ctl/node/verbs.h"
#include "ctl/print.h"
#include "ctl/suggestion.h"
#include "ctl/table.h"

#include <string.h>

static const char stranger_text[] =
    "it gets no rank: name it in admit of every controller's settings and systemctl reload "
    "sdcontroller, or stop its sdtraind";

static json_t *cause_json(const CordonCause *c)
{
    JsonBuild b = json_build();
    json_add_text(&b, "owner", cordon_owner_names[c->owner]);
    json_add_text(&b, "mode", cordon_mode_names[c->mode]);
    json_add_text(&b, "reason", c->reason);
    json_add_text(&b, "job", c->job);
    json_add_text(&b, "machine_id", c->machine_id);
    json_add_real(&b, "since", (double)c->since_usec * 1e-6);
    json_add(&b, "until", c->until_usec ? json_real((double)c->until_usec * 1e-6) : json_null());
    json_add_int(&b, "strikes", c->strikes);
    json_add_text(&b, "way", c->way);
    json_add_text(&b, "by", c->by);
    return json_build_end(&b);
}

/* Returns the strongest cause against the node: a cause for all jobs, else a cause for one job, else a cause that
 * only counts strikes and does not restrict the node yet. */
static json_t *cordon_json(const Model *m, const char *name)
{
    const CordonRecord *record = model_cordon(m, name);
    const CordonCause *c = model_cause(m, name, NULL);
    for (size_t i = 0; !c && record && i < record->n_causes; i++)
        c = model_cause(m, name, record->causes[i].job);
    for (size_t i = 0; !c && record && i < record->n_causes; i++)
        c = record->causes[i].mode == CORDON_NONE ? &record->causes[i] : NULL;
    return c ? cause_json(c) : json_null();
}

static json_t *causes_json(const Model *m, const char *name)
{
    const CordonRecord *record = model_cordon(m, name);
    json_t *causes = json_array();
    for (size_t i = 0; record && i < record->n_causes; i++)
        json_array_append_new(causes, cause_json(&record->causes[i]));
    return causes;
}

/* Returns the ranks that the present worlds place on a node. */
static json_t *ranks_json(const Model *m, const char *node)
{
    json_t *ranks = json_array();
    for (size_t i = 0; i < m->n_jobs; i++) {
        const ModelJob *job = &m->jobs[i];
        if (!job->has_world || model_has_ended(job) || model_phase(job) == PHASE_PENDING)
            continue;
        for (int rank = 0; rank < job->world.size; rank++) {
            size_t run;
            int slot;
            if (world_rank_place(&job->world, rank, &run, &slot) == 0 &&
                strcmp(job->world.runs[run].node, node) == 0)
                json_array_append_new(ranks, json_pack("{s:s, s:i, s:i}", "job", job->name, "rank",
                                                       rank, "slot", slot));
        }
    }
    return ranks;
}

/* Returns the newest incident about the loss of the node, or NULL. */
static const IncidentRecord *find_loss(const Model *m, const char *name)
{
    for (size_t i = m->n_incidents; i-- > 0;)
        if (strcmp(m->incidents[i].cause, "node-lost") == 0 && !*m->incidents[i].job &&
            strcmp(m->incidents[i].node, name) == 0)
            return &m->incidents[i];
    return NULL;
}

/* Returns since when the node is gone and why; without an incident, when it last wrote its health record. */
static json_t *loss_json(const Model *m, const char *name)
{
    const HealthRecord *health = model_health(m, name);
    const IncidentRecord *loss = find_loss(m, name);
    uint64_t heard = health ? health->at_usec : 0;
    if (health && health->left_usec)
        return json_pack("{s:f, s:s}", "since", (double)health->left_usec * 1e-6, "text",
                         "it took leave");
    if (loss && loss->at_usec + 60 * USEC_PER_SEC >= heard)
        return json_pack("{s:f, s:s}", "since", (double)loss->at_usec * 1e-6, "text",
                         loss->evidence);
    return heard ? json_pack("{s:f, s:s}", "since", (double)heard * 1e-6, "text",
                             "nobody has heard of it since")
                 : json_null();
}

static const char *state_of(const Model *m, const char *name, const NodeRecord *record)
{
    const HealthRecord *health = model_health(m, name);
    if (record)
        return record->state == NODE_LEFT ? "left" : "up";
    return !health ? "gone" : health->left_usec ? "left" : "lost";
}

/* record is NULL if the node is not registered. */
static json_t *node_json(const Model *m, const char *name, const NodeRecord *record)
{
    const NodeRecord none = {.verdict = NODE_HEALTHY};
    const NodeRecord *n = record ? record : &none;
    char lost[SLOTS_TEXT_MAX];
    char bad[SLOTS_TEXT_MAX];
    JsonBuild b = json_build();
    json_add_text(&b, "node", name);
    json_add_text(&b, "state", state_of(m, name, record));
    json_add_bool(&b, "admitted", !record || model_is_admitted(m, record));
    json_add_int(&b, "slots", n->n_slots);
    json_add_int(&b, "gpus", n->n_gpus);
    json_add_text(&b, "lost_slots", slots_format(n->lost_slots, lost));
    json_add_text(&b, "bad_slots", slots_format(n->bad_slots, bad));
    json_add_text(&b, "address", n->address);
    json_add_text(&b, "verdict", record ? node_verdict_names[n->verdict] : "unknown");
    json_add_text(&b, "evidence", n->evidence);
    json_add_text(&b, "machine_id", n->machine_id);
    json_add_text(&b, "boot_id", n->boot_id);
    json_add_text(&b, "version", n->version);
    json_add_text(&b, "log_dir", n->log_dir);
    json_add(&b, "cordon", cordon_json(m, name));
    json_add(&b, "lost", record ? json_null() : loss_json(m, name));
    json_add(&b, "causes", causes_json(m, name));
    json_add(&b, "ranks", ranks_json(m, name));
    json_add(&b, "health", health_json(model_health(m, name)));
    return json_build_end(&b);
}

/* Formats "since 12:03:04: its lease ran out; it ran 2 ranks of job a". */
static void print_loss(json_t *lost, char *ret, size_t size)
{
    char since[TIME_TEXT_BYTES];
    (void)snprintf(ret, size, "since %s: %s",
                   date_text((uint64_t)(json_number(lost, "since") * 1e6), since),
                   json_text(lost, "text"));
}

static void add_line(Table *t, json_t *j)
{
    json_t *cordon = json_object_get(j, "cordon"), *ranks = json_object_get(j, "ranks");
    const bool admitted = json_is_true(json_object_get(j, "admitted"));
    const char *mode = !admitted                   ? "not admitted"
                       : *json_text(cordon, "job") ? "refused"
                                                   : json_text(cordon, "mode");
    char health[48], used[24], why[400];
    (void)snprintf(health, sizeof(health), "%s%s%s", json_text(j, "verdict"),
                   *mode && strcmp(mode, "none") != 0 ? ", " : "",
                   *mode && strcmp(mode, "none") != 0 ? mode : "");
    (void)snprintf(used, sizeof(used), "%zu/%lld", json_array_size(ranks), json_count(j, "slots"));
    (void)snprintf(why, sizeof(why), "%s%s",
                   json_count(cordon, "strikes") > 0 && strcmp(mode, "none") == 0 ? "strike: " : "",
                   json_text(cordon, "reason"));
    if (json_is_object(json_object_get(j, "lost")) && !*why)
        print_loss(json_object_get(j, "lost"), why, sizeof(why));
    if (!admitted)
        (void)snprintf(why, sizeof(why), "%s", stranger_text);
    table_add(t, PAINT_NONE, "%s", json_text(j, "node"));
    table_add(t, paint_of(json_text(j, "state")), "%s", json_text(j, "state"));
    table_add(t, PAINT_NONE, "%s", used);
    table_add(t, *mode && strcmp(mode, "none") != 0 ? PAINT_WORTH : paint_of(health), "%s", health);
    table_add(t, PAINT_NONE, "%s",
              json_array_size(ranks) ? json_text(json_array_get(ranks, 0), "job") : "-");
    table_add(t, PAINT_NONE, "%s",
              *json_text(j, "evidence") && admitted ? json_text(j, "evidence") : why);
}

static bool is_listed(const Model *m, const char *name)
{
    return model_node(m, name) || model_health(m, name);
}

/* Lists all nodes: registered nodes, former nodes with a health record, and names that have only a cordon record. */
static json_t *all_json(const Model *m)
{
    json_t *all = json_array();
    for (size_t i = 0; i < m->n_nodes; i++)
        json_array_append_new(all, node_json(m, m->nodes[i].name, &m->nodes[i]));
    for (size_t i = 0; i < m->n_health; i++)
        if (!model_node(m, m->health[i].node))
            json_array_append_new(all, node_json(m, m->health[i].node, NULL));
    for (size_t i = 0; i < m->n_cordons; i++)
        if (!is_listed(m, m->cordons[i].node))
            json_array_append_new(all, node_json(m, m->cordons[i].node, NULL));
    return all;
}

int node_list(const Arguments *a)
{
    Error err = ERROR_INIT;
    _cleanup_(model_freep) Model *model = NULL;
    int r = model_open(&a->client, &model, &err);
    if (r < 0)
        return ctl_fail(&err, r);
    json_t *all = all_json(model), *j;
    size_t i;
    if (a->json) {
        print_json(all);
        return CTL_DONE;
    }
    static const char *const heads[] = {"NODE", "STATE", "USED", "HEALTH", "JOB", "WHY"};
    Table *t = table_new(heads, ELEMENTSOF(heads));
    json_array_foreach (all, i, j)
        add_line(t, j);
    table_print(t);
    if (json_array_size(all) == 0)
        suggest_nothing_there(model, "node");
    json_decref(all);
    return CTL_DONE;
}

/* Prints "quarantine since ... until ... for job a: exit 85", or "2 strikes, lately: signal 9". */
static void print_cause(json_t *c, const char *machine_id)
{
    char since[TIME_TEXT_BYTES], until[TIME_TEXT_BYTES];
    const char *of = json_text(c, "machine_id");
    if (strcmp(json_text(c, "mode"), "none") != 0) {
        printf("  %s since %s", json_text(c, "mode"),
               date_text((uint64_t)(json_number(c, "since") * 1e6), since));
        if (json_has_number(c, "until"))
            printf(" until %s", date_text((uint64_t)(json_number(c, "until") * 1e6), until));
        if (*json_text(c, "job"))
            printf(" for job %s", json_text(c, "job"));
        if (*of && *machine_id && strcmp(of, machine_id) != 0)
            printf(" of machine %s, which had this name", of);
        if (*json_text(c, "by"))
            printf(", asked by %s", json_text(c, "by"));
        printf("%s%s\n", *json_text(c, "reason") ? ": " : "", json_text(c, "reason"));
    }
    if (json_count(c, "strikes") > 0)
        printf("  %lld strike%s%s%s, lately: %s\n", json_count(c, "strikes"),
               json_count(c, "strikes") == 1 ? "" : "s", *json_text(c, "job") ? " of job " : "",
               json_text(c, "job"), json_text(c, "reason"));
}

static void print_node(json_t *j, const HealthRecord *health)
{
    json_t *ranks = json_object_get(j, "ranks"), *rank, *cause;
    char loss[400];
    size_t i;
    printf("node %s: %s, %s", json_text(j, "node"), json_text(j, "state"), json_text(j, "verdict"));
    if (*json_text(j, "evidence"))
        printf(" (%s)", json_text(j, "evidence"));
    printf("\n  %lld slot%s", json_count(j, "slots"), json_count(j, "slots") == 1 ? "" : "s");
    if (json_count(j, "gpus") > 0)
        printf(", %lld GPU%s,", json_count(j, "gpus"), json_count(j, "gpus") == 1 ? "" : "s");
    printf(" at %s, machine %s, version %s\n", json_text(j, "address"), json_text(j, "machine_id"),
           json_text(j, "version"));
    if (*json_text(j, "lost_slots"))
        printf("  lost slots: %s (a process there survives SIGKILL)\n", json_text(j, "lost_slots"));
    if (!json_is_true(json_object_get(j, "admitted")))
        printf("  not admitted: %s\n", stranger_text);
    if (json_is_object(json_object_get(j, "lost"))) {
        print_loss(json_object_get(j, "lost"), loss, sizeof(loss));
        printf("  %s\n", loss);
    }
    json_array_foreach (json_object_get(j, "causes"), i, cause)
        print_cause(cause, json_text(j, "machine_id"));
    if (*json_text(j, "log_dir"))
        printf("  logs in %s\n", json_text(j, "log_dir"));
    json_array_foreach (ranks, i, rank)
        printf("  slot %-3lld rank %lld of job %s\n", json_count(rank, "slot"),
               json_count(rank, "rank"), json_text(rank, "job"));
    health_print(health);
}

int node_status(const Arguments *a)
{
    Error err = ERROR_INIT;
    _cleanup_(model_freep) Model *model = NULL;
    int r = model_open(&a->client, &model, &err);
    const NodeRecord *node = r == 0 ? model_node(model, a->operand) : NULL;
    if (r == 0 && !node && !model_cordon(model, a->operand) && !model_health(model, a->operand))
        r = suggest_node(model, a->operand, &err);
    if (r < 0)
        return ctl_fail(&err, r);
    json_t *j = node_json(model, a->operand, node);
    if (a->json) {
        print_json(j);
        return CTL_DONE;
    }
    print_node(j, model_health(model, a->operand));
    json_decref(j);
    return CTL_DONE;
}
