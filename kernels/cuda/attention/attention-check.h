/* SPDX-License-Identifier: Apache-2.0 */
/* attention-check.h - checks whether a graph of an attention gives finite results where all scores are far below zero.
 *
 * A kernel processes tokens in tiles. A kernel that does not mask the places behind the last token uses them as scores
 * of 0. At usual scores its results look right, because these places have little weight; where all scores are -128 it
 * computes e^128, which is infinite in fp32, and gives NaN. A network reaches such scores rarely, but an exact job
 * reaches them again after each restart. So the code that makes a plan set runs this check first.
 *
 * In the operands all scores are -128, or the nearest value that bf16 allows. All values and gradients are 1, so the
 * results of forward, which backward reads, are known without running forward.
 *
 * Ownership: attention_check_new() gives the caller the operands, in device memory; attention_check_free() accepts
 *            NULL. The check borrows its device.
 * Units:     images, whose operands are all the same.
 * Errors:    0 or -errno.
 */
#pragma once

#include "kernels/cuda/attention/attention-choice.h"

typedef struct AttentionCheck AttentionCheck;

/* Makes the operands of shape->n images for one pass. */
int attention_check_new(Device *device, const AttentionShape *shape, AttentionPass pass,
                        AttentionCheck **ret, Error *err);
AttentionCheck *attention_check_free(AttentionCheck *check);
DEFINE_CLEANUP(AttentionCheck, attention_check_free)
/* Returns the tensors on which the caller runs a graph of `images` images. Fills the results of the first and of the
 * last image with NaN; attention_check_end() reads these two images only. */
AttentionTensors attention_check_begin(AttentionCheck *check, int images);
/* Returns 1 if the results are finite; 0 if not, and `text` then names the first bad result and its number of bad
 * values; -errno if the device is broken. */
int attention_check_end(AttentionCheck *check, int images, char *text, size_t size, Error *err);
