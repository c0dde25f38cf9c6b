/* SPDX-License-Identifier: Apache-2.0 */
/* vae.c - see vae.h. Each module is written as in diffusers: first its layers, then their use. */
#include "encoders/networks/vae.h"

#include "encoders/networks/module-path.h"

static const double norm_eps = 1e-6; /* epsilon of every GroupNorm; a U-Net's resnets have 1e-5 */

typedef struct Vae {
    Tape *tape;
    const VaeConfig *config;
} Vae;

static Layer conv_layer(Vae *v, const char *module, const char *name, int in, int out, int kernel)
{
    return tape_conv_layer(v->tape, module_path("%s.%s", module, name).text, in, out, kernel);
}

static Layer norm_layer(Vae *v, const char *module, const char *name, int c)
{
    return tape_norm_layer(v->tape, module_path("%s.%s", module, name).text, c);
}

static int channels(const Vae *v, ValueId x) { return tape_value(v->tape, x)->c; }

static ValueId group_norm(Vae *v, Layer norm, ValueId x, bool silu)
{
    return tape_group_norm(v->tape, norm, x, v->config->norm_num_groups, norm_eps, silu);
}

static ValueId conv(Vae *v, Layer layer, ValueId x)
{
    return tape_conv(v->tape, layer, x, 1, NO_VALUE, NO_VALUE);
}

static ValueId resnet(Vae *v, const char *module, ValueId x, int c_out)
{
    const int c_in = channels(v, x);
    Layer norm1 = norm_layer(v, module, "norm1", c_in);
    Layer conv1 = conv_layer(v, module, "conv1", c_in, c_out, 3);
    Layer norm2 = norm_layer(v, module, "norm2", c_out);
    Layer conv2 = conv_layer(v, module, "conv2", c_out, c_out, 3);
    ValueId residual = x;

    if (c_in != c_out) {
        Layer conv_shortcut = conv_layer(v, module, "conv_shortcut", c_in, c_out, 1);
        residual = tape_linear(v->tape, conv_shortcut, x, NO_VALUE);
    }
    ValueId h = conv(v, conv1, group_norm(v, norm1, x, true));
    h = group_norm(v, norm2, h, true);
    return tape_conv(v->tape, conv2, h, 1, NO_VALUE, residual);
}

/* Self-attention with one head as wide as the level. */
static ValueId attention(Vae *v, const char *module, ValueId x)
{
    Tape *t = v->tape;
    const int c = channels(v, x);
    Layer norm = norm_layer(v, module, "group_norm", c);
    const ModulePath q = module_path("%s.to_q", module), k = module_path("%s.to_k", module);
    const ModulePath value = module_path("%s.to_v", module);
    Layer to_qkv = tape_linear_layers(t, (const char *[]){q.text, k.text, value.text}, 3, c, c);
    Layer to_out = tape_linear_layer(t, module_path("%s.to_out.0", module).text, c, c, true);

    ValueId h = tape_linear(t, to_qkv, group_norm(v, norm, x, false), NO_VALUE);
    h = tape_self_attention(t, h, 1);
    return tape_linear(t, to_out, h, x);
}

static ValueId mid_block(Vae *v, const char *part, ValueId x)
{
    const int c = v->config->block_out_channels[v->config->n_levels - 1];
    x = resnet(v, module_path("%s.mid_block.resnets.0", part).text, x, c);
    x = attention(v, module_path("%s.mid_block.attentions.0", part).text, x);
    return resnet(v, module_path("%s.mid_block.resnets.1", part).text, x, c);
}

static ValueId down_block(Vae *v, int level, ValueId x)
{
    const VaeConfig *config = v->config;
    const ModulePath module = module_path("encoder.down_blocks.%d", level);
    const int c = config->block_out_channels[level];
    for (int i = 0; i < config->layers_per_block; i++)
        x = resnet(v, module_path("%s.resnets.%d", module.text, i).text, x, c);
    if (level + 1 < config->n_levels)
        x = tape_conv_end(v->tape, conv_layer(v, module.text, "downsamplers.0.conv", c, c, 3), x);
    return x;
}

/* Up blocks count from the deepest level. */
static ValueId up_block(Vae *v, int block, ValueId x)
{
    const VaeConfig *config = v->config;
    const ModulePath module = module_path("decoder.up_blocks.%d", block);
    const int level = config->n_levels - 1 - block, c = config->block_out_channels[level];
    for (int i = 0; i < config->layers_per_block + 1; i++)
        x = resnet(v, module_path("%s.resnets.%d", module.text, i).text, x, c);
    if (level > 0) {
        Layer layer = conv_layer(v, module.text, "upsamplers.0.conv", c, c, 3);
        const Value small = *tape_value(v->tape, x);
        x = conv(v, layer, tape_upsample(v->tape, x, 2 * small.h, 2 * small.w));
    }
    return x;
}

static ValueId conv_out(Vae *v, const char *part, ValueId x, int out)
{
    const int c = channels(v, x);
    Layer norm = norm_layer(v, part, "conv_norm_out", c);
    Layer layer = conv_layer(v, part, "conv_out", c, out, 3);
    return conv(v, layer, group_norm(v, norm, x, true));
}

static int check_shape(const VaeConfig *config, const VaeShape *shape, Error *err)
{
    const int factor = vae_config_factor(config);
    if (shape->n < 1 || shape->height < 1 || shape->width < 1)
        return error_set(err, -EINVAL, "VAE of %d pictures of %dx%d: empty", shape->n,
                         shape->height, shape->width);
    if (shape->height % factor != 0 || shape->width % factor != 0)
        return error_set(err, -EINVAL,
                         "VAE of pictures of %dx%d: the sides are not multiples of %d",
                         shape->height, shape->width, factor);
    return 0;
}

int vae_encoder_emit(Tape *tape, const VaeConfig *config, const VaeShape *shape, VaeValues *ret,
                     Error *err)
{
    int r = check_shape(config, shape, err);
    if (r < 0)
        return r;
    Vae v = {.tape = tape, .config = config};
    const int n_moments = 2 * config->latent_channels;
    const ValueId in = tape_input(tape, shape->n, shape->height, shape->width, 3);

    Layer conv_in = tape_conv_layer(tape, "encoder.conv_in", 3, config->block_out_channels[0], 3);
    ValueId x = conv(&v, conv_in, in);
    for (int level = 0; level < config->n_levels; level++)
        x = down_block(&v, level, x);
    x = mid_block(&v, "encoder", x);
    x = conv_out(&v, "encoder", x, n_moments);
    Layer quant_conv = tape_conv_layer(tape, "quant_conv", n_moments, n_moments, 1);
    x = tape_linear(tape, quant_conv, x, NO_VALUE);
    tape_output(tape, x);
    *ret = (VaeValues){.in = in, .out = x};
    return 0;
}

int vae_decoder_emit(Tape *tape, const VaeConfig *config, const VaeShape *shape, VaeValues *ret,
                     Error *err)
{
    int r = check_shape(config, shape, err);
    if (r < 0)
        return r;
    Vae v = {.tape = tape, .config = config};
    const int factor = vae_config_factor(config), c = config->latent_channels;
    const ValueId in = tape_input(tape, shape->n, shape->height / factor, shape->width / factor, c);

    Layer post_quant_conv = tape_conv_layer(tape, "post_quant_conv", c, c, 1);
    Layer conv_in = tape_conv_layer(tape, "decoder.conv_in", c,
                                    config->block_out_channels[config->n_levels - 1], 3);
    ValueId x = conv(&v, conv_in, tape_linear(tape, post_quant_conv, in, NO_VALUE));
    x = mid_block(&v, "decoder", x);
    for (int block = 0; block < config->n_levels; block++)
        x = up_block(&v, block, x);
    x = conv_out(&v, "decoder", x, 3);
    tape_output(tape, x);
    *ret = (VaeValues){.in = in, .out = x};
    return 0;
}
