/* SPDX-License-Identifier: Apache-2.0 */
/* grain.h - computes one grain: draws, noise, forward, loss, backward.
 *
 * Every draw is a function of (seed, purpose, position), so timestep, noise and caption drop of a
 * sample are the same on whichever rank trains it.
 *
 * Ownership: grain_work_new() gives the caller a GrainWork; borrows Device, Network, Job and
 *            empty_text.
 * Units:     as loader.h and network.h.
 * Errors:    -ENOMEM; those of the device.
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

/* Overwrites gradients (flat, device memory) with those of the grain's mean loss. */
int grain_work_compute(GrainWork *work, const LoaderGrain *grain, float *gradients,
                       double *ret_loss, Error *err);

/* The timestep of a position, and whether its caption is dropped. */
int32_t draw_timestep(uint64_t seed, int64_t position, int n_steps);
bool draw_caption_drop(uint64_t seed, int64_t position, double probability);
/* The first n elements of the noise that is added to a sample, for `sdtrainer order` to print. */
int draw_noise(Device *device, uint64_t seed, int64_t position, int64_t n, float *ret, Error *err);

/* Hashes the prediction and all gradients of one grain of synthetic data with the network's present
 * weights. The hash is equal on every machine that can run this job with these numerics. */
int canned_grain(GrainWork *work, float *gradients, int64_t n_gradients, Hash *ret, Error *err);
