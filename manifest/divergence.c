/* SPDX-License-Identifier: Apache-2.0 */
/* divergence.c - see divergence.h. */
#include "manifest/divergence.h"

#include "base/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const double SLOWEST = 1.0 / 64; /* the smallest relative change of a level in one step */

/* Returns the level after this step. In the first steps the level moves faster (by a half, a third,
 * a quarter), because it started from a single value. */
static double follow(double level, double value, int64_t n_steps, bool may_rise)
{
    const double factor = 1 + fmax(SLOWEST, 1.0 / (double)(n_steps + 1));
    if (value > level)
        return may_rise ? fmin(level * factor, value) : level;
    return fmax(level / factor, value);
}

static void judge(DivergenceTrack *t, int64_t step, double excess)
{
    const bool was_well = t->score <= 0;
    t->score += fmin(fmax(excess, -1), 1);
    t->score = fmin(fmax(t->score, 0), DIVERGENCE_SCORE_MAX);
    if (was_well && t->score > 0)
        t->since = step;
    t->diverges = t->diverges ? t->score > 0 : t->score >= DIVERGENCE_ALARM;
}

static void add(DivergenceTrack *t, int64_t n_steps, int64_t step, double value, double factor,
                bool by_lowest)
{
    if (!isfinite(value)) {
        t->since = t->score > 0 ? t->since : step;
        t->score = DIVERGENCE_SCORE_MAX;
        t->diverges = true;
        return;
    }
    /* a value <= 0 has no logarithm: the score falls */
    if (value <= 0) {
        judge(t, step, -1);
        return;
    }
    if (t->level <= 0)
        t->level = t->lowest = value;
    judge(t, step, log(value / (factor * (by_lowest ? t->lowest : t->level))));
    const bool warms_up = n_steps < DIVERGENCE_WARM_STEPS;
    const bool may_rise = !by_lowest || !warms_up || t->score < DIVERGENCE_DOUBT;
    t->level = follow(t->level, value, n_steps, may_rise);
    t->lowest = warms_up ? t->level : fmin(t->lowest, t->level);
}

void divergence_add(Divergence *d, int64_t step, double loss, double gradient_norm)
{
    d->n_steps++;
    add(&d->loss, d->n_steps, step, loss, DIVERGENCE_LOSS_FACTOR, true);
    add(&d->norm, d->n_steps, step, gradient_norm, DIVERGENCE_NORM_FACTOR, false);
}

int64_t divergence_since(const Divergence *d)
{
    if (d->loss.diverges && d->norm.diverges)
        return MIN(d->loss.since, d->norm.since);
    return d->loss.diverges ? d->loss.since : d->norm.diverges ? d->norm.since : 0;
}

void divergence_write(const Divergence *d, double loss, double gradient_norm, char *ret,
                      size_t size)
{
    *ret = '\0';
    if (d->loss.diverges)
        (void)snprintf(ret, size, "the loss is %.4g, and was %.4g at best", loss, d->loss.lowest);
    /* the text names no best norm: the norm's limit follows the present level, not the lowest one */
    else if (d->norm.diverges)
        (void)snprintf(ret, size, "the gradient norm is %.4g, and the loss %.4g", gradient_norm,
                       loss);
}

void divergence_format(const Divergence *d, char ret[DIVERGENCE_TEXT_MAX])
{
    const DivergenceTrack *a = &d->loss, *b = &d->norm;
    int n = snprintf(ret, DIVERGENCE_TEXT_MAX,
                     "%" PRId64 " %a %a %a %" PRId64 " %d %a %a %a %" PRId64 " %d", d->n_steps,
                     a->level, a->lowest, a->score, a->since, a->diverges, b->level, b->lowest,
                     b->score, b->since, b->diverges);
    assert(n > 0 && n < DIVERGENCE_TEXT_MAX);
}

static bool track_is_sound(const DivergenceTrack *t)
{
    return isfinite(t->level) && isfinite(t->lowest) && t->level >= 0 && t->lowest >= 0 &&
           t->lowest <= t->level && t->score >= 0 && t->score <= DIVERGENCE_SCORE_MAX &&
           t->since >= 0;
}

int divergence_parse(const char *text, Divergence *ret)
{
    Divergence d = {0};
    DivergenceTrack *a = &d.loss, *b = &d.norm;
    int diverges[2] = {0}, end = 0;
    int n = sscanf(text, "%" SCNd64 " %la %la %la %" SCNd64 " %d %la %la %la %" SCNd64 " %d%n",
                   &d.n_steps, &a->level, &a->lowest, &a->score, &a->since, &diverges[0], &b->level,
                   &b->lowest, &b->score, &b->since, &diverges[1], &end);
    a->diverges = diverges[0] != 0;
    b->diverges = diverges[1] != 0;
    if (n != 11 || text[end] || d.n_steps < 0 || !track_is_sound(a) || !track_is_sound(b))
        return -EBADMSG;
    *ret = d;
    return 0;
}
