/* SPDX-License-Identifier: Apache-2.0 */
/* unet.h - the U-Net of Stable Diffusion v2, emitted onto a tape.
 *
 * Ownership: none; the tape is the caller's.
 * Units:     heights and widths in pixels of the latents.
 * Errors:    -EINVAL for an empty shape; errors of emitting are kept in the tape (tape.h).
 * Threads:   any; the functions change only the tape.
 * Source:    diffusers UNet2DConditionModel.
 */
#pragma once

#include "nn/tape.h"

typedef struct UnetShape {
    int n, height, width, text_tokens;
} UnetShape;

typedef struct UnetValues {
    ValueId latents, timesteps, text; /* [n][h][w][in], [n] int32, [n][tokens][dim]: inputs */
    ValueId prediction;               /* [n][h][w][out]: output */
} UnetValues;

int unet_emit(Tape *tape, const UnetConfig *config, const UnetShape *shape, UnetValues *ret,
              Error *err);
