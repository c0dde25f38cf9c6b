/* SPDX-License-Identifier: Apache-2.0 */
/* attention-tile.h - attention by tensor cores where all keys of a head are one tile: heads of 64, at most 80 keys, any
 * number of queries, bf16, causal or not, without a workspace.
 *
 * It serves shapes that do not fill a tile of cuDNN: cross attention to 77 words, self attention of 64 and of 16
 * tokens. The order of all sums depends only on the shape; how a step of 16 products rounds depends on the GPU
 * (mma-model.h).
 *
 * Ownership: borrows everything. Units: elements.
 * Errors:    a launch that fails is the device's sticky error.
 */
#pragma once

#include "kernels/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reports whether the functions below can compute the shape on this device. */
bool attention_tile_serves(const Device *device, const AttentionShape *shape);
/* As attention_forward() and attention_backward() of kernels.h. saved: for each row of each head, the largest score,
 * and 1 over the sum of the exponentials. */
void attention_tile_forward(Device *device, const AttentionShape *shape, const void *q,
                            const void *k, const void *v, void *out, float *saved);
void attention_tile_backward(Device *device, const AttentionShape *shape, const void *q,
                             const void *k, const void *v, const void *out, const float *saved,
                             const void *dout, void *dq, void *dk, void *dv);

#ifdef __cplusplus
}
#endif
