/* SPDX-License-Identifier: Apache-2.0 */
/* mma-model.h - models, for a CPU, of how a tensor core's mma of 16 products in bf16 may round.
 *
 * No manual describes how the instruction adds its products. Each model adds the products in steps of a few. A step
 * aligns its products and the previous sum to the largest exponent among them, keeps a fixed number of bits of each
 * below this exponent, cuts off the lower bits, adds exactly, and converts the sum to fp32.
 *
 * mma_model_card agrees with an NVIDIA H100 in 4,096 of 4,096 random cases (docs/internals/gpu.md), as the only one of
 * 160 models. tests/golden/gpu/mma-h100.txt has cases that the H100 computed.
 *
 * Ownership: none. Units: bits. Threads: any; pure.
 * Errors:    none. Beyond fp32 a sum is infinite; every NaN is the NaN that a GPU gives.
 */
#pragma once

#include "base/macro.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MMA_K = 16,        /* products of an element */
    MMA_BITS_MAX = 55, /* 17 terms of so many bits fit 64 bits */
};

typedef struct MmaModel {
    bool by_fma; /* one product after the other is added by fmaf(); the fields below are not used */
    int step;    /* products that one step adds to the previous sum: a divisor of MMA_K */
    int bits; /* bits of a term that are kept below the largest term's first bit; at most MMA_BITS_MAX */
    /* terms are compared by the exponent of the product, not by the sum of its factors' exponents */
    bool normalised;
    /* the step's sum is rounded to nearest, ties to even; otherwise bits beyond fp32 are cut off */
    bool nearest;
} MmaModel;

/* mma_model_card is an H100's rounding. mma_model_fused adds all products at once and rounds once. mma_model_single
 * adds one product after the other by fmaf(). mma_model_fused loses bits below 2^-55 of the largest term. */
extern const MmaModel mma_model_card, mma_model_fused, mma_model_single;

/* A bf16 as `value` and, if it is finite, as significand * 2^(exponent - 7). The significand has a sign and 8 bits. */
typedef struct MmaFactor {
    int significand, exponent;
    float value;
} MmaFactor;

MmaFactor mma_factor(uint16_t bits);
/* sum + a[0] b[0] + ... + a[15] b[15] */
float mma_model_sum(const MmaModel *model, const MmaFactor a[MMA_K], const MmaFactor b[MMA_K],
                    float sum);

#ifdef __cplusplus
}
#endif
