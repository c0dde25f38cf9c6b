/* SPDX-License-Identifier: Apache-2.0 */
/* conv-candidates.h - the engines that cuDNN's heuristics propose for a convolution, and the first that serves.
 *
 * For who makes a plan set. Training never asks: what heuristics say is the library's to change.
 *
 * Ownership: results are the caller's memory.
 * Units:     bytes.
 * Errors:    0 or -errno; the text names the operation.
 * Threads:   one at a time for each graph.
 */
#pragma once

#include "kernels/cuda/convolution/conv-graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ConvCandidate {
    ConvChoice choice;
    bool is_deterministic;
} ConvCandidate;

enum { CONV_CANDIDATES_MAX = 64 };

/* At most `room` of them in the order of cuDNN's heuristics A, B and fallback, where the same may stand twice; returns
 * how many. */
int conv_candidates(const ConvGraph *graph, ConvCandidate *ret, int room, Error *err);

/* The first of them that is deterministic, that makes a plan, and whose workspace is at most so large. -ENOENT: there
 * is none. */
int conv_candidates_first(const ConvGraph *graph, int64_t workspace_max_bytes, ConvChoice *ret,
                          int64_t *ret_workspace_bytes, Error *err);

#ifdef __cplusplus
}
#endif
