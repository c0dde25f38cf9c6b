/* SPDX-License-Identifier: Apache-2.0 */
/* tables.c - the places of nodes, jobs and reports, and the records that do not fit.
 *
 * Entry points: node_intern(), job_intern(), report_new(), tables_have_room(). Guarantees: a place is given away only
 * when nothing refers to it; a record that finds no place is counted, and read again once there is room. */
#include "controller/core/observe/tables.h"

#include "controller/core/facts/jobs.h"
#include "controller/core/facts/presence.h"
#include "controller/core/observe/strangers.h"
#include "controller/core/state/text-buffer.h"

#include <string.h>

/* Counts a dropped record. The watch does not send it again, so tables_have_room() notices when it may fit. */
void table_drop(Cluster *c, Table table)
{
    c->dropped++;
    c->missed |= 1U << table;
}

/* Notes that an object has got a place in a table from which records were dropped: other records of this object may be
 * among the dropped ones. */
static void take(Cluster *c, Table table) { c->taken |= c->missed & 1U << table; }

static bool node_is_needed(const Cluster *c, int n)
{
    const CoreNode *node = &c->nodes[n];
    if ((node->present && node->admitted) || node->cordon_stamp.mod || node->first_report >= 0)
        return true;
    for (int j = 0; j < c->limits.jobs; j++)
        for (int i = 0; c->jobs[j].used && i < c->jobs[j].n_runs; i++)
            if (job_runs(c, &c->jobs[j])[i].node == n)
                return true;
    return false;
}

static void forget_node(Cluster *c, int n)
{
    assert(c->nodes[n].used && !node_is_needed(c, n));
    stranger_forget(c, node_at(c, n));
    int kept = 0;
    for (int i = 0; i < c->n_by_name; i++)
        if (c->by_name[i] != n)
            c->by_name[kept++] = c->by_name[i];
    assert(kept == c->n_by_name - 1);
    c->n_by_name = kept;
    if (c->nodes[n].cordon_stamp.seen)
        memset(cordons_at(c, n), 0, sizeof(NodeCordons));
    memset(node_at(c, n), 0, sizeof(CoreNode));
}

static int free_node(Cluster *c)
{
    for (int i = 0; i < c->limits.nodes; i++) {
        c->last_node = (c->last_node + 1) % c->limits.nodes;
        if (!c->nodes[c->last_node].used)
            return c->last_node;
    }
    for (int i = 0; i < c->limits.nodes; i++)
        if (!node_is_needed(c, i)) {
            forget_node(c, i);
            return i;
        }
    table_drop(c, TABLE_NODES);
    return -1;
}

int node_place_of_name(const Cluster *c, const char *name)
{
    int low = 0, high = c->n_by_name;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (text_compare(c->nodes[c->by_name[middle]].record.name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int node_intern(Cluster *c, const char *name)
{
    int at = node_place_of_name(c, name);
    if (at < c->n_by_name && text_equal(c->nodes[c->by_name[at]].record.name, name))
        return c->by_name[at];

    int n = free_node(c);
    if (n < 0)
        return -1;
    assert(!c->nodes[n].used && c->n_by_name < c->limits.nodes);
    at = node_place_of_name(c, name); /* making room may have moved the place */
    memmove(&c->by_name[at + 1], &c->by_name[at], sizeof(int) * (size_t)(c->n_by_name - at));
    c->by_name[at] = n;
    c->n_by_name++;
    CoreNode *node = node_at(c, n);
    take(c, TABLE_NODES);
    node->used = node->admitted = true;
    node->first_report = -1;
    node->changed_usec = c->now_usec;
    node->vanished_real_usec = c->real_usec;
    text_copy(node->record.name, sizeof(node->record.name), name);
    return n;
}

void jobs_sort(Cluster *c)
{
    c->n_by_arrival = 0;
    for (int j = 0; j < c->limits.jobs; j++) {
        if (!c->jobs[j].used)
            continue;
        assert(c->n_by_arrival < c->limits.jobs);
        int at = c->n_by_arrival++;
        for (; at > 0; at--) {
            if (job_goes_before(&c->jobs[c->by_arrival[at - 1]], &c->jobs[j]))
                break;
            c->by_arrival[at] = c->by_arrival[at - 1];
        }
        c->by_arrival[at] = j;
    }
}

CoreJob *job_intern(Cluster *c, const char *name)
{
    CoreJob *free_job = NULL;
    for (int i = 0; i < c->limits.jobs; i++) {
        CoreJob *job = job_at(c, i);
        if (job->used && text_equal(job->name, name))
            return job;
        if (!job->used && !free_job)
            free_job = job;
    }
    if (!free_job) {
        table_drop(c, TABLE_JOBS);
        return NULL;
    }
    take(c, TABLE_JOBS);
    memset(free_job, 0, sizeof(*free_job));
    free_job->used = true;
    text_copy(free_job->name, sizeof(free_job->name), name);
    jobs_sort(c);
    return free_job;
}

void job_forget_if_empty(Cluster *c, CoreJob *job)
{
    if (job->spec_stamp.mod || job->desired_stamp.mod || job->world_stamp.mod ||
        job->phase_stamp.mod || job->checkpoints_stamp.mod || job->progress_stamp.mod)
        return;
    for (int i = 0; i < c->n_reports; i++)
        if (c->reports[i].used && c->reports[i].job == job_index(c, job))
            return;
    job->used = false;
    jobs_sort(c);
}

/* ---- reports ---- */

NodeRanks *report_find(Cluster *c, const CoreJob *job, int node, int64_t generation)
{
    for (int i = c->nodes[node].first_report; i >= 0; i = c->reports[i].next_of_node)
        if (c->reports[i].job == job_index(c, job) && c->reports[i].generation == generation)
            return report_at(c, i);
    return NULL;
}

void report_set_gone(Cluster *c, NodeRanks *report, bool gone)
{
    c->n_gone += gone - report->gone;
    assert(report->used && c->n_gone >= 0 && c->n_gone <= c->n_reports);
    report->gone = gone;
}

void report_forget(Cluster *c, NodeRanks *report)
{
    int own = (int)(report - c->reports), *at = &node_at(c, report->node)->first_report;
    while (*at != own) {
        assert(*at >= 0); /* the report is in its node's chain */
        at = &report_at(c, *at)->next_of_node;
    }
    *at = report->next_of_node;
    report_set_gone(c, report, false);
    report->used = false;
    report->next_of_node = c->first_free_report;
    c->first_free_report = own;
}

/* Prefers entries that were used before: the rest of the table costs no memory until it is needed. In a full table,
 * a report of an older world whose ranks are dead makes room. */
static NodeRanks *free_report(Cluster *c, Scratch *s)
{
    if (c->first_free_report < 0 && c->n_reports == c->limits.reports) {
        NodeRanks *dead = NULL;
        for (int i = 0; i < c->n_reports; i++) {
            NodeRanks *report = report_at(c, i);
            assert(report->used); /* no entry is free */
            if (report->generation < c->jobs[report->job].world.generation &&
                (!dead || report->generation < dead->generation) && !report_is_alive(c, s, report))
                dead = report;
        }
        if (!dead)
            return NULL;
        report_forget(c, dead);
        assert(c->first_free_report >= 0);
    }
    if (c->first_free_report < 0)
        return report_at(c, c->n_reports++);
    NodeRanks *report = report_at(c, c->first_free_report);
    assert(!report->used && c->first_free_report < c->n_reports);
    c->first_free_report = report->next_of_node;
    return report;
}

NodeRanks *report_new(Cluster *c, Scratch *s, const CoreJob *job, int node, int64_t generation)
{
    NodeRanks *report = free_report(c, s);
    if (!report) {
        table_drop(c, TABLE_REPORTS);
        return NULL;
    }
    assert(!report->used && job->used && c->nodes[node].used);
    *report = (NodeRanks){.used = true,
                          .job = job_index(c, job),
                          .node = node,
                          .next_of_node = c->nodes[node].first_report,
                          .generation = generation};
    node_at(c, node)->first_report = (int)(report - c->reports);
    return report;
}

/* ---- what did not fit ---- */

static bool has_room(const Cluster *c, Table table)
{
    bool room = table == TABLE_REPORTS && c->first_free_report >= 0;
    assert(table != TABLE_REPORTS ||
           c->n_reports == c->limits.reports); /* otherwise no report was dropped */
    for (int i = 0; table == TABLE_NODES && i < c->limits.nodes; i++)
        room |= !c->nodes[i].used || !node_is_needed(c, i);
    for (int i = 0; table == TABLE_JOBS && i < c->limits.jobs; i++)
        room |= !c->jobs[i].used;
    for (int i = 0; table == TABLE_INCIDENTS && i < c->limits.incidents; i++)
        room |= !c->incidents[i].used;
    for (int i = 0; table == TABLE_ALERTS && i < c->limits.incidents; i++)
        room |= !c->alerts[i].used;
    for (int i = 0; table == TABLE_REQUESTS && i < c->limits.requests; i++)
        room |= !c->requests[i].used;
    return room;
}

bool tables_have_room(Cluster *c)
{
    assert(!(c->taken & ~c->missed)); /* take() notes only tables that have dropped records */
    bool room = false;
    for (int table = 0; table < TABLES && c->missed; table++) {
        unsigned bit = 1U << table;
        if (!(c->missed & bit) || !(c->taken & bit || has_room(c, (Table)table)))
            continue;
        c->missed &= ~bit;
        c->taken &= ~bit;
        room = true;
    }
    return room;
}
