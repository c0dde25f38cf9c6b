/* SPDX-License-Identifier: Apache-2.0 */
/* unet-config.h - diffusers' UNet2DConditionModel config.json, for the SD2 family.
 *
 * Ownership: a UnetConfig is a value.
 * Units:     channels, heads, pixels of latent.
 * Errors:    -EINVAL naming file, key and value. A key that would change the network in a way that we do not build is
 *            refused by name; keys that change nothing are ignored.
 * Threads:   any; immutable.
 * Source:    diffusers UNet2DConditionModel; facts of stabilityai/stable-diffusion-2-base.
 */
#pragma once

#include "base/error.h"

enum { UNET_LEVELS_MAX = 8 };

typedef struct UnetConfig {
    int sample_size; /* informative: the data decide */
    int in_channels, out_channels;
    int n_levels;
    int block_out_channels[UNET_LEVELS_MAX];
    bool down_attention[UNET_LEVELS_MAX]; /* CrossAttnDownBlock2D or DownBlock2D */
    bool up_attention[UNET_LEVELS_MAX];   /* of up_blocks.i: CrossAttnUpBlock2D or UpBlock2D */
    int layers_per_block;
    /* From "attention_head_dim", which in this family is the number of heads. */
    int heads[UNET_LEVELS_MAX];
    int cross_attention_dim;
    int norm_num_groups;
    double norm_eps;
    bool flip_sin_to_cos;
    double freq_shift;
    bool use_linear_projection; /* true: proj_in/out are linear; false: 1x1 convolutions */
    bool upcast_attention;      /* carried only for diffusers: our attention sums in fp32 anyway */
} UnetConfig;

int unet_config_parse(const char *source, const char *text, size_t n_bytes, UnetConfig *ret,
                      Error *err);
/* Reads a URI that is not a local file: store_get_uri(). */
typedef int (*UnetConfigFetch)(const char *uri, size_t max_bytes, char **ret, size_t *ret_bytes,
                               Error *err);
/* uri names the config.json or the folder that holds it; of a URI that is not a local path, only a name ending in
 * .json is taken for the file. Errors of fetch are returned unchanged. */
int unet_config_read(const char *uri, UnetConfigFetch fetch, UnetConfig *ret, Error *err);
/* The config.json that diffusers loads; the caller frees it. */
int unet_config_format(const UnetConfig *config, char **ret);
