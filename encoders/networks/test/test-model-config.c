/* SPDX-License-Identifier: Apache-2.0 */
/* test-model-config.c - the configs of Stable Diffusion 2 are read; others are refused by key and value, or give a
 * warning. */
#include "base/cleanup.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "encoders/networks/clip-text-config.h"
#include "encoders/networks/vae-config.h"

#include <string.h>

static const char vae_sd2[] =
    "{\"_class_name\": \"AutoencoderKL\", \"_diffusers_version\": \"0.10.0.dev0\", \"act_fn\": "
    "\"silu\","
    " \"block_out_channels\": [128, 256, 512, 512], \"down_block_types\": [\"DownEncoderBlock2D\","
    " \"DownEncoderBlock2D\", \"DownEncoderBlock2D\", \"DownEncoderBlock2D\"], \"in_channels\": 3,"
    " \"latent_channels\": 4, \"layers_per_block\": 2, \"norm_num_groups\": 32, \"out_channels\": "
    "3,"
    " \"sample_size\": 768, \"up_block_types\": [\"UpDecoderBlock2D\", \"UpDecoderBlock2D\","
    " \"UpDecoderBlock2D\", \"UpDecoderBlock2D\"]}";

static const char text_sd2[] =
    "{\"_name_or_path\": \"x\", \"architectures\": [\"CLIPTextModel\"], \"attention_dropout\": 0.0,"
    " \"bos_token_id\": 0, \"dropout\": 0.0, \"eos_token_id\": 2, \"hidden_act\": \"gelu\","
    " \"hidden_size\": 1024, \"initializer_factor\": 1.0, \"initializer_range\": 0.02,"
    " \"intermediate_size\": 4096, \"layer_norm_eps\": 1e-05, \"max_position_embeddings\": 77,"
    " \"model_type\": \"clip_text_model\", \"num_attention_heads\": 16, \"num_hidden_layers\": 23,"
    " \"pad_token_id\": 1, \"projection_dim\": 512, \"torch_dtype\": \"float32\","
    " \"transformers_version\": \"4.25.0.dev0\", \"vocab_size\": 49408}";

static int read_vae(const char *text, VaeConfig *ret, Error *err)
{
    return vae_config_parse("vae/config.json", text, strlen(text), ret, err);
}

static int read_text(const char *text, ClipTextConfig *ret, Error *err)
{
    return clip_text_config_parse("text_encoder/config.json", text, strlen(text), ret, err);
}

static void the_vae_of_sd2(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    VaeConfig c;
    if (read_vae(vae_sd2, &c, &err) < 0)
        fail_msg("%s", err.text);
    const VaeConfig wanted = {.latent_channels = 4,
                              .n_levels = 4,
                              .block_out_channels = {128, 256, 512, 512},
                              .layers_per_block = 2,
                              .norm_num_groups = 32,
                              .scaling_factor = 0.18215};
    assert_int_equal(c.n_levels, wanted.n_levels);
    assert_memory_equal(c.block_out_channels, wanted.block_out_channels, 4 * sizeof(int));
    assert_int_equal(c.latent_channels, wanted.latent_channels);
    assert_int_equal(c.layers_per_block, wanted.layers_per_block);
    assert_int_equal(c.norm_num_groups, wanted.norm_num_groups);
    assert_true(c.scaling_factor == wanted.scaling_factor);
    assert_int_equal(vae_config_factor(&c), 8);
}

/* Returns the text with `from` replaced, in a buffer that the next call overwrites. */
static const char *with(const char *text, const char *from, const char *to)
{
    static char result[4096];
    const char *at = strstr(text, from);
    assert_non_null(at);
    (void)snprintf(result, sizeof(result), "%.*s%s%s", (int)(at - text), text, to,
                   at + strlen(from));
    return result;
}

typedef struct Case {
    const char *from, *to;
    const char *said[2]; /* texts that the error's text must contain; NULL: the config is good */
} Case;

static void check(const Case *cases, size_t n, const char *text, bool is_vae)
{
    for (size_t i = 0; i < n; i++) {
        Error err = ERROR_INIT;
        VaeConfig vae;
        ClipTextConfig clip;
        const char *changed = with(text, cases[i].from, cases[i].to);
        int r = is_vae ? read_vae(changed, &vae, &err) : read_text(changed, &clip, &err);
        if (!cases[i].said[0]) {
            if (r < 0)
                fail_msg("%s: %s", cases[i].to, err.text);
            continue;
        }
        if (r != -EINVAL)
            fail_msg("%s: %d", cases[i].to, r);
        assert_non_null(
            strstr(err.text, is_vae ? "vae/config.json: " : "text_encoder/config.json: "));
        for (size_t k = 0; k < 2 && cases[i].said[k]; k++)
            if (!strstr(err.text, cases[i].said[k]))
                fail_msg("%s: %s", cases[i].to, err.text);
    }
}

static void other_vaes(void **state)
{
    (void)state;
    static const Case cases[] = {
        /* keys that diffusers writes today, with supported values */
        {"\"act_fn\"",
         "\"force_upcast\": true, \"use_quant_conv\": true, \"use_post_quant_conv\": true,"
         " \"mid_block_add_attention\": true, \"shift_factor\": null, \"latents_mean\": null,"
         " \"latents_std\": null, \"scaling_factor\": 0.18215, \"act_fn\"",
         {NULL}},
        {"\"sample_size\": 768", "\"scaling_factor\": 1.5", {NULL}},
        /* values of SDXL and Stable Diffusion 3, and other values that are refused */
        {"\"sample_size\": 768", "\"scaling_factor\": 0.13025", {"scaling_factor", "SDXL"}},
        {"\"sample_size\": 768", "\"shift_factor\": 0.0609", {"shift_factor", "0.0609"}},
        {"\"sample_size\": 768", "\"latents_mean\": [1, 2, 3, 4]", {"latents_mean", "[1,2,3,4]"}},
        {"\"sample_size\": 768", "\"latents_std\": [1, 2, 3, 4]", {"latents_std", "[1,2,3,4]"}},
        {"\"sample_size\": 768", "\"use_quant_conv\": false", {"use_quant_conv", "false"}},
        {"\"sample_size\": 768",
         "\"use_post_quant_conv\": false",
         {"use_post_quant_conv", "false"}},
        {"\"sample_size\": 768",
         "\"mid_block_add_attention\": false",
         {"mid_block_add_attention", "false"}},
        {"\"sample_size\": 768", "\"scaling_factor\": 0", {"scaling_factor", "0"}},
        {"\"sample_size\": 768", "\"scaling_factor\": null", {"scaling_factor", "null"}},
        {"\"sample_size\": 768", "\"temporal\": 1", {"temporal", "unknown"}},
        {"\"silu\"", "\"gelu\"", {"act_fn", "\"gelu\""}},
        {"AutoencoderKL", "AutoencoderTiny", {"_class_name", "AutoencoderTiny"}},
        {"\"in_channels\": 3", "\"in_channels\": 4", {"in_channels", "4"}},
        {"\"out_channels\": 3", "\"out_channels\": 1", {"out_channels", "1"}},
        {"[128, 256, 512, 512]", "[]", {"block_out_channels", "no levels"}},
        {"[128, 256, 512, 512]", "[128, 256, 512]", {"down_block_types", "3 levels"}},
        {"[128, 256, 512, 512]", "[128, 256, 512, 1.5]", {"block_out_channels", "element 3"}},
        {"[128, 256, 512, 512]", "[1, 1, 1, 1, 1, 1, 1, 1, 1]", {"block_out_channels", NULL}},
        {"[128, 256, 512, 512]", "[128, 256, 512, 528]", {"norm_num_groups", "528"}},
        {"\"DownEncoderBlock2D\"", "\"AttnDownEncoderBlock2D\"", {"down_block_types", "AttnDown"}},
        {"\"UpDecoderBlock2D\"", "7", {"up_block_types", "element 0"}},
        {"\"layers_per_block\": 2", "\"layers_per_block\": 0", {"layers_per_block", "0"}},
        {"\"layers_per_block\": 2", "\"layers_per_block\": [2]", {"layers_per_block", NULL}},
        {"\"latent_channels\": 4", "\"latent_channels\": 99999999999", {"latent_channels", NULL}},
    };
    check(cases, ELEMENTSOF(cases), vae_sd2, true);
}

static void the_text_encoder_of_sd2(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    ClipTextConfig c;
    if (read_text(text_sd2, &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(c.vocab_size, 49408);
    assert_int_equal(c.max_position_embeddings, 77);
    assert_int_equal(c.hidden_size, 1024);
    assert_int_equal(c.intermediate_size, 4096);
    assert_int_equal(c.num_hidden_layers, 23);
    assert_int_equal(c.num_attention_heads, 16);
    assert_true(c.layer_norm_eps == 1e-5);

    /* transformers leaves out keys with their default values */
    static const char least[] = "{\"hidden_act\": \"gelu\"}";
    assert_int_equal(read_text(least, &c, &err), 0);
    assert_int_equal(c.hidden_size, 512);
    assert_int_equal(c.intermediate_size, 2048);
    assert_int_equal(c.num_hidden_layers, 12);
    assert_int_equal(c.num_attention_heads, 8);
}

static void other_text_encoders(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"\"gelu\"", "\"quick_gelu\"", {"hidden_act", "quick_gelu"}},
        {"\"gelu\"", "\"gelu_pytorch_tanh\"", {"hidden_act", "gelu_pytorch_tanh"}},
        {"\"hidden_act\": \"gelu\",", "", {"hidden_act", "quick_gelu"}},
        {"clip_text_model", "clip_vision_model", {"model_type", "clip_vision_model"}},
        {"clip_text_model", "clip", {"model_type", "\"clip\""}},
        {"[\"CLIPTextModel\"]",
         "[\"CLIPTextModelWithProjection\"]",
         {"architectures", "WithProjection"}},
        {"\"dropout\"", "\"is_decoder\": true, \"dropout\"", {"is_decoder", "true"}},
        {"\"dropout\"", "\"pruned_heads\": {\"1\": [2]}, \"dropout\"", {"pruned_heads", "2"}},
        {"\"dropout\"",
         "\"quantization_config\": {\"bits\": 8}, \"dropout\"",
         {"quantization_config", "bits"}},
        {"\"num_attention_heads\": 16",
         "\"num_attention_heads\": 15",
         {"num_attention_heads", "15"}},
        {"\"hidden_size\": 1024", "\"hidden_size\": 0", {"hidden_size", "0"}},
        {"\"hidden_size\": 1024", "\"hidden_size\": null", {"hidden_size", "null"}},
        {"\"vocab_size\": 49408", "\"vocab_size\": \"many\"", {"vocab_size", NULL}},
        {"\"layer_norm_eps\": 1e-05", "\"layer_norm_eps\": 0", {"layer_norm_eps", NULL}},
        {"\"vocab_size\": 49408", "\"vocab_size\": 0.5", {"vocab_size", NULL}},
    };
    check(cases, ELEMENTSOF(cases), text_sd2, false);
}

static char logged[4096];

static void keep_log(LogLevel level, const char *text)
{
    assert_int_equal(level, LOG_LEVEL_WARNING);
    (void)strncat(logged, text, sizeof(logged) - strlen(logged) - 1);
}

/* Keys that hold notes or settings for generating text are ignored silently; an unknown key is logged. */
static void keys_that_change_nothing(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    ClipTextConfig c;
    log_lend(keep_log);
    assert_int_equal(read_text(text_sd2, &c, &err), 0);
    assert_int_equal(read_text(with(text_sd2, "\"dropout\"",
                                    "\"top_k\": 50, \"id2label\": {}, \"dropout\""),
                               &c, &err),
                     0);
    assert_string_equal(logged, "");
    assert_int_equal(read_text(with(text_sd2, "\"dropout\"", "\"rope_theta\": 1, \"dropout\""), &c,
                               &err),
                     0);
    assert_non_null(strstr(logged, "text_encoder/config.json: rope_theta"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vae_of_sd2),           cmocka_unit_test(other_vaes),
        cmocka_unit_test(the_text_encoder_of_sd2),  cmocka_unit_test(other_text_encoders),
        cmocka_unit_test(keys_that_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
