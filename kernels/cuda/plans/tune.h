/* SPDX-License-Identifier: Apache-2.0 */
/* tune.h - chooses among a library's algorithms for one operation, by timing them on the device.
 *
 * Which one is the fastest depends on the machine's day, and so do the bits: it is done once, for a plan set, and never
 * by a training run. Candidates have fixed sums by the library's own notes. Time is the median of a few rounds by
 * events on LANE_COMPUTE, so that neither the host nor one late round counts. Among the candidates that are at most
 * 1 % slower than the fastest, the one with the least workspace is taken; among equals the library's order decides.
 *
 * Everything is bounded: a candidate's rounds, candidates, and the whole. When a device has tuned for its seconds
 * (DeviceOptions.tune_sec, else SDTRAIN_CUDA_TUNE_SEC, 300), each further operation gets its library's first candidate
 * that runs, of tune_candidates_max().
 *
 * Ownership: borrows everything.
 * Units:     bytes, microseconds.
 * Errors:    0 or -errno; the text names the operation.
 * Threads:   LANE_COMPUTE's.
 */
#pragma once

#include "kernels/cuda/module/compute.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TUNE_CANDIDATES_MAX = 32 };

/* How many candidates are worth making: a plan may take a library half a second to compile. Few, when the time for all
 * operations is over. */
int tune_candidates_max(const CudaCompute *compute);

typedef struct TuneCandidate {
    int64_t workspace_bytes;
    double usec; /* found by tune_choose(); < 0: it does not run, or was not timed */
} TuneCandidate;

typedef struct Tuning {
    CudaCompute *compute;
    const char *operation;
    TuneCandidate *candidates; /* in the library's order */
    int n_candidates;
    /* Puts one run of a candidate on LANE_COMPUTE; false: the library refuses. */
    bool (*start)(void *userdata, int candidate);
    void *userdata;
    /* Asked of each candidate before it is timed or taken. 1; 0: what it gives is wrong, and it is never taken; -errno:
     * the device is broken. NULL: all are right. */
    int (*check)(void *userdata, int candidate, Error *err);
} Tuning;

/* The candidate to take. -EINVAL: none runs, or is right; -EIO and so on: the device is broken. */
int tune_choose(const Tuning *tuning, Error *err);

/* Device memory with values in bf16 whose exponents vary little and whose other bits are random, as activations have
 * them: a GPU is faster, and another algorithm may be the fastest, where all are 0. */
int tune_operand(Device *device, size_t n_bytes, void **ret, Error *err);

#ifdef __cplusplus
}
#endif
