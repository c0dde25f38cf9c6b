/* SPDX-License-Identifier: Apache-2.0 */
/* weights-family.c - see weights-family.h. */
#include "nn/weights/weights-family.h"

#include <string.h>

/* ENDS: the name of a tensor ends with the rule's text, because wrappers may put a prefix in front of the name.
 * HOLDS: the name has the rule's text anywhere. */
typedef enum RuleKind { ENDS, HOLDS } RuleKind;

typedef struct Rule {
    const char *family;
    RuleKind kind;
    const char *tensor;
    int dim; /* dimension that must have `size` elements; a size of 0: any shape */
    int64_t size;
} Rule;

#define SDXL "SDXL's U-Net"
#define REFINER "the U-Net of SDXL's refiner"
#define SD1 "Stable Diffusion 1's U-Net"
#define SD3 "Stable Diffusion 3's transformer"
#define FLUX "Flux's transformer"
#define CONTROLNET "a ControlNet"
#define INPAINTING "an inpainting U-Net"
#define DEPTH "a U-Net that takes a depth map"
#define PIX2PIX "InstructPix2Pix's U-Net"
#define UNCLIP "unCLIP's U-Net"
#define UPSCALER "an upscaler's U-Net"
#define COMPVIS ", under the names of CompVis' code"

/* The first rule that fits counts. Rules for additions to weights come before rules for the weights, and rules for a
 * U-Net before rules for the other networks of a pipeline. The numbers are widths: of the text (SD 1: 768, SD 2: 1024),
 * of SDXL's addition to the timestep (2816, its refiner 2560), of the input picture (4 channels; with a mask 9, with a
 * depth map 5, with a second picture 8). */
static const Rule rules[] = {
    {"a LoRA", HOLDS, ".lora_down.weight", 0, 0},
    {"a LoRA", HOLDS, ".lora.down.weight", 0, 0},
    {"a LoRA", HOLDS, ".lora_A.", 0, 0},
    {CONTROLNET, ENDS, "controlnet_cond_embedding.conv_in.weight", 0, 0},
    {CONTROLNET, ENDS, "input_hint_block.0.weight", 0, 0},
    {"AnimateDiff's motion module", HOLDS, "motion_modules.0.temporal_transformer.", 0, 0},
    {"Stable Video Diffusion's U-Net", HOLDS, "temporal_res_block.", 0, 0},
    {FLUX, HOLDS, "double_blocks.0.img_attn.", 0, 0},
    {FLUX, ENDS, "single_transformer_blocks.0.proj_mlp.weight", 0, 0},
    {SD3, HOLDS, "joint_blocks.0.context_block.", 0, 0},
    {SD3, ENDS, "transformer_blocks.0.attn.add_q_proj.weight", 0, 0},
    {"PixArt's transformer", ENDS, "adaln_single.linear.weight", 0, 0},
    {REFINER, ENDS, "add_embedding.linear_1.weight", 1, 2560},
    {SDXL, ENDS, "add_embedding.linear_1.weight", 0, 0},
    {REFINER COMPVIS, ENDS, "label_emb.0.0.weight", 1, 2560},
    {SDXL COMPVIS, ENDS, "label_emb.0.0.weight", 1, 2816},
    {UNCLIP COMPVIS, ENDS, "label_emb.0.0.weight", 0, 0},
    {UNCLIP, ENDS, "class_embedding.linear_1.weight", 0, 0},
    {UPSCALER, ENDS, "class_embedding.weight", 0, 0},
    {UPSCALER COMPVIS, ENDS, "label_emb.weight", 0, 0},
    {INPAINTING, ENDS, "conv_in.weight", 1, 9},
    {INPAINTING COMPVIS, ENDS, "input_blocks.0.0.weight", 1, 9},
    {DEPTH, ENDS, "conv_in.weight", 1, 5},
    {DEPTH COMPVIS, ENDS, "input_blocks.0.0.weight", 1, 5},
    {PIX2PIX, ENDS, "conv_in.weight", 1, 8},
    {PIX2PIX COMPVIS, ENDS, "input_blocks.0.0.weight", 1, 8},
    {SD1, ENDS, "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.weight", 1, 768},
    {SD1 COMPVIS, ENDS, "input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight", 1, 768},
    {"Stable Diffusion 2's U-Net" COMPVIS, ENDS,
     "input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight", 1, 1024},
    {"a U-Net" COMPVIS, ENDS, "input_blocks.0.0.weight", 0, 0},
    {"a VAE", ENDS, "encoder.down_blocks.0.resnets.0.conv1.weight", 0, 0},
    {"a VAE" COMPVIS, ENDS, "encoder.down.0.block.0.conv1.weight", 0, 0},
    {"CLIP's text encoder", ENDS, "embeddings.token_embedding.weight", 0, 0},
    {"OpenCLIP's text encoder", ENDS, "transformer.resblocks.0.attn.in_proj_weight", 0, 0},
    {"T5's text encoder", ENDS, "encoder.block.0.layer.0.SelfAttention.q.weight", 0, 0},
};

/* Prefixes of the other networks of a pipeline in one file. */
static const char *const beside[] = {"first_stage_model.", "cond_stage_model.", "conditioner.",
                                     "text_encoders.",     "text_encoder.",     "vae."};

static bool has_name(const Rule *rule, const char *name)
{
    if (rule->kind == HOLDS)
        return strstr(name, rule->tensor) != NULL;
    const size_t n = strlen(name), n_rule = strlen(rule->tensor);
    return n >= n_rule && strcmp(name + n - n_rule, rule->tensor) == 0 &&
           (n == n_rule || name[n - n_rule - 1] == '.');
}

static bool fits(const Rule *rule, const char *name, const int64_t *dims, int n_dims)
{
    return has_name(rule, name) &&
           (rule->size == 0 || (rule->dim < n_dims && dims[rule->dim] == rule->size));
}

static bool fits_network(const Rule *rule, const ParameterList *network)
{
    for (size_t i = 0; i < network->n_items; i++) {
        const Parameter *p = &network->items[i];
        if (fits(rule, p->name, p->dims, p->n_dims))
            return true;
    }
    return false;
}

static const char *find(const Rule *rule, const Safetensors *file)
{
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const SafetensorsEntry *e = safetensors_at(file, i);
        if (fits(rule, e->name, e->dims, e->n_dims))
            return e->name;
    }
    return NULL;
}

static bool holds_pipeline(const Safetensors *file)
{
    for (size_t i = 0; i < safetensors_count(file); i++)
        for (size_t k = 0; k < ELEMENTSOF(beside); k++)
            if (strncmp(safetensors_at(file, i)->name, beside[k], strlen(beside[k])) == 0)
                return true;
    return false;
}

WeightsFamily weights_family(const Safetensors *file, const ParameterList *network)
{
    for (size_t i = 0; i < ELEMENTSOF(rules); i++) {
        const char *tensor = find(&rules[i], file);
        if (tensor && !fits_network(&rules[i], network))
            return (WeightsFamily){rules[i].family, tensor, holds_pipeline(file)};
    }
    return (WeightsFamily){0};
}
