/* SPDX-License-Identifier: Apache-2.0 */
/* test-weights.c - what weights_match() reports for safetensors headers of many models, compared with the network of
 * Stable Diffusion v2. */
#include "base/test/testing.h"
#include "nn/test/testing-sd2.h"
#include "nn/weights/weights-family.h"
#include "nn/weights/weights-match.h"

#include <string.h>

enum { ENTRIES_MAX = 800 };

typedef struct Fixture {
    ParameterList *network;
    SafetensorsEntry entries[ENTRIES_MAX];
    char names[ENTRIES_MAX][160];
    size_t n;
    char *header;
    Safetensors *file;
    Error err;
} Fixture;

static int set_up(void **state)
{
    Fixture *f = calloc(1, sizeof(*f));
    Error err = ERROR_INIT;
    const UnetConfig config = sd2_base;
    *state = f;
    return f && unet_parameters(&config, &f->network, &err) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    Fixture *f = *state;
    parameter_list_free(f->network);
    free(f);
    return 0;
}

static void begin(Fixture *f)
{
    f->n = 0;
    f->err = ERROR_INIT;
}

static void add(Fixture *f, const char *prefix, const char *name, int n_dims, const int64_t *dims)
{
    assert_true(f->n < ENTRIES_MAX);
    SafetensorsEntry *e = &f->entries[f->n];
    (void)snprintf(f->names[f->n], sizeof(f->names[0]), "%s%s", prefix, name);
    *e = (SafetensorsEntry){.name = f->names[f->n++], .n_dims = n_dims};
    for (int i = 0; i < n_dims; i++)
        e->dims[i] = dims[i];
}

static void add_one(Fixture *f, const char *name, int64_t rows, int64_t columns)
{
    add(f, "", name, 2, (const int64_t[]){rows, columns});
}

static void add_network(Fixture *f, const char *prefix)
{
    for (size_t i = 0; i < f->network->n_items; i++)
        add(f, prefix, f->network->items[i].name, f->network->items[i].n_dims,
            f->network->items[i].dims);
}

/* Opens a file that is as long as its header says. dtype replaces each F32 of the header, and has three characters;
 * NULL keeps F32. */
static void open_file(Fixture *f, const char *dtype)
{
    size_t n;
    uint64_t end;
    assert_int_equal(safetensors_header(f->entries, f->n, &f->header, &n, &f->err), 0);
    const SafetensorsEntry *last = &f->entries[f->n - 1];
    end = last->offset + last->n_bytes;
    for (char *at = f->header + 8;
         dtype && (at = memmem(at, n - (size_t)(at - f->header), "F32", 3));)
        memcpy(at, dtype, 3);
    assert_int_equal(safetensors_open("a.safetensors", f->header, n, end, SAFETENSORS_ANY, &f->file,
                                      &f->err),
                     0);
}

static void close_file(Fixture *f)
{
    f->file = safetensors_free(f->file);
    free(f->header);
    f->header = NULL;
}

/* Checks that the error contains each of the words; the list ends with "". */
static void check_refused(Fixture *f, const char *const words[])
{
    open_file(f, NULL);
    assert_int_equal(weights_match("a.safetensors", f->file, f->network, &f->err), -EINVAL);
    for (size_t i = 0; words[i][0]; i++)
        if (!strstr(f->err.text, words[i]))
            fail_msg("no \"%s\" in: %s", words[i], f->err.text);
    close_file(f);
}
#define REFUSED(f, ...) check_refused(f, (const char *const[]){"a.safetensors: ", __VA_ARGS__, ""})

static void test_fits(void **state)
{
    Fixture *f = *state;
    begin(f);
    add_network(f, "");
    open_file(f, NULL);
    assert_int_equal(weights_match("a", f->file, f->network, &f->err), 0);
    assert_null(weights_family(f->file, f->network).name);
    close_file(f);
}

static void test_names(void **state)
{
    Fixture *f = *state;
    begin(f);
    add_network(f, "");
    f->n--; /* removes the network's last tensor */
    REFUSED(f, "tensor conv_out.bias is missing");
    assert_null(strstr(f->err.text, "more"));

    begin(f);
    add_network(f, "");
    add_one(f, "unused", 0, 4);
    REFUSED(f, "tensor unused (F32, 0x4) is none of the network's");
    assert_null(strstr(f->err.text, "missing"));

    begin(f);
    add_network(f, "");
    (void)snprintf(f->names[0], sizeof(f->names[0]), "first");
    (void)snprintf(f->names[7], sizeof(f->names[7]), "seventh");
    REFUSED(f, "tensor conv_in.weight is missing (and 1 more)", "tensor first (F32, 320x4x3x3)",
            "(and 1 more)");

    begin(f);
    add_network(f, "");
    f->entries[0].dims[0] = 321;
    REFUSED(f, "tensor conv_in.weight is 321x4x3x3, the network's is 320x4x3x3");
    assert_null(strstr(f->err.text, "more"));

    begin(f); /* the file stores a matrix as a convolution of 1x1 */
    add_network(f, "");
    f->entries[2].n_dims = 4;
    f->entries[2].dims[2] = f->entries[2].dims[3] = 1;
    REFUSED(f, "tensor time_embedding.linear_1.weight is 1280x320x1x1, the network's is 1280x320");
}

static void test_prefixes(void **state)
{
    Fixture *f = *state;
    static const char *const prefixes[] = {"module.", "_orig_mod.", "unet.", "module._orig_mod.",
                                           "model.diffusion_model."};
    for (size_t i = 0; i < ELEMENTSOF(prefixes); i++) {
        char quoted[64];
        (void)snprintf(quoted, sizeof(quoted), "begin with \"%s\" (%sconv_in.weight)", prefixes[i],
                       prefixes[i]);
        begin(f);
        add_network(f, prefixes[i]);
        REFUSED(f, quoted, "a file of these tensors, each without it");
        begin(f);
        add_network(f, prefixes[i]);
        add_one(f, "optimizer.step", 1, 1);
        REFUSED(f, quoted, "other tensors lie beside them", "only these tensors");
    }
    begin(f); /* one name with the same ending does not make a prefix */
    add_network(f, "");
    f->n--;
    add(f, "copy.", "conv_in.weight", 1, (const int64_t[]){1});
    REFUSED(f, "conv_out.bias is missing", "copy.conv_in.weight");
}

static void test_types(void **state)
{
    Fixture *f = *state;
    begin(f);
    add_network(f, "");
    open_file(f, "I32");
    assert_int_equal(weights_match("a", f->file, f->network, &f->err), -EINVAL);
    assert_non_null(strstr(f->err.text, "tensor conv_in.weight is I32 (and 685 more)"));
    assert_non_null(strstr(f->err.text, "convert them to F32, F16 or BF16"));
    close_file(f);
}

/* Each file has one tensor of a family, between tensors of no family. The names and widths are those of the published
 * models. */
static void test_families(void **state)
{
    Fixture *f = *state;
    static const struct {
        const char *name;
        int64_t rows, columns;
        const char *family;
    } cases[] = {
        {"lora_unet_mid_block.lora_down.weight", 4, 1280, "this is a LoRA"},
        {"unet.mid_block.attn1.processor.to_q_lora.lora.down.weight", 4, 1280, "a LoRA"},
        {"base_model.model.conv.lora_A.default.weight", 4, 320, "a LoRA"},
        {"controlnet_cond_embedding.conv_in.weight", 16, 3, "a ControlNet"},
        {"control_model.input_hint_block.0.weight", 16, 3, "a ControlNet"},
        {"down_blocks.0.motion_modules.0.temporal_transformer.norm.weight", 320, 1, "AnimateDiff"},
        {"down_blocks.0.resnets.0.temporal_res_block.norm1.weight", 320, 1, "Video Diffusion"},
        {"model.diffusion_model.double_blocks.0.img_attn.qkv.weight", 9216, 3072, "Flux's"},
        {"single_transformer_blocks.0.proj_mlp.weight", 12288, 3072, "Flux's"},
        {"model.diffusion_model.joint_blocks.0.context_block.attn.qkv.weight", 4608, 1536,
         "Stable Diffusion 3's"},
        {"transformer_blocks.0.attn.add_q_proj.weight", 1536, 1536, "Stable Diffusion 3's"},
        {"adaln_single.linear.weight", 6912, 1152, "PixArt's"},
        {"add_embedding.linear_1.weight", 1280, 2816, "this is SDXL's U-Net ("},
        {"module.add_embedding.linear_1.weight", 1536, 2560, "the U-Net of SDXL's refiner"},
        {"model.diffusion_model.label_emb.0.0.weight", 1280, 2816, "SDXL's U-Net, under the names"},
        {"label_emb.0.0.weight", 1536, 2560, "SDXL's refiner, under"},
        {"label_emb.0.0.weight", 1280, 1536, "unCLIP's U-Net, under"},
        {"class_embedding.linear_1.weight", 1280, 2048, "unCLIP's U-Net"},
        {"class_embedding.weight", 1000, 1024, "an upscaler's U-Net"},
        {"label_emb.weight", 1000, 1024, "an upscaler's U-Net, under"},
        {"conv_in.weight", 320, 9, "an inpainting U-Net"},
        {"input_blocks.0.0.weight", 320, 9, "an inpainting U-Net, under"},
        {"conv_in.weight", 320, 5, "a depth map"},
        {"input_blocks.0.0.weight", 320, 5, "a depth map, under"},
        {"conv_in.weight", 320, 8, "InstructPix2Pix's"},
        {"input_blocks.0.0.weight", 320, 8, "InstructPix2Pix's U-Net, under"},
        {"down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.weight", 320, 768,
         "this is Stable Diffusion 1's U-Net ("},
        {"input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight", 320, 768,
         "Stable Diffusion 1's U-Net, under"},
        {"input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight", 320, 1024,
         "Stable Diffusion 2's U-Net, under the names of CompVis' code"},
        {"input_blocks.0.0.weight", 320, 4, "this is a U-Net, under"},
        {"encoder.down_blocks.0.resnets.0.conv1.weight", 128, 128, "a VAE"},
        {"encoder.down.0.block.0.conv1.weight", 128, 128, "a VAE, under"},
        {"text_model.embeddings.token_embedding.weight", 49408, 1024, "CLIP's text encoder"},
        {"transformer.resblocks.0.attn.in_proj_weight", 3072, 1024, "OpenCLIP's text encoder"},
        {"encoder.block.0.layer.0.SelfAttention.q.weight", 4096, 4096, "T5's text encoder"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        begin(f);
        add_one(f, "said.nothing", 1, 1);
        add_one(f, cases[i].name, cases[i].rows, cases[i].columns);
        add_one(f, "tells.nothing", 1, 1);
        REFUSED(f, cases[i].family, cases[i].name);
        assert_null(strstr(f->err.text, "pipeline"));
    }
}

/* The order of the rules decides: a file is named after its U-Net, not after the other networks in it. */
static void test_pipelines(void **state)
{
    Fixture *f = *state;
    begin(f);
    add_one(f, "first_stage_model.encoder.down.0.block.0.conv1.weight", 128, 128);
    add_one(f, "cond_stage_model.transformer.text_model.embeddings.token_embedding.weight", 49408,
            768);
    add_one(f, "model.diffusion_model.input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight", 320,
            768);
    REFUSED(f, "this is a pipeline in one file, with Stable Diffusion 1's U-Net",
            "convert it to diffusers' folders");
    begin(f);
    add_one(f, "conditioner.embedders.1.model.token_embedding.weight", 49408, 1280);
    add_one(f, "model.diffusion_model.label_emb.0.0.weight", 1280, 2816);
    REFUSED(f, "this is a pipeline in one file, with SDXL's U-Net");
}

/* A network may have tensors that identify a family. The network's own weights must not be refused as weights of that
 * family. */
static void test_own_family(void **state)
{
    Fixture *f = *state;
    ParameterList *one = NULL;
    Error err = ERROR_INIT;
    UnetConfig config = sd2_base;
    config.cross_attention_dim = 768;
    assert_int_equal(unet_parameters(&config, &one, &err), 0);
    ParameterList *const two = f->network;
    begin(f);
    f->network = one;
    add_network(f, "");
    f->n--;
    REFUSED(f, "tensor conv_out.bias is missing");
    begin(f);
    add_network(f, "");
    f->network = two;
    REFUSED(f, "this is Stable Diffusion 1's U-Net");
    parameter_list_free(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_prefixes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_types, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_families, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pipelines, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_own_family, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
