/* SPDX-License-Identifier: Apache-2.0 */
/* model-part.h - one network of a diffusers folder: its config's text, and its weights by name.
 *
 * Files by other programs may have other names for the same tensors: the VAE's attention was called query, key, value
 * and proj_attn, and the text encoder's prefix "text_model." may be missing. A matrix may be stored as a 1x1
 * convolution. All these forms are read. A tensor that is missing or unknown is an error: weights that are not used
 * would mean that the file belongs to another network. Tensors of integers (position_ids) are ignored.
 *
 * Units: elements of fp32. Threads: the device's.
 * Ownership: model_part_close() frees the parts of a ModelPart; the Store and the Device are borrowed.
 * Errors:    -ENOENT the file is missing; -EBADMSG the file is broken, or a weight is not finite; -EINVAL the file is
 *            of another kind or network, a tensor is missing, unknown, twice in the file or of another shape; -ENOMEM;
 *            errors of store and device. The text names file and tensor.
 */
#pragma once

#include "base/number/hash.h"
#include "nn/tape.h"
#include "store/store.h"

typedef enum ModelKind { MODEL_VAE, MODEL_TEXT_ENCODER } ModelKind;

typedef struct ModelPart {
    Device *device;
    Tape *tape;     /* tape of the network; its parameters have the present names */
    float *weights; /* device memory, flat */
} ModelPart;

/* Reads the config.json of a part. *ret_source is the file's name for errors; the caller frees both texts. */
int model_part_config(Store *store, ModelKind kind, char **ret_source, char **ret_text,
                      size_t *ret_bytes, Error *err);
/* Allocates the memory of part->tape, which was measured, and loads its weights. `beside` lists tensors that the file
 * also holds and that are not read; it may be NULL. Each tensor's name, shape and values are added to the hasher, in
 * the order of the names. */
int model_part_load(ModelPart *part, Store *store, ModelKind kind, const ParameterList *beside,
                    Hasher *hasher, Error *err);
/* Checks whether model_part_load() would accept the part's file for these parameters, and reads for that only the
 * file's header. */
int model_part_look(Store *store, ModelKind kind, const ParameterList *network,
                    const ParameterList *beside, Error *err);
/* Receives a file piece by piece; a negative result ends the transfer. */
typedef struct ModelSink {
    int (*write)(void *context, const void *data, size_t n_bytes, Error *err);
    void *context;
} ModelSink;

/* Writes a safetensors file with all tensors of the lists to the sink, as fp32 and under the present names. The lists
 * together must name all tensors of the part's file. */
int model_part_copy(Store *store, ModelKind kind, const ParameterList *const *lists, size_t n_lists,
                    const ModelSink *sink, Error *err);
/* Waits until the device has finished its work on the part, and frees the part. */
void model_part_close(ModelPart *part);

/* Writes the present name of a tensor; false: the name is too long for a tensor of the part. */
bool model_tensor_name(ModelKind kind, const char *name, char ret[PARAMETER_NAME_MAX]);
