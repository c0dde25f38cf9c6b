/* SPDX-License-Identifier: Apache-2.0 */
/* worlds.c - see drawing.h: the sizes of a job's worlds by time, and the shares of its time. */
#include "report/drawing.h"

#include "base/memory.h"
#include "report/times.h"

#include <math.h>

enum { WIDTH = 1000, HEIGHT = 120 };

static const struct TimeUnit {
    double sec, below_sec; /* below_sec: limit of the span that is shown in this unit */
    const char *name;
} units[] = {{1, 300, "seconds"},
             {60, 3 * 3600, "minutes"},
             {3600, 4 * 86400, "hours"},
             {86400, INFINITY, "days"}};

bool drawing_has_ended(const ReportJob *j) { return j->phase->phase >= PHASE_STOPPED; }

uint64_t drawing_end_usec(const ReportJob *j)
{
    return drawing_has_ended(j) ? j->phase->since_usec : j->now_usec;
}

static double world_end_usec(const ReportJob *j, size_t world)
{
    const PhaseRecord *p = j->phase;
    return (double)(world + 1 < p->n_worlds ? p->worlds[world + 1].decided_usec
                                            : drawing_end_usec(j));
}

/* Writes only points; the template draws them as a line and as an area. */
static char *draw_sizes(const ReportJob *j, const Axis *x, const Axis *y)
{
    char *text = NULL;
    size_t n_bytes = 0;
    const PhaseRecord *p = j->phase;
    FILE *to = memory_given(open_memstream(&text, &n_bytes));
    for (size_t i = 0; i < p->n_worlds; i++) {
        const double size = axis_at(y, p->worlds[i].size);
        fprintf(to, "%s%.1f %.1fL%.1f %.1f", i > 0 ? "L" : "",
                axis_at(x, (double)p->worlds[i].decided_usec), size,
                axis_at(x, world_end_usec(j, i)), size);
    }
    (void)fclose(to);
    return memory_given(text);
}

static void put_gaps(json_t *page, const ReportJob *j, const Axis *percent)
{
    json_t *gaps = template_list(page, "gaps");
    for (size_t i = 0; i < j->n_incidents; i++) {
        const IncidentRecord *n = j->incidents[i];
        if (!report_ended_world(n))
            continue;
        const uint64_t end = n->first_step_usec ? n->first_step_usec
                             : n->resolved_usec ? n->resolved_usec
                                                : drawing_end_usec(j);
        const double from = axis_at(percent, (double)n->at_usec);
        template_put(gaps, "x=%.2f width=%.2f cause=%s sec=%.2f", from,
                     MAX(axis_at(percent, (double)end) - from, 0.15), n->cause,
                     end > n->at_usec ? (double)(end - n->at_usec) * 1e-6 : 0);
    }
}

void drawing_put_worlds(json_t *page, const ReportJob *j)
{
    const PhaseRecord *p = j->phase;
    json_t *worlds = template_list(page, "worlds");
    if (p->n_worlds == 0)
        return;
    char when[TIME_TEXT_BYTES];
    int most = 1;
    Axis percent = {.to = 100};
    percent.low =
        (double)MIN(p->worlds[0].decided_usec, p->started_usec ? p->started_usec : UINT64_MAX);
    percent.high = MAX((double)drawing_end_usec(j), percent.low + 1e3);
    for (size_t i = 0; i < p->n_worlds; i++) {
        const PastWorld *w = &p->worlds[i];
        const double from = axis_at(&percent, (double)w->decided_usec);
        most = MAX(most, w->size);
        template_put(worlds, "x=%.2f width=%.2f generation=%lld date=%s size=%d", from,
                     axis_at(&percent, world_end_usec(j, i)) - from, (long long)w->generation,
                     date_text(w->decided_usec, when), w->size);
        template_put(json_array_get(worlds, i), "plural=%s step=%lld reason=%s",
                     w->size == 1 ? "" : "s", (long long)w->step, w->reason);
    }
    const Axis y = {.low = 0, .high = most * 1.15, .from = HEIGHT, .to = 0};
    const Axis wide = {.low = percent.low, .high = percent.high, .from = 0, .to = WIDTH};
    const Axis since_start = {.high = (percent.high - percent.low) * 1e-6, .from = 0, .to = 100};
    const struct TimeUnit *unit = units;
    while (since_start.high >= unit->below_sec)
        unit++;
    axis_put_ticks(template_list(page, "worlds_y"), &y, 1, MIN(most, 4));
    axis_put_ticks(template_list(page, "worlds_x"), &since_start, unit->sec, 6);
    _cleanup_free_ char *edge = draw_sizes(j, &wide, &y);
    template_put(page, "edge=%s unit=%s edge_from=%.1f", edge, unit->name,
                 axis_at(&wide, (double)p->worlds[0].decided_usec));
    put_gaps(page, j, &percent);
}

/* ---- the shares of the time ---- */

typedef struct Share {
    const char *name, *what;
    double sec;
} Share;

void drawing_put_times(json_t *page, const ReportJob *j)
{
    const PhaseRecord *p = j->phase;
    json_t *times = template_list(page, "times");
    const uint64_t end = drawing_end_usec(j);
    if (p->started_usec == 0 || end <= p->started_usec)
        return;
    PhaseSpent spent = p->spent;
    if (!drawing_has_ended(j) && end > p->since_usec)
        phase_spent_add(&spent, p->phase, end - MAX(p->since_usec, p->started_usec));
    const double total = (double)(end - p->started_usec) * 1e-6;
    const double running = (double)spent.running_usec * 1e-6;
    const bool is_known = isfinite(drawing_goodput(j));
    double train = is_known ? CLAMP(drawing_goodput(j), 0.0, 1.0) * total : running;
    if (running > 0)
        train = MIN(train, running);
    const double save = is_known && j->saving > 0 ? MIN(j->saving * total, train) : 0;
    Share shares[] = {
        {is_known ? "train" : "run",
         is_known ? "steps that count, each once" : "worlds that run: the useful part is unknown",
         train - save},
        {"save", "steps that count, waiting for a save", save},
        {"start", "from a decision to the first step", (double)spent.start_usec * 1e-6},
        {"resize", "leaving one size and starting the next", (double)spent.resize_usec * 1e-6},
        {"recovery", "from a failure that is known to the next step",
         (double)spent.recovery_usec * 1e-6},
        {"replay", "steps that a failure took back, and waits within a world",
         MAX(running - train, 0.0)},
        {"idle", "waiting for slots, in a pause, or stopped", (double)spent.idle_usec * 1e-6},
        {"not told", "by records of an earlier version", 0},
    };
    template_put(page, "has_goodput=%s", is_known ? "yes" : "");
    enum { LAST = ELEMENTSOF(shares) - 1 };
    double sum = 0, from = 0;
    for (size_t i = 0; i < LAST; i++)
        sum += shares[i].sec;
    shares[LAST].sec = total - sum > 0.005 * total ? total - sum : 0;
    sum += shares[LAST].sec;
    for (size_t i = 0; i <= LAST; i++) {
        char span[SPAN_TEXT_BYTES];
        const double share = sum > 0 ? 100 * shares[i].sec / sum : 0;
        if (shares[i].sec <= 0)
            continue;
        template_put(times, "colour=%d name=%s what=%s span=%s share=%.1f x=%.2f width=%.2f",
                     (int)i, shares[i].name, shares[i].what, span_text(shares[i].sec, span), share,
                     from, MAX(share - 0.15, 0.05));
        from += share;
    }
}
