/* SPDX-License-Identifier: Apache-2.0 */
/* model-part.h - one network of a diffusers folder: its config's text, and its weights by name.
 *
 * Files that were written by others have other names for the same tensors: the VAE's attention was called query, key,
 * value and proj_attn, and the text encoder's prefix "text_model." comes and goes. A matrix may be stored as a 1x1
 * convolution. All of them are read; what is left over or lacking is an error, as weights that nobody reads would mean
 * that the network is another one. Tensors of integers (position_ids) are passed over.
 *
 * Ownership: model_part_close() frees what a ModelPart holds; the Store and the Device are borrowed.
 * Units:     elements of fp32.
 * Errors:    -ENOENT the file is missing; -EBADMSG it is broken, or a weight is not finite; -EINVAL the file is of
 *            another kind or another network's, a tensor is missing, unknown, there twice or of another shape;
 *            -ENOMEM; those of store and device. The text names file and tensor.
 * Threads:   the device's.
 */
#pragma once

#include "base/number/hash.h"
#include "nn/tape.h"
#include "store/store.h"

typedef enum ModelKind { MODEL_VAE, MODEL_TEXT_ENCODER } ModelKind;

typedef struct ModelPart {
    Device *device;
    Tape *tape;     /* its parameters have today's names */
    float *weights; /* device memory, flat */
} ModelPart;

/* Reads the config.json of a part. *ret_source names it in errors; both are the caller's to free. */
int model_part_config(Store *store, ModelKind kind, char **ret_source, char **ret_text,
                      size_t *ret_bytes, Error *err);
/* Takes the memory of part->tape, which was measured, and loads its weights. `beside` are the tensors that the file
 * also holds and that are not read; it may be NULL. Each tensor's name, shape and values go into the hasher, in the
 * names' order. */
int model_part_load(ModelPart *part, Store *store, ModelKind kind, const ParameterList *beside,
                    Hasher *hasher, Error *err);
/* Whether model_part_load() would take the file of a part with these parameters, judged only by the file's header. */
int model_part_look(Store *store, ModelKind kind, const ParameterList *network,
                    const ParameterList *beside, Error *err);
/* Takes what becomes a file, piece by piece; a negative result ends it. */
typedef struct ModelSink {
    int (*write)(void *context, const void *data, size_t n_bytes, Error *err);
    void *context;
} ModelSink;

/* Gives the sink a safetensors file of all tensors of the lists, which together are those of the part's file: as fp32,
 * by today's names. */
int model_part_copy(Store *store, ModelKind kind, const ParameterList *const *lists, size_t n_lists,
                    const ModelSink *sink, Error *err);
/* Waits for what the device still does with the part. */
void model_part_close(ModelPart *part);

/* Writes today's name of a tensor; false: it is too long to be one. */
bool model_tensor_name(ModelKind kind, const char *name, char ret[PARAMETER_NAME_MAX]);
