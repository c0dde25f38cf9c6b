/* SPDX-License-Identifier: Apache-2.0 */
/* ranges.h - what gradients and the training state are made of: loops over one range of elements.
 *
 * They are elementwise, or, as squares_add(), sums whose lanes the caller carries from range to range; so
 * neither cuts nor threads change a bit.
 *
 * Ownership: borrows everything.
 * Units:     elements.
 * Errors:    none.
 * Threads:   any; pure.
 */
#pragma once

#include "base/bits.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/vectormath.h"

enum { RANGE = 16384 }; /* elements of one task */

#define FLOAT_INFINITY_BITS 0x7f800000u

static inline double power_of_two(int exponent)
{
    assert(exponent > -1022 && exponent < 1024);
    return double_from_bits((uint64_t)(exponent + 1023) << 52);
}

/* The sign-cleared bit pattern of g. */
static inline uint32_t magnitude_bits(float g) { return float_bits(g) & 0x7fffffffu; }

/* The largest of them. */
static inline uint32_t range_maximum(int64_t n, const float *g)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = MAX(largest, magnitude_bits(g[i]));
    return largest;
}

/* rint(g * factor), as kernels.h has it for 32 bits. In floats: the product is exact, or so small that it rounds
 * to 0, or saturates; 2^23 + |v| is |v| rounded half to even while |v| < 2^23, and a float beyond that is an
 * integer already. */
static inline int32_t count_one(float g, float factor)
{
    bool finite = (float_bits(g) & FLOAT_INFINITY_BITS) != FLOAT_INFINITY_BITS;
    float v = (finite ? g : 0.0f) * factor, size = fabsf(v);
    float whole = copysignf((size + 0x1p23f) - 0x1p23f, v);
    v = size < 0x1p23f ? whole : v;
    v = v > 2147483520.0f ? 2147483520.0f : v; /* the largest float below 2^31 */
    v = v < -2147483648.0f ? -2147483648.0f : v;
    return (int32_t)v;
}

/* The same for 64 bits. 1.5 * 2^52 + v has v, rounded half to even, in its low bits. */
static inline int64_t count_one64(float g, double factor)
{
    const double rounder = 0x1.8p52;
    if ((float_bits(g) & FLOAT_INFINITY_BITS) == FLOAT_INFINITY_BITS)
        return 0;
    double v = (double)g * factor;
    if (v >= 0x1p63)
        return INT64_MAX;
    if (v <= -0x1p63)
        return INT64_MIN;
    if (v > -0x1p51 && v < 0x1p51)
        return (int64_t)(double_bits(v + rounder) - double_bits(rounder));
    return (int64_t)v; /* a float's 24 bits end above the point */
}

/* The next three add to `to`, which is 0 when it is fresh, and return the maximum. */
static inline uint32_t range_count(int64_t n, const float *g, int exponent, bool fresh, int32_t *to)
{
    const float factor = (float)power_of_two(exponent);
    uint32_t largest = 0;
    if (fresh) {
        for (int64_t i = 0; i < n; i++) {
            largest = MAX(largest, magnitude_bits(g[i]));
            to[i] = count_one(g[i], factor);
        }
        return largest;
    }
    for (int64_t i = 0; i < n; i++) {
        largest = MAX(largest, magnitude_bits(g[i]));
        to[i] = (int32_t)((uint32_t)to[i] + (uint32_t)count_one(g[i], factor));
    }
    return largest;
}

static inline uint32_t range_count64(int64_t n, const float *g, int exponent, bool fresh,
                                     int64_t *to)
{
    const double factor = power_of_two(exponent);
    for (int64_t i = 0; i < n; i++)
        to[i] = (int64_t)((fresh ? 0 : (uint64_t)to[i]) + (uint64_t)count_one64(g[i], factor));
    return range_maximum(n, g);
}

static inline uint32_t range_add(int64_t n, const float *g, bool fresh, float *to)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        largest = MAX(largest, magnitude_bits(g[i]));
        to[i] = (fresh ? 0.0f : to[i]) + g[i];
    }
    return largest;
}

/* g[i] = sum[i] * 2^-exponent * scale */
static inline void range_mean(int64_t n, const int32_t *sum, int exponent, double scale, float *g)
{
    const double factor = power_of_two(-exponent);
    for (int64_t i = 0; i < n; i++)
        g[i] = (float)((double)sum[i] * factor * scale);
}

static inline void range_mean64(int64_t n, const int64_t *sum, int exponent, double scale, float *g)
{
    const double factor = power_of_two(-exponent);
    for (int64_t i = 0; i < n; i++)
        g[i] = (float)((double)sum[i] * factor * scale);
}

/* Element i of g is lane i mod LANES'. */
static inline void squares_add(int64_t n, const float *g, double lane[LANES])
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)g[i + j] * (double)g[i + j];
    for (int j = 0; i < n; i++, j++)
        lane[j] += (double)g[i] * (double)g[i];
}

static inline void range_adamw(const AdamW *a, int64_t n, const float *g, float *w, float *m,
                               float *v)
{
    const float beta1 = (float)a->beta1, beta2 = (float)a->beta2;
    const float rest1 = (float)(1.0 - a->beta1), rest2 = (float)(1.0 - a->beta2);
    const float decay = a->lr * a->weight_decay, rate = a->lr / a->correction1;
    const float scale = a->gradient_scale, correction2 = a->correction2, eps = a->eps;

    for (int64_t i = 0; i < n; i++) {
        float gradient = g[i] * scale, weight = w[i] - decay * w[i];
        float mean = beta1 * m[i] + rest1 * gradient;
        float square = beta2 * v[i] + rest2 * (gradient * gradient);
        m[i] = mean;
        v[i] = square;
        w[i] = weight - rate * (mean / (sqrtf(square / correction2) + eps));
    }
}

static inline void range_ema(double decay, int64_t n, const float *w, float *ema)
{
    const float keep = (float)decay, rest = (float)(1.0 - decay);
    for (int64_t i = 0; i < n; i++)
        ema[i] = keep * ema[i] + rest * w[i];
}

/* Brings n elements of one tensor, of which g[0] is element `offset` of the state, into the sink (gradient.c). */
void sink_range(const Device *device, const float *g, int64_t n, int64_t offset, int tensor,
                const GradientSink *sink);
