/* SPDX-License-Identifier: Apache-2.0 */
/* clip-text.c - see clip-text.h. */
#include "encoders/networks/clip-text.h"

#include "encoders/networks/module-path.h"

static Layer linear_layer(Tape *tape, const char *module, const char *name, int in, int out)
{
    return tape_linear_layer(tape, module_path("%s.%s", module, name).text, in, out, true);
}

static Layer norm_layer(Tape *tape, const char *module, const char *name, int c)
{
    return tape_norm_layer(tape, module_path("%s.%s", module, name).text, c);
}

static ValueId block(Tape *t, const ClipTextConfig *config, int i, ValueId x)
{
    const ModulePath path = module_path("text_model.encoder.layers.%d", i);
    const char *module = path.text;
    const int c = config->hidden_size;
    Layer norm1 = norm_layer(t, module, "layer_norm1", c);
    const ModulePath q = module_path("%s.self_attn.q_proj", module);
    const ModulePath k = module_path("%s.self_attn.k_proj", module);
    const ModulePath v = module_path("%s.self_attn.v_proj", module);
    Layer qkv = tape_linear_layers(t, (const char *[]){q.text, k.text, v.text}, 3, c, c);
    Layer out = linear_layer(t, module, "self_attn.out_proj", c, c);
    Layer norm2 = norm_layer(t, module, "layer_norm2", c);
    Layer fc1 = linear_layer(t, module, "mlp.fc1", c, config->intermediate_size);
    Layer fc2 = linear_layer(t, module, "mlp.fc2", config->intermediate_size, c);

    ValueId h = tape_linear(t, qkv, tape_layer_norm(t, norm1, x, config->layer_norm_eps), NO_VALUE);
    x = tape_linear(t, out, tape_causal_attention(t, h, config->num_attention_heads), x);
    h = tape_linear(t, fc1, tape_layer_norm(t, norm2, x, config->layer_norm_eps), NO_VALUE);
    return tape_linear(t, fc2, tape_gelu(t, h), x);
}

int clip_text_emit(Tape *tape, const ClipTextConfig *config, int n, ClipTextValues *ret, Error *err)
{
    if (n < 1)
        return error_set(err, -EINVAL, "text encoder of %d captions: empty", n);
    const int c = config->hidden_size;
    const ValueId ids = tape_input(tape, n, 1, config->max_position_embeddings, 1);
    Layer embeddings =
        tape_embedding_layer(tape, "text_model.embeddings.token_embedding", config->vocab_size,
                             "text_model.embeddings.position_embedding",
                             config->max_position_embeddings, c);
    ValueId x = tape_embedding(tape, embeddings, ids);
    for (int i = 0; i < config->num_hidden_layers; i++)
        x = block(tape, config, i, x);
    Layer final_norm = norm_layer(tape, "text_model", "final_layer_norm", c);
    x = tape_layer_norm(tape, final_norm, x, config->layer_norm_eps);
    tape_output(tape, x);
    *ret = (ClipTextValues){.ids = ids, .out = x};
    return 0;
}
