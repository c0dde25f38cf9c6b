/* SPDX-License-Identifier: Apache-2.0 */
/* vectormath.h - elementary functions of fp32 that compilers turn into vector code.
 *
 * The functions use only +, -, *, /, fma and integer operations on the bits, in a fixed order and without branches. So
 * every compiler and vector width gives the same bits, unlike with the functions of libm. Polynomials are summed in
 * pairs (Estrin's scheme), because the CPU would wait on the long chain of Horner's scheme.
 *
 * Ownership: none. Units: none. Errors: none; NaN gives NaN. Threads: any; pure.
 */
#pragma once

#include "base/macro.h"
#include "base/number/bits.h"

#include <math.h>
#include <string.h>

/* e^x = *power * the returned value, with a relative error of 1.2e-7, for -87 <= x <= 88.
 *
 * x = k ln 2 + r; adding 1.5 * 2^23 leaves k in the low bits of the sum. e^r is 1 + r + r^2 P(r), where P was fitted at
 * Chebyshev points of |r| <= ln 2 / 2 (error 1e-8). */
_device_ static inline float vector_exp_of_power(float x, float *power)
{
    float shifted = fmaf(x, 0x1.715476p+0f, 0x1.8p+23f);
    float k = shifted - 0x1.8p+23f;
    float r = fmaf(k, -0x1.7f7d1cp-20f, fmaf(k, -0x1.62e4p-1f, x));
    float r2 = r * r;
    float high =
        fmaf(fmaf(0.001392632562f, r, 0.008363292753f), r2, fmaf(0.04166655376f, r, 0.1666657631f));
    *power = float_from_bits((float_bits(shifted) + 127) << 23);
    return fmaf(fmaf(high, r, 0.5f), r2, r + 1.0f);
}

/* Returns e^x with a relative error of 1.2e-7. The result is 0 below x = -87, so that no denormal appears, and e^88
 * above x = 88. */
_device_ static inline float vector_exp(float x)
{
    float power, y = vector_exp_of_power(x > 88.0f ? 88.0f : x, &power);
    return x < -87.0f ? 0.0f : y * power;
}

_device_ static inline float vector_sigmoid(float x) { return 1.0f / (1.0f + vector_exp(-x)); }

_device_ static inline float vector_silu(float x) { return x / (1.0f + vector_exp(-x)); }

/* Returns the derivative d silu / dx at x. */
_device_ static inline float vector_silu_slope(float x)
{
    float s = vector_sigmoid(x);
    return s * fmaf(x, 1.0f - s, 1.0f);
}

/* Computes the standard normal's density and distribution at x, from e = e^(-x^2/2) and u = 1 / (1 + 0.3 |x|).
 *
 * The tail is e u Q(u), where Q was fitted at Chebyshev points of |x| <= 14 (relative error 4e-9), so that the tail
 * keeps its relative precision where 1 + erf(x / sqrt 2) would cancel. */
_device_ static inline void vector_normal_of(float x, float e, float u, float *density,
                                             float *distribution)
{
    float u2 = u * u, u4 = u2 * u2;
    float q01 = fmaf(0.1195517632f, u, 0.1196876931f), q23 = fmaf(0.07758906438f, u, 0.1104051798f);
    float q45 = fmaf(-0.08374254902f, u, 0.09848074018f),
          q67 = fmaf(-0.2320384829f, u, 0.196940677f);
    float q89 = fmaf(-0.02091435973f, u, 0.1140402721f);
    float q = fmaf(fmaf(q89, u4, fmaf(q67, u2, q45)), u4, fmaf(q23, u2, q01));
    float tail = e * (q * u);
    *density = 0.3989422804f * e;
    *distribution = x > 0.0f ? 1.0f - tail : tail;
}

/* Computes the standard normal's density and distribution at x; gelu(x) = x * distribution. */
_device_ static inline void vector_normal(float x, float *density, float *distribution)
{
    float a = float_from_bits(float_bits(x) & 0x7fffffffu);
    vector_normal_of(x, vector_exp(-0.5f * x * x), 1.0f / fmaf(a, 0.3f, 1.0f), density,
                     distribution);
}

_device_ static inline float vector_gelu(float x)
{
    float density, distribution;
    vector_normal(x, &density, &distribution);
    return x * distribution;
}

/* Sums and maxima over many elements run in LANES lanes, which are combined by one fixed tree for every width of
 * the machine's registers. */
enum { LANES = 16 };

_device_ static inline float lanes_sum(const float lane[LANES])
{
    float t[LANES];
    memcpy(t, lane, sizeof(t));
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            t[i] += t[i + width];
    return t[0];
}

_device_ static inline double lanes_sum_double(const double lane[LANES])
{
    double t[LANES];
    memcpy(t, lane, sizeof(t));
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            t[i] += t[i + width];
    return t[0];
}
