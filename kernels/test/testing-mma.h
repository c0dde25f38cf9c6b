/* SPDX-License-Identifier: Apache-2.0 */
/* testing-mma.h - launches of emulated kernels with one mma, and of the loads of its operands.
 *
 * Ownership: none. Errors: none. Threads: the main thread.
 * Units:     elements; bf16 as bits.
 */
#pragma once

#include "base/macro.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MMA_ROWS = 16, MMA_COLUMNS = 8, MMA_DEPTH = 16, MMA_WARPS = 2 };

typedef struct MmaMatrices {
    uint16_t a[MMA_ROWS][MMA_DEPTH], b[MMA_DEPTH][MMA_COLUMNS];
    float sums[MMA_ROWS][MMA_COLUMNS];
} MmaMatrices;

/* sums += a b, computed by one warp. Each lane reads and writes single elements at the places that the PTX manual
 * defines. */
void mma_run(uint64_t seed, MmaMatrices *m);

typedef struct MmaTiles {
    bool a_turned, b_turned; /* whether a and b are transposed in shared memory */
    uint16_t a[MMA_ROWS][MMA_DEPTH], b[MMA_DEPTH][MMA_ROWS]; /* b has twice an mma's columns */
    float once[MMA_WARPS][MMA_ROWS][MMA_ROWS];               /* the product a b */
    float twice[MMA_WARPS][MMA_ROWS][MMA_ROWS];              /* the product (a b) b */
} MmaTiles;

/* Computes the products with two warps, which both compute the same. */
void mma_run_tiles(uint64_t seed, MmaTiles *t);

#ifdef __cplusplus
}
#endif
