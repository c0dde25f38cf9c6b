/* SPDX-License-Identifier: Apache-2.0 */
/* report-chart.c - see report.h: the drawings. A drawing is 1000 units wide and scales with the
 * page; every mark has a <title>, which browsers show under the pointer. */
#include "ctl/job/report.h"

#include "ctl/print.h"

#include <math.h>
#include <string.h>

enum {
    WIDTH = 1000,
    LEFT = 64,
    RIGHT = 984,
    TOP = 44,         /* room for two rows of marks */
    POINTS_MAX = 800, /* more steps are drawn as the range of each bucket */
    BARS_MAX = 40,
    BAR_HEIGHT = 18,
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
    return a->from + CLAMP(share, 0.0, 1.0) * (a->to - a->from);
}

/* 1, 2 or 5 times a power of ten, for about n ticks. */
static double tick_distance(double span, int n)
{
    double raw = span / n, power = pow(10, floor(log10(raw)));
    double digit = raw / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

static void begin_drawing(FILE *to, int height, const char *name)
{
    fprintf(to, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", WIDTH, height,
            name);
}

static void draw_y_tick(FILE *to, const Axis *y, double value)
{
    fprintf(to,
            "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
            "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
            LEFT, RIGHT, at(y, value), at(y, value), LEFT - 8, at(y, value) + 4, value);
}

static void draw_y_axis(FILE *to, const Axis *y)
{
    if (y->logarithmic) {
        for (double power = pow(10, floor(log10(y->low))); power <= y->high; power *= 10)
            for (int digit = 1; digit <= 5; digit = digit == 1 ? 2 : digit == 2 ? 5 : 6)
                if (power * digit >= y->low && power * digit <= y->high)
                    draw_y_tick(to, y, power * digit);
        return;
    }
    double distance = tick_distance(y->high - y->low, 7);
    for (double v = ceil(y->low / distance) * distance; v <= y->high * (1 + 1e-9); v += distance)
        draw_y_tick(to, y, fabs(v) < distance / 1e6 ? 0 : v);
}

/* scale: how many of the axis's units a printed one is. */
static void draw_x_axis(FILE *to, const Axis *x, double bottom, double scale, const char *unit)
{
    double low = x->low / scale, high = x->high / scale;
    double distance = tick_distance(MAX(high - low, 1e-9), 9);
    fprintf(to, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n", LEFT, RIGHT,
            bottom, bottom);
    for (double v = ceil(low / distance) * distance; v <= high * (1 + 1e-9); v += distance)
        fprintf(to, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n",
                at(x, v * scale), bottom + 20, fabs(v) < distance / 1e6 ? 0 : v);
    fprintf(to, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", RIGHT,
            bottom + 38, unit);
}

/* ---- losses ---- */

static size_t bucket_end(const JobReport *r, size_t first)
{
    size_t width = DIV_ROUND_UP(r->metrics.n_lines, (size_t)POINTS_MAX);
    return MIN(first + width, r->metrics.n_lines);
}

static void find_range(const JobReport *r, Axis *y)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < r->metrics.n_lines; i++)
        if (isfinite(r->metrics.lines[i].loss)) {
            low = MIN(low, r->metrics.lines[i].loss);
            high = MAX(high, r->metrics.lines[i].loss);
        }
    if (low > high) {
        low = 0;
        high = 1;
    }
    y->logarithmic = low > 0 && high / low > 20;
    y->low = y->logarithmic ? low : low - (high - low) * 0.05;
    y->high = high > low ? high + (y->logarithmic ? 0 : (high - low) * 0.05) : low + 1;
    if (!y->logarithmic && low >= 0)
        y->low = MAX(y->low, 0);
}

/* Every loss, or the range of each bucket when there are too many to see. */
static void draw_losses(FILE *to, const JobReport *r, const Axis *x, const Axis *y)
{
    fprintf(to, "<path class=\"raw\" d=\"");
    const char *command = "M";
    for (size_t i = 0, end; i < r->metrics.n_lines; i = end) {
        double low = INFINITY, high = -INFINITY;
        end = bucket_end(r, i);
        for (size_t k = i; k < end; k++)
            if (isfinite(r->metrics.lines[k].loss)) {
                low = MIN(low, r->metrics.lines[k].loss);
                high = MAX(high, r->metrics.lines[k].loss);
            }
        if (low > high)
            continue;
        double px = at(x, (double)(r->metrics.lines[i].step + r->metrics.lines[end - 1].step) / 2);
        fprintf(to, "%s%.1f %.1f", command, px, at(y, low));
        if (high > low)
            fprintf(to, "L%.1f %.1f", px, at(y, high));
        command = "L";
    }
    fprintf(to, "\"/>\n");
}

/* Averaged over about a fiftieth of the curve. */
static void draw_average(FILE *to, const JobReport *r, const Axis *x, const Axis *y)
{
    const double keep = 1 - 1 / MAX(1.0, (double)r->metrics.n_lines / 50);
    double average = 0, weight = 0;
    const char *command = "M";
    fprintf(to, "<path class=\"line\" d=\"");
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
    fprintf(to, "\"/>\n");
}

static void draw_saved(FILE *to, const JobReport *r, const Axis *x, double bottom)
{
    for (size_t i = 0; i < r->metrics.n_saved; i++) {
        double px = at(x, (double)r->metrics.saved[i]);
        fprintf(to,
                "<path class=\"saved\" d=\"M%.1f %.1fl4 -8h-8z\"><title>checkpoint of step "
                "%lld</title></path>\n",
                px, bottom, (long long)r->metrics.saved[i]);
    }
}

static const IncidentRecord *incident_before(const JobReport *r, int64_t generation)
{
    const IncidentRecord *n;
    for (size_t i = 0; (n = report_next_incident(r, &i));)
        if (n->generation + 1 == generation)
            return n;
    return NULL;
}

static void draw_failures(FILE *to, const JobReport *r, const Axis *x, double bottom)
{
    const IncidentRecord *n;
    for (size_t i = 0; (n = report_next_incident(r, &i));) {
        double px = at(x, (double)n->step), from = at(x, (double)(n->step - n->lost_steps));
        if (n->lost_steps > 0)
            fprintf(to,
                    "<rect class=\"again\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%.1f\">"
                    "<title>%lld steps were trained again</title></rect>\n",
                    from, TOP, px - from, bottom - TOP, (long long)n->lost_steps);
        fprintf(to, "<g class=\"failure\"><line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%.1f\"/>",
                px, px, TOP, bottom);
        fprintf(to, "<path d=\"M%.1f %dl8 8m0 -8l-8 8\"/><title>", px - 4, TOP - 36);
        report_put_text(to, n->cause);
        fprintf(to, " at step %lld", (long long)n->step);
        if (*n->node)
            fprintf(to, " on ");
        report_put_text(to, n->node);
        fprintf(to, ": ");
        report_put_text(to, n->evidence);
        fprintf(to, "</title></g>\n");
    }
}

static void draw_resizes(FILE *to, const JobReport *r, const Axis *x, double bottom)
{
    const PhaseRecord *p = &r->job->phase;
    double free_from = LEFT; /* where the next label has room */
    for (size_t i = 1; i < p->n_worlds; i++) {
        const PastWorld *w = &p->worlds[i];
        if (incident_before(r, w->generation) || w->size == p->worlds[i - 1].size)
            continue;
        double px = at(x, (double)w->step);
        fprintf(to, "<g class=\"resize\"><line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%.1f\"/>", px,
                px, TOP, bottom);
        if (px >= free_from) {
            fprintf(to,
                    "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d "
                    "\xe2\x86\x92 %d</text>",
                    px, TOP - 8, p->worlds[i - 1].size, w->size);
            free_from = px + LABEL_WIDTH;
        }
        fprintf(to, "<title>%d to %d ranks at step %lld: ", p->worlds[i - 1].size, w->size,
                (long long)w->step);
        report_put_text(to, w->reason);
        fprintf(to, "</title></g>\n");
    }
}

void report_draw_loss(FILE *to, const JobReport *r)
{
    enum { HEIGHT = 400, BOTTOM = HEIGHT - 48 };
    if (r->metrics.n_lines == 0)
        return;
    const int64_t first = r->metrics.lines[0].step,
                  last = r->metrics.lines[r->metrics.n_lines - 1].step;
    const Axis x = {.low = (double)MIN(first, 0),
                    .high = (double)MAX(last, first + 1),
                    .from = LEFT,
                    .to = RIGHT};
    Axis y = {.from = BOTTOM, .to = TOP};
    find_range(r, &y);
    begin_drawing(to, HEIGHT, "loss by step");
    draw_y_axis(to, &y);
    draw_x_axis(to, &x, BOTTOM, 1, "step");
    draw_failures(to, r, &x, BOTTOM);
    draw_resizes(to, r, &x, BOTTOM);
    draw_losses(to, r, &x, &y);
    draw_average(to, r, &x, &y);
    draw_saved(to, r, &x, BOTTOM);
    fprintf(to, "</svg>\n");
}

/* ---- worlds ---- */

typedef struct TimeUnit {
    double sec;
    const char *name;
} TimeUnit;

static TimeUnit time_unit(double span_sec)
{
    if (span_sec < 300)
        return (TimeUnit){1, "seconds since the start"};
    if (span_sec < 3 * 3600)
        return (TimeUnit){60, "minutes since the start"};
    if (span_sec < 4 * 86400)
        return (TimeUnit){3600, "hours since the start"};
    return (TimeUnit){86400, "days since the start"};
}

static double seconds_since(uint64_t usec, uint64_t start)
{
    return usec > start ? (double)(usec - start) * 1e-6 : 0;
}

static void draw_sizes(FILE *to, const JobReport *r, const Axis *x, const Axis *y, uint64_t start)
{
    const PhaseRecord *p = &r->job->phase;
    for (int pass = 0; pass < 2; pass++) { /* the area, then its upper edge */
        double px = at(x, seconds_since(p->worlds[0].decided_usec, start));
        fprintf(to, "<path class=\"%s\" d=\"M%.1f %.1f", pass == 0 ? "area" : "line", px,
                pass == 0 ? y->from : at(y, p->worlds[0].size));
        for (size_t i = 0; i < p->n_worlds; i++) {
            uint64_t end = i + 1 < p->n_worlds ? p->worlds[i + 1].decided_usec : report_end_usec(r);
            double from = at(x, seconds_since(p->worlds[i].decided_usec, start));
            fprintf(to, "L%.1f %.1fL%.1f %.1f", from, at(y, p->worlds[i].size),
                    at(x, seconds_since(end, start)), at(y, p->worlds[i].size));
        }
        fprintf(to, pass == 0 ? "V%.1fz\"/>\n" : "\"/>\n", y->from);
    }
    for (size_t i = 0; i < p->n_worlds; i++) {
        const PastWorld *w = &p->worlds[i];
        uint64_t end = i + 1 < p->n_worlds ? p->worlds[i + 1].decided_usec : report_end_usec(r);
        double from = at(x, seconds_since(w->decided_usec, start));
        fprintf(to,
                "<rect class=\"hover\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%.1f\">"
                "<title>generation %lld: %d rank%s from step %lld: ",
                from, TOP, at(x, seconds_since(end, start)) - from, y->from - TOP,
                (long long)w->generation, w->size, w->size == 1 ? "" : "s", (long long)w->step);
        report_put_text(to, w->reason);
        fprintf(to, "</title></rect>\n");
    }
}

/* The time that each failure cost. */
static void draw_gaps(FILE *to, const JobReport *r, const Axis *x, double bottom, uint64_t start)
{
    const IncidentRecord *n;
    for (size_t i = 0; (n = report_next_incident(r, &i));) {
        uint64_t end = n->first_step_usec ? n->first_step_usec
                       : n->resolved_usec ? n->resolved_usec
                                          : report_end_usec(r);
        double from = at(x, seconds_since(n->at_usec, start));
        double width = MAX(at(x, seconds_since(end, start)) - from, 1.5);
        fprintf(to,
                "<rect class=\"gap\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%.1f\"><title>",
                from, TOP, width, bottom - TOP);
        report_put_text(to, n->cause);
        fprintf(to, ": %.2f s until the next step</title></rect>\n",
                seconds_since(end, n->at_usec));
    }
}

void report_draw_worlds(FILE *to, const JobReport *r)
{
    enum { HEIGHT = 250, BOTTOM = HEIGHT - 48 };
    const PhaseRecord *p = &r->job->phase;
    if (p->n_worlds == 0)
        return;
    const uint64_t start =
        MIN(p->worlds[0].decided_usec, p->started_usec ? p->started_usec : UINT64_MAX);
    const double span = MAX(seconds_since(report_end_usec(r), start), 1e-3);
    const TimeUnit unit = time_unit(span);
    const Axis x = {.low = 0, .high = span, .from = LEFT, .to = RIGHT};
    int most = 1;
    for (size_t i = 0; i < p->n_worlds; i++)
        most = MAX(most, p->worlds[i].size);
    const Axis y = {.low = 0, .high = most * 1.15, .from = BOTTOM, .to = TOP};
    begin_drawing(to, HEIGHT, "world size by time");
    const double distance = MAX(1.0, tick_distance(most, 4));
    for (double v = 0; v <= most; v += distance)
        draw_y_tick(to, &y, v);
    draw_x_axis(to, &x, BOTTOM, unit.sec, unit.name);
    draw_sizes(to, r, &x, &y, start);
    draw_gaps(to, r, &x, BOTTOM, start);
    fprintf(to, "</svg>\n");
}

/* ---- recoveries ---- */

static void draw_bar(FILE *to, const IncidentRecord *n, const Axis *x, double top)
{
    double phases[RECOVERY_PHASES], passed = 0;
    char when[TIME_TEXT_BYTES];
    recovery_phases(n, phases);
    fprintf(to, "<text class=\"label\" x=\"0\" y=\"%.1f\">%s  ", top + 13,
            time_text(n->at_usec, when));
    report_put_text(to, n->cause);
    fprintf(to, " %s", *n->node ? "on " : "");
    report_put_text(to, n->node);
    fprintf(to, "</text>\n");
    for (int i = 0; i < RECOVERY_PHASES; i++) {
        if (phases[i] <= 0)
            continue;
        double from = at(x, passed), end = at(x, passed + phases[i]);
        passed += phases[i];
        fprintf(to,
                "<rect class=\"p%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\">"
                "<title>%s %.3f s</title></rect>\n",
                i, from, top, MAX(end - from - 1.5, 1.0), BAR_HEIGHT, recovery_phase_name[i],
                phases[i]);
    }
    fprintf(to, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\">%.2f s</text>\n", at(x, passed) + 6,
            top + 13, passed);
}

void report_draw_recoveries(FILE *to, const JobReport *r)
{
    const IncidentRecord *n, *shown[BARS_MAX];
    size_t n_shown = 0;
    double longest = 0;
    for (size_t i = 0; (n = report_next_incident(r, &i));) {
        double phases[RECOVERY_PHASES], sum = 0;
        recovery_phases(n, phases);
        for (int k = 0; k < RECOVERY_PHASES; k++)
            sum += MAX(phases[k], 0);
        if (n_shown == BARS_MAX) { /* the newest */
            memmove(shown, shown + 1, sizeof(shown) - sizeof(shown[0]));
            n_shown--;
        }
        shown[n_shown++] = n;
        longest = MAX(longest, sum);
    }
    if (n_shown == 0)
        return;
    const Axis x = {.low = 0, .high = MAX(longest, 1e-3), .from = 300, .to = RIGHT - 70};
    begin_drawing(to, (int)n_shown * BAR_PITCH + 4, "phases of each recovery");
    for (size_t i = 0; i < n_shown; i++)
        draw_bar(to, shown[i], &x, (double)i * BAR_PITCH + 4);
    fprintf(to, "</svg>\n");
}
