/* SPDX-License-Identifier: Apache-2.0 */
/* conv-entry.h - a convolution's entry in a plan set: {"engine":67,"knobs":{"2":4,"27":1},"workspace":131}. The
 * code that makes the entry adds "variant" and, for the gradient of a weight, "dw" (plans.h).
 *
 * Ownership: conv_entry_new() gives the caller a reference.
 * Units:     workspace in bytes; knobs by cuDNN's numbers of their types.
 * Errors:    -EINVAL, with the operation, the key and its value.
 * Threads:   any.
 */
#pragma once

#include "base/json/json.h"
#include "kernels/cuda/convolution/conv-graph.h"

/* Reads an entry; `operation` names the entry in errors. */
int conv_entry_read(const char *operation, const json_t *entry, ConvChoice *ret, Error *err);
json_t *conv_entry_new(const ConvChoice *choice, int64_t workspace_bytes);
