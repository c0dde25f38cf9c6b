/* SPDX-License-Identifier: Apache-2.0 */
/* attention-unfused.h - the forward of an attention with heads that fused kernels are not documented for, in three
 * steps: scores by cuBLASLt, their softmax by a kernel of our own, and the sum of the values by cuBLASLt.
 *
 * For an autoencoder's single head of 512: cuDNN documents fused attention for heads of up to 256, and our own kernel
 * has a warp for each query, which is slow for 4096 tokens. One head of one image goes after the other, so that
 * the workspace holds the scores of one: 6 bytes for each pair of a query and a key.
 *
 * Scores are fp32, and probabilities bf16, normalised before they are rounded.
 *
 * Ownership: attention_unfused_new() gives the caller the object, attention_unfused_free() accepts NULL. It borrows its
 *            device.
 * Units:     bytes.
 * Errors:    see attention_unfused_new(). A call that fails while it runs breaks the device.
 * Threads:   LANE_COMPUTE's.
 */
#pragma once

#include "kernels/cuda/module/compute.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct AttentionUnfused AttentionUnfused;

/* Reports whether the shape has heads of 256, 384 or 512 without a mask, forward only, in rows whose heads lie
 * DEVICE_ALIGNMENT aligned. */
bool attention_unfused_serves(const AttentionShape *shape);

/* Makes an object for a shape that is served, where cuda_compute_begin() has given 1. *ret is NULL where the plans have
 * no entry: the shape is computed without the library. -ENOENT: the plans have only one of the products; -EINVAL:
 * cuBLASLt refuses an entry; both texts name the operation. A device that makes plans gets entries. */
int attention_unfused_new(Device *device, const AttentionShape *shape, AttentionUnfused **ret,
                          Error *err);
AttentionUnfused *attention_unfused_free(AttentionUnfused *unfused);
size_t attention_unfused_workspace_bytes(const AttentionUnfused *unfused);
/* q, k, v, out and workspace are DEVICE_ALIGNMENT aligned. */
void attention_unfused_forward(AttentionUnfused *unfused, const void *q, const void *k,
                               const void *v, void *out, void *workspace);

/* probabilities[row][i] = e^(scale * (scores[row][i] - the row's maximum)) / their sum, rounded to bf16. */
void cuda_attention_softmax(Device *device, int64_t rows, int64_t keys, float scale,
                            const float *scores, void *probabilities);

#ifdef __cplusplus
}
#endif
