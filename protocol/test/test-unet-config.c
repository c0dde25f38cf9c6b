/* SPDX-License-Identifier: Apache-2.0 */
/* test-unet-config.c - a config is read as diffusers means it, and parts that sdtrain does not build are refused by
 * name. */
#include "base/file.h"
#include "base/test/testing.h"
#include "protocol/unet-config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The config of stabilityai/stable-diffusion-2-base, with every key that diffusers writes today. */
static const char sd2_base[] =
    "{ \"_class_name\": \"UNet2DConditionModel\", \"_diffusers_version\": \"0.42.1\","
    "  \"act_fn\": \"silu\", \"addition_embed_type\": null, \"addition_embed_type_num_heads\": 64,"
    "  \"attention_head_dim\": [5, 10, 20, 20], \"attention_type\": \"default\","
    "  \"block_out_channels\": [320, 640, 1280, 1280], \"center_input_sample\": false,"
    "  \"class_embed_type\": null, \"conv_in_kernel\": 3, \"cross_attention_dim\": 1024,"
    "  \"down_block_types\": [\"CrossAttnDownBlock2D\", \"CrossAttnDownBlock2D\","
    "    \"CrossAttnDownBlock2D\", \"DownBlock2D\"],"
    "  \"downsample_padding\": 1, \"dropout\": 0.0, \"dual_cross_attention\": false,"
    "  \"flip_sin_to_cos\": true, \"freq_shift\": 0, \"in_channels\": 4, \"layers_per_block\": 2,"
    "  \"mid_block_scale_factor\": 1, \"mid_block_type\": \"UNetMidBlock2DCrossAttn\","
    "  \"norm_eps\": 1e-05, \"norm_num_groups\": 32, \"num_class_embeds\": null,"
    "  \"only_cross_attention\": false, \"out_channels\": 4,"
    "  \"resnet_time_scale_shift\": \"default\", \"sample_size\": 64,"
    "  \"time_embedding_type\": \"positional\", \"transformer_layers_per_block\": 1,"
    "  \"up_block_types\": [\"UpBlock2D\", \"CrossAttnUpBlock2D\", \"CrossAttnUpBlock2D\","
    "    \"CrossAttnUpBlock2D\"],"
    "  \"upcast_attention\": false, \"use_linear_projection\": true }";

static void sd2_base_is_read(void **state)
{
    (void)state;
    UnetConfig c;
    Error err = ERROR_INIT;
    assert_int_equal(unet_config_parse("c", sd2_base, strlen(sd2_base), &c, &err), 0);
    assert_int_equal(c.n_levels, 4);
    assert_int_equal(c.block_out_channels[3], 1280);
    assert_int_equal(c.heads[1], 10);
    assert_true(c.down_attention[2] && !c.down_attention[3]);
    assert_true(!c.up_attention[0] && c.up_attention[3]);
    assert_int_equal(c.layers_per_block, 2);
    assert_int_equal(c.cross_attention_dim, 1024);
    assert_int_equal(c.norm_num_groups, 32);
    assert_true(c.norm_eps == 1e-5 && c.freq_shift == 0);
    assert_true(c.flip_sin_to_cos && c.use_linear_projection && !c.upcast_attention);
    assert_int_equal(c.sample_size, 64);
}

static void formatting_and_reading_give_the_same(void **state)
{
    (void)state;
    UnetConfig a, b;
    Error err = ERROR_INIT;
    assert_int_equal(unet_config_parse("c", sd2_base, strlen(sd2_base), &a, &err), 0);
    a.norm_eps = 1.0 / 3.0;
    a.flip_sin_to_cos = false;
    a.upcast_attention = true;
    a.up_attention[0] = true;
    for (int sample_size = 0; sample_size < 2; sample_size++) {
        char *text, *again;
        a.sample_size = sample_size;
        assert_int_equal(unet_config_format(&a, &text), 0);
        assert_int_equal(unet_config_parse("c", text, strlen(text), &b, &err), 0);
        assert_int_equal(unet_config_format(&b, &again), 0);
        assert_string_equal(text, again);
        assert_true(b.norm_eps == a.norm_eps && b.upcast_attention && b.up_attention[0]);
        assert_int_equal(b.sample_size, sample_size);
        free(text);
        free(again);
    }
}

static void absent_keys_have_diffusers_defaults(void **state)
{
    (void)state;
    static const char text[] =
        "{\"block_out_channels\": [64], \"down_block_types\": [\"DownBlock2D\"],"
        " \"up_block_types\": [\"UpBlock2D\"]}";
    UnetConfig c;
    Error err = ERROR_INIT;
    assert_int_equal(unet_config_parse("c", text, strlen(text), &c, &err), 0);
    assert_int_equal(c.heads[0], 8);
    assert_int_equal(c.cross_attention_dim, 1280);
    assert_int_equal(c.norm_num_groups, 32);
    assert_false(c.use_linear_projection);
}

/* Parses sd2_base with the value of one key replaced by `with`, or with the key added. */
static int parse_with(const char *key, const char *with, Error *err)
{
    char text[sizeof(sd2_base) + 256], quoted[64];
    (void)snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    const char *at = strstr(sd2_base, quoted);
    const char *rest = at ? at + strlen(quoted) : sd2_base + 1;
    int depth = 0;
    if (at) {
        while (depth > 0 || (*rest != ',' && *rest != '}')) {
            depth += *rest == '[' ? 1 : *rest == ']' ? -1 : 0;
            rest++;
        }
        if (*rest == ',')
            rest++;
    }
    int before = at ? (int)(at - sd2_base) : 1;
    (void)snprintf(text, sizeof(text), "%.*s \"%s\": %s, %s", before, sd2_base, key, with, rest);
    UnetConfig c;
    *err = ERROR_INIT;
    return unet_config_parse("unet/config.json", text, strlen(text), &c, err);
}

static void what_we_do_not_build_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *says;
    } cases[] = {
        {"_class_name", "\"UNet3DConditionModel\"", "UNet3DConditionModel"},
        {"act_fn", "\"gelu\"", "\"gelu\" is not supported"},
        {"addition_embed_type", "\"text\"", "\"text\""},
        {"attention_head_dim", "[5, 10]", "2 elements"},
        {"attention_head_dim", "[5, 10, 21, 20]", "21 heads do not divide the 1280"},
        {"attention_head_dim", "\"x\"", "expected an integer"},
        {"block_out_channels", "[]", "no levels"},
        {"block_out_channels", "[1, 2, 3, 4, 5, 6, 7, 8, 9]", "at most 8"},
        {"block_out_channels", "[320, 640, 1280, -1]", "element 3"},
        {"down_block_types", "[\"DownBlock2D\"]", "1 blocks, but block_out_channels has 4"},
        {"center_input_sample", "true", "true is not supported"},
        {"class_embed_type", "\"timestep\"", "\"timestep\""},
        {"conv_in_kernel", "5", "5 is not supported"},
        {"cross_attention_dim", "[1024, 1024]", "expected an integer"},
        {"cross_attention_dim", "null", "null is not supported"},
        {"cross_attention_norm", "\"layer_norm\"", "layer_norm"},
        {"down_block_types", "[\"DownBlock2D\", \"AttnDownBlock2D\", \"DownBlock2D\", \"x\"]",
         "AttnDownBlock2D"},
        {"dropout", "0.1", "is not supported, only 0"},
        {"dual_cross_attention", "true", "true is not supported"},
        {"encoder_hid_dim", "768", "768 is not supported"},
        {"layers_per_block", "[1, 2, 2, 2]", "expected an integer"},
        {"layers_per_block", "0", "0 is not in"},
        {"mid_block_type", "\"UNetMidBlock2D\"", "UNetMidBlock2D"},
        {"mid_block_type", "null", "null is not supported"},
        {"norm_num_groups", "null", "null is not supported"},
        {"norm_num_groups", "48", "48 does not divide the 320"},
        {"num_attention_heads", "8", "8 is not supported"},
        {"num_class_embeds", "10", "10 is not supported"},
        {"only_cross_attention", "true", "true is not supported"},
        {"resnet_time_scale_shift", "\"scale_shift\"", "scale_shift"},
        {"time_embedding_dim", "512", "512 is not supported"},
        {"time_embedding_type", "\"fourier\"", "fourier"},
        {"transformer_layers_per_block", "2", "2 is not supported"},
        {"transformer_layers_per_block", "[1, 2, 10]", "[1,2,10] is not supported"},
        {"up_block_types", "[1, 2, 3, 4]", "element 0"},
        {"warp_factor", "9", "unknown key"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err;
        char begins[96];
        (void)snprintf(begins, sizeof(begins), "unet/config.json: %s: ", cases[i].key);
        assert_int_equal(parse_with(cases[i].key, cases[i].value, &err), -EINVAL);
        if (strncmp(err.text, begins, strlen(begins)) != 0 || !strstr(err.text, cases[i].says))
            fail_msg("%s = %s: %s", cases[i].key, cases[i].value, err.text);
    }
}

/* The config of another model is refused by the model's name, even if it also has unknown keys. */
static void a_model_of_others_is_called_by_its_name(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *says;
    } cases[] = {
        {"addition_embed_type", "\"text_time\"", "this is SDXL's U-Net; sdtrain trains"},
        {"projection_class_embeddings_input_dim", "2560", "this is the U-Net of SDXL's refiner"},
        {"addition_embed_type", "\"text\"", "this is DeepFloyd IF's U-Net"},
        {"addition_embed_type", "\"image\"", "this is Kandinsky 2's U-Net"},
        {"class_embed_type", "\"projection\"", "this is unCLIP's U-Net"},
        {"num_class_embeds", "1000", "this is an upscaler's U-Net"},
        {"architectures", "[\"CLIPTextModel\"]", "CLIPTextModel: this is a model of transformers"},
        {"_class_name", "\"SD3Transformer2DModel\"", "this is Stable Diffusion 3's transformer"},
        {"_class_name", "\"FluxTransformer2DModel\"", "this is Flux's transformer"},
        {"_class_name", "\"UNet2DModel\"", "this is a U-Net without texts"},
        {"_class_name", "\"AutoencoderKL\"", "this is a VAE"},
        {"_class_name", "\"StableDiffusionPipeline\"",
         "a pipeline's; name the config.json in its folder unet"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err;
        char with[160], begins[96];
        (void)snprintf(begins, sizeof(begins), "unet/config.json: %s: ", cases[i].key);
        (void)snprintf(with, sizeof(with), "%s, \"warp_factor\": 9", cases[i].value);
        assert_int_equal(parse_with(cases[i].key, with, &err), -EINVAL);
        if (strncmp(err.text, begins, strlen(begins)) != 0 || !strstr(err.text, cases[i].says))
            fail_msg("%s = %s: %s", cases[i].key, cases[i].value, err.text);
    }
}

static void what_changes_nothing_passes(void **state)
{
    (void)state;
    Error err;
    assert_int_equal(parse_with("upcast_attention", "true", &err), 0);
    assert_int_equal(parse_with("_name_or_path", "\"x/y\"", &err), 0);
    assert_int_equal(parse_with("mid_block_scale_factor", "1.0", &err), 0);
    assert_int_equal(parse_with("sample_size", "null", &err), 0);
    assert_int_equal(parse_with("attention_head_dim", "20", &err), 0);
}

static char fetched[64];

static int fetch(const char *uri, size_t max_bytes, char **ret, size_t *ret_bytes, Error *err)
{
    (void)snprintf(fetched, sizeof(fetched), "%s", uri);
    if (strstr(uri, "away"))
        return error_set(err, -EHOSTUNREACH, "%s: no answer", uri);
    assert_true(strlen(sd2_base) <= max_bytes);
    *ret_bytes = strlen(sd2_base);
    *ret = strdup(sd2_base);
    return 0;
}

static void a_file_or_its_folder_is_read(void **state)
{
    (void)state;
    char folder[] = "/tmp/test-unet-config.XXXXXX", path[64], uri[80];
    Error err = ERROR_INIT;
    UnetConfig c;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/config.json", folder);
    (void)snprintf(uri, sizeof(uri), "file://%s", folder);

    assert_int_equal(unet_config_read(folder, fetch, &c, &err), -ENOENT);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(file_write(path, sd2_base, strlen(sd2_base), 0, &err), 0);
    assert_int_equal(unet_config_read(path, fetch, &c, &err), 0);
    assert_int_equal(unet_config_read(uri, fetch, &c, &err), 0);
    assert_int_equal(c.block_out_channels[0], 320);

    assert_int_equal(unet_config_read("s3://bucket/unet/", fetch, &c, &err), 0);
    assert_string_equal(fetched, "s3://bucket/unet/config.json");
    assert_int_equal(unet_config_read("s3://bucket/small.json", fetch, &c, &err), 0);
    assert_string_equal(fetched, "s3://bucket/small.json");
    assert_int_equal(unet_config_read("s3://away", fetch, &c, &err), -EHOSTUNREACH);
    assert_int_equal(file_write(path, "{", 1, 0, &err), 0);
    assert_int_equal(unet_config_read(folder, fetch, &c, &err), -EINVAL);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(folder_remove(folder, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sd2_base_is_read),
        cmocka_unit_test(formatting_and_reading_give_the_same),
        cmocka_unit_test(absent_keys_have_diffusers_defaults),
        cmocka_unit_test(what_we_do_not_build_is_refused_by_name),
        cmocka_unit_test(a_model_of_others_is_called_by_its_name),
        cmocka_unit_test(what_changes_nothing_passes),
        cmocka_unit_test(a_file_or_its_folder_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
