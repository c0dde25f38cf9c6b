/* SPDX-License-Identifier: Apache-2.0 */
/* tune.h - chooses among a library's algorithms for one operation, by timing them on the device.
 *
 * The fastest algorithm differs from one measurement to the next, and so would the bits. Therefore tuning is done once,
 * for a plan set, and never by a training run. Candidates have sums of a fixed order according to the library's own
 * notes. The time of a candidate is the median of a few rounds, measured by events on LANE_COMPUTE, so that neither the
 * host nor one delayed round matters. Among the candidates that are at most 1 % slower than the fastest, the one with
 * the least workspace is chosen; among candidates with equal workspaces, the first in the library's order.
 *
 * Everything is bounded: the rounds of a candidate, the number of candidates, and the total time. When a device has
 * tuned for its seconds (DeviceOptions.tune_sec, otherwise SDTRAIN_CUDA_TUNE_SEC, 300), each further operation gets the
 * first of its library's first tune_candidates_max() candidates that runs.
 *
 * Ownership: borrows everything. Units: bytes, microseconds. Threads: LANE_COMPUTE's.
 * Errors:    0 or -errno; the text names the operation.
 */
#pragma once

#include "kernels/cuda/module/compute.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TUNE_CANDIDATES_MAX = 32 };

/* Returns how many candidates the caller should make: a library may need half a second to compile a plan. The number is
 * small when the time for all operations is over. */
int tune_candidates_max(const CudaCompute *compute);

typedef struct TuneCandidate {
    int64_t workspace_bytes;
    double usec; /* set by tune_choose(); < 0: the candidate does not run, or was not timed */
} TuneCandidate;

typedef struct Tuning {
    CudaCompute *compute;
    const char *operation;
    TuneCandidate *candidates; /* in the library's order */
    int n_candidates;
    /* Queues one run of a candidate on LANE_COMPUTE. Returns false if the library refuses. */
    bool (*start)(void *userdata, int candidate);
    void *userdata;
    /* Called for each candidate before it is timed or chosen. Returns 1; 0 if the candidate's results are wrong, so
     * that it is never chosen; -errno if the device is broken. NULL: all candidates are right. */
    int (*check)(void *userdata, int candidate, Error *err);
} Tuning;

/* Returns the index of the candidate to use. -EINVAL: no candidate runs and is right; -EIO and so on: the device is
 * broken. */
int tune_choose(const Tuning *tuning, Error *err);

/* Allocates device memory with bf16 values whose exponents vary little and whose other bits are random, as in
 * activations: if all values were 0, a GPU would be faster, and another algorithm might be the fastest. */
int tune_operand(Device *device, size_t n_bytes, void **ret, Error *err);

#ifdef __cplusplus
}
#endif
