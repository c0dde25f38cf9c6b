/* SPDX-License-Identifier: Apache-2.0 */
/* divergence.h - whether training diverges, judged by the loss and the gradient norm of every step.
 *
 * The loss and the norm each have a level, a running median: each step moves the level up or down by the same factor,
 * however far away the value is. The loss is compared with the lowest level that it ever had; the norm, which may grow,
 * with its present level. A score adds up how much the values are too large: log(value / (factor * level)), at most 1
 * per step in either direction, never below 0. Training diverges from when a score reaches DIVERGENCE_ALARM until the
 * score is 0 again. So a single step adds at most a tenth of the alarm, however large its value is. An alarm takes ten
 * steps with values of three times the limit, or more steps with lower values.
 *
 * Ownership: a Divergence is a value; {0} is the state before the first step.
 * Units:     steps; losses and norms as they are.
 * Errors:    -EBADMSG: divergence_parse() does not know the text; *ret is unchanged.
 * Threads:   any, one at a time.
 * Invariant: the state follows only from the values, in order: not from ranks, restarts or clocks.
 * Source:    E. S. Page, "Continuous inspection schemes" (1954): the score is a CUSUM; its limits are our own.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DIVERGENCE_ALARM = 10, /* at this score training diverges */
    /* during the warm-up, the loss's level does not rise while the score is at least this */
    DIVERGENCE_DOUBT = 2,
    /* the largest score, so that recovery is seen soon even after a long divergence */
    DIVERGENCE_SCORE_MAX = 20,
    DIVERGENCE_LOSS_FACTOR = 2,  /* the loss's limit is its lowest level times this factor */
    DIVERGENCE_NORM_FACTOR = 30, /* the norm's limit is its present level times this factor */
    /* the number of steps of the warm-up, in which the level still settles and does not count as the
     * lowest level */
    DIVERGENCE_WARM_STEPS = 64,
    DIVERGENCE_TEXT_MAX = 320, /* bytes of divergence_format()'s text, with the final NUL */
};

typedef struct DivergenceTrack {
    double level; /* the running median; 0: no value above 0 was added yet */
    /* in the warm-up: the present level; later: the lowest level since the warm-up */
    double lowest;
    double score;
    int64_t since; /* the step at which the score last rose above 0 */
    bool diverges;
} DivergenceTrack;

typedef struct Divergence {
    int64_t n_steps; /* the number of steps that were added */
    DivergenceTrack loss, norm;
} Divergence;

/* Adds the values of the next step. */
void divergence_add(Divergence *d, int64_t step, double loss, double gradient_norm);
/* Returns the step from which on the values are too large; 0: training does not diverge. */
int64_t divergence_since(const Divergence *d);
/* Writes a text for people: which value is too large, and how large it was. Writes "" while
 * training does not diverge. */
void divergence_write(const Divergence *d, double loss, double gradient_norm, char *ret,
                      size_t size);
/* Writes the state as text, exact to the last bit, for a checkpoint's manifest. */
void divergence_format(const Divergence *d, char ret[DIVERGENCE_TEXT_MAX]);
int divergence_parse(const char *text, Divergence *ret);
