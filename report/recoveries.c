/* SPDX-License-Identifier: Apache-2.0 */
/* recoveries.c - see drawing.h: the phases of each recovery, and the table of incidents. */
#include "report/drawing.h"

#include "report/times.h"

#include <math.h>
#include <string.h>

enum { BARS_MAX = 40, BAR_PITCH = 44, PHASES = 7, FIRST_STEP = 5 };

static const char *const phase_name[PHASES] = {"detect",  "decide",     "stop",  "start",
                                               "restore", "first step", "replay"};

bool report_ended_world(const IncidentRecord *i)
{
    return strcmp(i->cause, "store-trouble") != 0 && strcmp(i->cause, "record-lost") != 0 &&
           strcmp(i->cause, "diverging") != 0 && strcmp(i->cause, "growth-stuck") != 0;
}

double report_recovery_sec(const IncidentRecord *i)
{
    uint64_t end = i->first_step_usec ? i->first_step_usec : i->resolved_usec;
    return end > i->at_usec ? (double)(end - i->at_usec) * 1e-6 : NAN;
}

/* Stores the seconds of each phase, 0 if unknown, and returns their sum. The record has all phases except "first
 * step": joining and the first step. That phase gets the rest of the time between restore and replay. */
static double phases_of(const IncidentRecord *n, double ret[PHASES])
{
    const double known[PHASES] = {n->detect_sec, n->decide_sec,  n->stop_sec,
                                  n->start_sec,  n->restore_sec, 0,
                                  n->replay_sec};
    double sum = 0;
    for (int i = 0; i < PHASES; i++) {
        if (i == FIRST_STEP)
            ret[i] = n->first_step_usec ? MAX(report_recovery_sec(n) - sum, 0) : 0;
        else
            ret[i] = MAX(known[i], 0);
        sum += ret[i];
    }
    return sum;
}

/* Tells whether the incident is drawn as a short stub with a text. An open incident has no length yet, and an incident
 * that ended no world has no recovery. */
static bool is_stub(const IncidentRecord *n)
{
    return n->state == INCIDENT_OPEN || !report_ended_world(n);
}

static void put_bar(json_t *bars, const IncidentRecord *n, const Axis *x, bool seen[PHASES])
{
    const int top = (int)json_array_size(bars) * BAR_PITCH;
    double sec[PHASES], passed = 0;
    char when[TIME_TEXT_BYTES], span[SPAN_TEXT_BYTES];
    json_t *bar =
        template_put(bars, "time=%s cause=%s node=%s top=%d label=%d middle=%d",
                     time_text(n->at_usec, when), n->cause, n->node, top + 17, top + 12, top + 30);
    json_t *phases = template_list(bar, "phases");
    if (is_stub(n)) {
        template_put(bar, "stub=%s end=%.2f",
                     n->state == INCIDENT_OPEN ? "open" : "training went on", 1.5);
        return;
    }
    (void)phases_of(n, sec);
    for (int i = 0; i < PHASES; i++) {
        if (sec[i] <= 0)
            continue;
        seen[i] = true;
        double from = axis_at(x, passed), end = axis_at(x, passed + sec[i]);
        passed += sec[i];
        template_put(phases, "phase=%d name=%s sec=%.3f x=%.2f top=%d width=%.2f", i, phase_name[i],
                     sec[i], from, top + 17, MAX(end - from - 0.15, 0.1));
    }
    template_put(bar, "end=%.2f span=%s", axis_at(x, passed), span_text(passed, span));
}

static void put_row(json_t *rows, const ReportJob *j, const IncidentRecord *n)
{
    char when[TIME_TEXT_BYTES], span[SPAN_TEXT_BYTES];
    json_t *o = template_put(rows, "date=%s cause=%s node=%s evidence=%s step=%lld again=%lld",
                             date_text(n->at_usec, when), n->cause, *n->node ? n->node : "-",
                             n->evidence, (long long)n->step, (long long)n->lost_steps);
    if (n->rank >= 0)
        template_put(o, "rank=%d", n->rank);
    if (n->state != INCIDENT_OPEN)
        template_put(o, "recovery=%s",
                     n->ended ? "ended with the job" : span_text(report_recovery_sec(n), span));
    if (n->state == INCIDENT_OPEN && j->advice)
        template_put(o, "advice=%s", j->advice(n));
}

void drawing_put_recoveries(json_t *page, const ReportJob *j)
{
    double longest = 1e-3, sec[PHASES];
    bool seen[PHASES] = {false};
    /* Only the newest incidents get bars. */
    const size_t first = j->n_incidents > BARS_MAX ? j->n_incidents - BARS_MAX : 0;
    json_t *bars = template_list(page, "bars"), *legend = template_list(page, "phases");
    json_t *rows = template_list(page, "incidents");
    for (size_t i = first; i < j->n_incidents; i++)
        if (!is_stub(j->incidents[i]))
            longest = MAX(longest, phases_of(j->incidents[i], sec));
    const Axis x = {.low = 0, .high = longest, .from = 0, .to = 84};
    for (size_t i = first; i < j->n_incidents; i++)
        put_bar(bars, j->incidents[i], &x, seen);
    for (size_t i = 0; i < j->n_incidents; i++)
        put_row(rows, j, j->incidents[i]);
    for (int i = 0; i < PHASES; i++)
        if (seen[i])
            template_put(legend, "phase=%d name=%s", i, phase_name[i]);
    template_put(page, "bars_height=%d", (int)json_array_size(bars) * BAR_PITCH);
}
