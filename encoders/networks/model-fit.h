/* SPDX-License-Identifier: Apache-2.0 */
/* model-fit.h - whether the VAE and the text encoder of a diffusers folder fit a U-Net and its data.
 *
 * Latents of one VAE are noise to another, and a text of another width is none. A model that the network cannot have
 * been trained with is refused by its configs, before any weight is read.
 *
 * Ownership: a ModelWanted borrows its strings; the Store is borrowed.
 * Units:     channels, tokens, elements.
 * Errors:    -EINVAL naming the config's file and key, and both values; those of the configs and of the store.
 * Threads:   any.
 */
#pragma once

#include "encoders/networks/clip-text-config.h"
#include "encoders/networks/vae-config.h"
#include "store/store.h"

typedef struct ModelWanted {
    const char *network; /* what the U-Net was made from, for errors */
    int latent_channels;
    int n_tokens; /* 0: any */
    int text_dim;
    double latent_scale; /* what the job multiplies latents of its data by */
    double stored_scale; /* what these had been multiplied by; 0: nobody noted it */
} ModelWanted;

int model_fit_vae(Store *model, const ModelWanted *wanted, VaeConfig *ret, Error *err);
int model_fit_text(Store *model, const ModelWanted *wanted, ClipTextConfig *ret, Error *err);
