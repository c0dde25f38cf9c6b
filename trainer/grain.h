/* grain.h - the work on one grain: draws, noise, forward, loss, backward.
 *
 * Every draw is a function of (seed, purpose, position): timestep, noise and caption drop of a
 * sample are the same whoever trains it.
 *
 * Ownership: grain_work_new() gives the caller a GrainWork; borrows Device, Network, Job and
 *            empty_text.
 * Units:     as loader.h and network.h.
 * Errors:    -ENOMEM; what the device reports.
 * Threads:   the training thread.
 */
#pragma once

#include "protocol/job.h"
#include "trainer/data/loader.h"
#include "trainer/nn/network.h"
#include "trainer/nn/schedule.h"

typedef struct GrainWork GrainWork;

int grain_work_new(Device *device, Network *network, const Job *job, const DatasetShape *shape,
                   const float *empty_text, GrainWork **ret, Error *err);
GrainWork *grain_work_free(GrainWork *work);
DEFINE_CLEANUP(GrainWork, grain_work_free)

/* Gradients of the grain's mean loss, flat, device memory; overwritten. */
int grain_work_compute(GrainWork *work, const LoaderGrain *grain, float *gradients,
                       double *ret_loss, Error *err);

/* The timestep of a position, and whether its caption is dropped. */
int32_t draw_timestep(uint64_t seed, int64_t position, int n_steps);
bool draw_caption_drop(uint64_t seed, int64_t position, double probability);
/* The first n elements of the noise that is added to the sample, for people. */
int draw_noise(Device *device, uint64_t seed, int64_t position, int64_t n, float *link, Error *err);

/* Hash of the prediction and all gradients of one grain of synthetic data, with the network's
 * present weights: equal on every machine that can run this job with these numerics. */
int canned_grain(GrainWork *work, float *gradients, int64_t n_gradients, Hash *ret, Error *err);
