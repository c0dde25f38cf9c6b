/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.c - see report.h: the values of a cluster's page, and pages with only a text. */
#include "base/json/json.h"
#include "base/memory.h"
#include "report/report.h"
#include "report/times.h"

#include <math.h>

/* MAP_WIDTH: nodes per row of the map; MAP_CELL: size of a node's cell */
enum { MAP_WIDTH = 50, MAP_CELL = 8 };

static void put_number(json_t *row, const char *name, const char *format, double value)
{
    char text[48] = "-";
    if (isfinite(value) && *format == 's')
        (void)span_text(value, text);
    else if (isfinite(value))
        (void)snprintf(text, sizeof(text), *format == '4' ? "%.4f" : "%.4g", value);
    (void)json_object_set_new(row, name, json_string(text));
}

static void put_jobs(json_t *page, const ReportCluster *c)
{
    json_t *jobs = template_list(page, "jobs");
    for (size_t i = 0; i < c->n_jobs; i++) {
        const ReportJobLine *j = &c->jobs[i];
        json_t *row =
            template_put(jobs, "row=%s name=%s phase=%s reason=%s ranks=%d wanted=%d", j->name,
                         j->name, job_phase_name(j->phase), j->reason, j->ranks, j->wanted);
        const char *tone = j->phase == PHASE_SUCCEEDED                                ? "good"
                           : j->phase == PHASE_FAILED || j->phase == PHASE_RECOVERING ? "bad"
                                                                                      : "";
        template_put(row, "tone=%s", tone);
        if (j->step > 0 || j->steps > 0)
            template_put(row, "step=%lld", (long long)j->step);
        else
            template_put(row, "step=%s", "-");
        if (j->steps > 0)
            template_put(row, "steps=%lld", (long long)j->steps);
        if (j->place > 0)
            template_put(row, "place=%d of=%d", j->place, (int)c->n_waiting);
        put_number(row, "loss", "4", j->loss);
        put_number(row, "speed", "g", j->samples_per_sec);
        put_number(row, "to_go", "s", j->to_go_sec);
        put_number(row, "goodput", "g", round(1000 * j->goodput) / 10);
    }
}

static void put_incidents(json_t *page, const ReportCluster *c)
{
    json_t *rows = template_list(page, "incidents");
    char when[TIME_TEXT_BYTES];
    for (size_t i = 0; i < c->n_incidents; i++) {
        const IncidentRecord *n = c->incidents[i];
        template_put(rows, "date=%s severity=%s job=%s cause=%s node=%s evidence=%s advice=%s",
                     date_text(n->at_usec, when), severity_name(n->severity), n->job, n->cause,
                     n->node, n->evidence, c->advice ? c->advice(n) : "");
    }
    if (c->n_more_incidents > 0)
        template_put(page, "more_incidents=%d", (int)c->n_more_incidents);
    const size_t n = c->n_incidents + c->n_more_incidents;
    template_put(page, "n_incidents=%d plural=%s", (int)n, n == 1 ? "" : "s");
}

/* Puts the map: a square for each node, in the order of names. The healthy, ill and gone nodes are three paths. */
static void put_map(json_t *page, const ReportCluster *c)
{
    static const char *const names[] = {"map_well", "map_ill", "map_gone"};
    for (int kind = 0; kind < 3; kind++) {
        char *text = NULL;
        size_t n_bytes = 0;
        FILE *to = memory_given(open_memstream(&text, &n_bytes));
        for (size_t i = 0; i < c->n_nodes; i++) {
            const ReportNodeLine *n = &c->nodes[i];
            const int is = !n->up ? 2 : n->ill ? 1 : 0;
            if (is == kind)
                fprintf(to, "M%d %dh6v6h-6z", (int)(i % MAP_WIDTH) * MAP_CELL,
                        (int)(i / MAP_WIDTH) * MAP_CELL);
        }
        (void)fclose(to);
        (void)json_object_set_new(page, names[kind], json_string(memory_given(text)));
        free(text);
    }
    template_put(page, "map_height=%d",
                 (int)DIV_ROUND_UP(c->n_nodes, (size_t)MAP_WIDTH) * MAP_CELL);
}

static void put_nodes(json_t *page, const ReportCluster *c)
{
    json_t *rows = template_list(page, "nodes");
    const bool all = c->n_nodes <= REPORT_NODES_ALL;
    size_t n_ill = 0, n_listed = 0;
    for (size_t i = 0; i < c->n_nodes; i++) {
        const ReportNodeLine *n = &c->nodes[i];
        n_ill += n->ill;
        if ((!all && !n->ill) || n_listed++ >= REPORT_NODES_MAX)
            continue;
        template_put(rows, "name=%s state=%s text=%s job=%s slots=%d lost=%d tone=%s", n->name,
                     n->state, n->text, n->job, n->n_slots, n->n_lost_slots, n->ill ? "bad" : "");
    }
    template_put(page, "n_up=%d n_nodes=%d n_slots=%d n_free=%d", (int)c->n_up, (int)c->n_nodes,
                 c->n_slots, c->n_free_slots);
    if (n_ill > 0)
        template_put(page, "n_ill=%d", (int)n_ill);
    if (!all)
        template_put(page, "not_all=%s", "yes");
    if (n_listed > REPORT_NODES_MAX)
        template_put(page, "more_nodes=%d", (int)(n_listed - REPORT_NODES_MAX));
    put_map(page, c);
}

void report_cluster(const ReportCluster *c, Page *ret)
{
    char when[TIME_TEXT_BYTES];
    _cleanup_json_ json_t *page = json_object();
    template_put(page, "cluster=%s version=%s leader=%s term=%lld note=%s written=%s", c->cluster,
                 c->version, c->leader, (long long)c->term, c->note, date_text(c->now_usec, when));
    template_put(page, "n_jobs=%d n_running=%d n_waiting=%d", (int)c->n_jobs, (int)c->n_running,
                 (int)c->n_waiting);
    json_t *rows = template_list(page, "rows");
    for (size_t i = 0; i < c->n_rows; i++)
        template_put(rows, "name=%s text=%s", c->rows[i].name, c->rows[i].text);
    put_jobs(page, c);
    put_incidents(page, c);
    put_nodes(page, c);
    template_page(report_cluster_html, page, ret);
}

void report_words(const char *title, const char *words, const char *link, Page *ret)
{
    _cleanup_json_ json_t *page = json_object();
    template_put(page, "title=%s words=%s link=%s", title, words, link);
    template_page(report_words_html, page, ret);
}
