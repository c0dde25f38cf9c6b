/* SPDX-License-Identifier: Apache-2.0 */
/* activation.cuh - SiLU, GELU and their slopes, without a division.
 *
 * They are vectormath.h's but for what no weight sees: a sigmoid below e^-87 is e^-87, and SiLU is a product with the
 * reciprocal instead of a quotient.
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    none; NaN comes back as NaN.
 * Threads:   any; pure.
 */
#pragma once

#include "kernels/cuda/kernels/kernel.cuh"
#include "kernels/cuda/kernels/reciprocal.h"

/* 1 / d, correctly rounded, for 1 <= d < 2^126: beyond that the approximation is 0, and a denormal would be right. */
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

/* 1 + e^-x stays in what reciprocal() takes. A NaN is lost here, but x is a factor of what is made of it. */
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

/* As vector_normal(). Where |x| is beyond 2^64, e is 0, and u is a factor of it. */
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
