/* SPDX-License-Identifier: Apache-2.0 */
/* unet.c - see unet.h. Each function emits a module of diffusers: first its layers, in the order of their names, then
 * its operations. */
#include "nn/unet.h"

#include <string.h>

enum { SKIPS_MAX = 4096 };

static const double transformer_norm_eps = 1e-6, layer_norm_eps = 1e-5;

typedef struct Path {
    char text[PARAMETER_NAME_MAX];
} Path;

/* The U-Net that is being emitted, and its tape. */
typedef struct Unet {
    Tape *tape;
    const UnetConfig *config;
    ValueId time; /* silu of the time embedding, which every resnet projects */
    ValueId text;
    ValueId *skips;
    size_t n_skips;
} Unet;

static Path path(const char *format, ...) _printf_(1, 2);

/* A path that is too long makes a parameter name that is too long, which the parameter list refuses. */
static Path path(const char *format, ...)
{
    Path p;
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(p.text, sizeof(p.text), format, ap);
    va_end(ap);
    return p;
}

static Layer conv_layer(Unet *u, const char *module, const char *name, int in, int out, int kernel)
{
    return tape_conv_layer(u->tape, path("%s.%s", module, name).text, in, out, kernel);
}

static Layer linear_layer(Unet *u, const char *module, const char *name, int in, int out)
{
    return tape_linear_layer(u->tape, path("%s.%s", module, name).text, in, out, true);
}

static Layer projection_layer(Unet *u, const char *module, const char *name, int in, int out)
{
    return tape_linear_layer(u->tape, path("%s.%s", module, name).text, in, out, false);
}

static Layer norm_layer(Unet *u, const char *module, const char *name, int c)
{
    return tape_norm_layer(u->tape, path("%s.%s", module, name).text, c);
}

static int channels(const Unet *u, ValueId x) { return tape_value(u->tape, x)->c; }

static ValueId norm_silu(Unet *u, Layer norm, ValueId x)
{
    return tape_group_norm(u->tape, norm, x, u->config->norm_num_groups, u->config->norm_eps, true);
}

static ValueId resnet(Unet *u, const char *module, ValueId x, int c_out)
{
    Tape *t = u->tape;
    int c_in = channels(u, x);
    Layer norm1 = norm_layer(u, module, "norm1", c_in);
    Layer conv1 = conv_layer(u, module, "conv1", c_in, c_out, 3);
    Layer time_emb_proj = linear_layer(u, module, "time_emb_proj", channels(u, u->time), c_out);
    Layer norm2 = norm_layer(u, module, "norm2", c_out);
    Layer conv2 = conv_layer(u, module, "conv2", c_out, c_out, 3);
    ValueId residual = x;

    if (c_in != c_out) {
        Layer conv_shortcut = conv_layer(u, module, "conv_shortcut", c_in, c_out, 1);
        residual = tape_linear(t, conv_shortcut, x, NO_VALUE);
    }
    ValueId time = tape_linear(t, time_emb_proj, u->time, NO_VALUE);
    ValueId h = norm_silu(u, norm1, x);
    h = tape_conv(t, conv1, h, 1, time, NO_VALUE);
    h = norm_silu(u, norm2, h);
    return tape_conv(t, conv2, h, 1, NO_VALUE, residual);
}

/* Emits x + to_out(attention(norm(x))); text is NO_VALUE for self-attention. to_q, to_k and to_v (or to_k and to_v of
 * the text) lie side by side, so each group is one matrix product. */
static ValueId attention(Unet *u, const char *module, Layer norm, ValueId x, ValueId text,
                         int heads)
{
    Tape *t = u->tape;
    int c = channels(u, x), c_kv = text == NO_VALUE ? c : channels(u, text);
    Layer to_q = projection_layer(u, module, "to_q", c, c);
    Layer to_k = projection_layer(u, module, "to_k", c_kv, c);
    Layer to_v = projection_layer(u, module, "to_v", c_kv, c);
    Layer to_out = linear_layer(u, module, "to_out.0", c, c);

    ValueId h = tape_layer_norm(t, norm, x, layer_norm_eps);
    if (text == NO_VALUE) {
        ValueId qkv = tape_linear(t, tape_join(to_q, tape_join(to_k, to_v)), h, NO_VALUE);
        h = tape_self_attention(t, qkv, heads);
    } else {
        ValueId q = tape_linear(t, to_q, h, NO_VALUE);
        ValueId kv = tape_linear(t, tape_join(to_k, to_v), text, NO_VALUE);
        h = tape_cross_attention(t, q, kv, heads);
    }
    return tape_linear(t, to_out, h, x);
}

static ValueId feed_forward(Unet *u, const char *module, Layer norm, ValueId x)
{
    Tape *t = u->tape;
    int c = channels(u, x);
    Layer in = linear_layer(u, module, "net.0.proj", c, 8 * c);
    Layer out = linear_layer(u, module, "net.2", 4 * c, c);

    ValueId h = tape_layer_norm(t, norm, x, layer_norm_eps);
    h = tape_geglu(t, tape_linear(t, in, h, NO_VALUE));
    return tape_linear(t, out, h, x);
}

static ValueId transformer_block(Unet *u, const char *module, ValueId x, int heads)
{
    int c = channels(u, x);
    Layer norm1 = norm_layer(u, module, "norm1", c);
    x = attention(u, path("%s.attn1", module).text, norm1, x, NO_VALUE, heads);
    Layer norm2 = norm_layer(u, module, "norm2", c);
    x = attention(u, path("%s.attn2", module).text, norm2, x, u->text, heads);
    Layer norm3 = norm_layer(u, module, "norm3", c);
    return feed_forward(u, path("%s.ff", module).text, norm3, x);
}

/* Emits a Transformer2DModel. proj_in and proj_out compute the same as matrices and as 1x1 convolutions. */
static ValueId transformer(Unet *u, const char *module, ValueId x, int heads)
{
    Tape *t = u->tape;
    int c = channels(u, x);
    bool linear = u->config->use_linear_projection;
    Layer norm = norm_layer(u, module, "norm", c);
    Layer proj_in = linear ? linear_layer(u, module, "proj_in", c, c)
                           : conv_layer(u, module, "proj_in", c, c, 1);

    ValueId h =
        tape_group_norm(t, norm, x, u->config->norm_num_groups, transformer_norm_eps, false);
    h = tape_linear(t, proj_in, h, NO_VALUE);
    h = transformer_block(u, path("%s.transformer_blocks.0", module).text, h, heads);
    Layer proj_out = linear ? linear_layer(u, module, "proj_out", c, c)
                            : conv_layer(u, module, "proj_out", c, c, 1);
    return tape_linear(t, proj_out, h, x);
}

static void push_skip(Unet *u, ValueId x)
{
    assert(u->n_skips < SKIPS_MAX);
    u->skips[u->n_skips++] = x;
}

static ValueId pop_skip(Unet *u)
{
    assert(u->n_skips > 0);
    return u->skips[--u->n_skips];
}

static ValueId down_block(Unet *u, int level, ValueId x)
{
    const UnetConfig *config = u->config;
    Path module = path("down_blocks.%d", level);
    int c = config->block_out_channels[level];

    for (int i = 0; i < config->layers_per_block; i++) {
        x = resnet(u, path("%s.resnets.%d", module.text, i).text, x, c);
        if (config->down_attention[level])
            x = transformer(u, path("%s.attentions.%d", module.text, i).text, x,
                            config->heads[level]);
        push_skip(u, x);
    }
    if (level + 1 < config->n_levels) {
        Layer conv = conv_layer(u, module.text, "downsamplers.0.conv", c, c, 3);
        x = tape_conv(u->tape, conv, x, 2, NO_VALUE, NO_VALUE);
        push_skip(u, x);
    }
    return x;
}

static ValueId mid_block(Unet *u, ValueId x)
{
    int last = u->config->n_levels - 1, c = u->config->block_out_channels[last];
    x = resnet(u, "mid_block.resnets.0", x, c);
    x = transformer(u, "mid_block.attentions.0", x, u->config->heads[last]);
    return resnet(u, "mid_block.resnets.1", x, c);
}

/* Emits an up block. Up blocks are numbered from the deepest level. */
static ValueId up_block(Unet *u, int block, ValueId x)
{
    const UnetConfig *config = u->config;
    Path module = path("up_blocks.%d", block);
    int level = config->n_levels - 1 - block, c = config->block_out_channels[level];

    for (int i = 0; i < config->layers_per_block + 1; i++) {
        x = tape_concat(u->tape, x, pop_skip(u));
        x = resnet(u, path("%s.resnets.%d", module.text, i).text, x, c);
        if (config->up_attention[block])
            x = transformer(u, path("%s.attentions.%d", module.text, i).text, x,
                            config->heads[level]);
    }
    if (level > 0) {
        Layer conv = conv_layer(u, module.text, "upsamplers.0.conv", c, c, 3);
        /* the next up block joins x with this skip, so x is upsampled to the size of the skip */
        const Value to = *tape_value(u->tape, u->skips[u->n_skips - 1]);
        x = tape_conv(u->tape, conv, tape_upsample(u->tape, x, to.h, to.w), 1, NO_VALUE, NO_VALUE);
    }
    return x;
}

/* diffusers applies the last SiLU in every resnet; applying it once gives the same result. */
static ValueId time_embedding_of(Unet *u, ValueId timesteps)
{
    Tape *t = u->tape;
    const UnetConfig *config = u->config;
    int c = config->block_out_channels[0];
    Layer linear_1 = linear_layer(u, "time_embedding", "linear_1", c, 4 * c);
    Layer linear_2 = linear_layer(u, "time_embedding", "linear_2", 4 * c, 4 * c);

    ValueId h = tape_time_embedding(t, timesteps, c, config->flip_sin_to_cos, config->freq_shift);
    h = tape_silu(t, tape_linear(t, linear_1, h, NO_VALUE));
    return tape_silu(t, tape_linear(t, linear_2, h, NO_VALUE));
}

static int check_shape(const UnetConfig *config, const UnetShape *shape, Error *err)
{
    if (shape->n < 1 || shape->height < 1 || shape->width < 1 || shape->text_tokens < 1)
        return error_set(err, -EINVAL, "U-Net of %d latents of %dx%d with %d text tokens: empty",
                         shape->n, shape->height, shape->width, shape->text_tokens);
    if (config->n_levels * (config->layers_per_block + 1) >= SKIPS_MAX)
        return error_set(err, -EINVAL, "layers_per_block: %d is too many",
                         config->layers_per_block);
    return 0;
}

int unet_emit(Tape *tape, const UnetConfig *config, const UnetShape *shape, UnetValues *ret,
              Error *err)
{
    int r = check_shape(config, shape, err);
    if (r < 0)
        return r;
    ValueId skips[SKIPS_MAX];
    Unet u = {.tape = tape, .config = config, .skips = skips};
    UnetValues v;
    v.latents = tape_input(tape, shape->n, shape->height, shape->width, config->in_channels);
    v.timesteps = tape_input(tape, shape->n, 1, 1, 1);
    v.text = tape_input(tape, shape->n, 1, shape->text_tokens, config->cross_attention_dim);

    int c0 = config->block_out_channels[0];
    Layer conv_in = tape_conv_layer(tape, "conv_in", config->in_channels, c0, 3);
    ValueId x = tape_conv(tape, conv_in, v.latents, 1, NO_VALUE, NO_VALUE);
    u.time = time_embedding_of(&u, v.timesteps);
    u.text = v.text;
    push_skip(&u, x);
    for (int level = 0; level < config->n_levels; level++)
        x = down_block(&u, level, x);
    x = mid_block(&u, x);
    for (int block = 0; block < config->n_levels; block++)
        x = up_block(&u, block, x);
    assert(u.n_skips == 0);

    Layer conv_norm_out = tape_norm_layer(tape, "conv_norm_out", c0);
    Layer conv_out = tape_conv_layer(tape, "conv_out", c0, config->out_channels, 3);
    x = tape_conv(tape, conv_out, norm_silu(&u, conv_norm_out, x), 1, NO_VALUE, NO_VALUE);
    tape_output(tape, x);
    v.prediction = x;
    *ret = v;
    return 0;
}

int unet_parameters(const UnetConfig *config, ParameterList **ret, Error *err)
{
    _cleanup_(tape_freep) Tape *tape = NULL;
    int r = tape_new(&tape);
    if (r < 0)
        return error_errno(err, r, "listing the network's parameters");
    int side = 1 << (config->n_levels - 1);
    UnetValues values;
    r = unet_emit(tape, config, &(UnetShape){1, side, side, 1}, &values, err);
    if (r < 0)
        return r;
    if (tape->r < 0)
        return error_errno(err, tape->r, "listing the network's parameters");
    *ret = TAKE_PTR(tape->parameters);
    return 0;
}
