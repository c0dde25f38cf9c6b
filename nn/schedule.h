/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h - makes the noise schedule: the amounts of signal and of noise at each timestep.
 *
 * scaled_linear: beta_t = (sqrt(beta_start) + t / (n - 1) (sqrt(beta_end) - sqrt(beta_start)))^2,
 * alpha_bar_t = product over s <= t of (1 - beta_s).
 *
 * Ownership: noise_schedule_new() gives the caller a NoiseSchedule; noise_schedule_free() accepts
 * NULL.
 * Units:     timesteps 0..n_steps - 1.
 * Errors:    -EINVAL for betas outside 0 < start <= end < 1 or fewer than 2 steps; -ENOMEM.
 * Threads:   immutable after creation; any.
 * Source:    Ho et al., "Denoising Diffusion Probabilistic Models"; diffusers' scaled_linear.
 * Exactness: only + - * / and sqrt of doubles, in a fixed order: the same bits everywhere.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

typedef struct NoiseSchedule {
    int n_steps;
    double *alpha_bar;
    /* sqrt(alpha_bar), sqrt(1 - alpha_bar): the arguments a and b of diffuse() */
    float *signal, *noise;
} NoiseSchedule;

int noise_schedule_new(double beta_start, double beta_end, int n_steps, NoiseSchedule **ret,
                       Error *err);
NoiseSchedule *noise_schedule_free(NoiseSchedule *schedule);
DEFINE_CLEANUP(NoiseSchedule, noise_schedule_free)
