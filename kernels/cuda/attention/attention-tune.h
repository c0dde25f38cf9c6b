/* SPDX-License-Identifier: Apache-2.0 */
/* attention-tune.h - the fastest way to compute a pass of an attention: the deterministic engine of cuDNN and the
 * number of images at once, among the engines that give finite results where scores are far below zero
 * (attention-check.h). Also measures how long our own kernels take for the pass.
 *
 * Ownership: borrows everything; the graph is the caller's.
 * Units:     workspace in bytes; microseconds for all images, < 0 where there was no time to measure.
 * Errors:    as tune.h. -EINVAL, -ENOENT: cuDNN refuses the shape, or has no engine for it whose results are finite.
 */
#pragma once

#include "kernels/cuda/attention/attention-choice.h"
#include "kernels/cuda/module/compute.h"

/* Candidates need at most workspace_max_bytes of workspace. Making a graph takes half a second, so only a few sizes of
 * groups are tried, the largest that fits and the next smaller ones, with a few engines for each. Where
 * attention_has_tail() is true, all candidates have a padding mask, unless no engine serves with a mask. */
int attention_tune(CudaCompute *compute, const AttentionTarget *target, const AttentionShape *shape,
                   AttentionPass pass, int64_t workspace_max_bytes, AttentionChoice *ret,
                   AttentionGraph **ret_graph, double *ret_usec, Error *err);
/* Measures our own kernels. The caller has checked the shape with attention_tile_serves(). */
int attention_tune_tile(CudaCompute *compute, const AttentionShape *shape, AttentionPass pass,
                        double *ret_usec, Error *err);
