/* SPDX-License-Identifier: Apache-2.0 */
/* conv-candidates.h - the engines that cuDNN's heuristics propose for a convolution, and the first usable one.
 *
 * Only code that makes a plan set uses these functions. Training never does, because a new version of the library may
 * propose other engines.
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

/* Stores at most `room` candidates, in the order of cuDNN's heuristics A, B and fallback, which may contain a candidate
 * twice. Returns their number. */
int conv_candidates(const ConvGraph *graph, ConvCandidate *ret, int room, Error *err);

/* For tests, which make plans without a GPU: finds the first candidate that is deterministic, that makes a plan, and
 * whose workspace is at most workspace_max_bytes. -ENOENT: there is no such candidate. */
int conv_candidates_first(const ConvGraph *graph, int64_t workspace_max_bytes, ConvChoice *ret,
                          int64_t *ret_workspace_bytes, Error *err);

#ifdef __cplusplus
}
#endif
