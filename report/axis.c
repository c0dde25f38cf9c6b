/* SPDX-License-Identifier: Apache-2.0 */
/* axis.c - see drawing.h: converts values to positions on an axis, and puts the ticks with their numbers. */
#include "report/drawing.h"

#include <math.h>

enum { TICKS_MAX = 30 };

double axis_at(const Axis *a, double value)
{
    double share = a->logarithmic ? log(value / a->low) / log(a->high / a->low)
                                  : (value - a->low) / (a->high - a->low);
    return a->from + (isfinite(share) ? CLAMP(share, 0.0, 1.0) : 0) * (a->to - a->from);
}

/* Returns a distance of 1, 2 or 5 times a power of ten that gives about n ticks. */
static double tick_distance(double span, int n)
{
    double raw = span / n, power = pow(10, floor(log10(raw)));
    double digit = raw / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

static void put_decades(json_t *ticks, const Axis *a)
{
    /* If the axis has few decades, there are ticks between powers of ten, too. */
    const bool fine = log10(a->high / a->low) < 2.2;
    int n = 0;
    for (double power = pow(10, floor(log10(a->low))); power <= a->high && n < TICKS_MAX;
         power *= 10)
        for (int digit = 1; digit <= (fine ? 5 : 1); digit = digit == 1 ? 2 : digit + 3)
            if (power * digit >= a->low && power * digit <= a->high && n++ < TICKS_MAX)
                template_put(ticks, "at=%.1f value=%g strong=%s", axis_at(a, power * digit),
                             power * digit, digit == 1 ? "yes" : "");
}

void axis_put_ticks(json_t *ticks, const Axis *a, double scale, int n)
{
    if (a->logarithmic) {
        put_decades(ticks, a);
        return;
    }
    const double high = a->high / scale, low = a->low / scale;
    const double distance = tick_distance(high - low, n);
    const double first = ceil(low / distance);
    for (int i = 0; i < TICKS_MAX && (first + i) * distance <= high * (1 + 1e-9); i++)
        template_put(ticks, "at=%.1f value=%g strong=%s",
                     axis_at(a, (first + i) * distance * scale), (first + i) * distance, "");
}
