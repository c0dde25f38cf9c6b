/* SPDX-License-Identifier: Apache-2.0 */
/* model-copy.h - the weights of a diffusers folder's VAE and text encoder, written anew as others read them.
 *
 * Folders in the wild have old names and halves. A pipeline whose parts have different types cannot run, and a U-Net of
 * a checkpoint is fp32, so all tensors are written as fp32, under today's names; those of integers are left out. A
 * tensor that is missing, unknown, misshapen or not finite is refused, as when the model is loaded.
 *
 * Ownership: model_copy_open() gives the caller a ModelCopy, which borrows the Store; model_copy_free() accepts NULL.
 * Units:     bytes.
 * Errors:    those of model-part.h, and of the sink.
 * Threads:   any, one at a time.
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
/* Returns how many bytes the tensors of a part take as fp32. */
uint64_t model_copy_bytes(const ModelCopy *copy, ModelKind kind);
/* Gives the sink a whole safetensors file, piece by piece. */
int model_copy_write(const ModelCopy *copy, ModelKind kind, const ModelSink *sink, Error *err);
