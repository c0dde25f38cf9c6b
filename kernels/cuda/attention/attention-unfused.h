/* SPDX-License-Identifier: Apache-2.0 */
/* attention-unfused.h - the forward pass of an attention with heads that are too long for cuDNN's documented fused
 * kernels, in three steps: scores by cuBLASLt, their softmax by our own kernel, and the sum of the values by cuBLASLt.
 *
 * It serves the autoencoder's single head of 512: cuDNN documents fused attention for heads of up to 256, and our own
 * attention kernel has a warp for each query, which is slow for 4096 tokens. The heads of all images are computed one
 * after the other, so that the workspace contains the scores of only one head: 6 bytes for each pair of a query and a
 * key.
 *
 * Scores are fp32. Probabilities are bf16, and are normalised before they are rounded.
 *
 * Ownership: attention_unfused_new() gives the caller the object, attention_unfused_free() accepts NULL. The object
 *            borrows its device.
 * Units:     bytes.
 * Errors:    see attention_unfused_new(). A call that fails while it runs breaks the device.
 */
#pragma once

#include "kernels/cuda/module/compute.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct AttentionUnfused AttentionUnfused;

/* Reports whether the shape has heads of 256, 384 or 512, has no mask, is forward only, and its heads begin at
 * multiples of DEVICE_ALIGNMENT in the rows. */
bool attention_unfused_serves(const AttentionShape *shape);

/* Makes an object for a shape that attention_unfused_serves() accepts, where cuda_compute_begin() has returned 1. *ret
 * is NULL where the plans have no entry: the shape is then computed without cuBLASLt. -ENOENT: the plans have an entry
 * for only one of the two products; -EINVAL: cuBLASLt refuses an entry; both texts name the operation. A device that
 * makes plans adds the missing entries. */
int attention_unfused_new(Device *device, const AttentionShape *shape, AttentionUnfused **ret,
                          Error *err);
AttentionUnfused *attention_unfused_free(AttentionUnfused *unfused);
size_t attention_unfused_workspace_bytes(const AttentionUnfused *unfused);
/* q, k, v, out and workspace are DEVICE_ALIGNMENT aligned. */
void attention_unfused_forward(AttentionUnfused *unfused, const void *q, const void *k,
                               const void *v, void *out, void *workspace);

/* probabilities[row][i] = e^(scale * (scores[row][i] - the row's maximum)) / the sum of the row's exponentials,
 * rounded to bf16. */
void cuda_attention_softmax(Device *device, int64_t rows, int64_t keys, float scale,
                            const float *scores, void *probabilities);

#ifdef __cplusplus
}
#endif
