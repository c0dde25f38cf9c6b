/* SPDX-License-Identifier: Apache-2.0 */
/* unet-config.h - diffusers' UNet2DConditionModel config.json, for the SD2 family.
 *
 * Ownership: a UnetConfig has no pointers.
 * Units:     channels, heads, pixels of latent.
 * Errors:    -EINVAL naming file, key and value. A key that would change the network in an unsupported way is refused
 *            by name; keys that do not change the network are ignored.
 * Threads:   any; immutable.
 * Source:    diffusers UNet2DConditionModel; facts of stabilityai/stable-diffusion-2-base.
 */
#pragma once

#include "base/error.h"

enum { UNET_LEVELS_MAX = 8 };

typedef struct UnetConfig {
    int sample_size; /* only information: the data determine the size */
    int in_channels, out_channels;
    int n_levels;
    int block_out_channels[UNET_LEVELS_MAX];
    bool down_attention[UNET_LEVELS_MAX]; /* true: CrossAttnDownBlock2D; false: DownBlock2D */
    bool up_attention[UNET_LEVELS_MAX];   /* true: up_blocks.i is a CrossAttnUpBlock2D */
    int layers_per_block;
    /* The numbers of heads, from "attention_head_dim", which in this family is not a dimension. */
    int heads[UNET_LEVELS_MAX];
    int cross_attention_dim;
    int norm_num_groups;
    double norm_eps;
    bool flip_sin_to_cos;
    double freq_shift;
    bool use_linear_projection; /* true: proj_in/out are linear; false: 1x1 convolutions */
    /* Stored only for diffusers: sdtrain's attention always sums in fp32. */
    bool upcast_attention;
} UnetConfig;

int unet_config_parse(const char *source, const char *text, size_t n_bytes, UnetConfig *ret,
                      Error *err);
/* The function that reads a URI that is not a local file: store_get_uri(). */
typedef int (*UnetConfigFetch)(const char *uri, size_t max_bytes, char **ret, size_t *ret_bytes,
                               Error *err);
/* Reads the config of uri, which names the config.json or its folder. A uri that is not a local path names
 * the file if it ends in .json, otherwise the folder. Errors of fetch are returned unchanged. */
int unet_config_read(const char *uri, UnetConfigFetch fetch, UnetConfig *ret, Error *err);
/* Makes a config.json that diffusers can load; the caller frees it. */
int unet_config_format(const UnetConfig *config, char **ret);
