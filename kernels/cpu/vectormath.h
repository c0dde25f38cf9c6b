/* vectormath.h - elementary functions of fp32 that compilers turn into vector code.
 *
 * Only +, -, *, / and integer operations on the bits, in a fixed order and without branches: the
 * same bits from every compiler and vector width, unlike libm's.
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    none; NaN comes back as NaN.
 * Threads:   any; pure.
 */
#pragma once

#include "base/macro.h"

#include <string.h>

static inline uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float float_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* e^x to 1.2e-7 relative. Below -87 it is 0, so that no denormal appears; above 88 it is e^88.
 *
 * x = k ln 2 + r; adding 1.5 * 2^23 leaves k in the low bits of the sum. e^r is 1 + r + r^2 P(r),
 * P fitted at Chebyshev points of |r| <= ln 2 / 2 (error 1e-8). */
static inline float vector_exp(float x)
{
    float clamped = x > 88.0f ? 88.0f : x;
    float shifted = clamped * 0x1.715476p+0f + 0x1.8p+23f;
    float k = shifted - 0x1.8p+23f;
    float r = (clamped - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f;
    float p = 0.001392632562f;
    p = p * r + 0.008363292753f;
    p = p * r + 0.04166655376f;
    p = p * r + 0.1666657631f;
    p = p * r + 0.5f;
    float y = 1.0f + (r + r * r * p);
    y *= float_from_bits((float_bits(shifted) + 127) << 23);
    return x < -87.0f ? 0.0f : y;
}

static inline float vector_sigmoid(float x) { return 1.0f / (1.0f + vector_exp(-x)); }

static inline float vector_silu(float x) { return x / (1.0f + vector_exp(-x)); }

/* d silu / dx */
static inline float vector_silu_slope(float x)
{
    float s = vector_sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}

/* The standard normal's density and distribution at x; gelu(x) = x * distribution.
 *
 * The tail is e^(-x^2/2) u Q(u) with u = 1 / (1 + 0.3 |x|), Q fitted at Chebyshev points of
 * |x| <= 14 (relative error 4e-9), so that it keeps its relative precision where
 * 1 + erf(x / sqrt 2) would cancel. */
static inline void vector_normal(float x, float *density, float *distribution)
{
    float a = float_from_bits(float_bits(x) & 0x7fffffffu);
    float e = vector_exp(-0.5f * x * x);
    float u = 1.0f / (1.0f + 0.3f * a);
    float q = -0.02091435973f;
    q = q * u + 0.1140402721f;
    q = q * u - 0.2320384829f;
    q = q * u + 0.196940677f;
    q = q * u - 0.08374254902f;
    q = q * u + 0.09848074018f;
    q = q * u + 0.07758906438f;
    q = q * u + 0.1104051798f;
    q = q * u + 0.1195517632f;
    q = q * u + 0.1196876931f;
    float tail = e * (q * u);
    *density = 0.3989422804f * e;
    *distribution = x > 0.0f ? 1.0f - tail : tail;
}

/* Sums and maxima over many elements run in LANES lanes that are combined by this tree, whatever
 * the width of the machine's registers. */
enum { LANES = 16 };

static inline float lanes_sum(const float lane[LANES])
{
    float t[LANES];
    memcpy(t, lane, sizeof(t));
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            t[i] += t[i + width];
    return t[0];
}

static inline double lanes_sum_double(const double lane[LANES])
{
    double t[LANES];
    memcpy(t, lane, sizeof(t));
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            t[i] += t[i + width];
    return t[0];
}
