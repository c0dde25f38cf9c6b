/* SPDX-License-Identifier: Apache-2.0 */
/* model-copy.h - rewrites the weights of a diffusers folder's VAE and text encoder in the form that other programs
 * expect.
 *
 * Existing folders may have old names and halves. A pipeline whose parts have different types cannot run, and the U-Net
 * of a checkpoint is fp32, so all tensors are written as fp32, under their present names; tensors of integers are left
 * out. A tensor that is missing, unknown, of another shape or not finite is refused, as when the model is loaded.
 *
 * Units: bytes. Threads: any, one at a time.
 * Ownership: model_copy_open() gives the caller a ModelCopy, which borrows the Store; model_copy_free() accepts NULL.
 * Errors:    as model-part.h; the sink's errors.
 */
#pragma once

#include "encoders/networks/clip-text-config.h"
#include "encoders/networks/model-part.h"
#include "encoders/networks/vae-config.h"

typedef struct ModelCopy ModelCopy;

int model_copy_open(Store *model, const VaeConfig *vae, const ClipTextConfig *text, ModelCopy **ret,
                    Error *err);
ModelCopy *model_copy_free(ModelCopy *copy);
DEFINE_CLEANUP(ModelCopy, model_copy_free)
/* Returns how many bytes the tensors of a part have as fp32. */
uint64_t model_copy_bytes(const ModelCopy *copy, ModelKind kind);
/* Writes a whole safetensors file to the sink, piece by piece. */
int model_copy_write(const ModelCopy *copy, ModelKind kind, const ModelSink *sink, Error *err);
