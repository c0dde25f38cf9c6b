/* SPDX-License-Identifier: Apache-2.0 */
/* test-model-files.c - model folders in the forms that other programs write: old names, other types, and broken
 * files. */
#include "base/file.h"
#include "base/json/json.h"
#include "base/number/bits.h"
#include "base/number/half.h"
#include "encoders/networks/encoder.h"
#include "encoders/networks/model-part.h"
#include "encoders/networks/test/testing-golden.h"

#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/test-model-files-XXXXXX";

/* One tensor of a file that will be written; the Tensor owns its data. */
typedef struct Tensor {
    char name[160], dtype[8];
    int n_dims;
    int64_t dims[8];
    size_t n_bytes;
    char *data;
} Tensor;

typedef struct File {
    Tensor tensors[256];
    size_t n;
} File;

static const char vae_file[] = "vae/diffusion_pytorch_model.safetensors";
static const char text_file[] = "text_encoder/model.safetensors";

static File *file_of_tiny(const char *name)
{
    static const char *const dtypes[] = {"F32", "F16", "BF16", "?"};
    char path[256];
    (void)snprintf(path, sizeof(path), "tests/models/tiny-encoders/%s", name);
    _cleanup_(golden_close) Golden g = golden_open(path);
    File *file = calloc(1, sizeof(*file));
    assert_non_null(file);
    for (size_t i = 0; i < safetensors_count(g.tensors); i++) {
        const SafetensorsEntry *e = safetensors_at(g.tensors, i);
        assert_true(file->n < ELEMENTSOF(file->tensors) - 4);
        Tensor *t = &file->tensors[file->n++];
        (void)snprintf(t->name, sizeof(t->name), "%s", e->name);
        (void)snprintf(t->dtype, sizeof(t->dtype), "%s", dtypes[e->type]);
        t->n_dims = e->n_dims;
        memcpy(t->dims, e->dims, sizeof(t->dims));
        t->n_bytes = (size_t)e->n_bytes;
        t->data = malloc(t->n_bytes);
        assert_non_null(t->data);
        memcpy(t->data, g.file + e->offset, t->n_bytes);
    }
    return file;
}

static File *file_free(File *file)
{
    for (size_t i = 0; file && i < file->n; i++)
        free(file->tensors[i].data);
    free(file);
    return NULL;
}
DEFINE_CLEANUP(File, file_free)

static Tensor *find(File *file, const char *name)
{
    for (size_t i = 0; i < file->n; i++)
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void write_file(const File *file, const char *name)
{
    Error err = ERROR_INIT;
    _cleanup_json_ json_t *root = json_object();
    size_t at = 0;
    for (size_t i = 0; i < file->n; i++) {
        const Tensor *t = &file->tensors[i];
        json_t *shape = json_array();
        for (int d = 0; d < t->n_dims; d++)
            (void)json_array_append_new(shape, json_integer(t->dims[d]));
        (void)json_object_set_new(root, t->name,
                                  json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype, "shape",
                                            shape, "data_offsets", (json_int_t)at,
                                            (json_int_t)(at + t->n_bytes)));
        at += t->n_bytes;
    }
    _cleanup_free_ char *text = json_dumps(root, JSON_COMPACT);
    const uint64_t length = strlen(text);
    char *bytes = malloc(8 + length + at), path[512];
    assert_non_null(bytes);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, text, length);
    at = 8 + length;
    for (size_t i = 0; i < file->n; at += file->tensors[i++].n_bytes)
        memcpy(bytes + at, file->tensors[i].data, file->tensors[i].n_bytes);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (file_write(path, bytes, at, 0, &err) < 0)
        fail_msg("%s", err.text);
    free(bytes);
}

static void copy_of_tiny(const char *name)
{
    Error err = ERROR_INIT;
    char from[512], to[512], path[512], *text;
    size_t n_bytes;
    (void)snprintf(path, sizeof(path), "tests/models/tiny-encoders/%s", name);
    source_path(path, from, sizeof(from));
    (void)snprintf(to, sizeof(to), "%s/%s", folder, name);
    if (file_read(from, 4 << 20, &text, &n_bytes, &err) < 0 ||
        file_write(to, text, n_bytes, 0, &err) < 0)
        fail_msg("%s", err.text);
    free(text);
}

/* Makes a whole folder with the files in the source tree. */
static int fresh_folder(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    char path[512];
    static const char *const parts[] = {"vae", "text_encoder"};
    if (folder_remove(folder, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < ELEMENTSOF(parts); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, parts[i]);
        if (folder_make(path, &err) < 0)
            fail_msg("%s", err.text);
    }
    copy_of_tiny(vae_file);
    copy_of_tiny(text_file);
    copy_of_tiny("vae/config.json");
    copy_of_tiny("text_encoder/config.json");
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    return folder_remove(folder, &err);
}

static void change_config(const char *name, const char *from, const char *to)
{
    Error err = ERROR_INIT;
    char path[512], whole[4096], *text, *at;
    size_t n_bytes;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(file_read(path, sizeof(whole) / 2, &text, &n_bytes, &err), 0);
    at = strstr(text, from);
    assert_non_null(at);
    (void)snprintf(whole, sizeof(whole), "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_int_equal(file_write(path, whole, strlen(whole), 0, &err), 0);
    free(text);
}

static int first_id;

/* Opens the folder and, if that succeeds, runs a sample: *ret_hash gets the weights' hash, ret_latents and ret_text the
 * results. */
static int open_and_run(Hash *ret_hash, uint16_t *ret_latents, uint16_t *ret_text, Error *err)
{
    _cleanup_(device_freep) Device *device = open_cpu(1);
    _cleanup_(encoder_freep) Encoder *encoder = NULL;
    const EncoderOptions options = {.model = folder, .side = 64, .batch = 1};
    int r = encoder_open(device, &options, &encoder, err);
    if (r < 0)
        return r;
    static uint8_t pixels[64 * 64 * 3];
    static int32_t ids[77];
    for (size_t i = 0; i < sizeof(pixels); i++)
        pixels[i] = (uint8_t)(i * 37 % 251);
    for (int i = 0; i < 77; i++)
        ids[i] = first_id + i * 13 % 1024;
    *ret_hash = encoder_weights_hash(encoder);
    return encoder_run(encoder, 1, pixels, ids, ret_latents, ret_text, err);
}

typedef struct Outcome {
    Hash hash;
    uint16_t latents[256], text[77 * 64];
} Outcome;

static Outcome outcome(void)
{
    Error err = ERROR_INIT;
    Outcome o;
    memset(&o, 0, sizeof(o));
    if (open_and_run(&o.hash, o.latents, o.text, &err) < 0)
        fail_msg("%s", err.text);
    return o;
}

static void assert_same(const Outcome *a, const Outcome *b)
{
    assert_true(hash_equal(a->hash, b->hash));
    assert_memory_equal(a->latents, b->latents, sizeof(a->latents));
    assert_memory_equal(a->text, b->text, sizeof(a->text));
}

/* Checks that opening fails with r and that the error's text contains both words. */
static void assert_refused(int r, const char *first, const char *second)
{
    Error err = ERROR_INIT;
    Outcome o;
    const int found = open_and_run(&o.hash, o.latents, o.text, &err);
    if (found != r || !strstr(err.text, first) || !strstr(err.text, second))
        fail_msg("%d instead of %d: %s", found, r, err.text);
}

/* ---- other forms of the same weights ---- */

static void replace(char *name, size_t size, const char *from, const char *to)
{
    char whole[256], *at = strstr(name, from);
    if (!at)
        return;
    (void)snprintf(whole, sizeof(whole), "%.*s%s%s", (int)(at - name), name, to, at + strlen(from));
    (void)snprintf(name, size, "%s", whole);
}

static void add_position_ids(File *file, const char *name)
{
    Tensor *t = &file->tensors[file->n++];
    *t = (Tensor){.dtype = "I64", .n_dims = 2, .dims = {1, 77}, .n_bytes = 77 * 8};
    (void)snprintf(t->name, sizeof(t->name), "%s", name);
    t->data = calloc(77, 8);
    assert_non_null(t->data);
}

/* Files in the form of 2022 give the same weights: attention's old names, matrices as convolutions, position_ids. */
static void old_files_are_the_same_weights(void **state)
{
    (void)state;
    const Outcome plain = outcome();
    _cleanup_(file_freep) File *vae = file_of_tiny(vae_file), *text = file_of_tiny(text_file);
    int n_renamed = 0;
    for (size_t i = 0; i < vae->n; i++) {
        Tensor *t = &vae->tensors[i];
        if (!strstr(t->name, ".to_"))
            continue;
        replace(t->name, sizeof(t->name), ".to_q.", ".query.");
        replace(t->name, sizeof(t->name), ".to_k.", ".key.");
        replace(t->name, sizeof(t->name), ".to_v.", ".value.");
        replace(t->name, sizeof(t->name), ".to_out.0.", ".proj_attn.");
        if (t->n_dims == 2) {
            t->dims[2] = t->dims[3] = 1;
            t->n_dims = 4;
        }
        n_renamed++;
    }
    assert_int_equal(n_renamed, 16);
    add_position_ids(text, "text_model.embeddings.position_ids");
    write_file(vae, vae_file);
    write_file(text, text_file);
    const Outcome old = outcome();
    assert_same(&old, &plain);
}

static void names_without_text_model_are_the_same_weights(void **state)
{
    (void)state;
    const Outcome plain = outcome();
    _cleanup_(file_freep) File *text = file_of_tiny(text_file);
    for (size_t i = 0; i < text->n; i++)
        replace(text->tensors[i].name, sizeof(text->tensors[i].name), "text_model.", "");
    add_position_ids(text, "embeddings.position_ids");
    write_file(text, text_file);
    const Outcome without = outcome();
    assert_same(&without, &plain);
}

static float value_at(const Tensor *t, size_t i)
{
    uint16_t half;
    float f;
    if (strcmp(t->dtype, "F32") == 0) {
        memcpy(&f, t->data + i * 4, 4);
        return f;
    }
    memcpy(&half, t->data + i * 2, 2);
    return strcmp(t->dtype, "F16") == 0 ? half_to_float(half)
                                        : float_from_bits((uint32_t)half << 16);
}

/* Converts the tensor to another type; bits that the type cannot hold are cut off. */
static void convert(Tensor *t, const char *dtype)
{
    const size_t width = strcmp(dtype, "F32") == 0 ? 4 : 2;
    const size_t n = t->n_bytes / (strcmp(t->dtype, "F32") == 0 ? 4 : 2);
    char *data = malloc(n * width);
    assert_non_null(data);
    for (size_t i = 0; i < n; i++) {
        const float f = value_at(t, i);
        const uint16_t half =
            strcmp(dtype, "F16") == 0 ? half_from_float(f) : (uint16_t)(float_bits(f) >> 16);
        memcpy(data + i * width, width == 4 ? (const void *)&f : &half, width);
    }
    free(t->data);
    t->data = data;
    t->n_bytes = n * width;
    (void)snprintf(t->dtype, sizeof(t->dtype), "%s", dtype);
}

static void convert_all(const char *name, const char *first, const char *then)
{
    _cleanup_(file_freep) File *file = file_of_tiny(name);
    for (size_t i = 0; i < file->n; i++) {
        convert(&file->tensors[i], first);
        convert(&file->tensors[i], then);
    }
    write_file(file, name);
}

/* A file of 16-bit numbers gives the same results as a file of the same numbers in fp32. */
static void every_type_is_read(void **state)
{
    (void)state;
    const Outcome plain = outcome();
    static const char *const narrow[] = {"F16", "BF16"};
    for (size_t i = 0; i < ELEMENTSOF(narrow); i++) {
        convert_all(vae_file, narrow[i], narrow[i]);
        convert_all(text_file, narrow[i], narrow[i]);
        const Outcome small = outcome();
        convert_all(vae_file, narrow[i], "F32");
        convert_all(text_file, narrow[i], "F32");
        const Outcome wide = outcome();
        assert_same(&small, &wide);
        /* The original weights are fp32 and do not fit 16 bits. */
        assert_false(hash_equal(small.hash, plain.hash));
    }
}

static void the_file_of_halves_is_found(void **state)
{
    (void)state;
    const Outcome plain = outcome();
    static const char *const names[][2] = {{"vae/diffusion_pytorch_model.safetensors",
                                            "vae/diffusion_pytorch_model.fp16.safetensors"},
                                           {"text_encoder/model.safetensors",
                                            "text_encoder/model.fp16.safetensors"}};
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        char from[512], to[512];
        (void)snprintf(from, sizeof(from), "%s/%s", folder, names[i][0]);
        (void)snprintf(to, sizeof(to), "%s/%s", folder, names[i][1]);
        assert_int_equal(rename(from, to), 0);
    }
    const Outcome found = outcome();
    assert_same(&found, &plain);
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, names[1][1]);
    assert_int_equal(unlink(path), 0);
    assert_refused(-ENOENT, "text_encoder", "model.fp16.safetensors");
}

/* The hash covers each tensor that is used and the values of the configs, and nothing else. */
static void the_hash_is_of_what_is_used(void **state)
{
    (void)state;
    const Outcome plain = outcome();
    static const struct {
        const char *file, *tensor;
        bool used;
    } cases[] = {
        {vae_file, "encoder.conv_in.bias", true},
        {vae_file, "quant_conv.weight", true},
        {vae_file, "decoder.conv_in.bias", false},
        {vae_file, "post_quant_conv.weight", false},
        {text_file, "text_model.final_layer_norm.bias", true},
        {text_file, "text_model.embeddings.token_embedding.weight", true},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_(file_freep) File *file = file_of_tiny(cases[i].file);
        Tensor *t = find(file, cases[i].tensor);
        t->data[t->n_bytes - 2] ^= 1; /* flips a bit of the last value */
        write_file(file, cases[i].file);
        const Outcome changed = outcome();
        if (hash_equal(changed.hash, plain.hash) == cases[i].used)
            fail_msg("%s", cases[i].tensor);
        copy_of_tiny(cases[i].file);
    }
    /* Other networks with the same tensors have other hashes. */
    change_config("text_encoder/config.json", "\"num_attention_heads\": 4",
                  "\"num_attention_heads\": 8");
    const Outcome heads = outcome();
    assert_false(hash_equal(heads.hash, plain.hash));
    copy_of_tiny("text_encoder/config.json");
    change_config("vae/config.json", "\"norm_num_groups\": 8", "\"norm_num_groups\": 4");
    const Outcome groups = outcome();
    assert_false(hash_equal(groups.hash, plain.hash));
}

/* The vocabulary becomes 20 times as large, and the tensor with its rows larger than one piece. The last 1,024 ids have
 * the same rows as the first 1,024 ids, so they give the same texts. */
static void a_large_tensor_is_read_by_pieces(void **state)
{
    (void)state;
    enum { ROWS = 20 * 1024 };
    const Outcome plain = outcome();
    _cleanup_(file_freep) File *file = file_of_tiny(text_file);
    Tensor *t = find(file, "text_model.embeddings.token_embedding.weight");
    const size_t once = t->n_bytes;
    t->dims[0] = ROWS;
    t->n_bytes = 20 * once;
    t->data = realloc(t->data, t->n_bytes);
    assert_non_null(t->data);
    memset(t->data + once, 0, 18 * once);
    memcpy(t->data + 19 * once, t->data, once);
    write_file(file, text_file);
    change_config("text_encoder/config.json", "\"vocab_size\": 1024", "\"vocab_size\": 20480");
    Error err = ERROR_INIT;
    Outcome o;
    for (int i = 0; i < 20; i += 19) {
        first_id = i * 1024;
        const int r = open_and_run(&o.hash, o.latents, o.text, &err);
        first_id = 0;
        if (r < 0)
            fail_msg("%s", err.text);
        assert_memory_equal(o.text, plain.text, sizeof(o.text));
    }
}

/* ---- broken files ---- */

static void drop(File *file, const char *name)
{
    Tensor *t = find(file, name);
    free(t->data);
    *t = file->tensors[--file->n];
}

static void tensors_that_do_not_fit_are_named(void **state)
{
    (void)state;
    static const char *const to_q = "encoder.mid_block.attentions.0.to_q.weight";
    for (int i = 0; i < 10; i++) {
        _cleanup_(file_freep) File *vae = file_of_tiny(vae_file), *text = file_of_tiny(text_file);
        Tensor *t = find(vae, to_q);
        const char *first = to_q, *second = "";
        switch (i) {
        case 0:
            drop(vae, to_q);
            second = "missing";
            break;
        case 1:
            drop(text, "text_model.encoder.layers.1.mlp.fc2.bias");
            first = "text_model.encoder.layers.1.mlp.fc2.bias";
            second = "text_encoder/model.safetensors";
            break;
        case 2:
            (void)snprintf(t->name, sizeof(t->name), "encoder.mid_block.attentions.1.to_q.weight");
            first = "encoder.mid_block.attentions.1.to_q.weight";
            second = "none of the network";
            break;
        case 3:
            (void)snprintf(text->tensors[0].name, sizeof(text->tensors[0].name),
                           "text_projection.weight");
            first = "text_projection.weight";
            second = "none of the network";
            break;
        case 4:
            t->dims[0] = 8;
            t->dims[1] = 32;
            second = "8x32, the config wants 16x16";
            break;
        case 5: /* a 3x3 convolution is not a matrix */
            t->n_dims = 4;
            t->dims[0] = t->dims[1] = 4;
            t->dims[2] = t->dims[3] = 4;
            second = "4x4x4x4";
            break;
        case 6: /* the file has a tensor under its old and its present name */
            drop(vae, "encoder.mid_block.attentions.0.to_k.weight");
            t = &vae->tensors[vae->n++];
            *t = *find(vae, to_q);
            t->data = malloc(t->n_bytes);
            assert_non_null(t->data);
            memset(t->data, 0, t->n_bytes);
            (void)snprintf(t->name, sizeof(t->name), "encoder.mid_block.attentions.0.query.weight");
            second = "are the same one";
            break;
        case 7:
            (void)snprintf(t->dtype, sizeof(t->dtype), "I32");
            second = " is I32; convert it";
            break;
        case 8: /* a 2x1 convolution is not a matrix */
            t->n_dims = 4;
            t->dims[2] = 2;
            t->dims[3] = 1;
            t->n_bytes *= 2;
            t->data = realloc(t->data, t->n_bytes);
            assert_non_null(t->data);
            memset(t->data, 0, t->n_bytes);
            second = "16x16x2x1, the config wants 16x16";
            break;
        default:
            memset(t->name, 'x', sizeof(t->name) - 1);
            first = "xxxxxxxx";
            second = "none of the network";
        }
        write_file(vae, vae_file);
        write_file(text, text_file);
        assert_refused(-EINVAL, first, second);
    }
}

/* A config may require terabytes. A tensor that is smaller is named in the error before any memory is allocated. */
static void a_config_of_terabytes_is_not_obeyed(void **state)
{
    (void)state;
    static const char config[] = "text_encoder/config.json";
    change_config(config, "\"hidden_size\": 64", "\"hidden_size\": 65536");
    change_config(config, "\"intermediate_size\": 128", "\"intermediate_size\": 65536");
    change_config(config, "\"max_position_embeddings\": 77", "\"max_position_embeddings\": 65536");
    assert_refused(-EINVAL, "tensor text_model.", ", the config wants 65536");
}

static void values_that_are_not_finite_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        uint32_t bits;
    } cases[] = {{"F32", 0x7fc00000}, {"F32", 0xff800000}, {"F16", 0x7e00},
                 {"F16", 0xfc00},     {"BF16", 0x7fc0},    {"BF16", 0x7f80}};
    static const char *const name = "encoder.mid_block.resnets.1.conv2.weight";
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_(file_freep) File *vae = file_of_tiny(vae_file);
        Tensor *t = find(vae, name);
        convert(t, cases[i].dtype);
        const size_t width = i < 2 ? 4 : 2;
        memcpy(t->data + t->n_bytes - width, &cases[i].bits, width);
        write_file(vae, vae_file);
        assert_refused(-EBADMSG, name, "not finite");
    }
}

static void broken_files_are_named(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    char path[512], *bytes;
    size_t n_bytes;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, vae_file);
    assert_int_equal(file_read(path, 4 << 20, &bytes, &n_bytes, &err), 0);
    const size_t lengths[] = {0, 7, 100, n_bytes / 2, n_bytes - 1};
    for (size_t i = 0; i < ELEMENTSOF(lengths); i++) {
        assert_int_equal(file_write(path, bytes, lengths[i], 0, &err), 0);
        assert_refused(-EBADMSG, vae_file, i < 3 ? "bytes" : "tensor ");
    }
    free(bytes);
}

/* Results that a half cannot hold end the run with an error. */
static void results_that_are_not_finite_end_the_run(void **state)
{
    (void)state;
    static const struct {
        const char *file, *tensor, *said;
    } cases[] = {{vae_file, "quant_conv.bias", "the latent"},
                 {text_file, "text_model.final_layer_norm.bias", "text"},
                 {vae_file, "encoder.mid_block.resnets.1.conv2.weight", "the latent"}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_(file_freep) File *file = file_of_tiny(cases[i].file);
        Tensor *t = find(file, cases[i].tensor);
        convert(t, "F32");
        const float large = i == 2 ? 3e38f : 1e6f;
        memcpy(t->data, &large, sizeof(large));
        if (i == 2)
            memcpy(t->data + sizeof(large), &large, sizeof(large));
        write_file(file, cases[i].file);
        assert_refused(-EDOM, "sample 0", cases[i].said);
        copy_of_tiny(cases[i].file);
    }
}

static void test_names(void **state)
{
    (void)state;
    static const char *const vae[][2] = {
        {"encoder.mid_block.attentions.0.query.bias", "encoder.mid_block.attentions.0.to_q.bias"},
        {"decoder.mid_block.attentions.0.proj_attn.weight",
         "decoder.mid_block.attentions.0.to_out.0.weight"},
        {"encoder.mid_block.attentions.0.to_v.bias", "encoder.mid_block.attentions.0.to_v.bias"},
        {"query.weight", "query.weight"},
    };
    char name[PARAMETER_NAME_MAX], longest[2 * PARAMETER_NAME_MAX];
    for (size_t i = 0; i < ELEMENTSOF(vae); i++) {
        assert_true(model_tensor_name(MODEL_VAE, vae[i][0], name));
        assert_string_equal(name, vae[i][1]);
    }
    assert_true(model_tensor_name(MODEL_TEXT_ENCODER, "final_layer_norm.bias", name));
    assert_string_equal(name, "text_model.final_layer_norm.bias");
    memset(longest, 'a', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    assert_false(model_tensor_name(MODEL_VAE, longest, name));
    assert_false(model_tensor_name(MODEL_TEXT_ENCODER, longest, name));
}

int main(void)
{
    assert_non_null(mkdtemp(folder));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(old_files_are_the_same_weights, fresh_folder),
        cmocka_unit_test_setup(names_without_text_model_are_the_same_weights, fresh_folder),
        cmocka_unit_test_setup(every_type_is_read, fresh_folder),
        cmocka_unit_test_setup(the_file_of_halves_is_found, fresh_folder),
        cmocka_unit_test_setup(the_hash_is_of_what_is_used, fresh_folder),
        cmocka_unit_test_setup(a_large_tensor_is_read_by_pieces, fresh_folder),
        cmocka_unit_test_setup(tensors_that_do_not_fit_are_named, fresh_folder),
        cmocka_unit_test_setup(a_config_of_terabytes_is_not_obeyed, fresh_folder),
        cmocka_unit_test_setup(values_that_are_not_finite_are_named, fresh_folder),
        cmocka_unit_test_setup(broken_files_are_named, fresh_folder),
        cmocka_unit_test_setup(results_that_are_not_finite_end_the_run, fresh_folder),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, remove_folder);
}
