/* SPDX-License-Identifier: Apache-2.0 */
/* report-chart.c - see report.h: the values of the drawings, in units of each drawing. */
#include "ctl/job/report.h"

#include "base/memory.h"
#include "ctl/print.h"

#include <math.h>

/* The edges of the axes, as report.html has them, and what keeps a drawing legible. */
enum {
    LEFT = 64,
    RIGHT = 984,
    TOP = 44,
    LOSS_BOTTOM = 352,
    WORLDS_BOTTOM = 202,
    POINTS_MAX = 800, /* more steps are drawn as the range of each bucket */
    TICKS_MAX = 30,
    BARS_MAX = 40,
    BAR_PITCH = 34,
    LABEL_WIDTH = 60,
};

/* From values to units of the drawing. */
typedef struct Axis {
    double low, high;
    double from, to;
    bool logarithmic;
} Axis;

static double at(const Axis *a, double value)
{
    double share = a->logarithmic ? log(value / a->low) / log(a->high / a->low)
                                  : (value - a->low) / (a->high - a->low);
    return a->from + (isfinite(share) ? CLAMP(share, 0.0, 1.0) : 0) * (a->to - a->from);
}

/* 1, 2 or 5 times a power of ten, for about n ticks. */
static double tick_distance(double span, int n)
{
    double raw = span / n, power = pow(10, floor(log10(raw)));
    double digit = raw / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

/* scale: how many of the axis's units a printed one is. */
static void put_ticks(json_t *ticks, const Axis *a, double high, double distance, double scale)
{
    const double first = ceil(a->low / scale / distance);
    for (int i = 0; i < TICKS_MAX && (first + i) * distance <= high * (1 + 1e-9); i++)
        report_put(ticks, "at=%.1f value=%g", at(a, (first + i) * distance * scale),
                   (first + i) * distance);
}

static void put_x_ticks(json_t *ticks, const Axis *x, double scale)
{
    put_ticks(ticks, x, x->high / scale, tick_distance((x->high - x->low) / scale, 9), scale);
}

static void put_loss_ticks(json_t *ticks, const Axis *y)
{
    if (!y->logarithmic) {
        put_ticks(ticks, y, y->high, tick_distance(y->high - y->low, 7), 1);
        return;
    }
    for (double power = pow(10, floor(log10(y->low))); power <= y->high; power *= 10)
        for (int digit = 1; digit <= 5; digit = digit == 1 ? 2 : digit == 2 ? 5 : 6)
            if (power * digit >= y->low && power * digit <= y->high)
                report_put(ticks, "at=%.1f value=%g", at(y, power * digit), power * digit);
}

typedef void (*DrawPath)(FILE *to, const JobReport *r, const Axis *x, const Axis *y);

static void put_path(json_t *page, const char *name, DrawPath draw, const JobReport *r,
                     const Axis *x, const Axis *y)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *to = memory_given(open_memstream(&text, &n_bytes));
    draw(to, r, x, y);
    (void)fclose(to);
    (void)json_object_set_new(page, name, json_string(memory_given(text)));
    free(text);
}

/* ---- losses ---- */

static size_t bucket_end(const JobReport *r, size_t first)
{
    size_t width = DIV_ROUND_UP(r->metrics.n_lines, (size_t)POINTS_MAX);
    return MIN(first + width, r->metrics.n_lines);
}

/* Gives the range of the finite losses of these lines; false: none is finite. */
static bool loss_range(const JobReport *r, size_t first, size_t end, double *low, double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (size_t i = first; i < end; i++)
        if (isfinite(r->metrics.lines[i].loss)) {
            *low = MIN(*low, r->metrics.lines[i].loss);
            *high = MAX(*high, r->metrics.lines[i].loss);
        }
    return *low <= *high;
}

static Axis loss_axis(const JobReport *r)
{
    Axis y = {.from = LOSS_BOTTOM, .to = TOP};
    double low, high;
    if (!loss_range(r, 0, r->metrics.n_lines, &low, &high)) {
        low = 0;
        high = 1;
    }
    y.logarithmic = low > 0 && high / low > 20;
    y.low = y.logarithmic ? low : low - (high - low) * 0.05;
    y.high = high > low ? high + (y.logarithmic ? 0 : (high - low) * 0.05) : low + 1;
    if (!y.logarithmic && low >= 0)
        y.low = MAX(y.low, 0);
    return y;
}

/* Every loss, or the range of each bucket when there are too many to see. */
static void draw_losses(FILE *to, const JobReport *r, const Axis *x, const Axis *y)
{
    const char *command = "M";
    for (size_t i = 0, end; i < r->metrics.n_lines; i = end) {
        double low, high;
        end = bucket_end(r, i);
        if (!loss_range(r, i, end, &low, &high))
            continue;
        double px = at(x, (double)(r->metrics.lines[i].step + r->metrics.lines[end - 1].step) / 2);
        fprintf(to, "%s%.1f %.1f", command, px, at(y, low));
        if (high > low)
            fprintf(to, "L%.1f %.1f", px, at(y, high));
        command = "L";
    }
}

/* Averaged over about a fiftieth of the curve. */
static void draw_average(FILE *to, const JobReport *r, const Axis *x, const Axis *y)
{
    const double keep = 1 - 1 / MAX(1.0, (double)r->metrics.n_lines / 50);
    double average = 0, weight = 0;
    const char *command = "M";
    for (size_t i = 0, end; i < r->metrics.n_lines; i = end) {
        end = bucket_end(r, i);
        for (size_t k = i; k < end; k++)
            if (isfinite(r->metrics.lines[k].loss)) {
                average = average * keep + r->metrics.lines[k].loss * (1 - keep);
                weight = weight * keep + (1 - keep);
            }
        if (weight > 0) {
            fprintf(to, "%s%.1f %.1f", command, at(x, (double)r->metrics.lines[end - 1].step),
                    at(y, average / weight));
            command = "L";
        }
    }
}

static bool follows_incident(const JobReport *r, int64_t generation)
{
    const IncidentRecord *n;
    for (size_t i = 0; (n = report_next_incident(r, &i));)
        if (n->generation + 1 == generation)
            return true;
    return false;
}

static void put_resizes(json_t *page, const JobReport *r, const Axis *x)
{
    json_t *marks = report_list(page, "resizes");
    const PhaseRecord *p = &r->job->phase;
    double free_from = LEFT; /* where the next label has room */
    for (size_t i = 1; i < p->n_worlds; i++) {
        const PastWorld *w = &p->worlds[i];
        if (follows_incident(r, w->generation) || w->size == p->worlds[i - 1].size)
            continue;
        const double px = at(x, (double)w->step);
        report_put(marks, "x=%.1f from=%d to=%d step=%lld reason=%s has_label=%s", px,
                   p->worlds[i - 1].size, w->size, (long long)w->step, w->reason,
                   px >= free_from ? "yes" : "");
        if (px >= free_from)
            free_from = px + LABEL_WIDTH;
    }
}

static void put_losses(json_t *page, const JobReport *r, const Axis *x)
{
    const Axis y = loss_axis(r);
    put_loss_ticks(report_list(page, "loss_y"), &y);
    put_x_ticks(report_list(page, "loss_x"), x, 1);
    put_resizes(page, r, x);
    put_path(page, "raw", draw_losses, r, x, &y);
    put_path(page, "average", draw_average, r, x, &y);
    json_t *saved = report_list(page, "saved");
    for (size_t i = 0; i < r->metrics.n_saved; i++)
        report_put(saved, "x=%.1f step=%lld", at(x, (double)r->metrics.saved[i]),
                   (long long)r->metrics.saved[i]);
}

/* ---- worlds ---- */

/* Worlds are drawn by microseconds; the axis tells time since the start. */
static const struct TimeUnit {
    double sec, below_sec; /* of the span that is told in it */
    const char *name;
} units[] = {{1, 300, "seconds"},
             {60, 3 * 3600, "minutes"},
             {3600, 4 * 86400, "hours"},
             {86400, INFINITY, "days"}};

static double end_usec(const JobReport *r, size_t world)
{
    const PhaseRecord *p = &r->job->phase;
    return (double)(world + 1 < p->n_worlds ? p->worlds[world + 1].decided_usec
                                            : report_end_usec(r));
}

/* Points alone, which the template makes a line and an area. */
static void draw_sizes(FILE *to, const JobReport *r, const Axis *x, const Axis *y)
{
    const PhaseRecord *p = &r->job->phase;
    for (size_t i = 0; i < p->n_worlds; i++) {
        const double size = at(y, p->worlds[i].size);
        fprintf(to, "%s%.1f %.1fL%.1f %.1f", i > 0 ? "L" : "",
                at(x, (double)p->worlds[i].decided_usec), size, at(x, end_usec(r, i)), size);
    }
}

static void put_worlds(json_t *page, const JobReport *r, const Axis *x)
{
    const PhaseRecord *p = &r->job->phase;
    const struct TimeUnit *unit = units;
    char when[TIME_TEXT_BYTES];
    int most = 1;
    const Axis since_start = {.high = (x->high - x->low) * 1e-6, .from = LEFT, .to = RIGHT};
    while (since_start.high >= unit->below_sec)
        unit++;
    json_t *worlds = report_list(page, "worlds");
    for (size_t i = 0; i < p->n_worlds; i++) {
        const PastWorld *w = &p->worlds[i];
        const double from = at(x, (double)w->decided_usec);
        most = MAX(most, w->size);
        report_put(worlds, "x=%.1f width=%.1f generation=%lld date=%s", from,
                   at(x, end_usec(r, i)) - from, (long long)w->generation,
                   date_text(w->decided_usec, when));
        report_put(json_array_get(worlds, i), "size=%d plural=%s step=%lld reason=%s", w->size,
                   w->size == 1 ? "" : "s", (long long)w->step, w->reason);
    }
    const Axis y = {.low = 0, .high = most * 1.15, .from = WORLDS_BOTTOM, .to = TOP};
    put_ticks(report_list(page, "worlds_y"), &y, most, MAX(1.0, tick_distance(most, 4)), 1);
    put_x_ticks(report_list(page, "worlds_x"), &since_start, unit->sec);
    put_path(page, "edge", draw_sizes, r, x, &y);
    report_put(page, "unit=%s edge_from=%.1f", unit->name,
               at(x, (double)p->worlds[0].decided_usec));
}

/* ---- incidents ---- */

enum { PHASES = 7, FIRST_STEP = 5 };
static const char *const phase_name[PHASES] = {"detect",  "decide",     "stop",  "start",
                                               "restore", "first step", "replay"};

/* Gives the seconds of each phase, 0 for an unknown one, and returns their sum. The record has all phases but one:
 * joining and the first step, which is the rest of the time between restore and replay. */
static double phases_of(const IncidentRecord *n, double ret[PHASES])
{
    const double known[PHASES] = {n->detect_sec, n->decide_sec,  n->stop_sec,
                                  n->start_sec,  n->restore_sec, 0,
                                  n->replay_sec};
    double sum = 0;
    for (int i = 0; i < PHASES; i++) {
        if (i == FIRST_STEP)
            ret[i] = n->first_step_usec ? MAX(model_recovery_sec(n) - sum, 0) : 0;
        else
            ret[i] = MAX(known[i], 0);
        sum += ret[i];
    }
    return sum;
}

static void put_bar(json_t *bars, const IncidentRecord *n, const Axis *x)
{
    const int top = (int)json_array_size(bars) * BAR_PITCH + 4;
    double sec[PHASES], passed = 0;
    char when[TIME_TEXT_BYTES];
    json_t *bar = report_put(bars, "time=%s cause=%s node=%s top=%d", time_text(n->at_usec, when),
                             n->cause, n->node, top);
    json_t *phases = report_list(bar, "phases");
    (void)phases_of(n, sec);
    for (int i = 0; i < PHASES; i++) {
        if (sec[i] <= 0)
            continue;
        double from = at(x, passed), end = at(x, passed + sec[i]);
        passed += sec[i];
        report_put(phases, "phase=%d name=%s sec=%.3f x=%.1f top=%d width=%.1f", i, phase_name[i],
                   sec[i], from, top, MAX(end - from - 1.5, 1.0));
    }
    report_put(bar, "end=%.1f sec=%.2f", at(x, passed), passed);
}

static void put_recoveries(json_t *page, const JobReport *r)
{
    const IncidentRecord *n;
    const size_t n_incidents = json_array_size(json_object_get(page, "incidents"));
    double longest = 1e-3, sec[PHASES];
    for (size_t i = 0; (n = report_next_incident(r, &i));)
        longest = MAX(longest, phases_of(n, sec));
    const Axis x = {.low = 0, .high = longest, .from = 300, .to = RIGHT - 70};
    json_t *bars = report_list(page, "bars"), *phases = report_list(page, "phases");
    size_t number = 0;
    for (size_t i = 0; (n = report_next_incident(r, &i)); number++)
        if (number + BARS_MAX >= n_incidents) /* the newest */
            put_bar(bars, n, &x);
    for (int i = 0; i < PHASES; i++)
        report_put(phases, "phase=%d name=%s", i, phase_name[i]);
    report_put(page, "bars_height=%d", (int)json_array_size(bars) * BAR_PITCH + 4);
}

/* Each is a row of a table, a mark among the losses, and in the drawing of worlds the time that it cost. */
static void put_incidents(json_t *page, const JobReport *r, const Axis *steps, const Axis *times)
{
    json_t *list = report_list(page, "incidents");
    char when[TIME_TEXT_BYTES];
    const IncidentRecord *n;
    for (size_t i = 0; (n = report_next_incident(r, &i));) {
        const uint64_t end = n->first_step_usec ? n->first_step_usec
                             : n->resolved_usec ? n->resolved_usec
                                                : report_end_usec(r);
        const double x = at(steps, (double)n->step), gap = at(times, (double)n->at_usec);
        const double from = at(steps, (double)(n->step - n->lost_steps));
        json_t *o = report_put(list, "date=%s cause=%s node=%s evidence=%s step=%lld again=%lld",
                               date_text(n->at_usec, when), n->cause, n->node, n->evidence,
                               (long long)n->step, (long long)n->lost_steps);
        report_put(o, "x=%.1f gap=%.1f gap_width=%.1f gap_sec=%.2f", x, gap,
                   MAX(at(times, (double)end) - gap, 1.5),
                   end > n->at_usec ? (double)(end - n->at_usec) * 1e-6 : 0);
        if (n->lost_steps > 0)
            report_put(o, "again_from=%.1f again_width=%.1f", from, x - from);
        if (n->rank >= 0)
            report_put(o, "rank=%d", n->rank);
        if (n->state != INCIDENT_OPEN)
            report_put(o, "recovery=%.2f", model_recovery_sec(n));
    }
}

void report_put_drawings(json_t *page, const JobReport *r)
{
    const CommittedMetrics *m = &r->metrics;
    const PhaseRecord *p = &r->job->phase;
    Axis steps = {.low = 0, .high = 1, .from = LEFT, .to = RIGHT}, times = steps; /* microseconds */
    times.low =
        (double)MIN(p->worlds[0].decided_usec, p->started_usec ? p->started_usec : UINT64_MAX);
    times.high = MAX((double)report_end_usec(r), times.low + 1e3);
    if (m->n_lines > 0) {
        steps.low = (double)MIN(m->lines[0].step, 0);
        steps.high = (double)MAX(m->lines[m->n_lines - 1].step, m->lines[0].step + 1);
        put_losses(page, r, &steps);
    }
    if (p->n_worlds > 0)
        put_worlds(page, r, &times);
    put_incidents(page, r, &steps, &times);
    put_recoveries(page, r);
}
