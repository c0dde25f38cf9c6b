/* SPDX-License-Identifier: Apache-2.0 */
/* model-fit.h - checks whether the VAE and the text encoder of a diffusers folder fit a U-Net and its data.
 *
 * A VAE cannot decode the latents of another VAE, and a network cannot use a text of another width. A model with which
 * the network cannot have been trained is refused by its configs, before any weight is read.
 *
 * Ownership: a ModelWanted borrows its strings; the Store is borrowed.
 * Units:     channels, tokens, elements.
 * Errors:    -EINVAL naming the config's file and key, and both values; errors of the configs and of the store.
 * Threads:   any.
 */
#pragma once

#include "encoders/networks/clip-text-config.h"
#include "encoders/networks/vae-config.h"
#include "store/store.h"

typedef struct ModelWanted {
    const char *network; /* source of the U-Net, for error texts */
    int latent_channels;
    int n_tokens; /* 0: any number */
    int text_dim;
    double latent_scale; /* factor by which the job multiplies the latents of its data */
    double stored_scale; /* factor that the latents in the data already have; 0: not noted */
} ModelWanted;

int model_fit_vae(Store *model, const ModelWanted *wanted, VaeConfig *ret, Error *err);
int model_fit_text(Store *model, const ModelWanted *wanted, ClipTextConfig *ret, Error *err);
