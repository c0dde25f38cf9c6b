/* SPDX-License-Identifier: Apache-2.0 */
/* attention-tune.h - the fastest way to compute a pass of an attention: which deterministic engine of cuDNN for how
 * many images at once, of those that give finite results far below zero (attention-check.h); and how long our own
 * kernels take for it.
 *
 * Ownership: borrows everything; the graph is the caller's.
 * Units:     workspace in bytes; microseconds of all images, < 0 where there was no time to measure.
 * Errors:    as tune.h. -EINVAL, -ENOENT: cuDNN does not take the shape, or has no engine for it whose results are
 *            finite.
 * Threads:   LANE_COMPUTE's.
 */
#pragma once

#include "kernels/cuda/attention/attention-choice.h"
#include "kernels/cuda/module/compute.h"

/* Candidates need at most so much workspace. A graph takes half a second to make: a few sizes of groups are tried, the
 * largest that fits and the next smaller ones, and a few engines for each. Where attention_has_tail(), all have a
 * padding mask, unless none serves that has it. */
int attention_tune(CudaCompute *compute, const AttentionTarget *target, const AttentionShape *shape,
                   AttentionPass pass, int64_t workspace_max_bytes, AttentionChoice *ret,
                   AttentionGraph **ret_graph, double *ret_usec, Error *err);
/* The shape is one that attention_tile_serves() takes. */
int attention_tune_tile(CudaCompute *compute, const AttentionShape *shape, AttentionPass pass,
                        double *ret_usec, Error *err);
