/* SPDX-License-Identifier: Apache-2.0 */
/* vae.h - encoder and decoder of Stable Diffusion 2's VAE, each emitted onto a tape of its own.
 *
 * Ownership: none; the tape is the caller's.
 * Units:     height and width are pixels of the picture, multiples of vae_config_factor().
 * Errors:    -EINVAL for other sides or an empty batch; errors of emitting stay in the tape (tape.h).
 * Threads:   any; pure except for the tape.
 * Source:    diffusers AutoencoderKL: Encoder, Decoder, quant_conv, post_quant_conv.
 */
#pragma once

#include "encoders/networks/vae-config.h"
#include "nn/tape.h"

typedef struct VaeShape {
    int n, height, width;
} VaeShape;

/* Encoder: in [n][h][w][3], pixels in [-1, 1]; out [n][h / factor][w / factor][2 latent_channels], the posterior's mean
 * and then its logvar. Decoder: in [n][h / factor][w / factor][latent_channels], latents divided by scaling_factor; out
 * [n][h][w][3], pixels about [-1, 1]. */
typedef struct VaeValues {
    ValueId in, out;
} VaeValues;

int vae_encoder_emit(Tape *tape, const VaeConfig *config, const VaeShape *shape, VaeValues *ret,
                     Error *err);
int vae_decoder_emit(Tape *tape, const VaeConfig *config, const VaeShape *shape, VaeValues *ret,
                     Error *err);
