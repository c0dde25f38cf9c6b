/* SPDX-License-Identifier: Apache-2.0 */
/* clip-text-config.c - see clip-text-config.h.
 *
 * A config of transformers holds the network's dimensions, settings that matter only to other programs' training and
 * generation, and notes. The dimensions are read or must have one value (fixed[]); the other keys are in inert[]. */
#include "encoders/networks/clip-text-config.h"

#include "base/json/json.h"
#include "base/log.h"

#include <string.h>

enum { WIDTH_MAX = 1 << 16, LAYERS_MAX = 1 << 10, VOCABULARY_MAX = 1 << 22 };

static const JsonFixed fixed[] = {
    {"add_cross_attention", "false"},
    {"architectures", "[\"CLIPTextModel\"]"}, /* CLIPTextModelWithProjection has more tensors */
    {"hidden_act", "\"gelu\""},               /* the exact form, with erf */
    {"is_decoder", "false"},
    {"is_encoder_decoder", "false"},
    {"model_type", "\"clip_text_model\""},
    {"pruned_heads", "{}"},
    {"quantization_config", "null"},
};

/* Keys without an effect here. Begin, end and padding belong to the tokenizer, and no layer uses them; projection_dim
 * belongs to the layers that CLIPTextModelWithProjection adds; dropouts matter only in training. */
static const char *const inert[] = {
    "attention_dropout",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dropout",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "initializer_factor",
    "initializer_range",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "projection_dim",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tie_word_embeddings",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "use_bfloat16",
    "use_cache",
};

static const char *const own_keys[] = {
    "vocab_size",        "max_position_embeddings", "hidden_size",    "intermediate_size",
    "num_hidden_layers", "num_attention_heads",     "layer_norm_eps",
};

static bool is_one_of(const char *key, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static void check_keys(JsonReader *reader)
{
    const char *key;
    json_t *value;
    json_object_foreach (reader->object, key, value) {
        const bool own = is_one_of(key, own_keys, ELEMENTSOF(own_keys));
        if (own && json_is_null(value))
            json_refuse(reader, key, "null is not supported");
        if (!own && key[0] != '_' && !json_is_fixed(fixed, ELEMENTSOF(fixed), key) &&
            !is_one_of(key, inert, ELEMENTSOF(inert)))
            log_warning("%s: %.60s is a key that is not known; it is ignored", reader->source, key);
    }
}

static void get_count(JsonReader *reader, const char *key, int max, int *ret)
{
    int64_t value;
    if (json_get_int(reader, key, JSON_OPTIONAL, 1, max, &value))
        *ret = (int)value;
}

int clip_text_config_parse(const char *source, const char *text, size_t n_bytes,
                           ClipTextConfig *ret, Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    int r = json_parse(source, text, n_bytes, &root, err);
    if (r < 0)
        return r;

    /* The library transformers uses these values for keys that are missing in the config. */
    ClipTextConfig config = {.vocab_size = 49408,
                             .max_position_embeddings = 77,
                             .hidden_size = 512,
                             .intermediate_size = 2048,
                             .num_hidden_layers = 12,
                             .num_attention_heads = 8,
                             .layer_norm_eps = 1e-5};
    JsonReader reader = json_open(source, root, JSON_ANY_KEYS, err);
    json_check_fixed(&reader, fixed, ELEMENTSOF(fixed));
    if (!json_object_get(root, "hidden_act"))
        json_refuse(&reader, "hidden_act",
                    "it is missing, which means \"quick_gelu\"; only "
                    "\"gelu\" is supported");
    check_keys(&reader);
    get_count(&reader, "vocab_size", VOCABULARY_MAX, &config.vocab_size);
    get_count(&reader, "max_position_embeddings", WIDTH_MAX, &config.max_position_embeddings);
    get_count(&reader, "hidden_size", WIDTH_MAX, &config.hidden_size);
    get_count(&reader, "intermediate_size", WIDTH_MAX, &config.intermediate_size);
    get_count(&reader, "num_hidden_layers", LAYERS_MAX, &config.num_hidden_layers);
    get_count(&reader, "num_attention_heads", WIDTH_MAX, &config.num_attention_heads);
    (void)json_get_double(&reader, "layer_norm_eps", JSON_OPTIONAL, 1e-12, 1.0,
                          &config.layer_norm_eps);
    if (reader.r == 0 && config.hidden_size % config.num_attention_heads != 0)
        json_refuse(&reader, "num_attention_heads", "%d heads do not divide a hidden_size of %d",
                    config.num_attention_heads, config.hidden_size);
    r = json_close(&reader);
    if (r < 0)
        return r;
    *ret = config;
    return 0;
}
