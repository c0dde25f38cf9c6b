/* SPDX-License-Identifier: Apache-2.0 */
/* curves.c - see drawing.h: the curves of loss, speed, gradient and learning rate by step, with marks for incidents,
 * resizes and checkpoints, and the numbers that evaluations have found. */
#include "report/drawing.h"

#include "base/memory.h"

#include <math.h>

enum { WIDTH = 1000, TALL = 240, SMALL = 96, LABEL_WIDTH = 9 /* LABEL_WIDTH is in per cent */ };

/* NUMBER is a number that an evaluation has found, and no curve of the training. */
typedef enum Curve { LOSS, SPEED, GRADIENT, RATE, CURVES, NUMBER = CURVES } Curve;

static const struct {
    const char *name, *title;
} curves[CURVES] = {[LOSS] = {"loss", "Loss"},
                    [SPEED] = {"speed", "Samples/s"},
                    [GRADIENT] = {"gradient", "Gradient norm, before it is clipped"},
                    [RATE] = {"rate", "Learning rate"}};

static double value_of(const ReportPoint *p, Curve curve)
{
    switch (curve) {
    case LOSS:
        return p->loss;
    case SPEED:
        return p->samples_per_sec;
    case GRADIENT:
        return p->grad_norm;
    default:
        return p->lr;
    }
}

/* Finds the range of a curve's values; with LOSS, the losses that evaluations have found are among them. Returns false
 * if no point has a value. */
static bool range_of(const ReportJob *j, Curve curve, const Series *series, size_t n_series,
                     double *low, double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (size_t i = 0; i < j->n_points; i++) {
        const ReportPoint *p = &j->points[i];
        const double a = curve == LOSS ? p->low : value_of(p, curve);
        const double b = curve == LOSS ? p->high : a;
        if (isfinite(a) && isfinite(b)) {
            *low = MIN(*low, a);
            *high = MAX(*high, b);
        }
    }
    for (size_t i = 0; curve == LOSS && i < n_series; i++)
        if (series[i].is_loss)
            series_range(j, &series[i], low, high);
    return *low <= *high;
}

static Axis value_axis(Curve curve, double low, double high)
{
    Axis y = {.from = curve == LOSS ? TALL : SMALL, .to = 0};
    y.logarithmic = (curve == LOSS || curve == GRADIENT) && low > 0 && high / low > 20;
    const double room = high > low ? (high - low) * 0.05 : MAX(fabs(high) * 0.1, 1e-12);
    y.low = y.logarithmic ? low : curve == SPEED || curve == RATE ? 0 : low - room;
    y.high = y.logarithmic ? high : high + room;
    if (!y.logarithmic && low >= 0)
        y.low = MAX(y.low, 0);
    return y;
}

typedef void (*DrawPath)(FILE *to, const ReportJob *j, Curve curve, const Axis *x, const Axis *y);

static void put_path(json_t *object, const char *name, DrawPath draw, const ReportJob *j,
                     Curve curve, const Axis *x, const Axis *y)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *to = memory_given(open_memstream(&text, &n_bytes));
    draw(to, j, curve, x, y);
    (void)fclose(to);
    (void)json_object_set_new(object, name, json_string(memory_given(text)));
    free(text);
}

/* Draws each value. A point that stands for several steps is drawn as a range. */
static void draw_values(FILE *to, const ReportJob *j, Curve curve, const Axis *x, const Axis *y)
{
    const char *command = "M";
    for (size_t i = 0; i < j->n_points; i++) {
        const ReportPoint *p = &j->points[i];
        const double low = curve == LOSS ? p->low : value_of(p, curve);
        const double high = curve == LOSS ? p->high : low;
        if (!isfinite(low) || !isfinite(high)) {
            command = "M";
            continue;
        }
        const double px = axis_at(x, (double)p->step);
        fprintf(to, "%s%.0f %.1f", command, px, axis_at(y, low));
        if (high > low)
            fprintf(to, "L%.0f %.1f", px, axis_at(y, high));
        command = "L";
    }
}

/* Draws the moving average. It uses equally many points before and after each point, so that it does not lag, and fewer
 * points at the ends. */
static void draw_average(FILE *to, const ReportJob *j, _unused_ Curve curve, const Axis *x,
                         const Axis *y)
{
    const size_t reach = MAX(j->n_points / 60, (size_t)2);
    const char *command = "M";
    for (size_t i = 0; i < j->n_points; i++) {
        const size_t n = MIN(MIN(i, j->n_points - 1 - i), reach);
        double sum = 0;
        int counted = 0;
        for (size_t k = i - n; k <= i + n; k++)
            if (isfinite(j->points[k].loss)) {
                sum += j->points[k].loss;
                counted++;
            }
        if (counted == 0)
            continue;
        fprintf(to, "%s%.0f %.1f", command, axis_at(x, (double)j->points[i].step),
                axis_at(y, sum / counted));
        command = "L";
    }
}

/* Writes the values that the page shows at the pointer: "step,seconds,loss,samples/s,gradient,rate;" for each point. */
static void draw_points(FILE *to, const ReportJob *j, _unused_ Curve curve, _unused_ const Axis *x,
                        _unused_ const Axis *y)
{
    for (size_t i = 0; i < j->n_points; i++) {
        const ReportPoint *p = &j->points[i];
        const double values[] = {p->loss, p->samples_per_sec, p->grad_norm, p->lr};
        fprintf(to, "%lld,%llu", (long long)p->step, (unsigned long long)(p->usec / USEC_PER_SEC));
        for (size_t k = 0; k < ELEMENTSOF(values); k++)
            if (isfinite(values[k]))
                fprintf(to, ",%.4g", values[k]);
            else
                (void)fputc(',', to);
        (void)fputc(';', to);
    }
}

/* ---- marks on the curve of losses ---- */

static bool follows_incident(const ReportJob *j, int64_t generation)
{
    for (size_t i = 0; i < j->n_incidents; i++)
        if (j->incidents[i]->generation + 1 == generation)
            return true;
    return false;
}

static void put_resizes(json_t *chart, const ReportJob *j, const Axis *x)
{
    json_t *marks = template_list(chart, "resizes");
    const PhaseRecord *p = j->phase;
    double free_from = 0; /* first position that is free for the next label */
    for (size_t i = 1; i < p->n_worlds; i++) {
        const PastWorld *w = &p->worlds[i];
        if (follows_incident(j, w->generation) || w->size == p->worlds[i - 1].size)
            continue;
        const double px = axis_at(x, (double)w->step);
        template_put(marks, "x=%.2f from=%d to=%d step=%lld reason=%s has_label=%s", px,
                     p->worlds[i - 1].size, w->size, (long long)w->step, w->reason,
                     px >= free_from ? "yes" : "");
        if (px >= free_from)
            free_from = px + LABEL_WIDTH;
    }
}

static void put_failures(json_t *chart, const ReportJob *j, const Axis *x)
{
    json_t *marks = template_list(chart, "failures");
    for (size_t i = 0; i < j->n_incidents; i++) {
        const IncidentRecord *n = j->incidents[i];
        const double from = axis_at(x, (double)(n->step - n->lost_steps));
        const double at = axis_at(x, (double)n->step);
        json_t *o = template_put(marks, "x=%.2f cause=%s node=%s evidence=%s step=%lld again=%lld",
                                 at, n->cause, n->node, n->evidence, (long long)n->step,
                                 (long long)n->lost_steps);
        if (n->lost_steps > 0)
            template_put(o, "again_from=%.2f again_width=%.2f", from, at - from);
    }
}

static void put_saved(json_t *chart, const ReportJob *j, const Axis *x)
{
    json_t *saved = template_list(chart, "saved");
    for (size_t i = 0; i < j->n_saved; i++)
        template_put(saved, "x=%.2f step=%lld", axis_at(x, (double)j->saved[i]),
                     (long long)j->saved[i]);
}

/* Puts the legend, with entries only for marks that exist. */
static void put_legend(json_t *chart, const ReportJob *j)
{
    bool again = false;
    for (size_t i = 0; i < j->n_incidents; i++)
        again = again || j->incidents[i]->lost_steps > 0;
    template_put(chart, "each=%s",
                 j->n_points == 0 ? ""
                 : j->live        ? "as seen, about once a second"
                                  : "each step");
    template_put(chart, "has_failures=%s has_again=%s has_resizes=%s has_saved=%s",
                 j->n_incidents > 0 ? "yes" : "", again ? "yes" : "",
                 json_array_size(json_object_get(chart, "resizes")) > 0 ? "yes" : "",
                 j->n_saved > 0 ? "yes" : "");
}

static void put_loss(json_t *chart, const ReportJob *j, const Series *series, size_t n_series,
                     const Axis *steps, const Axis *y)
{
    const Axis percent = {.low = steps->low, .high = steps->high, .from = 0, .to = 100};
    const Axis wide = {.low = steps->low, .high = steps->high, .from = 0, .to = WIDTH};
    json_t *evaluated = template_list(chart, "series");
    put_path(chart, "average", draw_average, j, LOSS, &wide, y);
    put_resizes(chart, j, &percent);
    put_failures(chart, j, &percent);
    put_saved(chart, j, &percent);
    put_legend(chart, j);
    for (size_t i = 0; i < n_series; i++)
        if (series[i].is_loss)
            series_put(evaluated, j, &series[i], json_array_size(evaluated), steps, y);
}

/* Puts a chart without its curves: its axes and their numbers. */
static json_t *put_axes(json_t *charts, const char *name, const char *title, int height, int n,
                        const Axis *steps, const Axis *y)
{
    const Axis percent = {.low = steps->low, .high = steps->high, .from = 0, .to = 100};
    json_t *chart = template_put(charts, "name=%s title=%s height=%d logarithmic=%s", name, title,
                                 height, y->logarithmic ? "yes" : "");
    template_put(chart, "low=%.0f high=%.0f", steps->low, steps->high);
    axis_put_ticks(template_list(chart, "ticks_y"), y, 1, n);
    axis_put_ticks(template_list(chart, "ticks_x"), &percent, 1, n);
    return chart;
}

static void put_curve(json_t *charts, const ReportJob *j, Curve curve, const Series *series,
                      size_t n_series, const Axis *steps)
{
    double low, high;
    if (!range_of(j, curve, series, n_series, &low, &high))
        return;
    const Axis y = value_axis(curve, low, high);
    const Axis wide = {.low = steps->low, .high = steps->high, .from = 0, .to = WIDTH};
    json_t *chart = put_axes(charts, curves[curve].name, curves[curve].title,
                             curve == LOSS ? TALL : SMALL, curve == LOSS ? 6 : 3, steps, &y);
    template_put(chart, "column=%d", (int)curve);
    put_path(chart, "raw", draw_values, j, curve, &wide, &y);
    if (curve == LOSS)
        put_loss(chart, j, series, n_series, steps, &y);
}

/* Puts a small chart for each other number that an evaluation has found. */
static void put_numbers(json_t *charts, const ReportJob *j, const Series *series, size_t n_series,
                        const Axis *steps)
{
    for (size_t i = 0; i < n_series; i++) {
        double low = INFINITY, high = -INFINITY;
        series_range(j, &series[i], &low, &high);
        if (series[i].is_loss || low > high)
            continue;
        const Axis y = value_axis(NUMBER, low, high);
        _cleanup_free_ char *title = memory_format("%s, by %s", series[i].name, series[i].job);
        json_t *chart = put_axes(charts, series[i].name, title, SMALL, 3, steps, &y);
        series_put(template_list(chart, "series"), j, &series[i], i, steps, &y);
    }
}

/* Finds the steps that the curves show. Returns false if no curve has a value. */
static bool step_axis(const ReportJob *j, size_t n_series, Axis *ret)
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    if (j->n_points > 0) {
        first = j->points[0].step;
        last = j->points[j->n_points - 1].step;
    }
    for (size_t i = 0; n_series > 0 && i < j->evals.n; i++)
        if (j->evals.list[i].record) {
            first = MIN(first, j->evals.list[i].step);
            last = MAX(last, j->evals.list[i].step);
        }
    if (first > last)
        return false;
    *ret = (Axis){.low = first < 200 || first < (last - first) / 10 ? 0 : (double)first,
                  .high = (double)MAX(last, first + 1)};
    return true;
}

void drawing_put_curves(json_t *page, const ReportJob *j)
{
    json_t *tall = template_list(page, "tall"), *small = template_list(page, "small");
    Series series[SERIES_MAX];
    Axis steps;
    const size_t n_series = series_find(j, series);
    const char *note = j->points_note ? j->points_note : "";
    const bool has_values = step_axis(j, n_series, &steps);
    template_put(page, "points_note=%s has_curves=%s", note, has_values || *note ? "yes" : "");
    if (!has_values)
        return;
    put_curve(tall, j, LOSS, series, n_series, &steps);
    for (Curve curve = SPEED; curve < CURVES; curve++)
        put_curve(small, j, curve, NULL, 0, &steps);
    put_numbers(small, j, series, n_series, &steps);
    put_path(page, "points", draw_points, j, LOSS, &steps, &steps);
}
