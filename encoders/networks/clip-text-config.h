/* SPDX-License-Identifier: Apache-2.0 */
/* clip-text-config.h - transformers' CLIPTextModel config.json, for the text encoder of Stable Diffusion 2.
 *
 * Units: elements, tokens. Threads: any; immutable.
 * Ownership: a ClipTextConfig is a value.
 * Errors:    -EINVAL naming file, key and value, for a value that is not supported. transformers writes many keys that
 *            have no effect here (a table names them); a key in no table is logged as a warning and ignored.
 * Source:    transformers CLIPTextConfig, including its defaults; PretrainedConfig.
 */
#pragma once

#include "base/error.h"

typedef struct ClipTextConfig {
    int vocab_size, max_position_embeddings;
    int hidden_size, intermediate_size;
    int num_hidden_layers, num_attention_heads;
    double layer_norm_eps;
} ClipTextConfig;

int clip_text_config_parse(const char *source, const char *text, size_t n_bytes,
                           ClipTextConfig *ret, Error *err);
