/* SPDX-License-Identifier: Apache-2.0 */
/* mma-model.h - what a tensor core's mma of 16 products in bf16 may round: models of it, for a CPU.
 *
 * No manual says how an instruction adds its products. Each model takes the products in steps of a few. A step aligns
 * its products and what was summed before to the largest exponent among them, keeps so many bits of each below it, cuts
 * off what is lower, adds exactly, and brings the sum to fp32.
 *
 * mma_model_card is what an NVIDIA H100 did in 4,096 of 4,096 random cases (docs/internals/gpu.md): of 160 models the
 * only one. tests/golden/gpu/mma-h100.txt has cases that it computed.
 *
 * Ownership: none.
 * Units:     bits.
 * Errors:    none. Beyond fp32 a sum is infinite; every NaN is the one that a GPU gives.
 * Threads:   any; pure.
 */
#pragma once

#include "base/macro.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MMA_K = 16,        /* products of an element */
    MMA_BITS_MAX = 55, /* 17 terms of so many fit 64 bits */
};

typedef struct MmaModel {
    int step; /* products that are summed at once, with what was summed before: a divisor of MMA_K */
    int bits; /* of a term below the largest one's first bit; at most MMA_BITS_MAX */
    bool
        normalised; /* the largest term is found by a product's own exponent, not by the sum of its factors' */
    bool
        nearest; /* the step's sum is rounded to nearest, ties to even; else what fp32 has no place for is cut off */
} MmaModel;

/* An H100's; all at once and rounded once; one product after the other, as fmaf() adds them. The latter two lose what
 * is 2^-55 of the largest term. */
extern const MmaModel mma_model_card, mma_model_fused, mma_model_single;

/* A bf16: significand * 2^(exponent - 7), the significand with its sign, of 8 bits. */
typedef struct MmaFactor {
    int significand, exponent;
} MmaFactor;

MmaFactor mma_factor(uint16_t bits);
/* sum + a[0] b[0] + ... + a[15] b[15] */
float mma_model_sum(const MmaModel *model, const MmaFactor a[MMA_K], const MmaFactor b[MMA_K],
                    float sum);

#ifdef __cplusplus
}
#endif
