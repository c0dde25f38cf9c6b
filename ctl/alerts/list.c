/* SPDX-License-Identifier: Apache-2.0 */
/* list.c - `sdctl alerts list`: lists the incidents that are open or of which a sink is not yet notified, with the
 * state of each sink. */
#include "ctl/alerts/list.h"
#include "base/clock.h"
#include "base/json/json-build.h"
#include "ctl/alerts/verbs.h"
#include "ctl/arguments.h"
#include "ctl/model.h"
#include "ctl/print.h"
#include "ctl/table.h"

#include <string.h>

json_t *deliveries_json(const Delivery *deliveries, size_t n)
{
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++) {
        const Delivery *d = &deliveries[i];
        json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:i, s:f, s:s}", "sink", d->sink,
                                             "state", delivery_state_names[d->state], "severity",
                                             severity_name(d->severity), "attempts", d->attempts,
                                             "at", (double)d->at_usec * 1e-6, "text", d->text));
    }
    return all;
}

static json_t *list_json(const Model *m)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->n_incidents; i++) {
        const IncidentRecord *n = &m->incidents[i];
        const AlertRecord *alert = model_alert(m, n);
        bool over = n->state == INCIDENT_RESOLVED;
        if (over && (!alert || alert->settled))
            continue;
        JsonBuild b = json_build();
        json_add_text(&b, "incident", n->id);
        json_add_text(&b, "severity", severity_name(n->severity));
        json_add_text(&b, "state", over ? "resolved" : "open");
        json_add_real(&b, "at", (double)n->at_usec * 1e-6);
        json_add_text(&b, "job", n->job);
        json_add_text(&b, "cause", n->cause);
        json_add_text(&b, "node", n->node);
        json_add_text(&b, "evidence", n->evidence);
        json_add(&b, "sinks",
                 deliveries_json(alert ? alert->deliveries : NULL,
                                 alert ? alert->n_deliveries : 0));
        json_t *one = json_build_end(&b);
        json_array_append_new(list, one);
    }
    return list;
}

static void print_sink(json_t *d)
{
    char at[TIME_TEXT_BYTES];
    printf("  %-20s %-10s %s", json_text(d, "sink"), json_text(d, "state"),
           time_text((uint64_t)(json_number(d, "at") * 1e6), at));
    if (json_count(d, "attempts") > 0)
        printf("  %lld in vain, last: %s", json_count(d, "attempts"), json_text(d, "text"));
    printf("\n");
}

static void print_list(json_t *list)
{
    json_t *one, *d;
    size_t i, k;
    if (json_array_size(list) == 0)
        printf("no incident is open, and everybody has been told of the last ones\n");
    json_array_foreach (list, i, one) {
        char age[SPAN_TEXT_BYTES];
        json_t *sinks = json_object_get(one, "sinks");
        double now = (double)clock_realtime_usec() * 1e-6;
        const Paint paint = paint_of(json_text(one, "severity"));
        printf("%s: %s%s%s, %s since %s: %s%s%s: %s\n", json_text(one, "incident"),
               paint ? paint_text(paint) : "", json_text(one, "severity"),
               paint ? paint_text(PAINT_NONE) : "", json_text(one, "state"),
               span_text(now - json_number(one, "at"), age), json_text(one, "cause"),
               *json_text(one, "node") ? " on " : "", json_text(one, "node"),
               json_text(one, "evidence"));
        if (json_array_size(sinks) == 0)
            printf("  no sink hears of it\n");
        json_array_foreach (sinks, k, d)
            print_sink(d);
    }
}

int alerts_list(const Arguments *a)
{
    Error err = ERROR_INIT;
    _cleanup_(model_freep) Model *model = NULL;
    int r = model_open(&a->client, &model, &err);
    if (r < 0)
        return ctl_fail(&err, r);
    json_t *list = list_json(model);
    if (a->json) {
        print_json(list);
        return CTL_DONE;
    }
    print_list(list);
    json_decref(list);
    return CTL_DONE;
}
