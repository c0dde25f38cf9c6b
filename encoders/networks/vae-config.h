/* SPDX-License-Identifier: Apache-2.0 */
/* vae-config.h - diffusers' AutoencoderKL config.json, for the family of Stable Diffusion 2's VAE.
 *
 * Ownership: a VaeConfig is a value.
 * Units:     channels; pixels of the picture.
 * Errors:    -EINVAL naming file, key and value. An unknown key is refused, since it may change the network; so are a
 *            value that is not supported, and the scaling_factor of SDXL's VAE, whose latents a U-Net of Stable
 *            Diffusion 2 cannot use.
 * Threads:   any; immutable.
 * Source:    diffusers AutoencoderKL, including its defaults.
 */
#pragma once

#include "base/error.h"

enum { VAE_LEVELS_MAX = 8 };

typedef struct VaeConfig {
    int latent_channels;
    int n_levels;
    int block_out_channels[VAE_LEVELS_MAX];
    int layers_per_block; /* resnets per level of the encoder; the decoder has one more per level */
    int norm_num_groups;
    double scaling_factor;
} VaeConfig;

int vae_config_parse(const char *source, const char *text, size_t n_bytes, VaeConfig *ret,
                     Error *err);
/* Returns how many pixels of the picture correspond to one latent, along a side. */
static inline int vae_config_factor(const VaeConfig *config) { return 1 << (config->n_levels - 1); }
