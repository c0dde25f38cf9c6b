/* SPDX-License-Identifier: Apache-2.0 */
/* weights-family.h - which model's weights a file holds, by the names and shapes of its tensors.
 *
 * A person who names SDXL's U-Net, or a whole pipeline, does not want to read which tensor is missing first.
 *
 * Ownership: texts are constant; file and network are borrowed.
 * Units:     none.
 * Errors:    none: a file that no rule knows has no family.
 * Threads:   any; no state.
 * Source:    the names in which these models are published: diffusers' (UNet2DConditionModel, FluxTransformer2DModel,
 *            SD3Transformer2DModel, ControlNetModel, AutoencoderKL, loaders/single_file_utils.py and lora), those of
 *            CompVis' stable-diffusion and Stability-AI's stablediffusion and generative-models, black-forest-labs'
 *            flux; configs of the published models on huggingface.co.
 */
#pragma once

#include "nn/parameters.h"
#include "store/safetensors.h"

typedef struct WeightsFamily {
    const char *name;   /* "SDXL's U-Net"; NULL: not known */
    const char *tensor; /* by which it is known, as the file names it */
    bool in_pipeline;   /* beside other networks of a pipeline */
} WeightsFamily;

/* A trait that the network has, too, is not a reason to call the file another one. */
WeightsFamily weights_family(const Safetensors *file, const ParameterList *network);
