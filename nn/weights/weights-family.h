/* SPDX-License-Identifier: Apache-2.0 */
/* weights-family.h - finds out which model's weights a file holds, by the names and shapes of its tensors.
 *
 * If a person names SDXL's U-Net, or a whole pipeline, the name of that model is a better error text than the name of
 * the first missing tensor.
 *
 * Units: none. Threads: any; no state.
 * Ownership: texts are constant; file and network are borrowed.
 * Errors:    none: a file that fits no rule has no family.
 * Source:    the names in which these models are published: diffusers' (UNet2DConditionModel, FluxTransformer2DModel,
 *            SD3Transformer2DModel, ControlNetModel, AutoencoderKL, loaders/single_file_utils.py and lora), those of
 *            CompVis' stable-diffusion and Stability-AI's stablediffusion and generative-models, black-forest-labs'
 *            flux; configs of the published models on huggingface.co.
 */
#pragma once

#include "nn/parameters.h"
#include "store/safetensors.h"

typedef struct WeightsFamily {
    const char *name;   /* such as "SDXL's U-Net"; NULL: not known */
    const char *tensor; /* name in the file of the tensor that identifies the model */
    bool in_pipeline;   /* the file also has other networks of a pipeline */
} WeightsFamily;

/* A rule that also fits the network itself is ignored. */
WeightsFamily weights_family(const Safetensors *file, const ParameterList *network);
