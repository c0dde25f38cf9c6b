/* SPDX-License-Identifier: Apache-2.0 */
/* weights-match.h - checks whether a safetensors file holds a network's weights, and reports what is wrong.
 *
 * A rank does this check before it reads weights, and sdctl before it submits a job that begins with a file of weights.
 * Only the header is read.
 *
 * Units: none. Threads: any; no state.
 * Ownership: weights_open() gives the caller the Store and the Safetensors; arguments are borrowed.
 * Errors:    -EINVAL: the file has another format, holds another model, or lacks something; the text says which, and
 *            what to do. -EBADMSG: the file is damaged. Others are those of the store.
 */
#pragma once

#include "nn/parameters.h"
#include "store/safetensors.h"

/* Returns 0 if the file has all tensors of the network, by name and shape, as F32, F16 or BF16, and no other tensors.
 * source is the file's name in errors. */
int weights_match(const char *source, const Safetensors *file, const ParameterList *network,
                  Error *err);
/* Opens the file at uri, and compares it with the network as weights_match() does. */
int weights_open(const char *uri, const ParameterList *network, Store **ret_store,
                 Safetensors **ret, Error *err);
/* Returns the key of uri's object in the store that weights_open() returns. */
const char *weights_key(const char *uri);
/* Checks the file as weights_open() does, for the network of a config. */
int weights_check(const char *uri, const UnetConfig *config, Error *err);

/* weights_shape() writes a text such as "320x4x3x3", or "scalar" if there are no dimensions. */
enum { WEIGHTS_SHAPE_MAX = 96 };
const char *weights_shape(const int64_t *dims, int n_dims, char ret[WEIGHTS_SHAPE_MAX]);
/* Returns -EINVAL if the file belongs to another model than the network, or if the names in the file have a prefix;
 * otherwise 0. */
int weights_refuse_other(const char *source, const Safetensors *file, const ParameterList *network,
                         Error *err);
