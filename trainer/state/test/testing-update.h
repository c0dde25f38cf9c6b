/* SPDX-License-Identifier: Apache-2.0 */
/* testing-update.h - a rank with a state of odd sizes, an Update and made-up grains, on any kind of device.
 *
 * Units: as update.h. Threads: as update.h.
 * Ownership: rank_open() and small_open() fill what rank_close() and small_close() free. The caller sets
 *            rank->bulk before, or leaves it NULL.
 * Errors:    world_check() ends the process.
 */
#pragma once

#include "trainer/comm/test/testing-world.h"
#include "trainer/state/update.h"

enum { STEPS = 30, TENSORS = 11, NAN_STEP = 12, WARMUP = 5, EMA_START = 10, GRAIN_SAMPLES = 2 };

typedef struct Case {
    int64_t n_grains;
    int zero_stage;
    Reduction reduction;
    int64_t ema_start;
    double clip_norm;
} Case;

typedef struct Rank {
    Device *device;
    Parameter items[TENSORS];
    ParameterList list;
    Job job;
    TrainState *state;
    Update *update;
    Comm *bulk;
    StatePlan *plan;
    float *weights, *gradients; /* host memory */
    float *device_gradients;
    double *losses; /* [grains]; host memory */
} Rank;

void rank_open(Rank *rank, const Case *c, Comm *comm);
void rank_close(Rank *rank);
/* Adds a grain as a backward does, but with all tensors at once. */
int rank_add_grain(Rank *rank, int64_t grain, bool has_grain, double loss, Error *err);
/* Makes one pass over this rank's grains. poisoned: grain 2 has a NaN, grain 3 an infinity. */
void rank_compute_grains(Rank *rank, bool poisoned);
UpdateVerdict rank_decide(Rank *rank, UpdateResult *result);
/* Computes gradients that depend on the weights, so that an error in one step affects all later steps. */
void rank_fill_gradients(const ParameterList *list, const float *weights, int64_t step,
                         int64_t grain, int64_t n_grains, float *g);

/* ---- one tensor of known gradients ---- */

typedef struct Small {
    Rank rank;
    Comm *comm;
} Small;

/* Opens a rank whose optimizer has a beta1 of 0, so that m is the gradient. */
void small_open(Small *small, const Case *c);
void small_close(Small *small);
/* Makes a pass in which all gradients are g. */
UpdateVerdict small_pass(Small *small, float g, UpdateResult *result);
void small_apply(Small *small, UpdateResult *result);
