/* SPDX-License-Identifier: Apache-2.0 */
/* ranges.h - loops over one range of elements, for the operations on gradients and on the training state.
 *
 * The loops are elementwise, or, as squares_add(), sums whose lanes the caller carries from range to range. So neither
 * the division into ranges nor the number of threads changes a bit.
 *
 * Ownership: borrows everything. Units: elements. Errors: none. Threads: any; pure.
 */
#pragma once

#include "kernels/cpu/device.h"
#include "kernels/cpu/vectormath.h"
#include "kernels/gradient-integer.h"

enum { RANGE = 16384 }; /* elements of one task */

/* Returns the largest magnitude_bits() of the range. */
static inline uint32_t range_maximum(int64_t n, const float *g)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = MAX(largest, magnitude_bits(g[i]));
    return largest;
}

/* The next three functions add g, as integers or as floats, to `to`; if `fresh` is true, the old values in `to` count
 * as 0. They return the largest magnitude_bits() of g. */
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

/* Adds the square of element i of g to lane[i mod LANES]. */
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

/* Moves n elements of one tensor into the sink; g[0] is element `offset` of the state. See gradient.c. */
void sink_range(const Device *device, const float *g, int64_t n, int64_t offset, int tensor,
                const GradientSink *sink);
