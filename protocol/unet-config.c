/* SPDX-License-Identifier: Apache-2.0 */
/* unet-config.c - see unet-config.h.
 *
 * There are three classes of keys: keys stored in UnetConfig, keys that must have the one value for which the network
 * is built (fixed[]), and bookkeeping keys of diffusers, which begin with an underscore. Any other key is refused,
 * because a later diffusers may have given it a meaning. */
#include "protocol/unet-config.h"

#include "base/file.h"
#include "base/json/json-build.h"
#include "base/json/json.h"

#include <string.h>
#include <sys/stat.h>

enum { CONFIG_FILE_MAX = 1 << 20, CHANNELS_MAX = 1 << 16 };

static const char class_name[] = "UNet2DConditionModel";
static const char *const down_types[] = {"DownBlock2D", "CrossAttnDownBlock2D"};
static const char *const up_types[] = {"UpBlock2D", "CrossAttnUpBlock2D"};

/* Keys that would change the network, with the only supported value (as JSON), which is also the default of diffusers.
 * An explicit null is not the default: "mid_block_type": null means that there is no such block. */
static const JsonFixed fixed[] = {
    {"addition_embed_type", "null"},
    {"addition_embed_type_num_heads", "64"},
    {"addition_time_embed_dim", "null"},
    {"act_fn", "\"silu\""},
    {"attention_type", "\"default\""},
    {"center_input_sample", "false"},
    {"class_embed_type", "null"},
    {"class_embeddings_concat", "false"},
    {"conv_in_kernel", "3"},
    {"conv_out_kernel", "3"},
    {"cross_attention_norm", "null"},
    {"downsample_padding", "1"},
    {"dropout", "0"},
    {"dual_cross_attention", "false"},
    {"encoder_hid_dim", "null"},
    {"encoder_hid_dim_type", "null"},
    {"mid_block_only_cross_attention", "null"},
    {"mid_block_scale_factor", "1"},
    {"mid_block_type", "\"UNetMidBlock2DCrossAttn\""},
    {"num_attention_heads", "null"},
    {"num_class_embeds", "null"},
    {"only_cross_attention", "false"},
    {"projection_class_embeddings_input_dim", "null"},
    {"resnet_out_scale_factor", "1"},
    {"resnet_skip_time_act", "false"},
    {"resnet_time_scale_shift", "\"default\""},
    {"reverse_transformer_layers_per_block", "null"},
    {"time_cond_proj_dim", "null"},
    {"time_embedding_act_fn", "null"},
    {"time_embedding_dim", "null"},
    {"time_embedding_type", "\"positional\""},
    {"timestep_post_act", "null"},
    {"transformer_layers_per_block", "1"},
};

static const char *const own_keys[] = {
    "sample_size",         "in_channels",           "out_channels",     "block_out_channels",
    "down_block_types",    "up_block_types",        "layers_per_block", "attention_head_dim",
    "cross_attention_dim", "norm_num_groups",       "norm_eps",         "flip_sin_to_cos",
    "freq_shift",          "use_linear_projection", "upcast_attention",
};

static bool is_known_key(const char *key)
{
    for (size_t i = 0; i < ELEMENTSOF(own_keys); i++)
        if (strcmp(own_keys[i], key) == 0)
            return true;
    return json_is_fixed(fixed, ELEMENTSOF(fixed), key) || key[0] == '_';
}

static void check_unknown_keys(JsonReader *reader)
{
    const char *key;
    json_t *value;
    json_object_foreach (reader->object, key, value)
        if (!is_known_key(key))
            json_refuse(reader, key, "unknown key: it may change the network");
}

/* Refuses null for a key: in diffusers null switches a part off ("norm_num_groups"), which sdtrain does not support. */
static void check_nulls(JsonReader *reader)
{
    for (size_t i = 0; i < ELEMENTSOF(own_keys); i++)
        if (json_is_null(json_object_get(reader->object, own_keys[i])) &&
            strcmp(own_keys[i], "sample_size") != 0)
            json_refuse(reader, own_keys[i], "null is not supported");
}

static bool get_count(JsonReader *reader, const char *key, JsonNeed need, int *ret)
{
    int64_t value;
    if (!json_get_int(reader, key, need, 1, CHANNELS_MAX, &value))
        return false;
    *ret = (int)value;
    return true;
}

static void get_channels(JsonReader *reader, UnetConfig *config)
{
    static const char key[] = "block_out_channels";
    json_t *array;
    if (!json_get_array(reader, key, JSON_REQUIRED, UNET_LEVELS_MAX, &array))
        return;
    if (json_array_size(array) == 0) {
        json_refuse(reader, key, "no levels");
        return;
    }
    config->n_levels = (int)json_array_size(array);
    for (int i = 0; i < config->n_levels; i++) {
        json_t *value = json_array_get(array, (size_t)i);
        json_int_t channels = json_integer_value(value); /* 0 if the value is not an integer */
        if (channels < 1 || channels > CHANNELS_MAX) {
            json_refuse(reader, key, "element %d is not an integer in 1..%d", i, CHANNELS_MAX);
            return;
        }
        config->block_out_channels[i] = (int)channels;
    }
}

/* Reads the types of blocks: types[0] is without attention, types[1] with attention. */
static void get_block_types(JsonReader *reader, const char *key, const char *const types[2],
                            int n_levels, bool *ret)
{
    json_t *array;
    if (!json_get_array(reader, key, JSON_REQUIRED, UNET_LEVELS_MAX, &array))
        return;
    if (json_array_size(array) != (size_t)n_levels) {
        json_refuse(reader, key, "%zu blocks, but block_out_channels has %d levels",
                    json_array_size(array), n_levels);
        return;
    }
    for (int i = 0; i < n_levels; i++) {
        const char *type = json_string_value(json_array_get(array, (size_t)i));
        if (!type || (strcmp(type, types[0]) != 0 && strcmp(type, types[1]) != 0)) {
            json_refuse(reader, key, "element %d, %.60s, is neither %s nor %s", i,
                        type ? type : "not a string", types[0], types[1]);
            return;
        }
        ret[i] = strcmp(type, types[1]) == 0;
    }
}

/* Reads the numbers of heads: one number for all levels, or a list with one number per level. */
static void get_heads(JsonReader *reader, UnetConfig *config)
{
    static const char key[] = "attention_head_dim";
    json_t *value;
    if (!json_get_any(reader, key, JSON_OPTIONAL, &value))
        value = NULL;
    if (json_is_array(value) && json_array_size(value) != (size_t)config->n_levels) {
        json_refuse(reader, key, "%zu elements, but block_out_channels has %d levels",
                    json_array_size(value), config->n_levels);
        return;
    }
    for (int i = 0; i < config->n_levels; i++) {
        json_t *each = json_is_array(value) ? json_array_get(value, (size_t)i) : value;
        json_int_t heads = each ? json_integer_value(each) : 8; /* diffusers' default */
        if (heads < 1 || heads > CHANNELS_MAX) {
            json_refuse(reader, key, "expected an integer in 1..%d, or a list of them",
                        CHANNELS_MAX);
            return;
        }
        config->heads[i] = (int)heads;
    }
}

static bool level_has_attention(const UnetConfig *config, int level)
{
    int last = config->n_levels - 1;
    return config->down_attention[level] || config->up_attention[last - level] || level == last;
}

static void check_divisions(JsonReader *reader, const UnetConfig *config)
{
    if (reader->r < 0)
        return;
    /* The time embedding has halves for sine and cosine. */
    if (config->block_out_channels[0] % 2 != 0)
        json_refuse(reader, "block_out_channels", "the first, %d, is odd",
                    config->block_out_channels[0]);
    for (int i = 0; i < config->n_levels; i++) {
        int channels = config->block_out_channels[i];
        if (channels % config->norm_num_groups != 0)
            json_refuse(reader, "norm_num_groups", "%d does not divide the %d channels of level %d",
                        config->norm_num_groups, channels, i);
        if (level_has_attention(config, i) && channels % config->heads[i] != 0)
            json_refuse(reader, "attention_head_dim",
                        "%d heads do not divide the %d channels of level %d", config->heads[i],
                        channels, i);
    }
}

/* Class names of other models in diffusers. Each of them has its own config.json. */
static const struct {
    const char *class_name, *family;
} classes[] = {
    {"SD3Transformer2DModel", "Stable Diffusion 3's transformer"},
    {"FluxTransformer2DModel", "Flux's transformer"},
    {"Flux2Transformer2DModel", "Flux's transformer"},
    {"PixArtTransformer2DModel", "PixArt's transformer"},
    {"DiTTransformer2DModel", "a DiT"},
    {"Transformer2DModel", "a DiT or PixArt's transformer"},
    {"UNetSpatioTemporalConditionModel", "Stable Video Diffusion's U-Net"},
    {"UNetMotionModel", "AnimateDiff's U-Net"},
    {"UNet2DModel", "a U-Net without texts"},
    {"Kandinsky3UNet", "Kandinsky 3's U-Net"},
    {"ControlNetModel", "a ControlNet"},
    {"AutoencoderKL", "a VAE"},
};

/* Values of a UNet2DConditionModel that identify other models. The first match counts. */
static const struct {
    const char *key, *value /* a value as JSON */, *family;
} marks[] = {
    {"projection_class_embeddings_input_dim", "2560", "the U-Net of SDXL's refiner"},
    {"addition_embed_type", "\"text_time\"", "SDXL's U-Net"},
    {"addition_embed_type", "\"text\"", "DeepFloyd IF's U-Net"},
    {"addition_embed_type", "\"image\"", "Kandinsky 2's U-Net"},
    {"addition_embed_type", "\"text_image\"", "Kandinsky 2's U-Net"},
    {"class_embed_type", "\"projection\"", "unCLIP's U-Net"},
    {"num_class_embeds", "1000", "an upscaler's U-Net"},
};

static const char family_ends[] = "; sdtrain trains Stable Diffusion v2's U-Net";

static void refuse_class(JsonReader *reader, const char *name)
{
    const size_t n = strlen(name), n_pipeline = strlen("Pipeline");
    const char *family = NULL;
    for (size_t i = 0; i < ELEMENTSOF(classes); i++)
        if (strcmp(name, classes[i].class_name) == 0)
            family = classes[i].family;
    if (n > n_pipeline && strcmp(name + n - n_pipeline, "Pipeline") == 0)
        json_refuse(reader, "_class_name",
                    "%.60s: this is a pipeline's; name the config.json in its "
                    "folder unet",
                    name);
    else if (family)
        json_refuse(reader, "_class_name", "%.60s is not %s: this is %s%s", name, class_name,
                    family, family_ends);
    else
        json_refuse(reader, "_class_name", "%.60s is not %s", name, class_name);
}

/* Refuses other models by name. This runs before all other checks, because the user of another model should read this
 * error, and not an error about an unknown key. */
static void check_family(JsonReader *reader)
{
    const char *name;
    const json_t *architecture =
        json_array_get(json_object_get(reader->object, "architectures"), 0);
    if (json_get_string(reader, "_class_name", JSON_OPTIONAL, &name) &&
        strcmp(name, class_name) != 0)
        refuse_class(reader, name);
    if (json_is_string(architecture))
        json_refuse(reader, "architectures", "%.60s: this is a model of transformers%s",
                    json_string_value(architecture), family_ends);
    for (size_t i = 0; i < ELEMENTSOF(marks); i++) {
        _cleanup_json_ json_t *value = json_loads(marks[i].value, JSON_DECODE_ANY, NULL);
        if (json_equal(json_object_get(reader->object, marks[i].key), value))
            json_refuse(reader, marks[i].key, "%s: this is %s%s", marks[i].value, marks[i].family,
                        family_ends);
    }
}

int unet_config_parse(const char *source, const char *text, size_t n_bytes, UnetConfig *ret,
                      Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    int r = json_parse(source, text, n_bytes, &root, err);
    if (r < 0)
        return r;

    /* The initial values are the defaults of diffusers. */
    UnetConfig config = {.in_channels = 4,
                         .out_channels = 4,
                         .layers_per_block = 2,
                         .cross_attention_dim = 1280,
                         .norm_num_groups = 32,
                         .norm_eps = 1e-5,
                         .flip_sin_to_cos = true};
    JsonReader reader = json_open(source, root, JSON_ANY_KEYS, err);
    check_family(&reader);
    check_unknown_keys(&reader);
    check_nulls(&reader);
    json_check_fixed(&reader, fixed, ELEMENTSOF(fixed));
    (void)get_count(&reader, "sample_size", JSON_OPTIONAL, &config.sample_size);
    (void)get_count(&reader, "in_channels", JSON_OPTIONAL, &config.in_channels);
    (void)get_count(&reader, "out_channels", JSON_OPTIONAL, &config.out_channels);
    get_channels(&reader, &config);
    get_block_types(&reader, "down_block_types", down_types, config.n_levels,
                    config.down_attention);
    get_block_types(&reader, "up_block_types", up_types, config.n_levels, config.up_attention);
    (void)get_count(&reader, "layers_per_block", JSON_OPTIONAL, &config.layers_per_block);
    get_heads(&reader, &config);
    (void)get_count(&reader, "cross_attention_dim", JSON_OPTIONAL, &config.cross_attention_dim);
    (void)get_count(&reader, "norm_num_groups", JSON_OPTIONAL, &config.norm_num_groups);
    (void)json_get_double(&reader, "norm_eps", JSON_OPTIONAL, 1e-12, 1.0, &config.norm_eps);
    (void)json_get_bool(&reader, "flip_sin_to_cos", JSON_OPTIONAL, &config.flip_sin_to_cos);
    (void)json_get_double(&reader, "freq_shift", JSON_OPTIONAL, 0.0, 1.0, &config.freq_shift);
    (void)json_get_bool(&reader, "use_linear_projection", JSON_OPTIONAL,
                        &config.use_linear_projection);
    (void)json_get_bool(&reader, "upcast_attention", JSON_OPTIONAL, &config.upcast_attention);
    check_divisions(&reader, &config);
    r = json_close(&reader);
    if (r < 0)
        return r;
    *ret = config;
    return 0;
}

static int read_elsewhere(const char *uri, UnetConfigFetch fetch, UnetConfig *ret, Error *err)
{
    static const char suffix[] = ".json", name[] = "config.json";
    size_t n = strlen(uri), n_suffix = strlen(suffix), n_bytes;
    bool is_file = n > n_suffix && strcmp(uri + n - n_suffix, suffix) == 0;
    _cleanup_free_ char *text = NULL, *object = NULL;
    while (n > 0 && uri[n - 1] == '/')
        n--;
    if (asprintf(&object, "%.*s%s%s", (int)n, uri, is_file ? "" : "/", is_file ? "" : name) < 0) {
        object = NULL;
        return error_errno(err, -ENOMEM, "%s", uri);
    }
    int r = fetch(object, CONFIG_FILE_MAX, &text, &n_bytes, err);
    return r < 0 ? r : unet_config_parse(object, text, n_bytes, ret, err);
}

int unet_config_read(const char *uri, UnetConfigFetch fetch, UnetConfig *ret, Error *err)
{
    static const char scheme[] = "file://", name[] = "config.json";
    const char *path = strncmp(uri, scheme, strlen(scheme)) == 0 ? uri + strlen(scheme) : uri;
    if (strstr(path, "://"))
        return read_elsewhere(uri, fetch, ret, err);

    _cleanup_free_ char *text = NULL, *inside = NULL;
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (asprintf(&inside, "%s/%s", path, name) < 0) {
            inside = NULL;
            return error_errno(err, -ENOMEM, "%s", path);
        }
        path = inside;
    }
    size_t n_bytes;
    int r = file_read(path, CONFIG_FILE_MAX, &text, &n_bytes, err);
    if (r < 0)
        return r;
    return unet_config_parse(path, text, n_bytes, ret, err);
}

static json_t *int_array(const int *values, int n)
{
    json_t *array = json_array();
    for (int i = 0; array && i < n; i++)
        if (json_array_append_new(array, json_integer(values[i])) < 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *type_array(const bool *attention, int n, const char *const types[2])
{
    json_t *array = json_array();
    for (int i = 0; array && i < n; i++)
        if (json_array_append_new(array, json_string(types[attention[i]])) < 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

int unet_config_format(const UnetConfig *c, char **ret)
{
    JsonBuild b = json_build();
    json_add_text(&b, "_class_name", class_name);
    json_add(&b, "block_out_channels", int_array(c->block_out_channels, c->n_levels));
    json_add_int(&b, "cross_attention_dim", c->cross_attention_dim);
    json_add_text(&b, "act_fn", "silu");
    json_add_bool(&b, "center_input_sample", false);
    json_add(&b, "attention_head_dim", int_array(c->heads, c->n_levels));
    json_add_int(&b, "downsample_padding", 1);
    json_add(&b, "down_block_types", type_array(c->down_attention, c->n_levels, down_types));
    json_add_int(&b, "out_channels", c->out_channels);
    json_add_bool(&b, "dual_cross_attention", false);
    json_add_bool(&b, "flip_sin_to_cos", c->flip_sin_to_cos);
    json_add_real(&b, "freq_shift", c->freq_shift);
    json_add_int(&b, "in_channels", c->in_channels);
    json_add_int(&b, "layers_per_block", c->layers_per_block);
    json_add_real(&b, "mid_block_scale_factor", 1.0);
    json_add_int(&b, "norm_num_groups", c->norm_num_groups);
    json_add_text(&b, "mid_block_type", "UNetMidBlock2DCrossAttn");
    json_add_real(&b, "norm_eps", c->norm_eps);
    json_add_int(&b, "sample_size", c->sample_size);
    json_add(&b, "up_block_types", type_array(c->up_attention, c->n_levels, up_types));
    json_add_bool(&b, "use_linear_projection", c->use_linear_projection);
    json_add_bool(&b, "upcast_attention", c->upcast_attention);
    _cleanup_json_ json_t *root = json_build_end(&b);
    if (!root)
        return -ENOMEM;
    if (c->sample_size == 0)
        (void)json_object_del(root, "sample_size"); /* sample_size 0: the key was missing */
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    if (!text)
        return -ENOMEM;
    *ret = text;
    return 0;
}
