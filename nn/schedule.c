/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - see schedule.h. */
#include "nn/schedule.h"

#include <math.h>

NoiseSchedule *noise_schedule_free(NoiseSchedule *schedule)
{
    if (!schedule)
        return NULL;
    free(schedule->alpha_bar);
    free(schedule->signal);
    free(schedule->noise);
    free(schedule);
    return NULL;
}

int noise_schedule_new(double beta_start, double beta_end, int n_steps, NoiseSchedule **ret,
                       Error *err)
{
    if (!(beta_start > 0 && beta_start <= beta_end && beta_end < 1) || n_steps < 2)
        return error_set(err, -EINVAL,
                         "noise schedule: %d steps of beta %g..%g; wanted are at least 2 and "
                         "0 < beta_start <= beta_end < 1",
                         n_steps, beta_start, beta_end);

    _cleanup_(noise_schedule_freep) NoiseSchedule *s = calloc(1, sizeof(*s));
    if (!s)
        return error_errno(err, -ENOMEM, "noise schedule");
    s->n_steps = n_steps;
    s->alpha_bar = calloc((size_t)n_steps, sizeof(*s->alpha_bar));
    s->signal = calloc((size_t)n_steps, sizeof(*s->signal));
    s->noise = calloc((size_t)n_steps, sizeof(*s->noise));
    if (!s->alpha_bar || !s->signal || !s->noise)
        return error_errno(err, -ENOMEM, "noise schedule");

    double from = sqrt(beta_start), range = sqrt(beta_end) - from, product = 1.0;
    for (int t = 0; t < n_steps; t++) {
        double root = from + range * ((double)t / (double)(n_steps - 1));
        product *= 1.0 - root * root;
        s->alpha_bar[t] = product;
        s->signal[t] = (float)sqrt(product);
        s->noise[t] = (float)sqrt(1.0 - product);
    }
    *ret = TAKE_PTR(s);
    return 0;
}
