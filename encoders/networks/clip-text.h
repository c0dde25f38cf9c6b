/* SPDX-License-Identifier: Apache-2.0 */
/* clip-text.h - CLIP's text encoder, emitted onto a tape.
 *
 * Stable Diffusion 2 has the text tower of OpenCLIP's ViT-H/14 without its last block; its config says 23 layers, so
 * the last hidden state is what the U-Net was trained on.
 *
 * Ownership: none; the tape is the caller's.
 * Units:     tokens.
 * Errors:    -EINVAL for an empty batch; errors of emitting stay in the tape (tape.h).
 * Threads:   any; pure except for the tape.
 * Source:    transformers CLIPTextModel: last_hidden_state.
 */
#pragma once

#include "encoders/networks/clip-text-config.h"
#include "nn/tape.h"

/* ids: [n][max_position_embeddings] int32_t, each below vocab_size. out: [n][max_position_embeddings][hidden_size]. */
typedef struct ClipTextValues {
    ValueId ids, out;
} ClipTextValues;

int clip_text_emit(Tape *tape, const ClipTextConfig *config, int n, ClipTextValues *ret,
                   Error *err);
