/* SPDX-License-Identifier: Apache-2.0 */
/* grain.h - computes grains on the device: draws, noise, forward, loss, backward.
 *
 * Every draw is a function of (seed, purpose, position), so timestep, noise and caption drop of a sample are the same
 * on any rank that trains it.
 *
 * A device must not be idle while the next grain's samples are copied. So a grain is submitted ahead: its samples are
 * staged in one of two sets of buffers and sent while the grain before it is computed.
 *
 * Ownership: grain_work_new() gives the caller a GrainWork; borrows Device, Network, Job and
 *            empty_text.
 * Units:     as loader.h and network.h.
 * Errors:    -ENOMEM; -ETIMEDOUT: the device did not reach a fence in timeout_usec; those of the device.
 */
#pragma once

#include "data/loader.h"
#include "nn/network.h"
#include "nn/schedule.h"
#include "protocol/job.h"

typedef struct GrainWork GrainWork;

int grain_work_new(Device *device, Network *network, const Job *job, const DatasetShape *shape,
                   const float *empty_text, GrainWork **ret, Error *err);
/* No grain may be in progress. */
GrainWork *grain_work_free(GrainWork *work);
DEFINE_CLEANUP(GrainWork, grain_work_free)

/* Puts the grain on the device's lanes and returns. The samples are then staged, so the loader may overwrite its own
 * copy. The grain's mean loss goes to device memory, its gradients into the sink. The host waits only for the copy of
 * the samples of the grain before the last one. */
int grain_work_submit(GrainWork *work, const LoaderGrain *grain, const GradientSink *sink,
                      double *loss, uint64_t timeout_usec, Error *err);
/* As grain_work_submit(), without a backward pass, for which the network need not have room: only the loss. */
int grain_work_measure(GrainWork *work, const LoaderGrain *grain, double *loss,
                       uint64_t timeout_usec, Error *err);
/* Waits until all submitted grains except the newest n_behind (0 or 1) are computed. */
int grain_work_await(GrainWork *work, int n_behind, uint64_t timeout_usec, Error *err);

/* For a grain that was not finite, while no other grain is in progress: computes the grain again, with the same
 * weights, and writes a text about the first operation that made something that is not finite (nn/finite.h).
 * until_usec: deadline on CLOCK_MONOTONIC; if it has passed, the text says that no time was left. */
int grain_work_explain(GrainWork *work, const LoaderGrain *grain, const float *weights,
                       uint64_t until_usec, char *text, size_t size, Error *err);

/* Returns whether the device still computed when the time of grain_work_explain() was over. Memory that it may still
 * use is kept then, and the device must stay open. */
bool grain_work_is_cut(const GrainWork *work);

/* These two functions return the timestep of the sample at a position, and whether the caption of that sample is
 * dropped. */
int32_t draw_timestep(uint64_t seed, int64_t position, int n_steps);
bool draw_caption_drop(uint64_t seed, int64_t position, double probability);
/* Draws the first n elements of the noise that is added to a sample; `sdtrainer order` prints them. */
int draw_noise(Device *device, uint64_t seed, int64_t position, int64_t n, float *ret, Error *err);

/* Hashes all gradients and the loss of one grain of synthetic data with the network's present weights. The hash is
 * equal on every machine that can run this job with these numerics. -EXDEV: when
 * the grain was computed again, into another sink, it had other maxima or another loss. */
int canned_grain(GrainWork *work, Hash *ret, Error *err);
