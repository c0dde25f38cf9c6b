/* SPDX-License-Identifier: Apache-2.0 */
/* weights-match.h - whether a safetensors file holds a network's weights, and what is wrong where it does not.
 *
 * A rank checks this before it reads weights, and sdctl before it submits a job that begins with them. Only the header
 * is read.
 *
 * Ownership: weights_open() gives the caller the Store and the Safetensors; what is passed in is borrowed.
 * Units:     none.
 * Errors:    -EINVAL: the file is of another kind, another model's, or lacks something; the text says which, and what
 *            to do. -EBADMSG: it is damaged; those of the store.
 * Threads:   any; no state.
 */
#pragma once

#include "nn/parameters.h"
#include "store/safetensors.h"

/* Returns 0 if the file has all tensors of the network, by name and shape, as F32, F16 or BF16, and no other. source
 * names the file. */
int weights_match(const char *source, const Safetensors *file, const ParameterList *network,
                  Error *err);
/* Opens the file that uri names and matches it. */
int weights_open(const char *uri, const ParameterList *network, Store **ret_store,
                 Safetensors **ret, Error *err);
/* Returns the key of uri's object in the store that weights_open() returns. */
const char *weights_key(const char *uri);
/* Does weights_open() and nothing else, for the network of a config. */
int weights_check(const char *uri, const UnetConfig *config, Error *err);

/* "320x4x3x3"; "scalar" without dimensions. */
enum { WEIGHTS_SHAPE_MAX = 96 };
const char *weights_shape(const int64_t *dims, int n_dims, char ret[WEIGHTS_SHAPE_MAX]);
/* Returns -EINVAL where the file is of a family that is not the network's, or its names have a prefix; 0: neither is
 * known. */
int weights_refuse_other(const char *source, const Safetensors *file, const ParameterList *network,
                         Error *err);
