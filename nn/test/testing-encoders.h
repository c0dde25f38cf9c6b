/* SPDX-License-Identifier: Apache-2.0 */
/* testing-encoders.h - the operations of Stable Diffusion 2's encoders, for tests and tools that need no weights: an
 * autoencoder's encoder, and a text encoder with only one layer, since all its layers are alike.
 *
 * Ownership: the caller frees a Tape.
 * Units:     sides in pixels of the picture; n pictures, or texts.
 * Errors:    none; a failed allocation ends the process.
 * Threads:   any.
 */
#pragma once

#include "nn/tape.h"

#include <stdlib.h>

enum { VAE_GROUPS = 32, VAE_LEVELS = 4, CLIP_TOKENS = 77, CLIP_WIDTH = 1024, CLIP_HEADS = 16 };

static const double vae_eps = 1e-6;

static inline ValueId vae_conv(Tape *t, ValueId x, int out, ValueId residual)
{
    return tape_conv(t, tape_conv_layer(t, "conv", tape_value(t, x)->c, out, 3), x, 1, NO_VALUE,
                     residual);
}

static inline ValueId vae_norm(Tape *t, ValueId x, bool silu)
{
    return tape_group_norm(t, tape_norm_layer(t, "norm", tape_value(t, x)->c), x, VAE_GROUPS,
                           vae_eps, silu);
}

static inline ValueId vae_resnet(Tape *t, ValueId x, int out)
{
    const int in = tape_value(t, x)->c;
    const ValueId h = vae_conv(t, vae_norm(t, x, true), out, NO_VALUE);
    const ValueId residual =
        in == out ? x : tape_linear(t, tape_conv_layer(t, "shortcut", in, out, 1), x, NO_VALUE);
    return vae_conv(t, vae_norm(t, h, true), out, residual);
}

static inline Tape *vae_encoder_tape_new(int side, int n)
{
    static const int channels[VAE_LEVELS] = {128, 256, 512, 512};
    static const char *const names[] = {"to_q", "to_k", "to_v"};
    enum { TOP = 512 };
    Tape *t;
    int r = tape_new(&t);
    assert(r == 0);
    ValueId x = vae_conv(t, tape_input(t, n, side, side, 3), channels[0], NO_VALUE);
    for (int level = 0; level < VAE_LEVELS; level++) {
        x = vae_resnet(t, vae_resnet(t, x, channels[level]), channels[level]);
        if (level < VAE_LEVELS - 1)
            x = tape_conv_end(t, tape_conv_layer(t, "down", channels[level], channels[level], 3),
                              x);
    }
    x = vae_resnet(t, x, TOP);
    const ValueId h = vae_norm(t, x, false);
    const ValueId qkv = tape_linear(t, tape_linear_layers(t, names, 3, TOP, TOP), h, NO_VALUE);
    const ValueId seen = tape_self_attention(t, qkv, 1);
    x = tape_linear(t, tape_linear_layer(t, "to_out", TOP, TOP, true), seen, x);
    x = vae_resnet(t, x, TOP);
    x = vae_conv(t, vae_norm(t, x, true), 8, NO_VALUE);
    x = tape_linear(t, tape_conv_layer(t, "quant_conv", 8, 8, 1), x, NO_VALUE);
    tape_output(t, x);
    assert(t->r == 0);
    return t;
}

static inline Tape *clip_text_tape_new(int n)
{
    static const char *const names[] = {"q_proj", "k_proj", "v_proj"};
    enum { WIDE = 4 * CLIP_WIDTH };
    Tape *t;
    int r = tape_new(&t);
    assert(r == 0);
    ValueId x = tape_input(t, n, 1, CLIP_TOKENS, CLIP_WIDTH), h;
    h = tape_layer_norm(t, tape_norm_layer(t, "layer_norm1", CLIP_WIDTH), x, 1e-5);
    h = tape_linear(t, tape_linear_layers(t, names, 3, CLIP_WIDTH, CLIP_WIDTH), h, NO_VALUE);
    h = tape_causal_attention(t, h, CLIP_HEADS);
    x = tape_linear(t, tape_linear_layer(t, "out_proj", CLIP_WIDTH, CLIP_WIDTH, true), h, x);
    h = tape_layer_norm(t, tape_norm_layer(t, "layer_norm2", CLIP_WIDTH), x, 1e-5);
    h = tape_linear(t, tape_linear_layer(t, "fc1", CLIP_WIDTH, WIDE, true), h, NO_VALUE);
    h = tape_gelu(t, h);
    x = tape_linear(t, tape_linear_layer(t, "fc2", WIDE, CLIP_WIDTH, true), h, x);
    x = tape_layer_norm(t, tape_norm_layer(t, "final_layer_norm", CLIP_WIDTH), x, 1e-5);
    tape_output(t, x);
    assert(t->r == 0);
    return t;
}
