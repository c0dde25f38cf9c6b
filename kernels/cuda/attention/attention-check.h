/* SPDX-License-Identifier: Apache-2.0 */
/* attention-check.h - whether a graph of an attention gives finite results where all scores are far below zero.
 *
 * A kernel takes tokens in tiles. One that lets the places behind the last token in, as scores of 0, seems right at
 * usual scores, where they weigh little; where all scores are -128 it meets e^128, which is infinite in fp32, and gives
 * NaN. A network comes to such scores once in a long while, and a job that is exact comes to them again after each
 * restart. So who makes a plan set asks first.
 *
 * In the operands all scores are -128, or as near to it as bf16 comes; all values and gradients are 1, so that results
 * of forward, which backward reads, are known without it.
 *
 * Ownership: attention_check_new() gives the caller the operands, in device memory, and attention_check_free() accepts
 *            NULL. It borrows its device.
 * Units:     images, of which each holds the same.
 * Errors:    0 or -errno.
 * Threads:   LANE_COMPUTE's.
 */
#pragma once

#include "kernels/cuda/attention/attention-choice.h"

typedef struct AttentionCheck AttentionCheck;

/* Operands of shape->n images for one pass. */
int attention_check_new(Device *device, const AttentionShape *shape, AttentionPass pass,
                        AttentionCheck **ret, Error *err);
AttentionCheck *attention_check_free(AttentionCheck *check);
DEFINE_CLEANUP(AttentionCheck, attention_check_free)
/* Returns the tensors that a graph of so many images is to be run on. Fills the results of the first and of the last
 * image with NaN; attention_check_end() looks at these two images only. */
AttentionTensors attention_check_begin(AttentionCheck *check, int images);
/* 1: the results are finite; 0: text says of which how many are not; -errno: the device is broken. */
int attention_check_end(AttentionCheck *check, int images, char *text, size_t size, Error *err);
