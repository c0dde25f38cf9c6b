/* SPDX-License-Identifier: Apache-2.0 */
/* ddim.h - draws latents from a network: DDIM with eta 0 and classifier-free guidance.
 *
 * The timesteps are i * (n_steps / steps) + 1 for i = steps - 1 .. 0, and the step from the last timestep goes to
 * alpha_bar[0], as in the scheduler of the SD2 checkpoints (spacing "leading", steps_offset 1, set_alpha_to_one false,
 * clip_sample false).
 *
 * Ownership: all buffers are the caller's, in host memory.
 * Units:     fp32; latents [n_samples][h][w][c], text [n_samples][tokens][dim].
 * Errors:    -EINVAL for steps outside 1..n_steps - 1, or a network whose in and out channels
 *            differ; -ENOMEM; those of the device and of progress().
 * Source:    Song et al., "Denoising Diffusion Implicit Models", equation 12; Ho and Salimans,
 * "Classifier-Free Diffusion Guidance".
 */
#pragma once

#include "nn/network.h"
#include "nn/schedule.h"

typedef struct DdimOptions {
    int steps;
    double guidance; /* 1: no guidance, only the conditional prediction */
    bool v_prediction;
    uint64_t seed; /* sample i starts from normal_noise(seed, i) */
    /* Called after each step of each grain; may be NULL. An error ends the sampling. */
    int (*progress)(void *context, Error *err);
    void *context;
} DdimOptions;

/* Draws n_samples, in grains of the network's shape. empty_text [tokens][dim] may be NULL if guidance is 1. The
 * network's weights must be set. */
int ddim_sample(Network *network, const NoiseSchedule *schedule, const DdimOptions *options,
                int64_t n_samples, const float *text, const float *empty_text, float *latents,
                Error *err);
