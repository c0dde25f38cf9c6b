/* SPDX-License-Identifier: Apache-2.0 */
/* divergence.h - whether training diverges, judged by the loss and the gradient norm of every step.
 *
 * Each of the two has a level, a running median: it moves up or down by the same factor, wherever the value lies. The
 * loss is held against the lowest level that it ever had, the norm, which may grow, against its present one. A score
 * collects by how much the values are too large: log(value / (factor * level)), at most 1 a step in either direction,
 * never below 0. Training diverges when a score has reached DIVERGENCE_ALARM, and no more when it is 0 again. So one
 * step counts no more than a tenth, whatever it was; values three times the limit take ten steps, lower ones more.
 *
 * Ownership: a Divergence is a value; {0} has seen nothing.
 * Units:     steps; losses and norms as they are.
 * Errors:    -EBADMSG: divergence_parse() does not know the text; *ret is as it was.
 * Threads:   any, one at a time.
 * Invariant: the state follows only from the values, in order: not from ranks, restarts or clocks.
 * Source:    E. S. Page, "Continuous inspection schemes" (1954): the score is a CUSUM, its limits are ours.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DIVERGENCE_ALARM = 10,       /* a score: training diverges */
    DIVERGENCE_DOUBT = 2,        /* a score: in the warm-up the level of the loss rises no more */
    DIVERGENCE_SCORE_MAX = 20,   /* so that a good end is seen 20 steps after a bad hour */
    DIVERGENCE_LOSS_FACTOR = 2,  /* over the lowest level */
    DIVERGENCE_NORM_FACTOR = 30, /* over the present level */
    DIVERGENCE_WARM_STEPS =
        64, /* the first steps: their level settles, and is not a lowest one yet */
    DIVERGENCE_TEXT_MAX = 320, /* of divergence_format(), with the end */
};

typedef struct DivergenceTrack {
    double level;  /* 0: there was no value above 0 yet */
    double lowest; /* of the levels after the warm-up; until then the present one */
    double score;
    int64_t since; /* the step at which the score last left 0 */
    bool diverges;
} DivergenceTrack;

typedef struct Divergence {
    int64_t n_steps; /* that were added */
    DivergenceTrack loss, norm;
} Divergence;

/* Adds the values of the next step. */
void divergence_add(Divergence *d, int64_t step, double loss, double gradient_norm);
bool divergence_found(const Divergence *d);
/* Returns the step from which on the values are too large; 0: training does not diverge. */
int64_t divergence_since(const Divergence *d);
/* Writes for people which value is too large, and what it was; "" while training does not diverge. */
void divergence_write(const Divergence *d, double loss, double gradient_norm, char *ret,
                      size_t size);
/* Writes the state as text, to the last bit: a checkpoint's manifest keeps it. */
void divergence_format(const Divergence *d, char ret[DIVERGENCE_TEXT_MAX]);
int divergence_parse(const char *text, Divergence *ret);
