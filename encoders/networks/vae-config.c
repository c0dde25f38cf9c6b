/* SPDX-License-Identifier: Apache-2.0 */
/* vae-config.c - see vae-config.h. Keys are in the same classes as in unet-config.c. */
#include "encoders/networks/vae-config.h"

#include "base/json/json.h"

#include <string.h>

enum { CHANNELS_MAX = 1 << 14, LAYERS_MAX = 64 };

static const double sdxl_scaling_factor = 0.13025;

static const char *const down_type = "DownEncoderBlock2D", *const up_type = "UpDecoderBlock2D";

static const JsonFixed fixed[] = {
    {"_class_name", "\"AutoencoderKL\""},
    {"act_fn", "\"silu\""},
    {"in_channels", "3"},
    {"latents_mean", "null"},
    {"latents_std", "null"},
    {"mid_block_add_attention", "true"},
    {"out_channels", "3"},
    {"shift_factor", "null"},
    {"use_post_quant_conv", "true"},
    {"use_quant_conv", "true"},
};

/* Two of these keys have no effect here: force_upcast recommends fp32 to users of fp16, and sample_size is the training
 * size. */
static const char *const own_keys[] = {
    "block_out_channels", "down_block_types", "up_block_types",
    "layers_per_block",   "latent_channels",  "norm_num_groups",
    "scaling_factor",     "force_upcast",     "sample_size",
};

static bool is_known(const char *key)
{
    for (size_t i = 0; i < ELEMENTSOF(own_keys); i++)
        if (strcmp(own_keys[i], key) == 0)
            return true;
    return json_is_fixed(fixed, ELEMENTSOF(fixed), key) || key[0] == '_';
}

static void check_keys(JsonReader *reader)
{
    const char *key;
    json_t *value;
    json_object_foreach (reader->object, key, value) {
        if (!is_known(key))
            json_refuse(reader, key, "unknown key: it may change the network");
        else if (json_is_null(value) && !json_is_fixed(fixed, ELEMENTSOF(fixed), key) &&
                 key[0] != '_')
            json_refuse(reader, key, "null is not supported");
    }
}

static void get_channels(JsonReader *reader, VaeConfig *config)
{
    static const char key[] = "block_out_channels";
    json_t *array;
    if (!json_get_array(reader, key, JSON_REQUIRED, VAE_LEVELS_MAX, &array))
        return;
    config->n_levels = (int)json_array_size(array);
    if (config->n_levels == 0)
        json_refuse(reader, key, "no levels");
    for (int i = 0; i < config->n_levels; i++) {
        const json_int_t channels = json_integer_value(json_array_get(array, (size_t)i));
        /* channels is 0 if the element is not an integer. */
        if (channels < 1 || channels > CHANNELS_MAX)
            json_refuse(reader, key, "element %d is not an integer in 1..%d", i, CHANNELS_MAX);
        config->block_out_channels[i] = (int)channels;
    }
}

static void check_block_types(JsonReader *reader, const char *key, const char *type, int n_levels)
{
    json_t *array;
    if (!json_get_array(reader, key, JSON_REQUIRED, VAE_LEVELS_MAX, &array))
        return;
    if (json_array_size(array) != (size_t)n_levels)
        json_refuse(reader, key, "%zu blocks, but block_out_channels has %d levels",
                    json_array_size(array), n_levels);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *found = json_string_value(json_array_get(array, i));
        if (!found || strcmp(found, type) != 0)
            json_refuse(reader, key, "element %zu, %.60s, is not supported, only %s", i,
                        found ? found : "not a string", type);
    }
}

static void check_divisions(JsonReader *reader, const VaeConfig *config)
{
    for (int i = 0; reader->r == 0 && i < config->n_levels; i++)
        if (config->block_out_channels[i] % config->norm_num_groups != 0)
            json_refuse(reader, "norm_num_groups", "%d does not divide the %d channels of level %d",
                        config->norm_num_groups, config->block_out_channels[i], i);
}

static void get_count(JsonReader *reader, const char *key, int max, int *ret)
{
    int64_t value;
    if (json_get_int(reader, key, JSON_OPTIONAL, 1, max, &value))
        *ret = (int)value;
}

int vae_config_parse(const char *source, const char *text, size_t n_bytes, VaeConfig *ret,
                     Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    int r = json_parse(source, text, n_bytes, &root, err);
    if (r < 0)
        return r;

    /* The library diffusers uses these values for keys that are missing in the config. */
    VaeConfig config = {.latent_channels = 4,
                        .layers_per_block = 1,
                        .norm_num_groups = 32,
                        .scaling_factor = 0.18215};
    JsonReader reader = json_open(source, root, JSON_ANY_KEYS, err);
    json_check_fixed(&reader, fixed, ELEMENTSOF(fixed));
    check_keys(&reader);
    get_channels(&reader, &config);
    check_block_types(&reader, "down_block_types", down_type, config.n_levels);
    check_block_types(&reader, "up_block_types", up_type, config.n_levels);
    get_count(&reader, "layers_per_block", LAYERS_MAX, &config.layers_per_block);
    get_count(&reader, "latent_channels", CHANNELS_MAX, &config.latent_channels);
    get_count(&reader, "norm_num_groups", CHANNELS_MAX, &config.norm_num_groups);
    (void)json_get_double(&reader, "scaling_factor", JSON_OPTIONAL, 1e-6, 1e6,
                          &config.scaling_factor);
    if (config.scaling_factor == sdxl_scaling_factor)
        json_refuse(&reader, "scaling_factor",
                    "%g is SDXL's VAE; a U-Net of Stable Diffusion 2 needs that of its own family",
                    config.scaling_factor);
    check_divisions(&reader, &config);
    r = json_close(&reader);
    if (r < 0)
        return r;
    *ret = config;
    return 0;
}
