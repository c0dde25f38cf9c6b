/* SPDX-License-Identifier: Apache-2.0 */
/* activation.cuh - SiLU, GELU and their slopes, without a division.
 *
 * The functions are those of vectormath.h, with two differences that are too small to affect a weight: a sigmoid below
 * e^-87 is e^-87, and SiLU is a product with the reciprocal instead of a quotient.
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    none; NaN gives NaN.
 * Threads:   any; pure.
 */
#pragma once

#include "kernels/cuda/kernels/kernel.cuh"
#include "kernels/cuda/kernels/reciprocal.h"

/* Returns 1 / d, correctly rounded, for 1 <= d < 2^126. For larger d the approximation is 0, where a denormal would be
 * right. */
__device__ static inline float reciprocal(float d)
{
#ifdef __CUDACC__
    float seed;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(seed) : "f"(d));
#else
    assert(!(d < 1.0f) && !(d >= 0x1p126f));
    const float seed = emulate::approximate_reciprocal(d);
#endif
    return reciprocal_of_seed(d, seed);
}

/* Returns 1 / (1 + e^-x). The clamp keeps 1 + e^-x in the range of reciprocal(). A NaN is lost here, but the callers
 * also multiply by x. */
__device__ static inline float sigmoid(float x)
{
    float power;
    const float e = vector_exp_of_power(fminf(fmaxf(-x, -87.0f), 87.0f), &power);
    return reciprocal(fmaf(e, power, 1.0f));
}

__device__ static inline float silu(float x) { return x * sigmoid(x); }

__device__ static inline float silu_slope(float x)
{
    const float s = sigmoid(x);
    return s * fmaf(x, 1.0f - s, 1.0f);
}

/* As vector_normal(). Where |x| is beyond 2^64, clamping changes nothing: e is 0, and u is only a factor of e. */
__device__ static inline void normal(float x, float *density, float *distribution)
{
    const float a = fminf(float_from_bits(float_bits(x) & 0x7fffffffu), 0x1p64f);
    const float t = -0.5f * x * x;
    float power, e = vector_exp_of_power(t, &power);
    e = t < -87.0f ? 0.0f : e * power;
    vector_normal_of(x, e, reciprocal(fmaf(a, 0.3f, 1.0f)), density, distribution);
}

__device__ static inline float gelu(float x)
{
    float density, distribution;
    normal(x, &density, &distribution);
    return x * distribution;
}
