/* SPDX-License-Identifier: Apache-2.0 */
/* testing-sd2.h - the config of sd2-base, and a tape with every operation of one of its grains.
 *
 * Ownership: sd2_tape_new() gives the caller a Tape to tape_free(); nothing is planned or allocated for it.
 * Units:     sides in pixels of the latents: 64 for pictures of 512^2, 32 for 256^2.
 * Errors:    a failed assertion ends the program.
 * Threads:   any.
 */
#pragma once

#include "nn/unet.h"

static const UnetConfig sd2_base = {
    .in_channels = 4,
    .out_channels = 4,
    .n_levels = 4,
    .block_out_channels = {320, 640, 1280, 1280},
    .down_attention = {true, true, true, false},
    .up_attention = {false, true, true, true},
    .layers_per_block = 2,
    .heads = {5, 10, 20, 20},
    .cross_attention_dim = 1024,
    .norm_num_groups = 32,
    .norm_eps = 1e-5,
    .flip_sin_to_cos = true,
    .use_linear_projection = true,
};

enum { SD2_TEXT_TOKENS = 77 };

/* Makes a tape whose operations, from operations[0] on, are those of a grain. The kind of an operation is kind->name;
 * its shape is in the member of `shape` that belongs to the kind. */
static inline Tape *sd2_tape_new(int side, int grain)
{
    Error err = ERROR_INIT;
    Tape *tape = NULL;
    UnetValues values;
    const UnetShape shape = {grain, side, side, SD2_TEXT_TOKENS};
    int r = tape_new(&tape);
    assert(r == 0);
    r = unet_emit(tape, &sd2_base, &shape, &values, &err);
    assert(r == 0 && tape->r == 0);
    return tape;
}
